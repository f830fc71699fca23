//! Two-choices charges on the memory store: alone, in transactions, and over time.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::{Bucket, State, Terms, Verdict, charge, charge_pair, check_history};
use tollgate::backend::{Adjustment, Applied, Backend, BucketId, Charge, Memory, Reading};
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Key, MINUTE, Quota, SECOND};
use tollgate_testing::{START, at_once, quotas};

/// A token is a unit, and a shard holds ten of them.
fn ten() -> Bucket {
    let quota = Quota::fixed_window(40, HOUR).start(START).shards(4).max_reserved(20);
    let bucket = Bucket::of_shard(&quota).unwrap();
    assert_eq!((bucket.token(), bucket.capacity(), bucket.floor()), (4, 40, -20));
    bucket
}

fn held(memory: &Memory, id: BucketId<'_>, bucket: &Bucket) -> State {
    apply(memory, &[Charge::look(id, bucket, 0)]).readings()[0].state()
}

#[track_caller]
fn apply(memory: &Memory, charges: &[Charge<'_>]) -> Applied {
    at_once(memory.apply(charges).wait()).unwrap()
}

fn store() -> (Memory, ManualClock) {
    let clock = ManualClock::new(START);
    (Memory::new().clock(clock.clone()), clock)
}

fn values(applied: &Applied) -> Vec<(i64, i64)> {
    applied.readings().iter().map(|reading| (reading.state().value, reading.units())).collect()
}

#[test]
fn readings_come_in_the_order_of_the_charges_own_shard_first() {
    let (memory, _) = store();
    let (key, bucket) = (Key::GLOBAL, ten());
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    let take = |shard, units| Charge::take(id(shard), &bucket, units);

    let first = apply(&memory, &[take(3, 30).second_shard(1)]);
    assert_eq!(values(&first), [(10, 30), (40, 0)], "of two full shards, its own pays");
    let second = apply(&memory, &[take(3, 15).second_shard(1)]);
    assert_eq!(values(&second), [(10, 0), (25, 15)], "now the other is fuller");
    let both = apply(&memory, &[take(3, 33).second_shard(1)]);
    assert_eq!(values(&both), [(1, 9), (1, 24)]);
    assert_eq!(both.verdict(), Verdict::Admitted);

    let mixed =
        apply(&memory, &[take(0, 7), take(1, 2).second_shard(3), take(2, 6).second_shard(0)]);
    assert_eq!(values(&mixed), [(33, 7), (0, 1), (0, 1), (34, 6), (33, 0)]);
    assert_eq!(memory.len(), 4);
}

#[test]
fn both_readings_have_the_verdict_and_the_wait_of_the_charge() {
    let (memory, _) = store();
    let (key, bucket) = (Key::GLOBAL, ten());
    let id = BucketId::new("hot", &key);
    assert_eq!(
        apply(&memory, &[Charge::take(id, &bucket, 75).second_shard(1)]).verdict(),
        Verdict::Admitted
    );

    let six = Charge::take(id, &bucket, 6).second_shard(1);
    let same = |reading: &Reading| (reading.verdict(), reading.wait(), reading.units());
    let refused = apply(&memory, &[six]);
    assert_eq!(values(&refused), [(3, 0), (2, 0)]);
    assert!(refused.readings().iter().all(|one| same(one) == (Verdict::Refused, HOUR, 0)));
    let in_order = apply(&memory, &[six, Charge::look(id.shard(2), &bucket, 1)]);
    assert_eq!(in_order.readings()[..2], *refused.readings(), "a transaction does the same");

    let reserved = apply(
        &memory,
        &[Charge::take(id, &bucket, 40).second_shard(1).terms(Terms::reserving(-20))],
    );
    assert_eq!(values(&reserved), [(-17, 20), (-18, 20)]);
    assert!(
        reserved
            .readings()
            .iter()
            .all(|one| (one.verdict(), one.wait()) == (Verdict::Reserved, HOUR))
    );
}

#[test]
fn naming_its_own_shard_makes_an_ordinary_charge() {
    let (key, bucket) = (Key::GLOBAL, ten());
    let charge = Charge::take(BucketId::new("hot", &key).shard(2), &bucket, 1);
    assert_eq!(charge.second_shard(2).get_second_shard(), None);
    assert_eq!(charge.second_shard(1).get_second_shard(), Some(1));
    assert_eq!(charge.second_shard(1).second_shard(2).get_second_shard(), None);
    let (memory, _) = store();
    assert_eq!(apply(&memory, &[charge.second_shard(2)]).readings().len(), 1);
}

#[test]
fn charges_that_only_look_are_refused_or_cost_nothing_store_nothing() {
    let (memory, _) = store();
    let (key, bucket) = (Key::GLOBAL, ten());
    let id = BucketId::new("hot", &key);
    let look = apply(&memory, &[Charge::look(id, &bucket, 50).second_shard(1)]);
    assert_eq!((look.verdict(), values(&look)), (Verdict::Admitted, vec![(40, 0), (40, 0)]));
    assert_eq!(
        apply(&memory, &[Charge::take(id, &bucket, 81).second_shard(1)]).verdict(),
        Verdict::Refused
    );
    assert_eq!(
        apply(&memory, &[Charge::take(id, &bucket, 0).second_shard(1)]).verdict(),
        Verdict::Admitted
    );
    let less = apply(&memory, &[Charge::take(id, &bucket, i64::MIN).second_shard(1)]);
    assert_eq!((less.verdict(), values(&less)), (Verdict::Admitted, vec![(40, 0), (40, 0)]));
    let refuse = Charge::take(id.shard(2), &bucket, 41);
    let refused = apply(&memory, &[Charge::take(id, &bucket, 50).second_shard(1), refuse]);
    assert_eq!(values(&refused), [(40, 0), (40, 0), (40, 0)]);
    assert!(memory.is_empty());
    let _ = apply(&memory, &[Charge::take(id, &bucket, 1).second_shard(1)]);
    assert_eq!(memory.len(), 1);
    let look = Charge::look(id.shard(2), &bucket, 1);
    let _ = apply(&memory, &[look, Charge::take(id.shard(3), &bucket, 1).second_shard(2)]);
    assert_eq!(memory.len(), 2, "a transaction does the same");
}

#[test]
fn shards_that_begin_below_full_start_to_refill_at_the_first_request_to_take() {
    let quota = Quota::token_bucket(2, MINUTE).capacity(20).initial(4).shards(2);
    let bucket = Bucket::of_shard(&quota).unwrap();
    let token = bucket.units(1).unwrap();
    for units in [token, 5 * token, 0] {
        let (memory, clock) = store();
        let key = Key::GLOBAL;
        let id = BucketId::new("slow-start", &key);
        let _ = apply(&memory, &[Charge::take(id, &bucket, units).second_shard(1)]);
        assert_eq!(memory.len(), 2, "stored whether the charge pays, is refused or costs nothing");
        clock.advance(MINUTE);
        assert_eq!(held(&memory, id.shard(1), &bucket).value, 3 * token);
    }
}

#[test]
fn later_charges_find_what_earlier_ones_left_in_either_candidate() {
    let (memory, _) = store();
    let (key, bucket) = (Key::GLOBAL, ten());
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    let pair = |a, b, units| Charge::take(id(a), &bucket, units).second_shard(b);
    let charges = [Charge::take(id(0), &bucket, 5), pair(0, 1, 10), pair(1, 0, 32), pair(2, 0, 41)];
    let applied = apply(&memory, &charges);
    assert_eq!(applied.verdict(), Verdict::Admitted);
    // The pairs hold 35 and 40; then 35 and 30, of which the first pays 32; then 40 and 3, which
    // pay 39 and 2.
    let paid: Vec<_> = applied.readings().iter().map(Reading::units).collect();
    assert_eq!(paid, [5, 0, 10, 0, 32, 39, 2]);
    let left: Vec<_> = applied.readings().iter().map(|one| one.state().value).collect();
    assert_eq!(left, [1, 1, 30, 30, 1, 1, 1]);
    for (shard, value) in [(0, 1), (1, 30), (2, 1)] {
        assert_eq!(held(&memory, id(shard), &bucket).value, value);
    }
}

#[test]
fn shards_of_one_key_have_their_windows_together() {
    let bucket = Bucket::of_shard(&Quota::fixed_window(20, HOUR).shards(5)).unwrap();
    let (memory, clock) = store();
    let key = Key::from("alice");
    let id = BucketId::new("exports", &key);
    let all = 2 * bucket.capacity();
    assert_eq!(
        apply(&memory, &[Charge::take(id, &bucket, all).second_shard(4)]).verdict(),
        Verdict::Admitted
    );
    let refused = apply(&memory, &[Charge::take(id, &bucket, all).second_shard(4)]);
    assert_eq!(refused.readings()[0].state().ts, refused.readings()[1].state().ts);
    clock.advance(refused.wait());
    assert_eq!(
        apply(&memory, &[Charge::take(id, &bucket, all).second_shard(4)]).verdict(),
        Verdict::Admitted
    );
}

#[test]
fn what_each_shard_paid_can_be_given_back_to_it() {
    let (memory, _) = store();
    let (key, bucket) = (Key::GLOBAL, ten());
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    let _ = apply(&memory, &[Charge::take(id(0), &bucket, 15)]);
    let charged = apply(&memory, &[Charge::take(id(0), &bucket, 60).second_shard(1)]);
    let refunds: Vec<_> = charged
        .readings()
        .iter()
        .zip(0..)
        .map(|(reading, shard)| {
            Adjustment::undo(id(shard), &bucket, reading.units(), reading.state())
        })
        .collect();
    let refunded = at_once(memory.adjust(&refunds).wait()).unwrap();
    assert_eq!(refunded.verdict(), Verdict::Admitted);
    assert_eq!([0, 1].map(|shard| held(&memory, id(shard), &bucket).value), [25, 40]);
}

#[test]
fn a_new_quota_is_not_misread_in_either_candidate() {
    let (memory, _) = store();
    let key = Key::GLOBAL;
    let id = BucketId::new("plan", &key);
    let shard = |rate| Bucket::of_shard(&Quota::token_bucket(rate, HOUR).shards(2)).unwrap();
    let (old, new) = (shard(20), shard(40));
    let take = |bucket, tokens| Charge::take(id, bucket, Bucket::units(bucket, tokens).unwrap());
    assert_eq!(apply(&memory, &[take(&old, 13).second_shard(1)]).verdict(), Verdict::Admitted);
    // 13 of 20 are used, 7 in one shard and 6 in the other. Of 40, that leaves 13 and 14.
    assert_eq!(apply(&memory, &[take(&new, 28).second_shard(1)]).verdict(), Verdict::Refused);
    let both = |tokens| [take(&new, tokens).second_shard(1), take(&old, 1).second_shard(1)];
    assert_eq!(apply(&memory, &both(21)).verdict(), Verdict::Refused);
    assert_eq!(apply(&memory, &both(6)).verdict(), Verdict::Admitted);
    // 20 are used, 8 in one shard and 12 in the other.
    assert_eq!(apply(&memory, &[take(&old, 3).second_shard(1)]).verdict(), Verdict::Refused);
    assert_eq!(apply(&memory, &[take(&new, 21).second_shard(1)]).verdict(), Verdict::Refused);
    assert_eq!(apply(&memory, &[take(&new, 20).second_shard(1)]).verdict(), Verdict::Admitted);
}

#[test]
fn each_shard_keeps_what_was_used_of_it() {
    let (memory, _) = store();
    let key = Key::GLOBAL;
    let of = |shards| Bucket::of_shard(&Quota::token_bucket(120, HOUR).shards(shards)).unwrap();
    let (one, four) = (of(1), of(4));
    let id = |shard| BucketId::new("plan", &key).shard(shard);
    let units = |bucket: &Bucket, tokens| bucket.units(tokens).unwrap();
    let tokens =
        |shard, bucket: &Bucket| bucket.tokens(held(&memory, id(shard), bucket).value).to_string();
    let taken = apply(&memory, &[Charge::take(id(0), &one, units(&one, 50))]);
    assert_eq!(taken.verdict(), Verdict::Admitted);
    // The shards together hold as much as before: 120 - 50.
    assert_eq!([0, 1, 2, 3].map(|shard| tokens(shard, &four)), ["-20", "30", "30", "30"]);
    let taken = apply(&memory, &[Charge::take(id(3), &four, units(&four, 10))]);
    assert_eq!(taken.verdict(), Verdict::Admitted);
    // With one shard again, the fourth does not count.
    assert_eq!(tokens(0, &one), "70");
}

/// One charge of a transaction: limit, shard, the other shard if any, cost, whether to reserve, and
/// whether to take.
type Asked = (usize, u32, Option<u32>, u64, bool, bool);

fn asked() -> impl Strategy<Value = Asked> {
    (0_usize..2, 0_u32..4, prop::option::of(0_u32..4), 0_u64..8, any::<bool>(), any::<bool>())
}

/// Shards of limits with random quotas, some of which allow little debt.
fn shard_buckets() -> impl Strategy<Value = Bucket> {
    let parts = (quotas(), 1_u32..=5, prop::option::of(0_u64..20), prop::option::of(0_u64..5));
    parts.prop_filter_map("fits 2^53 units", |(mut quota, shards, reserved, initial)| {
        if let Some(tokens) = reserved {
            quota = quota.max_reserved(tokens);
        }
        if let Some(tokens) = initial {
            quota = quota.initial(tokens.min(quota.get_capacity()));
        }
        Bucket::of_shard(&quota.shards(shards)).ok()
    })
}

proptest! {
    /// P4: ordinary and two-choices charges are all taken or none of them is, as in a model that
    /// takes them one by one.
    #[test]
    fn transactions_take_all_or_nothing(
        buckets in prop::array::uniform2(shard_buckets()),
        steps in prop::collection::vec(
            (0_u32..2_000_000, prop::collection::vec(asked(), 0..7)),
            1..20,
        ),
    ) {
        let (names, key) = (["a", "b"], Key::from("alice"));
        let id = |limit: usize, shard: u32| BucketId::new(names[limit], &key).shard(shard);
        let clock = ManualClock::new(START);
        // Few enough keys that all are under one lock, then under several.
        for memory in [Memory::new().max_keys(100), Memory::new()] {
            let memory = memory.clock(clock.clone());
            let mut model: HashMap<(usize, u32), State> = HashMap::new();
            let mut now = START;
            for (micros, asked) in &steps {
                now = now + Duration::from_micros(u64::from(*micros));
                clock.set(now);
                let charges: Vec<_> = asked
                    .iter()
                    .map(|&(limit, shard, other, cost, reserves, takes)| {
                        let bucket = &buckets[limit];
                        let make = if takes { Charge::take } else { Charge::look };
                        let units = bucket.units(cost).unwrap();
                        let mut charge = make(id(limit, shard), bucket, units);
                        if let Some(other) = other {
                            charge = charge.second_shard(other);
                        }
                        let reserving = Terms::reserving(bucket.floor());
                        if reserves { charge.terms(reserving) } else { charge }
                    })
                    .collect();
                let applied = apply(&memory, &charges);

                let mut after = model.clone();
                let mut first_uses = Vec::new();
                let mut expected = Vec::new();
                for (&(limit, ..), charge_of) in asked.iter().zip(&charges) {
                    let bucket = &buckets[limit];
                    let absent = bucket.absent(now, id(limit, 0).phase(bucket));
                    let name = |shard| (limit, shard);
                    let own = name(charge_of.id().shard_index());
                    let state = |name| after.get(&name).copied().unwrap_or(absent);
                    let (units, terms) = (charge_of.units(), charge_of.get_terms());
                    let outcome = match charge_of.get_second_shard() {
                        None => {
                            let charged = charge(bucket, state(own), units, terms, now);
                            let (verdict, wait) = (charged.verdict(), charged.wait());
                            vec![(own, charged.after(), units, verdict, wait)]
                        }
                        Some(other) => {
                            let pair = [state(own), state(name(other))];
                            let charged = charge_pair(bucket, pair, units, terms, now);
                            let (verdict, wait) = (charged.verdict(), charged.wait());
                            let ([a, b], [x, y]) = (charged.after(), charged.paid());
                            vec![(own, a, x, verdict, wait), (name(other), b, y, verdict, wait)]
                        }
                    };
                    for (name, left, paid, verdict, wait) in outcome {
                        let paid = if charge_of.takes() { paid } else { 0 };
                        expected.push((name, paid, verdict, wait));
                        if charge_of.takes() {
                            first_uses.push((name, absent));
                            after.insert(name, left);
                        }
                    }
                }
                let refused = expected.iter().any(|&(.., verdict, _)| verdict == Verdict::Refused);
                prop_assert_eq!(applied.verdict() == Verdict::Refused, refused);
                if refused {
                    // It is the first charge of the buckets that are never dropped.
                    for (name, absent) in first_uses {
                        model.entry(name).or_insert(absent);
                    }
                } else {
                    model = after;
                }
                prop_assert_eq!(applied.readings().len(), expected.len());
                let readings = applied.readings().iter().zip(expected);
                for (reading, (name, paid, verdict, wait)) in readings {
                    let bucket = &buckets[name.0];
                    let seen = held(&memory, id(name.0, name.1), bucket);
                    prop_assert_eq!(reading.state(), seen, "the reported state is the stored one");
                    prop_assert_eq!(reading.units(), if refused { 0 } else { paid });
                    prop_assert_eq!((reading.verdict(), reading.wait()), (verdict, wait));
                }
                for (limit, bucket) in buckets.iter().enumerate() {
                    for shard in 0..4 {
                        let absent = bucket.absent(now, id(limit, shard).phase(bucket));
                        let state = model.get(&(limit, shard)).copied().unwrap_or(absent);
                        let seen = held(&memory, id(limit, shard), bucket);
                        prop_assert_eq!(seen, bucket.refresh(state, now));
                    }
                }
            }
        }
    }

    /// P2 and P3: what ran in a shard is within the bound of that shard, and a refused pair reports
    /// the smallest wait.
    #[test]
    fn each_shard_pays_within_its_bound(
        windows in any::<bool>(),
        rate in 1_u64..=10,
        capacity in 0_u64..=30,
        reserved in prop::option::of(0_u64..=30),
        steps in prop::collection::vec(
            (0_u32..400_000, 0_u32..3, 1_u32..3, 0_u64..8, any::<bool>()),
            1..60,
        ),
    ) {
        let quota = if windows {
            Quota::fixed_window(rate, SECOND)
        } else {
            Quota::token_bucket(rate, SECOND)
        };
        let quota = quota.capacity(capacity).shards(3);
        let quota = reserved.map_or(quota, |tokens| quota.max_reserved(tokens));
        let bucket = Bucket::of_shard(&quota).unwrap();
        // The shard as a limit of its own, with one unit to a token.
        let units = u64::try_from(bucket.capacity()).unwrap();
        let share = if windows {
            Quota::fixed_window(bucket.gain(), SECOND)
        } else {
            Quota::token_bucket(bucket.gain(), Duration::from_micros(1))
        };
        let share = share.capacity(units);
        let clock = ManualClock::new(START);
        let memory = Memory::new().clock(clock.clone());
        let key = Key::from("all-clients");
        let mut ran = [const { Vec::new() }; 3];
        for (micros, shard, away, cost, reserves) in steps {
            clock.advance(Duration::from_micros(u64::from(micros)));
            let other = (shard + away) % 3;
            let id = BucketId::new("hot", &key).shard(shard);
            let units = bucket.units(cost).unwrap();
            let charge = Charge::take(id, &bucket, units).second_shard(other);
            let terms = if reserves { Terms::reserving(bucket.floor()) } else { Terms::AT_ONCE };
            let applied = apply(&memory, &[charge.terms(terms)]);
            if applied.verdict() == Verdict::Refused {
                if units <= 2 * bucket.capacity() {
                    let look = Charge::look(id, &bucket, units).second_shard(other);
                    clock.set(applied.now() + (applied.wait() - Duration::from_micros(1)));
                    prop_assert_eq!(apply(&memory, &[look]).verdict(), Verdict::Refused);
                    clock.set(applied.now() + applied.wait());
                    prop_assert_eq!(apply(&memory, &[look]).verdict(), Verdict::Admitted);
                    clock.set(applied.now());
                }
                continue;
            }
            for (shard, reading) in [shard, other].into_iter().zip(applied.readings()) {
                let paid = u64::try_from(reading.units()).unwrap();
                ran[usize::try_from(shard).unwrap()].push((applied.now() + applied.wait(), paid));
            }
        }
        for ran in ran {
            prop_assert_eq!(check_history(&share, &ran).unwrap(), None);
        }
    }
}
