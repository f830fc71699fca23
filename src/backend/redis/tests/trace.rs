//! The same calls at the same instants in memory and in Redis: the same answers, to the bit.

use std::time::Duration;

use super::quotas::{another, changing, is_of_our_days, quota};
use super::{Dice, START, Server, on};
use crate::algebra::{Bucket, State, Terms};
use crate::backend::{Adjustment, Answer, Backend, BucketId, Change, Charge, Key, Memory, Redis};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::quota::{Kind, Quota};

/// What a store is asked, on its own.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Apply(Vec<Take>),
    Adjust(Vec<Back>),
    Reset(Vec<Who>),
}

#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) limit: &'static str,
    pub(super) key: Key,
    pub(super) shard: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) who: Who,
    pub(super) other: Option<u32>,
    pub(super) bucket: Bucket,
    pub(super) units: i64,
    pub(super) terms: Terms,
    pub(super) takes: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Back {
    pub(super) who: Who,
    pub(super) bucket: Bucket,
    pub(super) change: Change,
}

impl Who {
    pub(super) fn id(&self) -> BucketId<'_> {
        BucketId::new(self.limit, &self.key).shard(self.shard)
    }
}

impl Take {
    pub(super) fn charge(&self) -> Charge<'_> {
        let (id, bucket) = (self.who.id(), &self.bucket);
        let charge = match self.takes {
            true => Charge::take(id, bucket, self.units),
            false => Charge::look(id, bucket, self.units),
        };
        let charge = charge.terms(self.terms);
        self.other.map_or(charge, |shard| charge.second_shard(shard))
    }
}

impl Back {
    pub(super) fn adjustment(&self) -> Adjustment<'_> {
        Adjustment::new(self.who.id(), &self.bucket, self.change)
    }
}

/// What a store says to a step, in full.
pub(super) fn ask(store: &dyn Backend, step: &Step) -> Answer<String> {
    match step {
        Step::Apply(takes) => {
            let charges: Vec<_> = takes.iter().map(Take::charge).collect();
            store.apply(&charges).map(|applied| format!("{applied:?}"))
        }
        Step::Adjust(backs) => {
            let adjustments: Vec<_> = backs.iter().map(Back::adjustment).collect();
            store.adjust(&adjustments).map(|applied| format!("{applied:?}"))
        }
        Step::Reset(whose) => {
            let ids: Vec<_> = whose.iter().map(Who::id).collect();
            store.reset(&ids).map(|()| "reset".to_owned())
        }
    }
}

/// Whose buckets a history is about.
pub(super) fn keys() -> [Key; 3] {
    [Key::GLOBAL, Key::from("alice"), Key::from((7_u64, "bob"))]
}

/// One history: a few limits, a few keys, and time.
pub(super) struct History {
    pub(super) dice: Dice,
    pub(super) limits: Vec<(&'static str, Quota)>,
    /// States that were seen lately: what adjustments name.
    pub(super) seen: Vec<State>,
    /// Whether the numbers of limits change.
    restless: bool,
    /// Whether they change from one charge to the next.
    mixed: bool,
    /// Whether nearly all is of the commonest kind.
    plain: bool,
}

impl History {
    pub(super) fn new(seed: u64, restless: bool) -> Self {
        let mut dice = Dice(seed);
        let any = if restless { changing } else { quota };
        let limits = ["a", "b", "c"].map(|name| (name, any(&mut dice))).to_vec();
        let plain = seed.is_multiple_of(4);
        Self { dice, limits, seen: Vec::new(), restless, mixed: false, plain }
    }

    /// One in which the numbers change from one charge of a list to the next.
    fn mixed(seed: u64) -> Self {
        Self { mixed: true, ..Self::new(seed, true) }
    }

    /// A history in which every full bucket is like one that was never used.
    pub(super) fn forgetting(seed: u64) -> Self {
        let mut history = Self::new(seed, false);
        for (_, quota) in &mut history.limits {
            *quota = quota.initial(quota.tokens_at_most());
            assert!(Bucket::of_shard(quota).unwrap().is_droppable_when_full());
        }
        history
    }

    fn who(&mut self, limit: &'static str, quota: &Quota) -> Who {
        let key = self.dice.of(&keys());
        let shard = u32::try_from(self.dice.below(u64::from(quota.shard_count()))).unwrap();
        Who { limit, key, shard }
    }

    fn units(&mut self, bucket: &Bucket) -> i64 {
        let tokens = match self.dice.below(6) {
            0 => 0,
            1 => self.dice.some(1 << 53),
            2 => bucket.capacity().unsigned_abs() / bucket.token(),
            _ => self.dice.below(12),
        };
        let units = bucket.units(tokens).unwrap_or(1 << 53);
        // Not only whole tokens, though limiters ask for no others.
        if self.dice.one_in(4) { (units - i64::from(self.dice.one_in(2))).max(0) } else { units }
    }

    /// One of the limits; where numbers change, not everybody has heard of it.
    fn limit(&mut self) -> (&'static str, Quota) {
        let (name, quota) = self.dice.of(&self.limits);
        let is_late = self.restless && self.dice.one_in(10);
        (name, if is_late { another(&mut self.dice, &quota) } else { quota })
    }

    /// Another quota for one of the limits, perhaps one that counts alike.
    fn change(&mut self) {
        let place = usize::try_from(self.dice.below(3)).unwrap();
        let before = self.limits[place].1;
        let start = Timestamp::from_micros(i64::try_from(self.dice.some(1 << 62)).unwrap());
        let other = match self.dice.below(4) {
            0 => before.max_reserved(self.dice.some(64)),
            1 if before.kind() == Kind::FixedWindow => before.start(start),
            2 => before.capacity(self.dice.below(40)),
            _ => changing(&mut self.dice),
        };
        self.limits[place].1 = other.validated().ok().filter(is_of_our_days).unwrap_or(before);
    }

    pub(super) fn take(&mut self) -> Take {
        if self.mixed && self.dice.one_in(3) {
            self.change();
        }
        let (limit, quota) = self.limit();
        let bucket = Bucket::of_shard(&quota).unwrap();
        let who = self.who(limit, &quota);
        let shard = u32::try_from(self.dice.below(u64::from(quota.shard_count()))).unwrap();
        let other = (shard != who.shard && self.dice.below(4) > 0).then_some(shard);
        let terms = match self.dice.below(3) {
            0 => Terms::reserving(bucket.floor()),
            1 => {
                let wait = Duration::from_micros(self.dice.some(1 << 55));
                Terms::reserving(bucket.floor()).within(wait)
            }
            _ => Terms::AT_ONCE,
        };
        let (units, takes) = (self.units(&bucket), !self.dice.one_in(6));
        Take { who, other, bucket, units, terms, takes }
    }

    fn back(&mut self) -> Back {
        let (limit, quota) = self.limit();
        let bucket = Bucket::of_shard(&quota).unwrap();
        let who = self.who(limit, &quota);
        let units = self.units(&bucket);
        let units = match self.dice.below(12) {
            0 => i64::MAX,
            1 => i64::MIN,
            2..=4 => -units,
            _ => units,
        };
        let blocks = self.dice.one_in(8).then(|| {
            let micros =
                self.dice.some(if self.dice.0.is_multiple_of(5) { u64::MAX >> 1 } else { 1 << 36 });
            Duration::from_micros(micros)
        });
        let state = |dice: &mut Dice, one_in| {
            let some = !self.seen.is_empty() && dice.one_in(one_in);
            some.then(|| dice.of(&self.seen))
        };
        let (left, since) = (state(&mut self.dice, 3), state(&mut self.dice, 4));
        let change = match (blocks, left, since) {
            (Some(time), ..) => Change::Block { time },
            (None, Some(left), _) => Change::Undo { units, left },
            (None, None, Some(since)) => Change::RefundSince { units, since },
            (None, None, None) => Change::Refund { units },
        };
        Back { who, bucket, change }
    }

    pub(super) fn step(&mut self) -> Step {
        if self.restless && self.dice.one_in(12) {
            let place = usize::try_from(self.dice.below(3)).unwrap();
            let before = self.limits[place].1;
            let akin = self.dice.one_in(2);
            let dice = &mut self.dice;
            self.limits[place].1 = if akin { another(dice, &before) } else { changing(dice) };
        }
        if self.plain && !self.dice.one_in(24) {
            let (other, terms) = (None, Terms::AT_ONCE);
            return Step::Apply(vec![Take { other, terms, takes: true, ..self.take() }]);
        }
        let count = if self.dice.one_in(3) { 1 + self.dice.below(5) } else { 1 };
        match self.dice.below(16) {
            0 => {
                let (limit, quota) = self.dice.of(&self.limits);
                Step::Reset((0..count).map(|_| self.who(limit, &quota)).collect())
            }
            1..=4 => Step::Adjust((0..count).map(|_| self.back()).collect()),
            _ => Step::Apply((0..count).map(|_| self.take()).collect()),
        }
    }

    /// How far time goes, or goes back.
    pub(super) fn pass(&mut self, clock: &ManualClock) {
        let most = if self.dice.one_in(9) { 1 << 44 } else { 1 << 24 };
        let by = i64::try_from(self.dice.some(most)).unwrap();
        let by = if self.dice.one_in(12) { -by } else { by };
        let now = clock.now().as_micros() + by;
        clock.set(Timestamp::from_micros(now.clamp(START.as_micros(), 8_900_000_000_000_000)));
    }
}

pub(super) async fn at_rest(redis: &Redis) {
    let key = Key::from("nobody");
    redis.reset(&[BucketId::new("a", &key)]).wait().await.unwrap();
}

pub(super) fn at_once<T>(answer: Answer<T>) -> Result<T, crate::backend::BackendError> {
    match answer {
        Answer::Ready(answer) => answer,
        Answer::Pending(_) => panic!("the memory store has to answer at once"),
    }
}

/// Plays a history to both stores, several steps at the same time, and compares all that they say.
pub(super) async fn play(redis: &Redis, clock: &ManualClock, seed: u64, steps: usize) -> usize {
    // A full bucket may be dropped, and that can be seen when its limit gets other numbers. None expires here.
    let memory = Memory::new().clock(clock.clone()).keep_full();
    let mut history = match seed % 5 {
        1 => History::mixed(seed),
        _ => History::new(seed, seed.is_multiple_of(3)),
    };
    let mut played = 0;
    // Once there is a connection and the script, calls are carried out in the order in which they are sent.
    at_rest(redis).await;
    while played < steps {
        history.pass(clock);
        // They travel in one call or in several, as it happens, and are decided in this order.
        let together = if history.dice.one_in(2) { 1 } else { 1 + history.dice.below(9) };
        let steps: Vec<_> = (0..together).map(|_| history.step()).collect();
        let there: Vec<_> = steps.iter().map(|step| ask(redis, step)).collect();
        for (step, there) in steps.iter().zip(there) {
            let here = at_once(ask(&memory, step)).unwrap();
            let there = there.wait().await.unwrap();
            assert_eq!(
                here,
                there,
                "seed {seed}, {played} steps before, at {:?}: {step:?}",
                clock.now()
            );
            played += 1;
        }
        // What some bucket holds: what somebody may want to undo.
        let look = history.take();
        let applied = at_once(memory.apply(&[look.charge()])).unwrap();
        at_once(memory.adjust(&[])).unwrap();
        let same = redis.apply(&[look.charge()]).wait().await.unwrap();
        assert_eq!(applied, same, "seed {seed}");
        history.seen.extend(applied.readings().iter().map(crate::backend::Reading::state));
        let old = history.seen.len().saturating_sub(6);
        history.seen.drain(..old);
    }
    played
}

#[tokio::test]
async fn a_hundred_thousand_random_calls_are_answered_alike_in_memory_and_in_redis() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let mut played = 0;
    for seed in 0..600 {
        clock.set(START);
        let redis = on(&server, &clock).prefix(format!("t{seed}")).connect().await.unwrap();
        played += play(&redis, &clock, seed, 180).await;
    }
    assert!(played >= 100_000, "{played}");
}

#[tokio::test]
async fn windows_that_begin_elsewhere_from_one_charge_to_the_next_are_answered_alike() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let redis = on(&server, &clock).connect().await.unwrap();
    let memory = Memory::new().clock(clock.clone());
    let [here, there] = [0, 20_000_000].map(|start| {
        let quota = Quota::fixed_window(10, Duration::from_secs(60));
        Bucket::new(&quota.start(Timestamp::from_micros(start))).unwrap()
    });
    for one_by_one in [true, false] {
        let key = Key::from(u64::from(one_by_one));
        let id = BucketId::new("a", &key);
        let charges = [&here, &there, &here, &there].map(|bucket| Charge::take(id, bucket, 1));
        if one_by_one {
            // Two lanes take two each.
            let answers = charges.map(|charge| redis.apply(&[charge]));
            for (charge, answer) in charges.iter().zip(answers) {
                let expected = at_once(memory.apply(std::slice::from_ref(charge))).unwrap();
                assert_eq!(answer.wait().await.unwrap(), expected);
            }
        } else {
            let expected = at_once(memory.apply(&charges)).unwrap();
            assert_eq!(redis.apply(&charges).wait().await.unwrap(), expected);
        }
        // What was stored begins with the windows of the last.
        for _ in 0..8 {
            clock.advance(Duration::from_secs(7));
            let look = [Charge::look(id, &there, 0)];
            let expected = at_once(memory.apply(&look)).unwrap();
            assert_eq!(redis.apply(&look).wait().await.unwrap(), expected);
        }
    }
}
