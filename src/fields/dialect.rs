//! Which header fields tell clients about their limits.

use std::fmt;

/// Which header fields tell clients about their limits: a dialect, named after who speaks it.
///
/// Clients differ in what they read, so there are several. What all of them obey is `Retry-After`, which
/// refusals have in any case. A layer speaks one dialect or several, in any of these forms:
///
/// ```
/// use tollgate::fields::Fields;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// static API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
///
/// let limiter = RateLimiter::in_memory();
/// let by_default = limiter.layer(&API); // draft 11
/// let one = limiter.layer(&API).fields(Fields::XRateLimit);
/// let both = limiter.layer(&API).fields([Fields::Draft11, Fields::XRateLimit]);
/// let none = limiter.layer(&API).fields(Fields::None);
/// # drop((by_default, one, both, none));
/// ```
///
/// # Which one?
///
/// [`Draft11`](Self::Draft11), unless a client is known to read another: it is the one that will be a
/// standard, the only one that tells all limits by name, and who does not know it is not misled. For
/// clients that were written against another service or library:
///
/// | clients know | dialect |
/// |---|---|
/// | the GitHub API, and others like it | [`XRateLimit`](Self::XRateLimit) |
/// | `express-rate-limit` with `draft-6`, the gateway Kong | [`Draft6`](Self::Draft6) |
/// | `express-rate-limit` with `draft-7` | [`Draft7`](Self::Draft7) |
///
/// This is what they say after one request of a new client, at 1,700,000,123.5 seconds of Unix time, to
/// the limit `api` of 10 tokens a minute:
///
/// ```text
/// Draft11      RateLimit-Policy: "api";q=10;w=60
///              RateLimit: "api";r=9;t=54
/// Draft7       RateLimit-Policy: 10;w=60
///              RateLimit: limit=10, remaining=9, reset=54
/// Draft6       RateLimit-Limit: 10
///              RateLimit-Remaining: 9
///              RateLimit-Reset: 54
/// XRateLimit   X-RateLimit-Limit: 10
///              X-RateLimit-Remaining: 9
///              X-RateLimit-Reset: 1700000178
/// ```
///
/// # What the numbers are
///
/// A limit of capacity C is told as C tokens (`q`, `limit`) in the seconds (`w`) in which that many come
/// in; for a fixed window that saves nothing up, these are its rate and period. What remains (`r`,
/// `remaining`) is whole tokens, rounded down. The time (`t`, `reset`) is, for a token bucket, that in which as
/// many tokens as remain would come in, or the next one if none remains; for a fixed window, the time until its
/// end; for a refusal, that until the request would be admitted. Times are whole seconds, rounded up.
///
/// # Several limits
///
/// Draft 11 tells all of them, in the order of the rules. Draft 6 and `X-RateLimit-*`, and of draft 7
/// the field `RateLimit`, have room for one: the one that is nearest to refusing, as draft 7 demands in its
/// section 3.2. That is one that has refused, and of these the one whose wait is the longest; else the one that
/// has room for the fewest more requests like this one, and of equals the one whose time is the longest.
///
/// Layers within layers put their members of lists into one field, outermost first. Where there is room for one
/// limit only, the outer layer leaves what the inner one has told if it was a refusal or has no more left, and
/// replaces it otherwise. Let all of them speak the same dialects: the fields of draft 11 and draft 7 have
/// the same names and different contents. A [`RateLimited`](crate::RateLimited) that a handler returns speaks draft 11.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fields {
    /// `RateLimit-Policy` and `RateLimit` of the [IETF draft, version
    /// 11](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-11): lists of all
    /// limits by their names.
    ///
    /// Versions 8 to 10 have the same syntax. With a [`PartitionKey`](super::PartitionKey), each
    /// member has a parameter `pk`.
    #[default]
    Draft11,
    /// `RateLimit-Policy` and `RateLimit` of the [IETF draft, version
    /// 7](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-07).
    ///
    /// `RateLimit-Policy` lists all limits, by their numbers. Two of the same quota may not be in it
    /// (section 3.5), so the first of them is.
    Draft7,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of the [IETF draft, version
    /// 6](https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-06); the last one in seconds
    /// from now.
    ///
    /// Its fourth field, `RateLimit-Policy`, is not sent: it is optional there, and other versions
    /// have another syntax for it.
    Draft6,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as the GitHub API has
    /// them: the last one in seconds since the Unix epoch.
    ///
    /// It is right for clients whose clock is right. The time is that of the decision, by the clock of
    /// the store.
    XRateLimit,
    /// None. Refusals still have `Retry-After`.
    None,
}

/// One or several [`Fields`]; made from one or from an array.
///
/// # Examples
///
/// ```
/// use tollgate::fields::{Dialects, Fields};
///
/// let configured = ["draft-6", "x-ratelimit"];
/// let dialects: Dialects = configured
///     .into_iter()
///     .map(|name| if name == "draft-6" { Fields::Draft6 } else { Fields::XRateLimit })
///     .collect();
/// assert_eq!(dialects, Dialects::from([Fields::XRateLimit, Fields::Draft6]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dialects {
    pub(super) draft_11: bool,
    pub(super) draft_7: bool,
    pub(super) draft_6: bool,
    pub(super) x_ratelimit: bool,
}

impl Dialects {
    const NONE: Self = Self { draft_11: false, draft_7: false, draft_6: false, x_ratelimit: false };

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether two of them mean different things by the same names.
    pub(crate) const fn clash(self) -> bool {
        self.draft_11 && self.draft_7
    }

    pub(crate) fn is_draft_11_alone(self) -> bool {
        self == Self::NONE.with(Fields::Draft11)
    }

    /// Whether any has room for one limit only.
    pub(super) const fn tell_one(self) -> bool {
        self.draft_7 || self.draft_6 || self.x_ratelimit
    }

    const fn with(mut self, fields: Fields) -> Self {
        match fields {
            Fields::Draft11 => self.draft_11 = true,
            Fields::Draft7 => self.draft_7 = true,
            Fields::Draft6 => self.draft_6 = true,
            Fields::XRateLimit => self.x_ratelimit = true,
            Fields::None => {}
        }
        self
    }
}

impl fmt::Debug for Dialects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spoken = [
            (self.draft_11, Fields::Draft11),
            (self.draft_7, Fields::Draft7),
            (self.draft_6, Fields::Draft6),
            (self.x_ratelimit, Fields::XRateLimit),
        ];
        f.debug_list().entries(spoken.iter().filter(|one| one.0).map(|one| one.1)).finish()
    }
}

/// Draft 11 alone.
impl Default for Dialects {
    fn default() -> Self {
        Fields::default().into()
    }
}

impl From<Fields> for Dialects {
    fn from(fields: Fields) -> Self {
        Self::NONE.with(fields)
    }
}

impl<const N: usize> From<[Fields; N]> for Dialects {
    fn from(fields: [Fields; N]) -> Self {
        fields.into_iter().collect()
    }
}

impl FromIterator<Fields> for Dialects {
    fn from_iter<I: IntoIterator<Item = Fields>>(fields: I) -> Self {
        fields.into_iter().fold(Self::NONE, Self::with)
    }
}
