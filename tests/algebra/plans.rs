//! Numbers that change with each request, against a model that counts in fractions.
//!
//! The model is the rule in its own words, without units, rounding or stores: what is used falls at
//! the rate of the numbers in which it is counted. Faster numbers take over when they are asked by,
//! slower ones when they admit or reserve.

use std::time::Duration;

use tollgate::algebra::{Bucket, Terms, Verdict};
use tollgate::backend::{BucketId, BucketRecord, BucketStore, Charge, Key, apply_all};
use tollgate::{Quota, SECOND, Timestamp};

use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;

const START: Timestamp = Timestamp::from_micros(1_700_000_123_456_789);

/// A fraction, whose denominator is above zero.
#[derive(Clone, Copy, Debug)]
struct Fraction(i128, i128);

impl Fraction {
    const ZERO: Self = Self(0, 1);

    fn new(over: i128, under: i128) -> Self {
        let (mut a, mut b) = (over.abs(), under);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        Self(over / a.max(1), under / a.max(1))
    }

    fn plus(self, other: Self) -> Self {
        Self::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self(-other.0, other.1))
    }

    fn times(self, other: Self) -> Self {
        Self::new(self.0 * other.0, self.1 * other.1)
    }

    /// Rounded up.
    fn whole(self) -> i128 {
        self.0.div_euclid(self.1) + i128::from(self.0.rem_euclid(self.1) > 0)
    }

    fn at_most(self, other: Self) -> bool {
        self.0 * other.1 <= other.0 * self.1
    }
}

/// A plan: a capacity, and tokens in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    capacity: u64,
    rate: u64,
    seconds: u32,
}

impl Plan {
    fn draw(dice: &mut Dice) -> Self {
        let sizes = [1, 3, 10, 100, 1_000];
        let (capacity, rate) = (sizes[dice.nth(&sizes)], sizes[dice.nth(&sizes)]);
        Self { capacity, rate, seconds: [1, 10, 100][dice.nth(&[0; 3])] }
    }

    fn bucket(self) -> Bucket {
        let quota = Quota::token_bucket(self.rate, SECOND * self.seconds).capacity(self.capacity);
        Bucket::new(&quota).unwrap()
    }

    /// Tokens in a microsecond.
    fn speed(self) -> Fraction {
        Fraction::new(i128::from(self.rate), i128::from(self.seconds) * 1_000_000)
    }

    /// The microseconds in which so many tokens come back.
    fn time(self, tokens: Fraction) -> Fraction {
        tokens.times(Fraction::new(i128::from(self.seconds) * 1_000_000, i128::from(self.rate)))
    }
}

/// The bucket of the model.
#[derive(Clone, Copy, Debug)]
struct Model {
    used: Fraction,
    at: i128,
    plan: Option<Plan>,
}

impl Model {
    const NEW: Self = Self { used: Fraction::ZERO, at: 0, plan: None };

    fn refresh(&mut self, at: i128) {
        if let Some(plan) = self.plan {
            let gained = plan.speed().times(Fraction(at - self.at, 1));
            let used = self.used.minus(gained);
            self.used = if used.at_most(Fraction::ZERO) { Fraction::ZERO } else { used };
        }
        self.at = at;
    }

    /// Whether the tokens are taken by this plan, and after how many microseconds they are there.
    fn ask(&mut self, at: i128, plan: Plan, cost: u64, debt: Option<u64>) -> (bool, Fraction) {
        self.refresh(at);
        let tokens = |tokens: u64| Fraction(i128::from(tokens), 1);
        let own = match self.plan {
            Some(own) if self.used.0 > 0 && !own.speed().at_most(plan.speed()) => own,
            _ => plan,
        };
        self.plan = Some(own);
        let after = self.used.plus(tokens(cost));
        let short = after.minus(tokens(plan.capacity));
        let fits = self.used.at_most(tokens(plan.capacity));
        if short.at_most(Fraction::ZERO) {
            (self.used, self.plan) = (after, Some(plan));
            return (true, Fraction::ZERO);
        }
        let is_reserved =
            (fits || own == plan) && debt.is_some_and(|debt| short.at_most(tokens(debt)));
        if is_reserved {
            (self.used, self.plan) = (after, Some(plan));
            return (true, plan.time(short));
        }
        (false, own.time(short))
    }
}

/// One bucket, as a store keeps it.
#[derive(Clone, Copy, Debug)]
struct Store {
    now: Timestamp,
    record: Option<BucketRecord>,
}

impl BucketStore for Store {
    fn now(&mut self) -> Timestamp {
        self.now
    }
    fn read(&mut self, _: BucketId<'_>) -> Option<BucketRecord> {
        self.record
    }
    fn write(&mut self, _: BucketId<'_>, record: BucketRecord) {
        self.record = Some(record);
    }
    fn forget(&mut self, _: BucketId<'_>) {
        self.record = None;
    }
}

impl Store {
    fn ask(&mut self, at: i128, plan: Plan, cost: u64, debt: Option<u64>) -> (Verdict, Duration) {
        self.now = START + Duration::from_micros(u64::try_from(at).unwrap());
        let bucket = plan.bucket();
        let units = |tokens| bucket.units(tokens).unwrap();
        let terms = debt.map_or(Terms::AT_ONCE, |debt| Terms::reserving(-units(debt)));
        let charge = Charge::take(BucketId::new("plan", &Key::GLOBAL), &bucket, units(cost));
        let applied = apply_all(self, &[charge.terms(terms)]);
        (applied.verdict(), applied.wait())
    }
}

/// The requests of a history.
const STEPS: i128 = 60;

fn nearly(one: Fraction, other: Fraction, rounded: Fraction) -> bool {
    let difference = one.minus(other);
    Fraction::new(difference.0.abs(), difference.1).at_most(rounded)
}

/// What the histories came to, so that a test of none would be noticed.
#[derive(Debug, Default)]
struct Counts {
    taken: usize,
    refused: usize,
    kept: usize,
}

/// The numbers of the quota in a record.
fn numbers(record: BucketRecord) -> [i64; 4] {
    let [_, _, numbers @ ..] = record.to_numbers();
    numbers
}

/// A history in which plans change, in some with each request. Every answer is that of the model.
fn play(seed: u64, counts: &mut Counts) {
    let dice = &mut Dice(seed);
    let plans: Vec<_> = (0..2 + dice.below(2)).map(|_| Plan::draw(dice)).collect();
    let is_flapping = dice.below(5) < 2;
    let queues = dice.below(3) == 0;
    let (mut store, mut model) = (Store { now: START, record: None }, Model::NEW);
    let (mut plan, mut at, mut ran) = (plans[0], 0_i128, Vec::new());
    // By how many tokens the two may differ: each change of the numbers rounds what is used up by
    // less than a unit, and the answer may be a unit late.
    let unit = plans.iter().map(|plan| plan.bucket().token()).min().unwrap();
    let mut rounded = Fraction::new(1, i128::from(unit));
    for step in 0..STEPS {
        let micros = [0, 0, 100_000, dice.below(5_000_000), dice.below(40_000_000)];
        at += i128::from(micros[dice.nth(&micros)]);
        if is_flapping || dice.below(10) == 0 {
            plan = plans[dice.nth(&plans)];
        }
        let cost = 1 + dice.below(plan.capacity);
        let debt = (queues && dice.below(2) == 0).then(|| dice.below(20));
        let before = store.record;
        let mut wanted = model;
        let (is_taken, wait) = wanted.ask(at, plan, cost, debt);
        let (verdict, told) = store.ask(at, plan, cost, debt);
        if store.record.map(numbers) != before.map(numbers) {
            rounded = rounded.plus(Fraction::new(1, i128::from(unit)));
        }
        let name = format!("seed {seed}, step {step}: {plan:?} {cost} {debt:?}");
        if is_taken != (verdict != Verdict::Refused) {
            // The units are rounded against the key, so it may be short by a fraction of one.
            model.refresh(at);
            let short = model.used.plus(Fraction(i128::from(cost), 1));
            let room = plan.capacity + debt.unwrap_or(0);
            let edges = [room, plan.capacity, plan.capacity + cost];
            let is_near =
                edges.iter().any(|edge| nearly(short, Fraction(i128::from(*edge), 1), rounded));
            assert!(is_taken && is_near, "{name}: {verdict:?}");
            return;
        }
        model = wanted;
        let told = i128::try_from(told.as_micros()).unwrap();
        let late = Fraction(told, 1).minus(wait);
        // No earlier, and later by what rounding takes to come back, and a tick.
        let slowest = plans.iter().map(|plan| plan.time(rounded).whole());
        assert!(
            late.0 >= 0 && late.whole() <= slowest.max().unwrap() + 1,
            "{name}: {told} {wait:?}"
        );
        let longest = plans.iter().map(|plan| plan.time(Fraction(i128::from(plan.capacity), 1)));
        let longest = longest.map(Fraction::whole).max().unwrap();
        if verdict == Verdict::Refused {
            counts.refused += 1;
            let is_kept = store.record == before;
            counts.kept += usize::from(is_kept && model.plan != Some(plan));
            assert!(
                queues || told <= longest,
                "{name}: no wait is longer than a bucket takes to fill"
            );
            waits_as_told(&store, [at, told], plan, cost, &name);
        } else {
            counts.taken += 1;
            ran.push((at + told, cost));
        }
    }
    // A reservation keeps its instant, also if faster numbers refill what it has taken before that.
    if !queues {
        is_within_the_bound(&plans, ran, &format!("seed {seed}"));
    }
}

/// Whoever waits as told is admitted, whatever other refusals come in between, and no tick earlier.
fn waits_as_told(store: &Store, [at, told]: [i128; 2], plan: Plan, cost: u64, name: &str) {
    let mut early = *store;
    assert_eq!(early.ask(at + told - 1, plan, cost, None).0, Verdict::Refused, "{name}: early");
    let mut waits = *store;
    for part in [333, 667, 999] {
        let others = waits;
        if waits.ask(at + told * part / 1_000, plan, plan.capacity, None).0 != Verdict::Refused {
            waits = others;
        }
    }
    assert_eq!(waits.ask(at + told, plan, cost, None).0, Verdict::Admitted, "{name}: at its time");
}

/// In every window of time, no more ran than the largest capacity and the fastest rate allow.
fn is_within_the_bound(plans: &[Plan], mut ran: Vec<(i128, u64)>, name: &str) {
    ran.sort_unstable();
    let capacity = plans.iter().map(|plan| plan.capacity).max().unwrap();
    for (nth, (from, _)) in ran.iter().enumerate() {
        let (mut all, mut largest) = (0, 0);
        for (to, cost) in &ran[nth..] {
            (all, largest) = (all + cost, largest.max(*cost));
            let least = Fraction(i128::from(all - capacity.max(largest).min(all)), 1);
            let is_allowed = plans.iter().any(|plan| {
                // One step's gain more, as for any bucket.
                least.at_most(plan.speed().times(Fraction(to - from + 1, 1)))
            });
            assert!(is_allowed, "{name}: {all} tokens within {} microseconds", to - from);
        }
    }
}

#[test]
fn plans_that_change_at_any_time_are_answered_as_the_rule_says() {
    let mut counts = Counts::default();
    for seed in seeds(2_500) {
        play(seed, &mut counts);
    }
    assert!(counts.taken > counts.refused / 10 && counts.kept > counts.refused / 10, "{counts:?}");
}

/// A customer who was on the fast plan goes to the slow one, and queues all that it can: it runs no
/// more than the slow plan allows.
#[test]
fn who_queues_after_a_downgrade_gets_what_the_slow_plan_allows() {
    for seed in seeds(12) {
        let dice = &mut Dice(seed);
        let size = |dice: &mut Dice, sizes: &[u64]| sizes[dice.nth(sizes)];
        let fast = [size(dice, &[100, 1_000]), size(dice, &[100, 1_000])];
        let slow = [size(dice, &[1, 5, 10]), size(dice, &[1, 5])];
        let [fast, slow] = [fast, slow].map(|[capacity, rate]| Plan { capacity, rate, seconds: 1 });
        let (debt, horizon) = (size(dice, &[5, 20, 3_000]), 100_000_000_i128);
        let mut store = Store { now: START, record: None };
        store.ask(0, fast, fast.capacity, None);
        let (mut at, mut ran) = (0, 0);
        while at < horizon {
            at += 250_000;
            while let (Verdict::Admitted | Verdict::Reserved, wait) =
                store.ask(at, slow, 1, Some(debt))
            {
                ran += u64::from(at + i128::try_from(wait.as_micros()).unwrap() <= horizon);
            }
        }
        assert!(ran <= slow.capacity + slow.rate * 100 + 1, "{fast:?} {slow:?} {debt}: {ran}");
    }
}
