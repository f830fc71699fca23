//! The properties that a limiter on the memory store has to keep, over random quotas and clocks.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::{
    Bucket, State, Terms, Verdict, charge, charge_slower, check_history, rescale,
};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::{Key, Limit, Quota, RateLimited, RateLimiter, Timestamp};
use tollgate_testing::{START, at_once, is_admitted, quotas, store};

/// How a step moves the clock.
#[derive(Clone, Copy, Debug)]
enum Tick {
    /// Not at all.
    Still,
    /// By this many thousandths of the time in which the quota gains a token.
    Part(u32),
    /// To exactly the instant that the last refusal advertised.
    AsTold,
    /// Back, by up to a second.
    Back(u32),
    /// Forward, by days.
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
        // The time that has really passed: a step that sets the clock back does not count.
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
                        prop_assert!(cost > quota.get_capacity());
                    }
                },
            }
        }
        prop_assert_eq!(check_history(&quota, &ran).unwrap(), None);
    }

    /// P3: a refused request is refused one tick before the advertised time, and admitted at it.
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

    /// P4: neither a refusal nor a peek stores anything or changes a later answer. A peek agrees
    /// with what `limit` answers.
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
            // The first limiter is asked again and again for what it refuses, the second not at
            // all.
            let Some(wait) = seen.wait() else {
                prop_assert!(!seen.fits() && cost > quota.get_capacity());
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

    /// P4: several charges are all taken or none of them is, whatever their order.
    #[test]
    fn transactions_take_all_or_nothing(
        quotas in prop::collection::vec(quotas(), 3),
        steps in prop::collection::vec(
            (
                0_u32..2_000,
                prop::collection::vec((0_usize..3, 0_u32..3, 0_u64..6, any::<bool>()), 0..6),
            ),
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
                    // A bucket that is named again has paid the first charge already.
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
                        let looked = at_once(memory.apply(&[look]).wait()).unwrap();
                        let seen = looked.readings()[0].state();
                        let absent = bucket.absent(now, id(limit, key).phase(bucket));
                        let held = model.get(&(limit, key)).copied().unwrap_or(absent);
                        prop_assert_eq!(seen, bucket.refresh(held, now));
                        // The reported state is the stored one.
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

    /// P5: dropping full buckets changes no answer, even if the quota of the limit changes. The
    /// model never drops one.
    #[test]
    fn dropping_full_buckets_changes_no_answer(
        quotas in prop::collection::vec(quotas(), 1..4),
        steps in prop::collection::vec(
            (ticks(), 0_u32..50, costs(), 0_u32..20, 0_usize..12),
            1..200,
        ),
    ) {
        let limits: Vec<_> = quotas.into_iter().map(limit).collect();
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new().max_keys(2_000), &clock);
        let mut model: HashMap<u32, (Bucket, State)> = HashMap::new();
        let (mut now, mut told, mut latest, mut limit) = (START, None, START, &limits[0]);
        for (step, client, cost, chance, which) in steps {
            limit = limits.get(which).unwrap_or(limit);
            let bucket = *limit.bucket();
            now = tick(step, now, &bucket, told);
            latest = latest.max(now);
            // Exact as long as the clock goes back by no more than a second in all.
            now = now.max(Timestamp::from_micros(latest.as_micros() - 1_000_000));
            clock.set(now);
            match chance {
                0 => memory.purge(),
                1 => {
                    at_once(limiter.reset(limit).key(client)).unwrap();
                    model.remove(&client);
                }
                _ => {}
            }
            let answer = at_once(limiter.limit(limit).key(client).cost(cost));
            if answer.as_ref().is_err_and(RateLimited::is_too_large) {
                continue;
            }

            let key = Key::from(client);
            let phase = BucketId::new(limit.name(), &key).phase(&bucket);
            let state = match model.get(&client) {
                Some((quota, state)) if *quota == bucket => *state,
                Some((quota, state)) => rescale(quota, &bucket, *state, now, phase),
                None => bucket.absent(now, phase),
            };
            let units = bucket.units(cost).unwrap();
            // Slower numbers wait for a request that they admit.
            let kept = model.get(&client).filter(|(own, state)| {
                own.refresh(*state, now).value < own.capacity() && !own.yields_to(&bucket)
            });
            let charged = match kept {
                Some((own, state)) => {
                    charge_slower(own, *state, &bucket, units, Terms::AT_ONCE, now, phase)
                }
                None => charge(&bucket, state, units, Terms::AT_ONCE, now),
            };
            let is_kept = kept.is_some();
            prop_assert_eq!(answer.is_ok(), charged.verdict() == Verdict::Admitted);
            let told_wait = answer.as_ref().err().map(|error| error.retry_after().unwrap());
            prop_assert_eq!(told_wait.unwrap_or_default(), charged.wait());
            if answer.is_ok() {
                // A cost of zero leaves no trace.
                if cost > 0 {
                    model.insert(client, (bucket, charged.after()));
                }
            } else {
                told = Some(now + charged.wait());
                // The refusal counts in the new quota if that is not slower, and so does the bucket
                // from now on.
                let held = model.get_mut(&client).filter(|(quota, _)| *quota != bucket);
                if let Some(held) = held.filter(|_| !is_kept) {
                    *held = (bucket, charged.before());
                }
            }
            let seen = at_once(limiter.peek(limit).key(client)).unwrap();
            prop_assert_eq!(seen.state(), charged.state());
        }
    }
}

/// What a history does besides requests.
#[derive(Clone, Copy, Debug)]
enum Also {
    Nothing,
    Peek,
    Penalize,
    Block,
    Reset,
}

fn also() -> impl Strategy<Value = Also> {
    prop_oneof![
        12 => Just(Also::Nothing),
        2 => Just(Also::Peek),
        1 => Just(Also::Penalize),
        1 => Just(Also::Block),
        1 => Just(Also::Reset),
    ]
}

proptest! {
    /// P3 while the quota changes, whatever the bucket counted in before.
    #[test]
    fn the_wait_is_the_smallest_that_works_while_the_quota_changes(
        quotas in prop::collection::vec((quotas(), prop::option::of(0_u64..30)), 2..4),
        steps in prop::collection::vec(
            (ticks(), also(), costs(), 0_usize..6, any::<bool>()),
            1..40,
        ),
    ) {
        let begins = |(quota, initial): (Quota, Option<u64>)| {
            initial.map_or(quota, |most| quota.initial(most.min(quota.get_capacity())))
        };
        let limits: Vec<_> = quotas.into_iter().map(begins).map(limit).collect();
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let (mut now, mut told, mut limit) = (START, None, &limits[0]);
        for (step, also, cost, which, waits) in steps {
            limit = limits.get(which).unwrap_or(limit);
            now = tick(step, now, limit.bucket(), told);
            clock.set(now);
            match also {
                Also::Nothing => {}
                Also::Peek => drop(at_once(limiter.peek(limit).cost(cost))),
                Also::Penalize => drop(at_once(limiter.penalize(limit, cost.min(40)))),
                Also::Block => drop(at_once(limiter.block(limit, tollgate::HOUR))),
                Also::Reset => at_once(limiter.reset(limit)).unwrap(),
            }
            let ask = || at_once(limiter.limit(limit).cost(cost));
            let Some(wait) = ask().err().and_then(|error| error.retry_after()) else { continue };
            prop_assert!(wait > Duration::ZERO);
            let told_at = now + wait;
            told = Some(told_at);
            if waits {
                now = told_at;
                clock.set(Timestamp::from_micros(now.as_micros() - 1));
                let retry_after = ask().err().and_then(|error| error.retry_after());
                prop_assert_eq!(retry_after, Some(Duration::from_micros(1)));
                clock.set(now);
                prop_assert!(ask().is_ok());
            }
        }
    }

    /// P3 for lists and two-choices charges while the quotas change.
    #[test]
    fn the_wait_of_a_list_is_the_smallest_that_works_while_the_quotas_change(
        quotas in prop::collection::vec(quotas(), 2..5),
        steps in prop::collection::vec(
            (
                ticks(),
                // Limit, quota, cost, and the second shard if any.
                prop::collection::btree_map(0_usize..3, (0_usize..5, 0_u64..12, 0_u32..4), 1..4),
                // What is given back or, below zero, taken.
                prop::option::of((0_usize..3, 0_usize..5, -12_i64..6)),
                any::<bool>(),
            ),
            1..40,
        ),
    ) {
        let buckets: Vec<_> = quotas.iter().map(|quota| Bucket::new(quota).unwrap()).collect();
        let bucket = |which: usize| &buckets[which % buckets.len()];
        let clock = ManualClock::new(START);
        let (memory, _) = store(Memory::new(), &clock);
        let (mut now, mut told) = (START, None);
        for (step, list, given, waits) in steps {
            let which = list.values().next().map_or(0, |&(which, ..)| which);
            now = tick(step, now, bucket(which), told);
            clock.set(now);
            let id = |limit: usize| BucketId::new(["a", "b", "c"][limit], &Key::GLOBAL);
            if let Some((limit, which, tokens)) = given {
                let units = tokens * i64::try_from(bucket(which).token()).unwrap();
                let refund = Adjustment::refund(id(limit), bucket(which), units);
                at_once(memory.adjust(&[refund]).wait()).unwrap();
            }
            let charges: Vec<_> = list
                .into_iter()
                .filter_map(|(limit, (which, cost, second))| {
                    let (bucket, is_pair) = (bucket(which), second > 0);
                    let fits = match is_pair {
                        true => !bucket.too_large_for_pair(cost, Terms::AT_ONCE),
                        false => !bucket.too_large(cost, Terms::AT_ONCE),
                    };
                    let charge = Charge::take(id(limit), bucket, bucket.units(cost)?);
                    fits.then(|| charge.second_shard(second))
                })
                .collect();
            let ask = || at_once(memory.apply(&charges).wait()).unwrap();
            let applied = ask();
            if applied.verdict() != Verdict::Refused {
                continue;
            }
            let told_at = now + applied.wait();
            told = Some(told_at);
            if waits {
                now = told_at;
                clock.set(Timestamp::from_micros(now.as_micros() - 1));
                let again = ask();
                prop_assert_eq!(again.verdict(), Verdict::Refused);
                prop_assert_eq!(again.wait(), Duration::from_micros(1));
                clock.set(now);
                prop_assert_eq!(ask().verdict(), Verdict::Admitted);
            }
        }
    }
}

/// Quotas with few units to a token, so that sums in several of them can be compared exactly.
fn small_quotas() -> impl Strategy<Value = Quota> {
    let parts = (any::<bool>(), 1_u64..=6, 1_u64..=40, 0_u64..=12, 0_i64..40);
    parts.prop_map(|(bucket, rate, period, capacity, start)| {
        let period = Duration::from_micros(period);
        let quota = if bucket {
            Quota::token_bucket(rate, period)
        } else {
            Quota::fixed_window(rate, period).start(Timestamp::from_micros(start))
        };
        quota.capacity(capacity)
    })
}

/// Converts units to fractions of a token, of which a token has `parts`.
fn parts(units: u64, bucket: &Bucket, parts: u64) -> u64 {
    units * (parts / bucket.token())
}

proptest! {
    /// P2 while the quota changes: what ran in a window of time is at most the capacity of the last
    /// quota in it that ran any, and what each quota gained while the bucket counted in it, with
    /// one step of gain each time.
    #[test]
    fn no_window_holds_more_than_the_bound_while_the_quota_changes(
        quotas in prop::collection::vec(small_quotas(), 1..4),
        steps in prop::collection::vec((0_u64..30, any::<bool>(), 1_u64..6, 0_usize..6), 1..80),
    ) {
        let limits: Vec<_> = quotas.into_iter().map(limit).collect();
        // Each token is a whole number of these parts.
        let whole: u64 = limits.iter().map(|limit| limit.bucket().token()).product();
        let clock = ManualClock::new(START);
        let (_, limiter) = store(Memory::new(), &clock);
        let (mut limit, mut passed, mut ran) = (&limits[0], 0, Vec::new());
        let (mut now, mut counts_in) = (START, limits[0].bucket());
        for (micros, forth, cost, which) in steps {
            limit = limits.get(which).unwrap_or(limit);
            // Now and then the clock is set back, and no time has passed.
            let back = i64::try_from(micros).unwrap();
            if forth || micros > 9 {
                now = now + Duration::from_micros(micros);
                passed += micros;
            } else {
                now = Timestamp::from_micros(now.as_micros() - back);
            }
            clock.set(now);
            match at_once(limiter.limit(limit).cost(cost)) {
                Ok(_permit) => {
                    counts_in = limit.bucket();
                    ran.push((passed, cost * whole, counts_in));
                }
                // A refused request does not run, but from now on the bucket counts in its quota,
                // if that is not slower.
                Err(error) if error.is_refused() => {
                    if counts_in.yields_to(limit.bucket()) {
                        counts_in = limit.bucket();
                    }
                    ran.push((passed, 0, counts_in));
                }
                Err(_too_large) => {}
            }
        }
        // What a bucket gains while it counts in this quota.
        let gain = |bucket: &Bucket, micros: u64| {
            parts((micros / bucket.step() + 1) * bucket.gain(), bucket, whole)
        };
        for first in 0..ran.len() {
            let (mut used, mut gained) = (0, 0);
            let (mut since, _, mut counts_in) = ran[first];
            for &(at, cost, bucket) in &ran[first..] {
                used += cost;
                let mut gains_now = gain(counts_in, at - since);
                if counts_in != bucket {
                    gained += gains_now;
                    (since, counts_in, gains_now) = (at, bucket, 0);
                }
                let capacity = parts(bucket.capacity().unsigned_abs(), bucket, whole);
                let bound = capacity + gained + gains_now;
                prop_assert!(
                    cost == 0 || used <= bound,
                    "{used} used, {whole} to a token, from {first} on: {ran:?}"
                );
            }
        }
    }
}

/// The used part of a bucket, in units.
fn used(bucket: &Bucket, state: State) -> u128 {
    u128::from(bucket.capacity().abs_diff(state.value))
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The most units that a bucket can lack.
const MOST: u128 = 1 << 53;

proptest! {
    /// What was used stays used when the quota changes: each change rounds it up by less than a
    /// unit. A full bucket stays full.
    #[test]
    fn a_new_quota_keeps_what_was_used(
        quotas in prop::collection::vec(quotas(), 2..4),
        value in prop_oneof![Just(1_000_000_i64), -1_000_000_i64..1_000_000],
        changes in prop::collection::vec((0_usize..4, 0_u32..1_000_000), 1..20),
    ) {
        let buckets: Vec<_> = quotas.iter().map(|quota| Bucket::new(quota).unwrap()).collect();
        let mut bucket = buckets[0];
        let value = value * (bucket.capacity() / 1_000);
        // No deeper than can be counted.
        let least = (-bucket.capacity()).max(bucket.capacity() - (1 << 53));
        let value = value.clamp(least, bucket.capacity());
        let (mut state, mut now) = (State { value, ts: START }, START);
        for (which, micros) in changes {
            now = now + Duration::from_micros(u64::from(micros));
            let new = buckets[which % buckets.len()];
            let before = bucket.refresh(state, now);
            let after = rescale(&bucket, &new, state, now, START);
            let (old_used, new_used) = (used(&bucket, before), used(&new, after));
            let (old_token, new_token) = (u128::from(bucket.token()), u128::from(new.token()));
            let is_cut = new_used == MOST;
            prop_assert!(is_cut || new_used * old_token >= old_used * new_token);
            prop_assert!((old_used == 0) == (new_used == 0));
            prop_assert!(old_used == 0 || (new_used - 1) * old_token < old_used * new_token);
            prop_assert!(after.ts <= now);
            (bucket, state) = (new, after);
        }
    }

    /// The quota changes back and forth at one instant, in any order. The changes grant nothing.
    /// They lose no whole token, and round up at most to the next fraction of a token that all of
    /// the quotas can count. The window is still that of the first quota.
    #[test]
    fn changes_to_and_fro_end_where_they_began(
        quotas in prop::collection::vec(quotas(), 2..5),
        used_tokens in prop::option::of(0_u64..1_000),
        used_units in prop_oneof![0_u64..100, 0_u64..1_000_000_000_000],
        changes in prop::collection::vec(0_usize..5, 1..20),
    ) {
        let buckets: Vec<_> = quotas.iter().map(|quota| Bucket::new(quota).unwrap()).collect();
        let first = buckets[0];
        let units = used_tokens.and_then(|tokens| first.units(tokens)).unwrap_or(0);
        let began = units.unsigned_abs() + if used_tokens.is_some() { 0 } else { used_units };
        let value = first.capacity() - i64::try_from(began).unwrap();
        let start = first.refresh(first.absent(START, START), START);
        let start = State { value, ts: start.ts };
        let token = |bucket: &Bucket| u128::from(bucket.token());
        let part = buckets.iter().map(token).fold(0, gcd);

        let (mut bucket, mut state) = (first, start);
        for which in changes.into_iter().chain([0]) {
            let new = buckets[which % buckets.len()];
            let after = rescale(&bucket, &new, state, START, START);
            let (now_used, began) = (used(&new, after), used(&first, start));
            if now_used == MOST {
                return Ok(());
            }
            // In fractions of a token: began <= now < the next whole fraction, unless `began` was
            // one.
            prop_assert!(now_used * token(&first) >= began * token(&new), "minted");
            let next_part = (began * part).div_ceil(token(&first));
            prop_assert!(now_used * part <= next_part * token(&new), "lost");
            (bucket, state) = (new, after);
        }
        prop_assert_eq!(state.ts, start.ts);
        prop_assert!(used(&first, state) - used(&first, start) < token(&first) / part);
        if used_tokens.is_some() {
            prop_assert_eq!(state, start);
        }
    }

    /// To another quota and back: less than a unit of each of the two is lost, and less than a unit
    /// of the coarser one if its token is a fraction of the other's.
    #[test]
    fn there_and_back_is_the_same_to_a_unit(
        quotas in prop::array::uniform2(quotas()),
        began in 1_u64..1_000_000_000_000,
    ) {
        let [old, new] = quotas.map(|quota| Bucket::new(&quota).unwrap());
        let start = State { value: old.capacity() - i64::try_from(began).unwrap(), ts: START };
        let there = rescale(&old, &new, start, START, START);
        let start = old.refresh(start, START);
        let back = rescale(&new, &old, there, START, START);
        prop_assume!(used(&new, there) < MOST && used(&old, back) < MOST);
        let lost = used(&old, back) - used(&old, start);
        let (old_token, new_token) = (u128::from(old.token()), u128::from(new.token()));
        // lost / old_token < 1 / old_token + 1 / new_token
        prop_assert!(lost * new_token < old_token + new_token);
        if old_token % new_token == 0 {
            prop_assert!(lost * new_token < old_token);
        } else if new_token % old_token == 0 {
            prop_assert_eq!(lost, 0);
        }
    }
}

proptest! {
    /// The checker finds a violation exactly if a brute-force check of all pairs of instants finds
    /// one.
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
