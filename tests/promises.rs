//! The promises that a limiter on the memory store has to keep, over random quotas and clocks.

mod support;

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use support::{START, at_once, is_admitted, quotas, store};
use tollgate::algebra::{Bucket, State, Terms, Verdict, charge, check_history, rescale};
use tollgate::backend::{Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{Key, Limit, Quota, RateLimited, RateLimiter, Timestamp};

/// How a step moves the clock.
#[derive(Clone, Copy, Debug)]
enum Tick {
    /// Not at all.
    Still,
    /// By a part of the time in which the quota gains a token, in thousandths of it.
    Part(u32),
    /// To the very instant that the last refusal named.
    AsTold,
    /// Back, by up to a second.
    Back(u32),
    /// On, by days.
    Days(u32),
}

fn ticks() -> impl Strategy<Value = Tick> {
    prop_oneof![
        3 => Just(Tick::Still),
        4 => (0_u32..4_000).prop_map(Tick::Part),
        3 => Just(Tick::AsTold),
        1 => (0_u32..=1_000_000).prop_map(Tick::Back),
        1 => (0_u32..40).prop_map(Tick::Days),
    ]
}

fn tick(tick: Tick, now: Timestamp, bucket: &Bucket, told: Option<Timestamp>) -> Timestamp {
    match tick {
        Tick::Still => now,
        Tick::Part(thousandths) => {
            let token = bucket.token() / bucket.gain() * bucket.step();
            now + Duration::from_micros(token.max(1) / 1_000 * u64::from(thousandths))
        }
        Tick::AsTold => told.map_or(now, |told| told.max(now)),
        Tick::Back(micros) => Timestamp::from_micros(now.as_micros() - i64::from(micros)),
        Tick::Days(days) => now + tollgate::DAY * days,
    }
}

/// Costs from nothing to more than the quota could ever grant, mostly small.
fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0_u64), Just(1), 1_u64..=5, 1_u64..=40, Just(u64::MAX)]
}

fn limit(quota: Quota) -> Limit {
    Limit::try_new("limit", quota).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// P2: in every window of time, the work that ran is within the bound.
    #[test]
    fn no_window_holds_more_than_the_bound(
        quota in quotas(),
        steps in prop::collection::vec((ticks(), costs()), 1..60),
    ) {
        let limit = limit(quota);
        let bucket = limit.bucket();
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);

        let (mut now, mut told, mut ran) = (START, None, Vec::new());
        // The time that has really passed, of which a clock that goes back knows nothing.
        let mut passed = START;
        for (step, cost) in steps {
            let before = now;
            now = tick(step, now, bucket, told);
            clock.set(now);
            passed = passed + now.since(before);
            match at_once(limiter.limit(&limit).cost(cost)) {
                Ok(_permit) => ran.push((passed, cost)),
                Err(error) => match error.retry_after() {
                    Some(wait) => told = Some(now + wait),
                    None => {
                        prop_assert!(error.is_too_large());
                        prop_assert!(cost > quota.tokens_at_most());
                    }
                },
            }
        }
        prop_assert_eq!(check_history(&quota, &ran).unwrap(), None);
    }

    /// P3: a refused request is refused one tick before the time it was told, and admitted at it.
    #[test]
    fn the_wait_is_the_smallest_that_works(
        quota in quotas(),
        steps in prop::collection::vec((ticks(), costs()), 1..40),
    ) {
        let limit = limit(quota);
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let (mut now, mut told) = (START, None);
        for (step, cost) in steps {
            now = tick(step, now, limit.bucket(), told);
            clock.set(now);
            let answer = at_once(limiter.limit(&limit).cost(cost));
            let Some(wait) = answer.err().and_then(|error| error.retry_after()) else { continue };
            prop_assert!(wait > Duration::ZERO);
            let told_at = now + wait;
            told = Some(told_at);

            clock.set(Timestamp::from_micros(told_at.as_micros() - 1));
            prop_assert!(!at_once(limiter.peek(&limit).cost(cost)).unwrap().fits());
            clock.set(told_at);
            prop_assert!(at_once(limiter.peek(&limit).cost(cost)).unwrap().fits());
            clock.set(now);
        }
    }

    /// P4: a refusal stores nothing and changes no later answer, nor does a peek, which agrees with
    /// what `limit` answers.
    #[test]
    fn refusals_and_peeks_store_nothing(
        quota in quotas(),
        steps in prop::collection::vec((ticks(), costs(), 0_usize..4), 1..60),
    ) {
        let limit = limit(quota);
        let clock = ManualClock::new(START);
        let (asked, eager) = store(Memory::new(), &clock);
        let (_, modest) = store(Memory::new(), &clock);
        let mut now = START;
        for (step, cost, again) in steps {
            now = tick(step, now, limit.bucket(), None);
            clock.set(now);
            let held = asked.len();
            let seen = at_once(eager.peek(&limit).cost(cost)).unwrap();
            prop_assert_eq!(asked.len(), held);
            prop_assert_eq!((seen.cost(), seen.at()), (cost, now));
            prop_assert_eq!(seen.state(), state(&eager, &limit));
            // One of the two keeps asking for what it is refused; the other never even asks.
            let Some(wait) = seen.wait() else {
                prop_assert!(!seen.fits() && cost > quota.tokens_at_most());
                prop_assert!(at_once(eager.limit(&limit).cost(cost)).unwrap_err().is_too_large());
                prop_assert_eq!(asked.len(), held);
                continue;
            };
            prop_assert_eq!(seen.fits(), wait.is_zero());
            if seen.fits() {
                prop_assert!(is_admitted(eager.limit(&limit).cost(cost)));
                prop_assert!(is_admitted(modest.limit(&limit).cost(cost)));
            } else {
                for _ in 0..again {
                    let refused = at_once(eager.limit(&limit).cost(cost)).unwrap_err();
                    prop_assert_eq!(refused.retry_after(), Some(wait));
                }
                prop_assert_eq!(asked.len(), held);
            }
            prop_assert_eq!(state(&eager, &limit), state(&modest, &limit));
        }
    }

    /// P4: several charges are all taken or none of them is, whatever order they stand in.
    #[test]
    fn transactions_take_all_or_nothing(
        quotas in prop::collection::vec(quotas(), 3),
        steps in prop::collection::vec(
            (0_u32..2_000, prop::collection::vec((0_usize..3, 0_u32..3, 0_u64..6, any::<bool>()), 0..6)),
            1..30,
        ),
    ) {
        let names = ["a", "b", "c"];
        let buckets: Vec<_> = quotas.iter().map(|quota| Bucket::new(quota).unwrap()).collect();
        let keys: Vec<_> = (0_u32..3).map(Key::from).collect();
        let clock = ManualClock::new(START);
        // Few enough keys that all are in one shard, then in several.
        for memory in [Memory::new().max_keys(100), Memory::new()] {
            let (memory, _) = store(memory, &clock);
            let mut model: HashMap<(usize, u32), State> = HashMap::new();
            let mut now = START;
            for (micros, charges) in &steps {
                now = now + Duration::from_micros(u64::from(*micros));
                clock.set(now);
                let id = |limit: usize, key: u32| {
                    BucketId::new(names[limit], &keys[usize::try_from(key).unwrap()])
                };
                let asked: Vec<_> = charges
                    .iter()
                    .map(|&(limit, key, cost, takes)| {
                        let bucket = &buckets[limit];
                        let units = bucket.units(cost).unwrap();
                        let make = if takes { Charge::take } else { Charge::look };
                        make(id(limit, key), bucket, units)
                    })
                    .collect();
                let applied = at_once(memory.apply(&asked).wait()).unwrap();

                let mut after = model.clone();
                let mut verdicts = Vec::new();
                for (&(limit, key, ..), charge_of) in charges.iter().zip(&asked) {
                    let bucket = &buckets[limit];
                    let absent = bucket.absent(now, id(limit, key).phase(bucket));
                    let state = after.get(&(limit, key)).copied().unwrap_or(absent);
                    let charged = charge(bucket, state, charge_of.units(), Terms::AT_ONCE, now);
                    verdicts.push(charged.verdict());
                    // A bucket that is named again has paid for the first time already.
                    if charge_of.takes() && charge_of.units() > 0 {
                        after.insert((limit, key), charged.after());
                    }
                }
                let admitted = verdicts.iter().all(|&verdict| verdict == Verdict::Admitted);
                prop_assert_eq!(applied.verdict() == Verdict::Admitted, admitted);
                prop_assert_eq!(applied.readings().len(), charges.len());
                if admitted {
                    model = after;
                }
                for (limit, bucket) in buckets.iter().enumerate() {
                    for key in 0_u32..3 {
                        let look = Charge::look(id(limit, key), bucket, 0);
                        let seen = at_once(memory.apply(&[look]).wait()).unwrap().readings()[0].state();
                        let absent = bucket.absent(now, id(limit, key).phase(bucket));
                        let held = model.get(&(limit, key)).copied().unwrap_or(absent);
                        prop_assert_eq!(seen, bucket.refresh(held, now));
                        // What was reported of the bucket is what it holds now.
                        for (charge, reading) in charges.iter().zip(applied.readings()) {
                            if (charge.0, charge.1) == (limit, key) {
                                prop_assert_eq!(reading.state(), seen);
                            }
                        }
                    }
                }
            }
        }
    }

    /// P5: dropping full buckets changes no answer. The model never drops one.
    #[test]
    fn forgetting_is_free(
        quota in quotas(),
        steps in prop::collection::vec((ticks(), 0_u32..50, costs(), 0_u32..20), 1..200),
    ) {
        let limit = limit(quota);
        let bucket = *limit.bucket();
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new().max_keys(2_000), &clock);
        let mut model: HashMap<u32, State> = HashMap::new();
        let (mut now, mut told, mut latest) = (START, None, START);
        for (step, who, cost, chance) in steps {
            now = tick(step, now, &bucket, told);
            latest = latest.max(now);
            // Exact as long as the clock goes back by no more than a second in all.
            now = now.max(Timestamp::from_micros(latest.as_micros() - 1_000_000));
            clock.set(now);
            match chance {
                0 => memory.purge(),
                1 => {
                    at_once(limiter.reset(&limit).key(who)).unwrap();
                    model.remove(&who);
                }
                _ => {}
            }
            let answer = at_once(limiter.limit(&limit).key(who).cost(cost));
            if answer.as_ref().is_err_and(RateLimited::is_too_large) {
                continue;
            }

            let key = Key::from(who);
            let phase = BucketId::new(limit.name(), &key).phase(&bucket);
            let state = model.get(&who).copied().unwrap_or(bucket.absent(now, phase));
            let units = bucket.units(cost).unwrap();
            let charged = charge(&bucket, state, units, Terms::AT_ONCE, now);
            prop_assert_eq!(answer.is_ok(), charged.verdict() == Verdict::Admitted);
            let told_wait = answer.as_ref().err().map(|error| error.retry_after().unwrap());
            prop_assert_eq!(told_wait.unwrap_or_default(), charged.wait());
            if answer.is_ok() {
                // What takes nothing leaves no trace.
                if cost > 0 {
                    model.insert(who, charged.after());
                }
            } else {
                told = Some(now + charged.wait());
            }
            let seen = at_once(limiter.peek(&limit).key(who)).unwrap();
            prop_assert_eq!(seen.state(), charged.state());
        }
    }
}

proptest! {
    /// What was used stays used when the numbers change, whichever way: no tokens come of it.
    #[test]
    fn new_numbers_never_refill(
        quotas in prop::collection::vec(quotas(), 2..4),
        reserved in prop::option::of(0_u64..20),
        value in -1_000_000_i64..1_000_000,
        changes in prop::collection::vec((0_usize..4, 0_u32..1_000_000), 1..20),
    ) {
        let buckets: Vec<_> = quotas
            .into_iter()
            .map(|quota| reserved.map_or(quota, |tokens| quota.max_reserved(tokens)))
            .filter_map(|quota| Bucket::new(&quota).ok())
            .collect();
        let Some(mut bucket) = buckets.first().copied() else { return Ok(()) };
        let thousandths = |bucket: &Bucket| bucket.capacity() / 1_000;
        let value = (value * thousandths(&bucket)).clamp(-bucket.capacity(), bucket.capacity());
        let (mut state, mut now) = (State { value, ts: START }, START);
        for (which, micros) in changes {
            now = now + Duration::from_micros(u64::from(micros));
            let new = buckets[which % buckets.len()];
            let before = bucket.refresh(state, now);
            let after = rescale(&bucket, &new, state, now, START);
            // The values as fractions of a token: after <= before, and less by no more than a unit
            // but for the new capacity.
            let (old_token, new_token) = (i128::from(bucket.token()), i128::from(new.token()));
            let (old, scaled) = (i128::from(before.value), i128::from(after.value));
            // Debt beyond all counting stays as deep as can be counted.
            let deepest = after.value == new.capacity() - (1 << 53);
            prop_assert!(deepest || scaled * old_token <= old * new_token);
            let full = after.value == new.capacity();
            prop_assert!(full || (scaled + 1) * old_token > old * new_token);
            prop_assert!(after.ts <= now);
            (bucket, state) = (new, after);
        }
    }
}

proptest! {
    /// The checker sees what every pair of instants shows, worked out without it.
    #[test]
    fn the_history_checker_sees_every_violation(
        quota in quotas(),
        runs in prop::collection::vec((0_i64..2_000, 0_u64..40), 0..20),
        spread in 1_u64..1_000_000,
    ) {
        let bucket = Bucket::new(&quota).unwrap();
        let tick = i64::try_from(bucket.token() / bucket.gain() * bucket.step() / spread).unwrap();
        let runs: Vec<_> = runs
            .into_iter()
            .map(|(nth, cost)| (Timestamp::from_micros(nth * tick.max(1)), cost))
            .collect();
        let units = |cost: u64| u128::from(cost) * u128::from(bucket.token());
        let capacity = u128::try_from(bucket.capacity()).unwrap();
        let gain = u128::from(bucket.gain());
        let mut broken = false;
        for &(from, _) in &runs {
            for &(to, _) in &runs {
                let inside = || runs.iter().filter(|&&(at, _)| (from..=to).contains(&at));
                let Some(largest) = inside().map(|&(_, cost)| cost).max() else { continue };
                let ran: u128 = inside().map(|&(_, cost)| units(cost)).sum();
                let steps = to.since(from).as_micros() / u128::from(bucket.step());
                broken |= ran > capacity.max(units(largest)) + steps * gain + gain;
            }
        }
        prop_assert_eq!(check_history(&quota, &runs).unwrap().is_some(), broken);
    }
}

fn state(limiter: &RateLimiter, limit: &Limit) -> State {
    at_once(limiter.peek(limit)).unwrap().state()
}
