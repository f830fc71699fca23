//! Records of buckets as a store gives them back, which may be any six numbers.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::algebra::{Bucket, State, Terms, Verdict};
use tollgate::backend::{
    Adjustment, BucketId, BucketRecord, BucketStore, Charge, adjust_all, apply_all,
};
use tollgate::{Key, Quota, Timestamp};
use tollgate_testing::{START, quotas};

use tollgate_testing::fuzz::bytes::draws_each;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

/// The largest number of units, and the longest step.
const MAX: i64 = 1 << 53;

fn record_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/record.txt"))
}

#[track_caller]
fn written(text: &str) -> [i64; 6] {
    let numbers: Vec<i64> = text.split(' ').map(|number| number.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Whether these numbers are a record, in integers that cannot overflow.
fn reference(numbers: [i64; 6]) -> bool {
    let [value, _, gain, token, capacity, step] = numbers.map(i128::from);
    let most = i128::from(MAX);
    (1..=most).contains(&gain)
        && (1..=most).contains(&token)
        && (1..=most).contains(&step.abs())
        // A quota that begins below its capacity has one.
        && (i128::from(step < 0)..=most).contains(&capacity)
        && (-most..=capacity).contains(&value)
}

#[test]
fn seeds_of_records_are_read_as_recorded() {
    for Seed { field, wanted } in record_seeds() {
        let numbers = written(&field.text());
        assert_eq!(reference(numbers), wanted == "record", "{field:?}");
        let record = BucketRecord::from_numbers(numbers);
        assert_eq!(record.is_some(), wanted == "record", "{field:?}");
    }
}

/// Numbers around each bound, and any others.
fn number() -> impl Strategy<Value = i64> {
    let bounds = [0, 1, 2, 1_000, 60_000_000, MAX / 2, MAX - 1, MAX, MAX + 1, i64::MAX];
    prop_oneof![
        8 => (select(bounds.to_vec()), -2_i64..=2).prop_map(|(bound, by)| bound.saturating_add(by)),
        2 => (select(bounds.to_vec()), -2_i64..=2).prop_map(|(bound, by)| (-bound).saturating_add(by)),
        2 => -MAX..=MAX,
        1 => any::<i64>(),
    ]
}

/// A seed with some of its numbers swapped or replaced, or six numbers of any kind.
fn records() -> impl Strategy<Value = [i64; 6]> {
    let seeds: Vec<[i64; 6]> =
        record_seeds().iter().map(|seed| written(&seed.field.text())).collect();
    let changes = proptest::collection::vec((0_usize..6, number()), 0..4);
    prop_oneof![
        4 => (select(seeds), changes).prop_map(|(mut numbers, changes)| {
            changes.iter().for_each(|&(at, number)| numbers[at] = number);
            numbers
        }),
        1 => [number(), number(), number(), number(), number(), number()],
    ]
}

fn instants() -> impl Strategy<Value = Timestamp> {
    let near = START.as_micros();
    let micros = prop_oneof![
        4 => near - 100_000_000..near + 100_000_000,
        1 => select(vec![i64::MIN, -1, 0, MAX, i64::MAX]),
        1 => any::<i64>(),
    ];
    micros.prop_map(Timestamp::from_micros)
}

/// Quotas with all options, among them the largest.
fn all_quotas() -> impl Strategy<Value = Quota> {
    let large = select(vec![
        "9007199254740992/us, max_reserved 0",
        "4999 per 30 days",
        "999999937 per day",
        "1 per 9007199254740992us",
        "fixed window: 9007199254740992 per 9007199254740992us, max_reserved 0",
        "fixed window: 1 per 9007199254740992us, capacity 0, max_reserved 9007199254740992",
        "1/us, capacity 0",
        "1/us, capacity 9007199254740992, initial 0, max_reserved 0",
    ]);
    let with_initial = quotas().prop_map(|quota| quota.initial(quota.get_capacity() / 2));
    prop_oneof![4 => quotas(), 1 => with_initial, 1 => large.prop_map(|text| text.parse().unwrap())]
}

/// One bucket, kept as numbers.
#[derive(Debug)]
struct One {
    now: Timestamp,
    numbers: Option<[i64; 6]>,
}

impl BucketStore for One {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn read(&mut self, _: BucketId<'_>) -> Option<BucketRecord> {
        self.numbers.and_then(BucketRecord::from_numbers)
    }

    fn write(&mut self, _: BucketId<'_>, record: BucketRecord) {
        let numbers = record.to_numbers();
        assert_eq!(
            BucketRecord::from_numbers(numbers),
            Some(record),
            "what is written can be read"
        );
        assert!(reference(numbers), "a store keeps what a quota can have: {numbers:?}");
        self.numbers = Some(numbers);
    }

    fn forget(&mut self, _: BucketId<'_>) {
        self.numbers = None;
    }
}

#[derive(Clone, Debug)]
enum Call {
    Take(i64),
    /// The deepest debt that the quota allows.
    Reserve(i64),
    Look(i64),
    Refund(i64),
    Undo(i64, State),
    Block(Duration),
}

fn calls() -> impl Strategy<Value = Call> {
    let units = || prop_oneof![0_i64..=10, 0..=MAX];
    prop_oneof![
        4 => units().prop_map(Call::Take),
        2 => units().prop_map(Call::Reserve),
        1 => units().prop_map(Call::Look),
        1 => number().prop_map(Call::Refund),
        1 => (number(), number(), instants())
            .prop_map(|(units, value, ts)| Call::Undo(units, State { value, ts })),
        1 => any::<u64>().prop_map(|micros| Call::Block(Duration::from_micros(micros))),
    ]
}

#[test]
fn numbers_that_are_a_record_and_others_are_drawn() {
    draws_each(&records(), 2, reference);
}

proptest! {
    #[test]
    fn a_record_is_read_as_by_the_slow_reference(numbers in records()) {
        let record = BucketRecord::from_numbers(numbers);
        prop_assert_eq!(record.is_some(), reference(numbers));
        let Some(record) = record else { return Ok(()) };
        prop_assert_eq!(record.to_numbers(), numbers);
        let [value, ts, gain, _, capacity, step] = numbers.map(i128::from);
        let steps = (capacity - value + gain - 1) / gain;
        let full = (ts + steps * step.abs()).min(i64::MAX.into());
        prop_assert_eq!(i128::from(record.full_at().as_micros()), full);
        prop_assert_eq!(record.droppable_at(), (step > 0).then(|| record.full_at()));
    }

    /// Any record that a store returns is charged without a panic, the stored result can be read,
    /// and no bucket has more than its capacity.
    #[test]
    fn any_record_can_be_charged_and_adjusted(
        numbers in records(),
        quota in all_quotas(),
        calls in proptest::collection::vec((calls(), instants()), 1..5),
    ) {
        let (key, bucket) = (Key::GLOBAL, Bucket::new(&quota).unwrap());
        let id = BucketId::new("l", &key);
        let mut store = One { now: START, numbers: Some(numbers) };
        for (call, now) in calls {
            store.now = now;
            let applied = match call.clone() {
                Call::Take(units) => {
                    let charge = Charge::take(id, &bucket, units);
                    let applied = apply_all(&mut store, &[charge]);
                    if applied.verdict() == Verdict::Refused {
                        comes_back(&store, charge, applied.wait())?;
                    }
                    applied
                }
                Call::Reserve(units) => {
                    let terms = Terms::reserving(bucket.floor());
                    apply_all(&mut store, &[Charge::take(id, &bucket, units).terms(terms)])
                }
                Call::Look(units) => apply_all(&mut store, &[Charge::look(id, &bucket, units)]),
                Call::Refund(units) => adjust_all(&mut store, &[Adjustment::refund(id, &bucket, units)]),
                Call::Undo(units, left) => {
                    adjust_all(&mut store, &[Adjustment::undo(id, &bucket, units, left)])
                }
                Call::Block(time) => adjust_all(&mut store, &[Adjustment::block(id, &bucket, time)]),
            };
            for reading in applied.readings() {
                let value = reading.state().value;
                prop_assert!((-MAX..=bucket.capacity()).contains(&value), "{value}");
                let is_charge = matches!(call, Call::Take(_) | Call::Reserve(_) | Call::Look(_));
                let is_admitted = is_charge && reading.verdict() == Verdict::Admitted;
                prop_assert!(!is_admitted || value >= 0, "{value}");
            }
        }
    }
}

/// A request that was refused is refused one tick before its time, and admitted at it.
fn comes_back(store: &One, charge: Charge<'_>, wait: Duration) -> Result<(), TestCaseError> {
    let at = store.now.saturating_add(wait);
    // No wait helps a request for more than a bucket can hold, nor one at the end of time.
    if charge.units() > charge.bucket().capacity() || at.as_micros() == i64::MAX {
        return Ok(());
    }
    let verdict = |micros| {
        let now = Timestamp::from_micros(micros);
        apply_all(&mut One { now, ..*store }, &[charge]).verdict()
    };
    prop_assert_eq!(verdict(at.as_micros()), Verdict::Admitted, "at {:?}", at);
    prop_assert_eq!(verdict(at.as_micros() - 1), Verdict::Refused, "before {:?}", at);
    Ok(())
}
