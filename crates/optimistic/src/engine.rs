//! The engine: loads records, decides, and swaps in what changed.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::apart::{Apart, decide_apart};
use super::swap_store::{Swap, SwapStore};
use super::turns::BucketTurns;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, BucketRecord, Charge,
    DebtorQuery, DebtorReport,
};
use tollgate::clock::{Clock, SystemClock, Timestamp};
use tollgate::kit::MOST_AHEAD;
use tollgate_kit::debtors::SortedPage;
use tollgate_kit::key_name::KeyName;
use tollgate_kit::late::in_time;
use tollgate_kit::operation::Operation;
use tollgate_kit::stored::{Draft, decode_record, encode_record, name_ranges};

/// Buckets in any store that can compare and swap small values, shared by all processes that use
/// it.
///
/// A store for which [`SwapStore`] is implemented can do all that limits need: a decision is exactly
/// what it would be in memory. A call loads the records of its buckets, decides on them in this
/// process, and swaps in what has changed. If another call was faster, it starts over. A refusal or
/// a look only loads.
///
/// # Conflicts
///
/// A call that another was faster than tries again in its turn: calls of this process that have met
/// on a bucket try one after the other. After each further conflict it waits for a random time below
/// a bound that grows from 1 to 16 ms. After 32 [tries](Self::tries), or at the
/// deadline, it fails with an error whose [`is_overload`](BackendError::is_overload) is true, and
/// nothing is taken. Layers answer 503, whatever their [`OnFailure`](tollgate::OnFailure), because a
/// client may cause this by itself. A bucket changes once in the time of a load and a swap, so a
/// limit that all requests share is best divided into [shards](tollgate::Quota::shards).
///
/// # Deadlines
///
/// A call without an answer by the [`deadline`](Self::deadline) (50 ms by default) fails with an
/// error whose [`is_timeout`](BackendError::is_timeout) is true. The tokens may be taken all the
/// same, but only once. Calls need a tokio runtime with its timer.
///
/// # Several limits at once
///
/// A call that takes from several buckets needs a store that [swaps several
/// values](SwapStore::SWAPS_SEVERAL) in one step. With any other store:
///
/// * The call fails before anything is sent, with an error that names the limits and is no outage.
///   A layer of several limits panics when it is built.
/// * The shards of a limit work, but a request is paid for by one of the two that it draws: the
///   fuller one. One that costs more than a shard holds fails.
/// * A reset of several buckets, or a penalty on them, changes one after the other. It goes on if
///   its future is dropped, or if one of them fails: all others are changed, and the call reports
///   the first error.
/// * A reservation that two buckets paid for is not undone when it is cancelled.
///
/// # Time
///
/// Decisions go by the clock of this process, unless [`SwapStore::now`] returns the time. If the
/// clocks of two processes differ by a second, buckets gain what a second brings once: when the one
/// that is ahead first takes from them. From then on, the one that is behind gains nothing until
/// its clock has caught up. So differences add up to the largest of them, and not to their sum. Its
/// clients are told waits that are too long by as much. A process that is years ahead leaves
/// buckets that gain nothing until then, unless the store has a clock.
///
/// # Examples
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Mutex, PoisonError};
///
/// use tollgate::backend::BackendError;
/// use tollgate_optimistic::{Optimistic, Swap, SwapStore};
/// use tollgate::{HOUR, Limit, Quota, RateLimiter};
///
/// /// A map, in place of a client of your store.
/// #[derive(Debug, Default)]
/// struct Map(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl SwapStore for Map {
///     const NAME: &'static str = "map";
///
///     async fn load(&self, key: &str) -> Result<Option<Vec<u8>>, BackendError> {
///         Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned())
///     }
///
///     async fn swap(&self, swap: &Swap<'_>) -> Result<bool, BackendError> {
///         let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
///         if map.get(swap.key()).map(Vec::as_slice) != swap.old() {
///             return Ok(false);
///         }
///         match swap.new_value() {
///             Some(value) => map.insert(swap.key().to_owned(), value.to_owned()),
///             None => map.remove(swap.key()),
///         };
///         Ok(true)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = RateLimiter::new(Optimistic::new(Map::default()));
/// let exports = Limit::new("exports", Quota::token_bucket(2, HOUR));
/// for left in [1, 0] {
///     assert_eq!(limiter.limit(&exports).key("alice").await?.remaining(), left);
/// }
/// assert!(limiter.limit(&exports).key("alice").await.unwrap_err().is_refused());
/// # Ok(())
/// # }
/// ```
#[doc(alias = "cas")]
#[doc(alias = "compare_and_swap")]
#[doc(alias = "etcd")]
#[doc(alias = "dynamodb")]
pub struct Optimistic<S> {
    store: Arc<S>,
    turns: Arc<BucketTurns>,
    clock: Arc<dyn Clock>,
    deadline: Duration,
    tries: u32,
}

impl<S: SwapStore> Optimistic<S> {
    /// Keeps buckets in this store.
    #[must_use]
    pub fn new(store: S) -> Self {
        let clock = Arc::new(SystemClock::new());
        let (store, turns) = (Arc::new(store), Arc::new(BucketTurns::new()));
        Self { store, turns, clock, deadline: DEADLINE, tries: TRIES }
    }

    /// Sets how long a decision may take, with all its tries; 50 ms by default.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Sets how often a decision is tried while other calls change its buckets; 32 times by
    /// default, at least once.
    #[must_use]
    pub fn tries(mut self, tries: u32) -> Self {
        self.tries = tries.max(1);
        self
    }

    /// Sets the clock, for instance a [`ManualClock`](tollgate::clock::ManualClock) in tests;
    /// [`SystemClock`] by default. A store that [has a clock](SwapStore::now) goes by that.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The store.
    #[must_use]
    pub fn get_ref(&self) -> &S {
        &self.store
    }

    /// Deletes the bucket with this key if it has been full for a second, and returns whether it
    /// was. For stores whose values do not [expire](Swap::full_at): a task goes through their keys
    /// from time to time.
    ///
    /// # Errors
    ///
    /// If the store fails, or the value is no bucket.
    ///
    /// # Cancel safety
    ///
    /// The bucket is deleted or not. As it is full, no answer depends on it.
    pub async fn sweep(&self, key: &str) -> Result<bool, BackendError> {
        let Some(old) = self.store.load(key).await? else { return Ok(false) };
        let now = self.now();
        let record = read::<S>(key, Some(&old))?;
        let full_at = record.and_then(|record| record.droppable_at());
        if full_at.is_none_or(|at| at.plus_micros(KEEP) > now) {
            return Ok(false);
        }
        self.store.swap(&Swap::new(key, Some(&old), None)).await
    }

    pub(super) fn now(&self) -> Timestamp {
        self.store.now().unwrap_or_else(|| self.clock.now())
    }

    /// Decides a call within the deadline.
    async fn decide(&self, operation: Operation) -> Result<Applied, BackendError> {
        let mut conflicts = 0;
        match in_time(S::NAME, self.deadline, self.try_all(&operation, &mut conflicts)).await {
            Ok(answer) => answer,
            Err(_) if conflicts > 0 => Err(BackendError::contended(S::NAME, conflicts)),
            Err(late) => Err(late),
        }
    }

    /// Tries a call until no other is faster.
    async fn try_all(
        &self,
        operation: &Operation,
        conflicts: &mut u32,
    ) -> Result<Applied, BackendError> {
        let named = operation.named_ids();
        loop {
            // A call that has met no other waits for none.
            let turn = match named.first() {
                Some((_, name)) if *conflicts > 0 => self.turns.take(name.as_str()).await,
                _ => None,
            };
            if let Some(applied) = self.try_once(operation, &named).await? {
                return Ok(applied);
            }
            drop(turn);
            *conflicts = conflicts.saturating_add(1);
            if *conflicts >= self.tries {
                return Err(BackendError::contended(S::NAME, *conflicts));
            }
            pause(*conflicts).await;
        }
    }

    /// Loads, decides and swaps. Returns `None` if another call was faster.
    async fn try_once(
        &self,
        operation: &Operation,
        named: &[(BucketId<'_>, KeyName)],
    ) -> Result<Option<Applied>, BackendError> {
        let (old, mut draft) = loop {
            let old = self.load(named).await?;
            let now = self.now();
            let mut draft = Draft::new(now);
            for ((id, name), old) in named.iter().zip(&old) {
                draft.add(*id, read::<S>(name.as_str(), old.as_deref())?);
            }
            if !self.catch_up(operation, named, &old, now, &draft).await? {
                break (old, draft);
            }
        };
        let applied = match S::SWAPS_SEVERAL {
            true => operation.decide(&mut draft),
            false => decide_apart::<S>(operation, &mut draft)?,
        };
        let is_of_one_instant = named.len() < 2 || S::LOADS_SEVERAL || !S::SWAPS_SEVERAL;
        if !draft.has_changed() && is_of_one_instant {
            return Ok(Some(applied));
        }
        let entries = draft.entries();
        let new: Vec<_> = entries.iter().map(|entry| entry.after().map(encode_record)).collect();
        let mut swaps = Vec::with_capacity(entries.len());
        for ((((_, name), old), new), entry) in named.iter().zip(&old).zip(&new).zip(entries) {
            let old = old.as_deref();
            let new =
                if entry.has_changed() { new.as_ref().map(AsRef::<[u8]>::as_ref) } else { old };
            let full_at = entry.after().and_then(BucketRecord::droppable_at);
            swaps.push(Swap::new(name.as_str(), old, new).with_full_at(full_at));
        }
        if !S::SWAPS_SEVERAL {
            // Only one has changed: see `decide_apart`.
            swaps.retain(Swap::changes);
        }
        let has_swapped = match swaps.as_slice() {
            [one] => self.store.swap(one).await?,
            several => self.store.swap_all(several).await?,
        };
        Ok(has_swapped.then_some(applied))
    }

    /// Reads times as now that lie further ahead than the clock of the store can have left them, if
    /// it has one that all processes share. Returns whether there were any: the records have
    /// changed.
    async fn catch_up(
        &self,
        operation: &Operation,
        named: &[(BucketId<'_>, KeyName)],
        old: &[Option<Vec<u8>>],
        now: Timestamp,
        draft: &Draft<'_>,
    ) -> Result<bool, BackendError> {
        if self.store.now().is_none() {
            return Ok(false);
        }
        let (mut were_any, latest) = (false, now.plus_micros(MOST_AHEAD));
        for (((id, name), old), entry) in named.iter().zip(old).zip(draft.entries()) {
            let caught_up = entry
                .after()
                .zip(operation.bucket_of(*id))
                .and_then(|(record, bucket)| record.caught_up(*id, &bucket, [now, latest]));
            if let Some(record) = caught_up {
                let new = encode_record(&record);
                let swap = Swap::new(name.as_str(), old.as_deref(), Some(&new));
                // If another call was faster, it has done the same.
                self.store.swap(&swap.with_full_at(record.droppable_at())).await?;
                were_any = true;
            }
        }
        Ok(were_any)
    }

    async fn load(
        &self,
        named: &[(BucketId<'_>, KeyName)],
    ) -> Result<Vec<Option<Vec<u8>>>, BackendError> {
        if let [(_, name)] = named {
            return Ok(vec![self.store.load(name.as_str()).await?]);
        }
        let keys: Vec<&str> = named.iter().map(|(_, name)| name.as_str()).collect();
        let values = self.store.load_all(&keys).await?;
        match values.len() == keys.len() {
            true => Ok(values),
            false => Err(BackendError::incomplete()),
        }
    }

    fn ask_whole(&self, operation: Operation) -> Answer<Applied> {
        let store = self.clone();
        Answer::pending(async move { store.decide(operation).await })
    }

    fn ask(&self, operation: Operation) -> Answer<Applied> {
        if S::SWAPS_SEVERAL {
            return self.ask_whole(operation);
        }
        match Apart::new::<S>(operation) {
            Ok(Apart::Whole(operation)) => self.ask_whole(operation),
            Ok(Apart::Parts(mut parts)) => {
                let store = self.clone();
                Answer::pending(async move {
                    let deadline = store.deadline;
                    // A task of its own, which goes on if the caller leaves.
                    let task = tokio::spawn(async move {
                        let (mut answers, mut first_error) = (Vec::new(), None);
                        for operation in parts.take_operations() {
                            match store.decide(operation).await {
                                Ok(applied) => answers.push(applied),
                                // No bucket keeps its tokens because another one failed.
                                Err(error) => _ = first_error.get_or_insert(error),
                            }
                        }
                        first_error.map_or_else(|| Ok(parts.join(&answers)), Err)
                    });
                    match in_time(S::NAME, deadline, task).await? {
                        Ok(answer) => answer,
                        Err(panic) => Err(BackendError::unavailable(S::NAME, panic)),
                    }
                })
            }
            Err(error) => Answer::Ready(Err(error)),
        }
    }
}

/// The record of this value.
fn read<S: SwapStore>(
    name: &str,
    value: Option<&[u8]>,
) -> Result<Option<BucketRecord>, BackendError> {
    value.map(decode_record).transpose().map_err(|wrong| {
        let cause = format!("the value of `{name}` is not a bucket: {wrong}");
        BackendError::undecidable(S::NAME, cause)
    })
}

/// Waits after so many conflicts: not at all after the first, then for a random time below a bound
/// that doubles, so that calls of several processes which met do not meet again.
async fn pause(conflicts: u32) {
    if conflicts < 2 {
        return;
    }
    let doublings = conflicts.saturating_sub(2).min(4);
    let most = 1_000_u64 << doublings;
    let random = RandomState::new().hash_one(conflicts);
    sleep(Duration::from_micros(random.checked_rem(most).unwrap_or(0))).await;
}

/// A load and a swap take less than a millisecond each in a data centre, as for Redis.
const DEADLINE: Duration = Duration::from_millis(50);

/// With this many, calls of a hundred tasks on one bucket nearly all succeed within the deadline.
const TRIES: u32 = 32;

/// How long a full bucket is kept, in microseconds, since clocks differ a little.
const KEEP: u64 = 1_000_000;

impl<S: SwapStore> Backend for Optimistic<S> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if charges.is_empty() {
            return Answer::Ready(Ok(Applied::many(self.now(), Vec::new())));
        }
        self.ask(Operation::charges(charges))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        if adjustments.is_empty() {
            return Answer::Ready(Ok(Applied::many(self.now(), Vec::new())));
        }
        self.ask(Operation::adjustments(adjustments))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if ids.is_empty() {
            return Answer::Ready(Ok(()));
        }
        self.ask(Operation::resets(ids)).map(drop)
    }

    fn charges_several(&self) -> bool {
        S::SWAPS_SEVERAL
    }

    /// Goes through the keys of the store, if it [can](SwapStore::scan).
    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        let page = match SortedPage::new(S::NAME, query, name_ranges(query.limit())) {
            Ok(page) => page,
            Err(error) => return Answer::Ready(Err(error)),
        };
        let (store, deadline) = (self.clone(), self.deadline);
        Answer::pending(async move { in_time(S::NAME, deadline, store.list(page)).await? })
    }
}

/// A clone shares the store.
impl<S> Clone for Optimistic<S> {
    fn clone(&self) -> Self {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let turns = Arc::clone(&self.turns);
        Self { store, turns, clock, deadline: self.deadline, tries: self.tries }
    }
}

impl<S: fmt::Debug> fmt::Debug for Optimistic<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Optimistic")
            .field("store", &self.store)
            .field("clock", &self.clock)
            .field("deadline", &self.deadline)
            .field("tries", &self.tries)
            .finish_non_exhaustive()
    }
}
