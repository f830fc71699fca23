//! The dialects of the header fields that show clients their limits.

use std::{fmt, iter};

/// A dialect of the header fields that show clients how their limits stand.
///
/// It is named after the document or the service that defines it. A layer sends one dialect or
/// several, in any of these forms:
///
/// ```
/// use tollgate::fields::Dialect;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// static API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
///
/// let limiter = RateLimiter::in_memory();
/// let by_default = limiter.layer(&API); // draft 11
/// let one = limiter.layer(&API).dialects(Dialect::XRateLimit);
/// let both = limiter.layer(&API).dialects([Dialect::Draft11, Dialect::XRateLimit]);
/// let none = limiter.layer(&API).dialects(Dialect::None);
/// # drop((by_default, one, both, none));
/// ```
///
/// # Which one?
///
/// [`Draft11`](Self::Draft11), unless you know that your clients read another dialect. It is on its
/// way to become the standard, it is the only one that names every limit, and clients that do not
/// know it do not misread it. Whatever the dialect, every refusal has `Retry-After`. For clients
/// that were written for another service or library:
///
/// | clients know | dialect |
/// |---|---|
/// | the GitHub API, and others like it | [`XRateLimit`](Self::XRateLimit) |
/// | `express-rate-limit` with `draft-6`, the gateway Kong | [`Draft6`](Self::Draft6) |
/// | `express-rate-limit` with `draft-7` | [`Draft7`](Self::Draft7) |
///
/// Each dialect sends these fields after the first request of a new client to the limit `api` of 10
/// tokens per minute, at a Unix time of 1,700,000,123.5 seconds:
///
/// ```text
/// Draft11      RateLimit-Policy: "api";q=10;w=60
///              RateLimit: "api";r=9;t=54
/// Draft7       RateLimit-Policy: 10;w=60
///              RateLimit: limit=10, remaining=9, reset=54
/// Draft6       RateLimit-Limit: 10
///              RateLimit-Remaining: 9
///              RateLimit-Reset: 6
/// XRateLimit   X-RateLimit-Limit: 10
///              X-RateLimit-Remaining: 9
///              X-RateLimit-Reset: 1700000130
/// ```
///
/// # What the numbers are
///
/// | number | is |
/// |---|---|
/// | `q`, `limit` | the capacity in tokens, or the rate if the capacity is zero |
/// | `w` | the time in which that many tokens refill; for a fixed window of the default capacity, its period |
/// | `r`, `remaining` | the whole tokens that are left, rounded down |
/// | `t` of a token bucket, and `reset` in draft 7 | the time in which as many tokens as are left refill, or the next one if none is left |
/// | `t` of a fixed window, and `reset` in draft 7 | the time until the window ends |
/// | `reset` in draft 6 and `X-RateLimit-*` | the time until the limit is whole again |
/// | `t`, `reset` of a refusal | the time until the request would be admitted |
///
/// Times are whole seconds, rounded up. The numbers are those of the instant at which the response is
/// sent, as far as its own request has changed them: after refunds, resets and settlements.
///
/// # Several limits
///
/// Draft 11 lists all limits, in the order of the rules. Draft 6, `X-RateLimit-*` and the field
/// `RateLimit` of draft 7 have room for one limit. They show the most constrained one, as section
/// 3.2 of draft 7 requires:
///
/// * If limits have refused the request, it is the one of them with the longest wait.
/// * Otherwise, it is the limit with room for the fewest more requests like this one; of several
///   such limits, the one with the longest time.
///
/// If layers are nested, lists are joined in one field, the outermost layer first. A field with
/// room for one limit keeps the value of the inner layer if that is a refusal, or shows no more
/// tokens than the outer limit has; otherwise, the outer layer replaces it. Fields of others, such as
/// those of the upstream of a gateway, are [another
/// matter](crate::RateLimitLayer::replace_foreign_fields). Use the same dialects
/// in nested layers: draft 11 and draft 7 have fields with the same names and different contents. A
/// [`RateLimited`](crate::RateLimited) that a handler returns sends draft 11.
#[doc(alias("headers", "use_headers", "standardHeaders", "legacyHeaders"))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit` of the [IETF draft, version
    /// 11](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11): lists of
    /// all limits by their names.
    ///
    /// Versions 8 to 10 have the same syntax. With a [partition
    /// key](crate::RateLimitLayer::partition_key), each
    /// member has a parameter `pk`.
    #[default]
    Draft11,
    /// `RateLimit-Policy` and `RateLimit` of the [IETF draft, version
    /// 7](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07).
    ///
    /// `RateLimit-Policy` lists all limits, by their numbers. Section 3.5 forbids two members with
    /// the same quota, so only the first of them is listed.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of the [IETF draft, version
    /// 6](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-06); the reset
    /// is in seconds from now.
    ///
    /// The optional `RateLimit-Policy` of that version is not sent, since other versions have
    /// another syntax for it.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as in the GitHub API:
    /// the reset is in seconds since the Unix epoch.
    ///
    /// The reset is computed from the clock of the store. A client needs the right time to read it.
    #[doc(alias("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"))]
    #[doc(alias("X-RateLimit", "x-ratelimit-after", "GitHub"))]
    XRateLimit,
    /// No fields. Refusals still have `Retry-After`.
    None,
}

/// One dialect: a layer takes it as it takes several.
impl IntoIterator for Dialect {
    type Item = Self;
    type IntoIter = iter::Once<Self>;

    fn into_iter(self) -> Self::IntoIter {
        iter::once(self)
    }
}

/// The dialects of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialects {
    pub(super) draft_11: bool,
    pub(super) draft_7: bool,
    pub(super) draft_6: bool,
    pub(super) x_ratelimit: bool,
}

impl Dialects {
    pub(crate) const NONE: Self =
        Self { draft_11: false, draft_7: false, draft_6: false, x_ratelimit: false };

    /// # Panics
    ///
    /// If two of them have fields of the same names.
    #[track_caller]
    pub(crate) fn new(dialects: impl IntoIterator<Item = Dialect>) -> Self {
        let dialects = dialects.into_iter().fold(Self::NONE, Self::with);
        assert!(
            !(dialects.draft_11 && dialects.draft_7),
            "the fields of draft 11 and draft 7 have the same names (choose one of the two)"
        );
        dialects
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    pub(crate) fn is_draft_11_alone(self) -> bool {
        self == Self::default()
    }

    /// Whether any of the dialects has room for one limit only.
    pub(super) const fn show_most_constrained(self) -> bool {
        self.draft_7 || self.draft_6 || self.x_ratelimit
    }

    /// Those of both sets.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            draft_11: self.draft_11 || other.draft_11,
            draft_7: self.draft_7 || other.draft_7,
            draft_6: self.draft_6 || other.draft_6,
            x_ratelimit: self.x_ratelimit || other.x_ratelimit,
        }
    }

    const fn with(mut self, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Draft11 => self.draft_11 = true,
            Dialect::Draft7 => self.draft_7 = true,
            Dialect::Draft6 => self.draft_6 = true,
            Dialect::XRateLimit => self.x_ratelimit = true,
            Dialect::None => {}
        }
        self
    }
}

impl fmt::Debug for Dialects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.draft_11, Dialect::Draft11),
            (self.draft_7, Dialect::Draft7),
            (self.draft_6, Dialect::Draft6),
            (self.x_ratelimit, Dialect::XRateLimit),
        ];
        let sent = all.iter().filter(|(is_sent, _)| *is_sent).map(|(_, dialect)| dialect);
        f.debug_list().entries(sent).finish()
    }
}

/// Draft 11 alone.
impl Default for Dialects {
    fn default() -> Self {
        Self::NONE.with(Dialect::Draft11)
    }
}
