//! A quota with a name.

use std::fmt;
use std::sync::Arc;

use crate::algebra::{Bucket, Terms};
use crate::backend::{BucketId, Key, LimitHead, OnFailure};
use crate::quota::{Quota, QuotaError};

/// A named quota.
///
/// The name is part of the name of each bucket, so limits of the same name share their buckets.
/// Clients see it in header fields, so it is 1 to 64 printable ASCII characters.
///
/// Limits of the same name may have different quotas, such as the plans of a service, and a quota
/// may change while a service runs. A bucket then keeps what was *used* of it: see
/// [`replace`](crate::RateLimiter::replace).
///
/// Numbers of two layers that differ are logged once, unless they are chosen for each request.
///
/// # Examples
///
/// ```
/// use tollgate::{HOUR, Limit, Quota};
///
/// // A mistake in the numbers is a compile error.
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));
///
/// // In a configuration, a mistake is an error at run time.
/// let quota: Quota = "5 per hour".parse()?;
/// assert_eq!(Limit::try_new("login", quota)?, LOGIN);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A client that has used 3 of 3 tokens has 97 left after an upgrade to 100:
///
/// ```
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// static FREE: Limit = Limit::new("per-user", Quota::token_bucket(3, MINUTE));
/// static PRO: Limit = Limit::new("per-user", Quota::token_bucket(100, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tollgate::RateLimited> {
/// let limiter = RateLimiter::in_memory();
/// limiter.limit(&FREE).key("alice").cost(3).await?;
/// assert!(limiter.limit(&FREE).key("alice").await.is_err());
/// assert_eq!(limiter.peek(&PRO).key("alice").await?.remaining(), 97);
/// # Ok(())
/// # }
/// ```
///
/// These do not compile: a rate of zero, a capacity beyond what can be counted, and a name that no
/// header field can hold.
///
/// ```compile_fail,E0080
/// # use tollgate::{HOUR, Limit, Quota};
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(0, HOUR));
/// ```
///
/// ```compile_fail,E0080
/// # use tollgate::{DAY, Limit, Quota};
/// const LOGIN: Limit = Limit::new("login", Quota::token_bucket(1, DAY).capacity(10_000_000_000));
/// ```
///
/// ```compile_fail,E0080
/// # use tollgate::{HOUR, Limit, Quota};
/// const LOGIN: Limit = Limit::new("log\nin", Quota::token_bucket(5, HOUR));
/// ```
#[derive(Clone, Debug)]
pub struct Limit {
    name: LimitName,
    head: LimitHead,
    quota: Quota,
    bucket: Bucket,
}

/// The name of a limit, and what the limit says about outages: there is room for that beside a name,
/// and a refusal, which copies the limit, does not get longer by it.
///
/// A name that is only known at run time is stored in place. Then a `Limit` has no destructor, and
/// the compiler promotes a borrowed constant to a static: a permit can borrow it for the whole
/// program.
#[derive(Clone)]
enum LimitName {
    Static(&'static str, Remarks),
    Inline { bytes: [u8; MAX_NAME], len: u8, remarks: Remarks },
}

/// What a limit says about itself that is neither its name nor its numbers.
#[derive(Clone, Copy)]
struct Remarks {
    on_failure: Option<OnFailure>,
    /// Whether it was made to stand in the place of another limit.
    is_version: bool,
}

impl Remarks {
    const NONE: Self = Self { on_failure: None, is_version: false };
}

impl fmt::Debug for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl LimitName {
    #[inline]
    fn as_str(&self) -> &str {
        match self {
            Self::Static(name, _) => name,
            // Names are ASCII.
            Self::Inline { bytes, len, .. } => bytes
                .get(..usize::from(*len))
                .and_then(|name| std::str::from_utf8(name).ok())
                .unwrap_or(""),
        }
    }

    fn inline(name: &str) -> Option<Self> {
        let mut bytes = [0; MAX_NAME];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        let len = u8::try_from(name.len()).ok()?;
        Some(Self::Inline { bytes, len, remarks: Remarks::NONE })
    }
}

/// See [`LimitName`].
const _: () = assert!(!std::mem::needs_drop::<Limit>());

/// So long that a header field has room for the name and its numbers.
pub(super) const MAX_NAME: usize = 64;

impl Limit {
    /// Names a quota.
    ///
    /// # Panics
    ///
    /// If the name is empty, too long or not printable ASCII, or if the quota contradicts itself or
    /// does not fit. In a `const`, that is a compile error. At run time, use
    /// [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str, quota: Quota) -> Self {
        assert!(is_name(name), "the name of a limit is 1 to 64 printable ASCII characters");
        match Bucket::of_shard(&quota) {
            Ok(bucket) => {
                let head = LimitHead::new(name);
                Self { name: LimitName::Static(name, Remarks::NONE), head, quota, bucket }
            }
            Err(error) => error.panic(),
        }
    }

    /// Names a quota that is only known at run time.
    ///
    /// # Errors
    ///
    /// If the name is empty, too long or not printable ASCII, or if the quota contradicts itself or
    /// does not fit.
    pub fn try_new(name: impl Into<Arc<str>>, quota: Quota) -> Result<Self, LimitError> {
        let name = name.into();
        let inline = LimitName::inline(&name).filter(|_| is_name(&name));
        let Some(inline) = inline else {
            return Err(LimitError::new(name, LimitProblem::Name));
        };
        match Bucket::of_shard(&quota) {
            Ok(bucket) => {
                let head = LimitHead::new(&name);
                Ok(Self { name: inline, head, quota, bucket })
            }
            Err(error) => Err(LimitError::new(name, LimitProblem::Quota(error))),
        }
    }

    /// The same limit with other numbers.
    ///
    /// # Errors
    ///
    /// If the quota contradicts itself or does not fit.
    pub(super) fn with_quota(&self, quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self { quota, bucket: Bucket::of_shard(&quota)?, ..self.clone() })
    }

    /// Sets what happens to requests of this limit during an outage of the store, in layers and in
    /// handlers.
    ///
    /// If not set, a [`Fallback`](crate::backend::Fallback) around the store decides, and without one
    /// the [layer](crate::RateLimitLayer::on_failure) or the
    /// [limiter](crate::RateLimiter::on_failure). If set, it counts whatever these say. Of several
    /// limits in one call, the strictest counts: one that says [`OnFailure::Refuse`], or that leaves
    /// it to a limiter which refuses, refuses the call.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::{HOUR, Limit, MINUTE, OnFailure, Quota};
    ///
    /// // No password is tried while attempts cannot be counted.
    /// const LOGIN: Limit =
    ///     Limit::new("login", Quota::token_bucket(5, HOUR)).on_failure(OnFailure::Refuse);
    /// // The page stays up.
    /// const SEARCHES: Limit =
    ///     Limit::new("searches", Quota::token_bucket(100, MINUTE)).on_failure(OnFailure::Admit);
    /// assert_eq!(SEARCHES.get_on_failure(), Some(OnFailure::Admit));
    /// # let _ = LOGIN;
    /// ```
    #[doc(alias("fail_open", "fail_closed"))]
    #[must_use]
    pub const fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.remarks_mut().on_failure = Some(on_failure);
        self
    }

    /// What was set by [`on_failure`](Self::on_failure).
    #[must_use]
    #[inline]
    pub const fn get_on_failure(&self) -> Option<OnFailure> {
        self.remarks().on_failure
    }

    /// The same limit, marked as one that stands in the place of another.
    pub(super) const fn into_version(mut self) -> Self {
        self.remarks_mut().is_version = true;
        self
    }

    /// Whether it is marked so, or was copied from one that is.
    #[inline]
    pub(super) const fn is_version(&self) -> bool {
        self.remarks().is_version
    }

    #[inline]
    const fn remarks(&self) -> Remarks {
        let (LimitName::Static(_, remarks) | LimitName::Inline { remarks, .. }) = self.name;
        remarks
    }

    const fn remarks_mut(&mut self) -> &mut Remarks {
        let (LimitName::Static(_, remarks) | LimitName::Inline { remarks, .. }) = &mut self.name;
        remarks
    }

    /// The name.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// The quota.
    #[must_use]
    #[inline]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The quota as the formula uses it; if the quota has [`shards`](Quota::shards), that of each
    /// shard.
    #[must_use]
    #[inline]
    pub const fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Whether it has the name of another limit.
    #[inline]
    pub(super) fn is_named_like(&self, other: &Self) -> bool {
        self.head == other.head && (self.head.whole().is_some() || self.name() == other.name())
    }

    /// A hash of its name. Clients choose no names, so it need not withstand them.
    #[inline]
    pub(super) fn name_hash(&self) -> u64 {
        // An odd factor whose bits are spread evenly: that of the golden ratio.
        let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self.head.whole() {
            Some(words) => words.into_iter().fold(0, add),
            None => self.name().bytes().map(u64::from).fold(0, add),
        }
    }

    /// Whether its buckets count as those of another limit do, by the same numbers.
    #[inline]
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        let counted = |quota: &Quota| (quota.get_shards(), quota.is_in_flight());
        self.bucket == other.bucket && counted(&self.quota) == counted(&other.quota)
    }

    #[inline]
    pub(crate) const fn is_in_shards(&self) -> bool {
        self.quota.get_shards() > 1
    }

    /// The bucket for a key; of several shards, the first.
    #[inline]
    pub(crate) fn bucket_of<'i>(&'i self, key: &'i Key) -> BucketId<'i> {
        BucketId::with_head(self.name(), self.head, key)
    }

    /// The buckets for a key: one, or all shards.
    pub(super) fn shards<'i>(&'i self, key: &'i Key) -> impl Iterator<Item = BucketId<'i>> {
        let id = self.bucket_of(key);
        (0..self.quota.get_shards()).map(move |shard| id.shard(shard))
    }

    /// Whether the limit could never grant this cost on these terms.
    #[inline]
    pub(crate) fn is_too_large(&self, cost: u64, terms: Terms) -> bool {
        match self.is_in_shards() {
            true => self.bucket.too_large_for_pair(cost, terms),
            false => self.bucket.too_large(cost, terms),
        }
    }
}

/// The name of a bucket that belongs to a limit. It has no more than the letters that a name may have: of
/// a longer one, a hash stands for the end.
pub(super) fn derived_name(limit: &str, suffix: &str) -> String {
    let most = MAX_NAME.saturating_sub(suffix.len());
    // Names are ASCII.
    match limit.get(..most.saturating_sub(16)) {
        Some(begin) if limit.len() > most => {
            let hash = BucketId::new(limit, &Key::GLOBAL).sample_hash();
            format!("{begin}{hash:016x}{suffix}")
        }
        _ => format!("{limit}{suffix}"),
    }
}

/// That of the bucket which counts its refusals.
pub(super) const REFUSALS: &str = "/refused";

const fn is_name(name: &str) -> bool {
    let mut rest = name.as_bytes();
    if rest.is_empty() || rest.len() > MAX_NAME {
        return false;
    }
    while let [byte, after @ ..] = rest {
        if !matches!(byte, b' '..=b'~') {
            return false;
        }
        rest = after;
    }
    true
}

/// Limits are equal if they have the same name and quota.
impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.quota == other.quota
    }
}

impl Eq for Limit {}

impl AsRef<Self> for Limit {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl From<&Arc<Self>> for Limit {
    fn from(limit: &Arc<Self>) -> Self {
        Self::clone(limit)
    }
}

impl From<&Limit> for Limit {
    fn from(limit: &Limit) -> Self {
        limit.clone()
    }
}

/// The error of a name or a quota that cannot make a limit, or of a quota that cannot
/// [replace](crate::RateLimiter::replace) that of one.
#[derive(Clone, Debug)]
pub struct LimitError {
    name: Arc<str>,
    /// The quota that was to take the place of that of the limit.
    replacement: Option<Box<Quota>>,
    problem: LimitProblem,
}

#[derive(Clone, Debug)]
pub(super) enum LimitProblem {
    Name,
    Quota(QuotaError),
    /// The limiter has had so many quotas.
    TooManyVersions(usize),
    /// A rate in place of requests in flight, or the reverse.
    CountsOther,
}

impl LimitError {
    const fn new(name: Arc<str>, problem: LimitProblem) -> Self {
        Self { name, replacement: None, problem }
    }

    pub(super) fn replace(limit: &Limit, quota: Quota, problem: LimitProblem) -> Self {
        Self { name: limit.name().into(), replacement: Some(Box::new(quota)), problem }
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown: String = self.name.chars().take(MAX_NAME).collect();
        if shown.len() < self.name.len() {
            shown.push('…');
        }
        write!(f, "limit {shown:?} ")?;
        if let Some(quota) = &self.replacement {
            write!(f, "keeps its quota, and cannot take {quota}")?;
        }
        match &self.problem {
            LimitProblem::Quota(_) if self.replacement.is_some() => Ok(()),
            LimitProblem::Quota(_) => f.write_str("has an invalid quota"),
            LimitProblem::Name => write!(
                f,
                "has an invalid name of {} bytes (use 1 to {MAX_NAME} printable ASCII characters)",
                self.name.len()
            ),
            LimitProblem::TooManyVersions(most) => write!(
                f,
                ": this limiter has had {most} different quotas, the most that it can (round \
                 computed numbers, or make another limiter)"
            ),
            LimitProblem::CountsOther => f.write_str(
                ": what its keys have used counts requests in flight for one of them, and requests \
                 in a time for the other (use a limit of another name)",
            ),
        }
    }
}

impl std::error::Error for LimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            LimitProblem::Quota(error) => Some(error),
            _ => None,
        }
    }
}
