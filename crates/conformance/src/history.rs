//! Random calls, the same in each run, to play to several stores.

use std::time::Duration;

use super::dice::Dice;
use super::quotas::{random_quota, vary_quota};
pub use super::subject::START;
use tollgate::algebra::{Bucket, State, Terms};
use tollgate::backend::{Adjustment, Answer, Backend, BackendError, BucketId, Change, Charge, Key};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::quota::{Kind, Quota};

/// One call of a store, as owned values.
#[derive(Clone, Debug)]
pub enum Step {
    Apply(Vec<TestCharge>),
    Adjust(Vec<TestAdjustment>),
    Reset(Vec<TestBucket>),
}

#[derive(Clone, Debug)]
pub struct TestBucket {
    pub limit: &'static str,
    pub key: Key,
    pub shard: u32,
}

#[derive(Clone, Debug)]
pub struct TestCharge {
    pub target: TestBucket,
    pub other: Option<u32>,
    pub bucket: Bucket,
    pub units: i64,
    pub terms: Terms,
    pub takes: bool,
}

#[derive(Clone, Debug)]
pub struct TestAdjustment {
    pub target: TestBucket,
    pub bucket: Bucket,
    pub change: Change,
}

impl TestBucket {
    #[must_use]
    pub fn id(&self) -> BucketId<'_> {
        BucketId::new(self.limit, &self.key).shard(self.shard)
    }
}

impl TestCharge {
    #[must_use]
    pub fn charge(&self) -> Charge<'_> {
        let (id, bucket) = (self.target.id(), &self.bucket);
        let charge = match self.takes {
            true => Charge::take(id, bucket, self.units),
            false => Charge::look(id, bucket, self.units),
        };
        let charge = charge.terms(self.terms);
        self.other.map_or(charge, |shard| charge.second_shard(shard))
    }
}

impl TestAdjustment {
    #[must_use]
    pub fn adjustment(&self) -> Adjustment<'_> {
        Adjustment::new(self.target.id(), &self.bucket, self.change)
    }
}

/// The keys of a history.
#[must_use]
pub fn keys() -> [Key; 3] {
    [Key::GLOBAL, Key::from("alice"), Key::from((7_u64, "bob"))]
}

/// A history: random calls on a few limits and a few keys, while time passes.
#[derive(Debug)]
pub struct History {
    pub dice: Dice,
    pub limits: Vec<(&'static str, Quota)>,
    /// States that charges have left lately, for adjustments to name.
    pub seen: Vec<State>,
    changes: QuotaChanges,
    /// Whether nearly all steps are single charges without debt.
    plain: bool,
}

/// How often the quotas of the limits change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuotaChanges {
    #[allow(dead_code, reason = "as `steady`")]
    Never,
    Rarely,
    Often,
    /// Also from one charge of a list to the next.
    Always,
}

impl History {
    /// A history in which the quotas change; how often depends on the seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let limits = ["a", "b", "c"].map(|name| (name, random_quota(&mut dice))).to_vec();
        let changes = match seed % 5 {
            1 => QuotaChanges::Always,
            2 | 4 => QuotaChanges::Often,
            _ => QuotaChanges::Rarely,
        };
        Self { dice, limits, seen: Vec::new(), changes, plain: seed.is_multiple_of(4) }
    }

    /// A history in which the quotas stay, and every full bucket equals one that was never used.
    #[allow(dead_code, reason = "for tests of stores that drop full buckets")]
    #[must_use]
    pub fn steady(seed: u64) -> Self {
        let mut history = Self { changes: QuotaChanges::Never, ..Self::new(seed) };
        for (_, quota) in &mut history.limits {
            *quota = quota.initial(quota.get_capacity());
            assert!(Bucket::of_shard(quota).unwrap().is_droppable_when_full());
        }
        history
    }

    /// Whether a quota changes now: once in `one_in` times in a history of many changes.
    fn changes_now(&mut self, one_in: u64) -> bool {
        match self.changes {
            QuotaChanges::Never => false,
            QuotaChanges::Rarely => self.dice.one_in(one_in.saturating_mul(5)),
            QuotaChanges::Often | QuotaChanges::Always => self.dice.one_in(one_in),
        }
    }

    fn draw_bucket(&mut self, limit: &'static str, quota: &Quota) -> TestBucket {
        let key = self.dice.pick(&keys());
        let shard = u32::try_from(self.dice.below(u64::from(quota.get_shards()))).unwrap();
        TestBucket { limit, key, shard }
    }

    fn units(&mut self, bucket: &Bucket) -> i64 {
        let tokens = match self.dice.below(6) {
            0 => 0,
            1 => self.dice.up_to(1 << 53),
            2 => bucket.capacity().unsigned_abs() / bucket.token(),
            _ => self.dice.below(12),
        };
        let units = bucket.units(tokens).unwrap_or(1 << 53);
        // Also fractions of tokens, although limiters ask for whole tokens only.
        if self.dice.one_in(4) { (units - i64::from(self.dice.one_in(2))).max(0) } else { units }
    }

    /// One of the limits. If quotas change, the caller may use an old one.
    fn limit(&mut self) -> (&'static str, Quota) {
        let (name, quota) = self.dice.pick(&self.limits);
        let is_late = self.changes_now(10);
        (name, if is_late { vary_quota(&mut self.dice, &quota) } else { quota })
    }

    /// Changes the quota of one of the limits, perhaps to one that counts alike.
    fn change(&mut self) {
        let place = usize::try_from(self.dice.below(3)).unwrap();
        let before = self.limits[place].1;
        let start = Timestamp::from_micros(i64::try_from(self.dice.up_to(1 << 62)).unwrap());
        let other = match self.dice.below(8) {
            0 => before.max_reserved(self.dice.up_to(64)),
            1 if before.kind() == Kind::FixedWindow => before.start(start),
            2 => before.capacity(self.dice.below(40)),
            3 => before.initial(self.dice.below(before.get_capacity().saturating_add(1))),
            4 | 5 => vary_quota(&mut self.dice, &before),
            _ => random_quota(&mut self.dice),
        };
        self.limits[place].1 = other.validated().unwrap_or(before);
    }

    pub fn draw_charge(&mut self) -> TestCharge {
        if self.changes == QuotaChanges::Always && self.dice.one_in(3) {
            self.change();
        }
        let (limit, quota) = self.limit();
        let bucket = Bucket::of_shard(&quota).unwrap();
        let target = self.draw_bucket(limit, &quota);
        let shard = u32::try_from(self.dice.below(u64::from(quota.get_shards()))).unwrap();
        let other = (shard != target.shard && self.dice.below(4) > 0).then_some(shard);
        let terms = match self.dice.below(3) {
            0 => Terms::reserving(bucket.floor()),
            1 => {
                let wait = Duration::from_micros(self.dice.up_to(1 << 55));
                Terms::reserving(bucket.floor()).within(wait)
            }
            _ => Terms::AT_ONCE,
        };
        let (units, takes) = (self.units(&bucket), !self.dice.one_in(6));
        TestCharge { target, other, bucket, units, terms, takes }
    }

    fn draw_adjustment(&mut self) -> TestAdjustment {
        let (limit, quota) = self.limit();
        let bucket = Bucket::of_shard(&quota).unwrap();
        let target = self.draw_bucket(limit, &quota);
        let units = self.units(&bucket);
        let units = match self.dice.below(12) {
            0 => i64::MAX,
            1 => i64::MIN,
            2..=4 => -units,
            _ => units,
        };
        let blocks = self.dice.one_in(8).then(|| {
            let micros = self.dice.up_to(if self.dice.0.is_multiple_of(5) {
                u64::MAX >> 1
            } else {
                1 << 36
            });
            Duration::from_micros(micros)
        });
        let state = |dice: &mut Dice, one_in| {
            let some = !self.seen.is_empty() && dice.one_in(one_in);
            some.then(|| dice.pick(&self.seen))
        };
        let (left, since) = (state(&mut self.dice, 3), state(&mut self.dice, 4));
        let change = match (blocks, left, since) {
            (Some(time), ..) => Change::Block { time },
            (None, Some(left), _) => Change::Undo { units, left },
            (None, None, Some(since)) => Change::RefundSince { units, since },
            (None, None, None) => Change::Refund { units },
        };
        TestAdjustment { target, bucket, change }
    }

    pub fn step(&mut self) -> Step {
        if self.changes_now(12) {
            self.change();
        }
        if self.plain && !self.dice.one_in(24) {
            let (other, terms) = (None, Terms::AT_ONCE);
            return Step::Apply(vec![TestCharge {
                other,
                terms,
                takes: true,
                ..self.draw_charge()
            }]);
        }
        let count = if self.dice.one_in(3) { 1 + self.dice.below(5) } else { 1 };
        match self.dice.below(16) {
            0 => {
                let (limit, quota) = self.dice.pick(&self.limits);
                Step::Reset((0..count).map(|_| self.draw_bucket(limit, &quota)).collect())
            }
            1..=4 => Step::Adjust((0..count).map(|_| self.draw_adjustment()).collect()),
            _ => Step::Apply((0..count).map(|_| self.draw_charge()).collect()),
        }
    }

    /// The time of the next call: later, or sometimes earlier, but not before `earliest`.
    pub fn next_time(&mut self, now: Timestamp, earliest: Timestamp) -> Timestamp {
        let most = if self.dice.one_in(9) { 1 << 44 } else { 1 << 24 };
        let by = i64::try_from(self.dice.up_to(most)).unwrap();
        let by = if self.dice.one_in(12) { -by } else { by };
        let micros = (now.as_micros() + by).clamp(earliest.as_micros(), 8_900_000_000_000_000);
        Timestamp::from_micros(micros)
    }

    /// Moves the clock to the time of the next call.
    pub fn pass(&mut self, clock: &ManualClock) {
        clock.set(self.next_time(clock.now(), START));
    }
}

/// Plays a step to a store, and returns the whole answer as text.
pub fn play_step(store: &dyn Backend, step: &Step) -> Answer<String> {
    match step {
        Step::Apply(takes) => {
            let charges: Vec<_> = takes.iter().map(TestCharge::charge).collect();
            store.apply(&charges).map(|applied| format!("{applied:?}"))
        }
        Step::Adjust(backs) => {
            let adjustments: Vec<_> = backs.iter().map(TestAdjustment::adjustment).collect();
            store.adjust(&adjustments).map(|applied| format!("{applied:?}"))
        }
        Step::Reset(targets) => {
            let ids: Vec<_> = targets.iter().map(TestBucket::id).collect();
            store.reset(&ids).map(|()| "reset".to_owned())
        }
    }
}

/// The answer of a store that answers at once.
pub fn expect_ready<T>(answer: Answer<T>) -> Result<T, BackendError> {
    match answer {
        Answer::Ready(answer) => answer,
        Answer::Pending(_) => panic!("the memory store has to answer at once"),
    }
}
