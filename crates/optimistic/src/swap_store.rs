//! What a store has to offer.

use std::fmt;
use std::sync::Arc;

use tollgate::backend::BackendError;
use tollgate::clock::Timestamp;

/// A store of small values that can compare and swap, for [`Optimistic`](super::Optimistic).
///
/// # Keys and values
///
/// A key is text of letters, digits and `-_.~@+/%#:=`: the name of the limit, `#` and the shard
/// unless that is the first, `:`, and [`Key::as_bytes`](tollgate::Key::as_bytes) with `%` and two
/// digits for any other byte, as in `login:s%05alice`. If that is longer than 200 bytes, `sha256=`
/// and 32 hexadecimal digits stand in place of the key. A store that other programs use as well puts
/// a prefix of its own before it.
///
/// A value has 49 bytes: the version of the format, 1, and the six numbers of a
/// [`BucketRecord`](tollgate::backend::BucketRecord), in eight bytes each, the high end first. Values
/// that are anything else are not touched: calls on them fail, and
/// [are no outage](BackendError::is_outage).
///
/// # Errors
///
/// A store reports its failures as [`BackendError::unavailable`], [`full`](BackendError::full) or
/// [`undecidable`](BackendError::undecidable). A swap that failed is not tried again, because it
/// may have taken effect.
///
/// # Cancel safety
///
/// Calls drop the futures of a store at their deadline. A swap may take effect all the same, but
/// it must do so in full or not at all.
///
/// # Examples
///
/// See [`Optimistic`](super::Optimistic).
pub trait SwapStore: fmt::Debug + Send + Sync + 'static {
    /// What errors call this store, as in "etcd".
    const NAME: &'static str;

    /// Whether [`swap_all`](Self::swap_all) is implemented, and swaps several values in one step.
    const SWAPS_SEVERAL: bool = false;

    /// Whether [`load_all`](Self::load_all) is implemented, and its values are of one instant. If
    /// not, a call on several buckets that changes none, such as a refusal, compares them by
    /// [`swap_all`](Self::swap_all).
    const LOADS_SEVERAL: bool = false;

    /// The value of a key; `None` if there is none. It must be the latest one: a value that is
    /// older costs another try.
    fn load(&self, key: &str)
    -> impl Future<Output = Result<Option<Vec<u8>>, BackendError>> + Send;

    /// The values of several keys, in their order. Unless this is implemented, it loads one after
    /// the other.
    fn load_all(
        &self,
        keys: &[&str],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>, BackendError>> + Send {
        async move {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(self.load(key).await?);
            }
            Ok(values)
        }
    }

    /// Replaces the value of a key, if it is still [the old one](Swap::old). Returns whether it was.
    fn swap(&self, swap: &Swap<'_>) -> impl Future<Output = Result<bool, BackendError>> + Send;

    /// Replaces several values in one step, if all of them are still the old ones. Returns whether
    /// they were. No key is named twice. A value that stays only has to be
    /// [compared](Swap::changes).
    ///
    /// It is called only if [`SWAPS_SEVERAL`](Self::SWAPS_SEVERAL) is true. A store without it
    /// limits requests by one limit at a time.
    fn swap_all(
        &self,
        swaps: &[Swap<'_>],
    ) -> impl Future<Output = Result<bool, BackendError>> + Send {
        let cause = format!("it cannot swap {} values in one step", swaps.len());
        async move { Err(BackendError::undecidable(Self::NAME, cause)) }
    }

    /// The keys from `first` to before `behind`, by the order of their bytes, with their values: the
    /// first so many of them, and all there are if they are fewer. For lists of
    /// [debtors](tollgate::RateLimiter::debtors) alone.
    ///
    /// A store that cannot go through its keys returns `None`, as it does unless this is implemented.
    /// Then it cannot list. The ends of the range need not be keys that it could have.
    fn scan(
        &self,
        first: &str,
        behind: &str,
        max: usize,
    ) -> impl Future<Output = Result<Option<SwapScan>, BackendError>> + Send {
        let _ = (first, behind, max);
        async { Ok(None) }
    }

    /// The time, by the clock of the store, if it has one that all processes share: that of its
    /// last answer, say. It is asked for after each load. By default there is none, and calls go by
    /// [the clock of this process](super::Optimistic::clock).
    ///
    /// A bucket whose time lies more than an hour ahead of it, and that is not blocked or in debt,
    /// gains from now on: the clock of the store was wrong when it was written. So this must not be
    /// the clock of a process: two that differ by more would let a bucket gain the difference with
    /// each turn.
    fn now(&self) -> Option<Timestamp> {
        None
    }
}

impl<S: SwapStore> SwapStore for Arc<S> {
    const NAME: &'static str = S::NAME;
    const SWAPS_SEVERAL: bool = S::SWAPS_SEVERAL;
    const LOADS_SEVERAL: bool = S::LOADS_SEVERAL;

    fn load(
        &self,
        key: &str,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, BackendError>> + Send {
        (**self).load(key)
    }

    fn load_all(
        &self,
        keys: &[&str],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>, BackendError>> + Send {
        (**self).load_all(keys)
    }

    fn swap(&self, swap: &Swap<'_>) -> impl Future<Output = Result<bool, BackendError>> + Send {
        (**self).swap(swap)
    }

    fn swap_all(
        &self,
        swaps: &[Swap<'_>],
    ) -> impl Future<Output = Result<bool, BackendError>> + Send {
        (**self).swap_all(swaps)
    }

    fn scan(
        &self,
        first: &str,
        behind: &str,
        max: usize,
    ) -> impl Future<Output = Result<Option<SwapScan>, BackendError>> + Send {
        (**self).scan(first, behind, max)
    }

    fn now(&self) -> Option<Timestamp> {
        (**self).now()
    }
}

/// Keys and their values, by the order of the keys.
pub type SwapScan = Vec<(String, Vec<u8>)>;

/// One value to replace.
///
/// # Examples
///
/// ```
/// use tollgate_optimistic::Swap;
///
/// let first = Swap::new("login:s%05alice", None, Some(b"a record"));
/// assert_eq!((first.key(), first.old(), first.new_value()), ("login:s%05alice", None, Some(&b"a record"[..])));
/// assert!(first.changes());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Swap<'a> {
    key: &'a str,
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    full_at: Option<Timestamp>,
}

impl<'a> Swap<'a> {
    /// Replaces `old` by `new`, for instance in a test of a store. `None` is no value.
    #[must_use]
    pub const fn new(key: &'a str, old: Option<&'a [u8]>, new: Option<&'a [u8]>) -> Self {
        Self { key, old, new, full_at: None }
    }

    pub(super) const fn with_full_at(mut self, full_at: Option<Timestamp>) -> Self {
        self.full_at = full_at;
        self
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> &'a str {
        self.key
    }

    /// The value to compare with; `None` if there must be none.
    #[must_use]
    pub const fn old(&self) -> Option<&'a [u8]> {
        self.old
    }

    /// The value to store; `None` to delete it.
    #[must_use]
    pub const fn new_value(&self) -> Option<&'a [u8]> {
        self.new
    }

    /// Whether the new value differs from the old one. If not, it is only compared, since the other
    /// values depend on it.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.old != self.new
    }

    /// From when on the new value may expire, as its bucket is full then and an absent one is full
    /// as well. `None` if it has to be kept, or is deleted.
    ///
    /// If the clocks of the processes or of the store differ, keep it for that much longer.
    #[must_use]
    pub const fn full_at(&self) -> Option<Timestamp> {
        self.full_at
    }
}
