//! Penalties: tokens taken into debt, and buckets closed until an instant.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::{
    Bucket, State, Terms, Verdict, block, charge, charge_pair, refund, rescale, undo, untouched,
};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Change, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::quota::Kind;
use tollgate::{DAY, HOUR, Key, Limit, MINUTE, Quota, RateLimited, RateLimiter, SECOND, Timestamp};
use tollgate_testing::queue::{Late, ms, paused, reserve, tokens};
use tollgate_testing::{
    START, admitted, ask_and_drop, at_once, is_admitted, limiter, quotas, remaining, store,
};

static CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
static HOT: Limit = Limit::new("hot", Quota::token_bucket(100, MINUTE).shards(10));

static ALL_CLIENTS: Key = Key::GLOBAL;

fn after(start: Timestamp, micros: u64) -> Timestamp {
    start + Duration::from_micros(micros)
}

/// Small buckets of both kinds.
fn small_buckets() -> Vec<Bucket> {
    let mut buckets = Vec::new();
    for (rate, period, capacity) in [(1, 1, 3), (1, 4, 2), (3, 4, 0), (5, 3, 4), (2, 7, 2)] {
        let period = Duration::from_micros(period);
        let bucket = Quota::token_bucket(rate, period).capacity(capacity);
        let window = Quota::fixed_window(rate, period).capacity(capacity);
        let shard = Quota::fixed_window(rate, period).capacity(capacity).shards(3);
        let compiled = [Bucket::new(&bucket), Bucket::new(&window), Bucket::of_shard(&shard)];
        buckets.extend(compiled.map(Result::unwrap));
    }
    buckets
}

/// Calls `check` with every small bucket, many states, instants and ends of blocks.
fn by_brute_force(check: impl Fn(&Bucket, State, Timestamp, Timestamp)) {
    let now = Timestamp::from_micros(1_000);
    for bucket in &small_buckets() {
        for value in -9..=bucket.capacity() {
            // For some of these, the clock was set back since the state was stored.
            for ts in 994..=1_002 {
                let state = State { value, ts: Timestamp::from_micros(ts) };
                for micros in 0..=12 {
                    check(bucket, state, now, after(now, micros));
                }
            }
        }
    }
}

/// The verdict and the wait of a charge that may not reserve.
fn ask(bucket: &Bucket, state: State, units: i64, now: Timestamp) -> (Verdict, Duration) {
    let charged = charge(bucket, state, units, Terms::AT_ONCE, now);
    (charged.verdict(), charged.wait())
}

#[track_caller]
fn assert_closed(bucket: &Bucket, state: State, from: Timestamp, end: Timestamp, what: &str) {
    for at in 0..end.since(from).as_micros().try_into().unwrap() {
        let at = after(from, at);
        for units in 0..=3 {
            let (verdict, wait) = ask(bucket, state, units, at);
            assert_eq!(
                verdict,
                Verdict::Refused,
                "{units} at {at:?}, {what}: {state:?} {bucket:?}"
            );
            assert!(at + wait >= end, "{units} at {at:?} after {wait:?}, {what}: {state:?}");
        }
    }
}

// The rule.

#[test]
fn a_closed_bucket_refuses_until_the_end_and_advertises_when_it_opens() {
    by_brute_force(|bucket, state, now, end| {
        let closed = block(bucket, state, end, now);
        assert_closed(bucket, closed, now, end, "closed");
        // The wait is the smallest that works. Only its last tick is checked, as a debt may last a
        // billion ticks.
        for units in 0..=bucket.capacity() {
            let (verdict, wait) = ask(bucket, closed, units, now);
            assert_eq!(ask(bucket, closed, units, now + wait).0, Verdict::Admitted);
            if verdict == Verdict::Refused {
                let before = now + (wait - Duration::from_micros(1));
                assert_eq!(ask(bucket, closed, units, before).0, Verdict::Refused);
            }
        }
    });
}

#[test]
fn a_token_bucket_opens_empty_at_the_end_and_a_window_at_the_start_of_the_next() {
    by_brute_force(|bucket, state, now, end| {
        let closed = block(bucket, state, end, now);
        if end <= now {
            assert_eq!(closed, bucket.refresh(state, now), "nothing is changed");
            return;
        }
        let gain = i64::try_from(bucket.gain()).unwrap();
        // Either kind opens with its first gain from the end on, unless it was in debt before.
        let first_gain = after(closed.ts, bucket.step());
        assert!(first_gain >= end);
        if state.ts < end {
            assert!(first_gain.since(end).as_micros() < u128::from(bucket.step()));
        }
        let without = bucket.refresh(state, first_gain);
        let opened = bucket.refresh(closed, first_gain);
        assert_eq!(opened.ts, without.ts, "windows stay where they are");
        assert_eq!(opened.value, without.value.min((gain - 1).min(bucket.capacity())));
    });
}

#[test]
fn a_block_never_leaves_more_than_there_was() {
    by_brute_force(|bucket, state, now, end| {
        let closed = block(bucket, state, end, now);
        for at in 0..30 {
            let at = after(closed.ts.max(now), at);
            assert!(bucket.refresh(closed, at).value <= bucket.refresh(state, at).value);
        }
    });
}

#[test]
fn of_two_blocks_the_later_end_holds_in_either_order() {
    by_brute_force(|bucket, state, now, end| {
        for later in 0..=4 {
            let later = after(end, later);
            let once = block(bucket, state, later, now);
            let longer = block(bucket, block(bucket, state, end, now), later, now);
            let shorter = block(bucket, once, end, now);
            if end > now {
                assert_eq!((longer, shorter), (once, once));
            }
        }
    });
}

#[test]
fn a_refund_does_not_open_a_closed_token_bucket() {
    by_brute_force(|bucket, state, now, end| {
        let closed = block(bucket, state, end, now);
        // In its last tick, a closed bucket looks like one that is merely in debt.
        for at in 0..end.since(now).as_micros().saturating_sub(1).try_into().unwrap() {
            let at = after(now, at);
            let given = refund(bucket, closed, 1_000, at);
            match bucket.kind() {
                Kind::TokenBucket => assert_closed(bucket, given, at, end, "given back"),
                // A window is closed until the window begins in which the end lies.
                _ => assert_closed(bucket, given, at, closed.ts, "given back"),
            }
        }
    });
}

#[test]
fn undoing_a_reservation_from_before_a_block_does_not_open_a_token_bucket() {
    by_brute_force(|bucket, state, now, end| {
        let reserving = Terms::reserving(bucket.floor());
        let reserved = charge(bucket, state, 5, reserving, now);
        let is_bucket = bucket.kind() == Kind::TokenBucket;
        if !is_bucket || reserved.verdict() != Verdict::Reserved || state.ts > now {
            return;
        }
        let closed = block(bucket, reserved.after(), end, now);
        for at in 0..end.since(now).as_micros().try_into().unwrap() {
            let at = after(now, at);
            if untouched(bucket, closed, reserved.after(), at) {
                // In its last tick, a closed bucket looks like one that is merely in debt.
                assert_eq!(after(at, 1), end);
            }
        }
    });
}

#[test]
fn a_reservation_under_a_block_comes_after_it() {
    by_brute_force(|bucket, state, now, end| {
        let closed = block(bucket, state, end, now);
        let reserved = charge(bucket, closed, 1, Terms::reserving(bucket.floor()), now);
        if reserved.verdict() == Verdict::Reserved && end > now {
            assert!(now + reserved.wait() >= end);
            assert_eq!(undo(bucket, reserved.after(), 1, now), closed);
        }
    });
}

#[test]
fn two_closed_shards_refuse_together_as_well() {
    by_brute_force(|bucket, state, now, end| {
        let other = State { value: bucket.capacity(), ts: now };
        let closed = [state, other].map(|state| block(bucket, state, end, now));
        for at in 0..end.since(now).as_micros().try_into().unwrap() {
            let at = after(now, at);
            for units in 0..=(2 * bucket.capacity()) {
                let charged = charge_pair(bucket, closed, units, Terms::AT_ONCE, at);
                assert_eq!(charged.verdict(), Verdict::Refused);
                assert!(at + charged.wait() >= end, "{units} at {at:?}: {charged:?}");
            }
        }
    });
}

proptest! {
    #[test]
    fn another_quota_leaves_a_closed_token_bucket_closed(
        quota in quotas(),
        other in quotas(),
        used in 0_u64..1_000,
        time in prop_oneof![1_u64..=10, 1_u64..=10_000_000_000_000],
        then in 0_u64..100,
    ) {
        let (old, new) = (Bucket::new(&quota).unwrap(), Bucket::new(&other).unwrap());
        let state = State { value: old.capacity() - i64::try_from(used).unwrap(), ts: START };
        let end = after(START, time);
        let closed = block(&old, state, end, START);
        let at = after(START, u64::try_from(u128::from(time) * u128::from(then) / 100).unwrap());
        let moved = rescale(&old, &new, closed, at, START);
        // Of a token bucket that is the end, or in longer steps than a tick the start of its last one.
        let closed_until = match old.kind() {
            Kind::TokenBucket => after(closed.ts, 1),
            _ => closed.ts,
        };
        prop_assert!(old.kind() != Kind::TokenBucket || end < after(closed_until, old.step()));
        // In its last tick, a closed bucket looks like one that is merely in debt.
        if closed.ts > at {
            let (verdict, wait) = ask(&new, moved, 0, at);
            prop_assert_eq!(verdict, Verdict::Refused);
            prop_assert!(at + wait >= closed_until, "{:?}", moved);
            // A refund does not open it either.
            let given = refund(&new, moved, i64::MAX, at);
            let (verdict, wait) = ask(&new, given, 0, at);
            prop_assert_eq!(verdict, Verdict::Refused);
            prop_assert!(at + wait >= closed_until, "{:?}", given);
        }
    }

    /// However often the quota changes before the end, even to windows with other starts: the state
    /// remains that of a block, and the block does not end earlier.
    #[test]
    fn no_change_of_quota_opens_a_closed_bucket(
        quotas in prop::collection::vec(quotas(), 2..5),
        used in 0_u64..1_000,
        time in prop_oneof![2_u64..=10, 2_u64..=10_000_000_000_000],
        changes in prop::collection::vec((0_usize..5, 0_u64..100), 1..12),
    ) {
        let buckets: Vec<_> = quotas.iter().map(|quota| Bucket::new(quota).unwrap()).collect();
        let mut bucket = buckets[0];
        let state = State { value: bucket.capacity() - i64::try_from(used).unwrap(), ts: START };
        let mut state = block(&bucket, state, after(START, time), START);
        let mut at = START;
        for (which, then) in changes {
            let rest = u128::from(time) * u128::from(then) / 400;
            at = at.max(after(START, u64::try_from(rest).unwrap()));
            if state.ts <= at {
                break;
            }
            let new = buckets[which % buckets.len()];
            let moved = rescale(&bucket, &new, state, at, START);
            prop_assert!(moved.ts >= state.ts && moved.value <= -1, "{:?} to {:?}", state, moved);
            let last = after(state.ts, new.step());
            prop_assert!(moved.ts < last, "{:?} to {:?}", state, moved);
            // The whole capacity of the new quota is used, and no less than was used before.
            prop_assert!(missing(&new, moved) > u128::from(new.capacity().unsigned_abs()));
            let old_used = missing(&bucket, state) * u128::from(new.token());
            let as_much = missing(&new, moved) * u128::from(bucket.token()) >= old_used;
            prop_assert!(as_much || missing(&new, moved) == 1 << 53, "{:?} to {:?}", state, moved);
            (bucket, state) = (new, moved);
        }
    }

    /// Whatever happens meanwhile, no request runs before the end, and one runs at the advertised
    /// time.
    #[test]
    fn no_request_gets_through_a_block(
        quota in quotas(),
        steps in prop::collection::vec((0_u8..6, 0_u32..1_000), 1..40),
        time in prop_oneof![2_u64..=1_000, 2_u64..=10_000_000_000],
    ) {
        let limit = Limit::try_new("limit", quota).unwrap();
        let clock = ManualClock::new(START);
        let (memory, limiter) = store(Memory::new(), &clock);
        let id = BucketId::new("limit", &ALL_CLIENTS);
        let time = Duration::from_micros(time);
        at_once(limiter.block(&limit, time)).unwrap();
        let end = START + time;
        let mut latest = START;
        for (step, amount) in steps {
            let now = clock_now(&limiter, &limit);
            match step {
                0 => clock.set(now + time * amount / 2_000),
                1 => clock.set(Timestamp::from_micros(now.as_micros() - i64::from(amount))),
                2 => drop(at_once(limiter.block(&limit, time * amount / 1_000)).unwrap()),
                3 => drop(at_once(limiter.penalize(&limit, amount.into())).unwrap()),
                4 => {
                    if let Ok(turn) = at_once(limiter.limit(&limit).reserve()) {
                        // A clock that is set back across the end closes nothing again.
                        prop_assert!(latest.max(now) >= end || turn.at() >= end);
                        drop(turn);
                    }
                }
                // In its last step, a closed bucket looks like one that is merely in debt.
                _ if quota.kind() == Kind::TokenBucket
                    && after(now, limit.bucket().step()) < end =>
                {
                    let units = i64::from(amount) * 1_000_000;
                    let refund = Adjustment::refund(id, limit.bucket(), units);
                    at_once(memory.adjust(&[refund]).wait()).unwrap();
                }
                _ => {}
            }
            let now = clock_now(&limiter, &limit);
            latest = latest.max(now);
            if latest < end {
                let answer = at_once(limiter.limit(&limit).cost(0));
                let Some(wait) = answer.as_ref().err().and_then(RateLimited::retry_after) else {
                    return Err(TestCaseError::fail(format!("{answer:?} before the end")));
                };
                prop_assert!(now + wait >= end);
            }
        }
        let Err(refused) = at_once(limiter.limit(&limit).cost(0)) else {
            return Ok(());
        };
        let (now, wait) = (clock_now(&limiter, &limit), refused.retry_after().unwrap());
        clock.set(now + (wait - Duration::from_micros(1)));
        prop_assert!(!is_admitted(limiter.limit(&limit).cost(0)));
        clock.set(now + wait);
        prop_assert!(is_admitted(limiter.limit(&limit).cost(0)));
    }
}

fn clock_now(limiter: &RateLimiter, limit: &Limit) -> Timestamp {
    at_once(limiter.peek(limit)).unwrap().at()
}

// Blocks that end in the far future.

#[test]
fn a_block_of_any_length_can_be_counted() {
    let last = Timestamp::from_micros(1 << 53);
    for bucket in small_buckets() {
        let full = State { value: bucket.capacity(), ts: START };
        let closed = block(&bucket, full, Timestamp::from_micros(i64::MAX), START);
        assert!(closed.ts < last && closed.value < 0);
        let (verdict, wait) = ask(&bucket, closed, 0, START);
        assert_eq!(verdict, Verdict::Refused);
        assert!(START + wait >= last && (START + wait).since(last) < SECOND, "{wait:?}");
    }
    // If the capacity is the largest number that can be counted, the value cannot go below zero.
    let most = Quota::token_bucket(1, Duration::from_micros(1)).capacity(1 << 53).max_reserved(0);
    let most = Bucket::new(&most).unwrap();
    let closed = block(&most, State { value: most.capacity(), ts: START }, START + HOUR, START);
    assert_eq!(closed.value, 0);
    assert_eq!(ask(&most, closed, 1, START), (Verdict::Refused, HOUR));
}

// Through the limiter.

#[test]
fn a_penalty_goes_into_debt_whatever_the_bucket_holds_and_is_refilled() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let snapshot = at_once(limiter.penalize(&CALLS, 15).key(1_u64)).unwrap();
    assert_eq!(snapshot.tokens().to_string(), "-5");
    assert_eq!((snapshot.fits(), snapshot.wait()), (false, Some(SECOND * 30)));
    let refused = at_once(limiter.limit(&CALLS).key(1_u64)).unwrap_err();
    assert_eq!(refused.retry_after(), Some(SECOND * 36));
    clock.advance(SECOND * 36 - Duration::from_micros(1));
    assert!(!admitted(&limiter, &CALLS, 1, 1));
    clock.advance(Duration::from_micros(1));
    assert!(admitted(&limiter, &CALLS, 1, 1));
    assert_eq!(remaining(&limiter, &CALLS, 2), 10, "other keys keep their tokens");
}

#[test]
fn a_penalty_is_cut_to_the_deepest_debt_that_can_be_counted() {
    let limiter = limiter(&ManualClock::new(START));
    for _ in 0..3 {
        let snapshot = at_once(limiter.penalize(&CALLS, u64::MAX)).unwrap();
        let deepest = CALLS.bucket().capacity() - (1 << 53);
        assert_eq!(snapshot.state().value, deepest);
    }
    at_once(limiter.reset(&CALLS)).unwrap();
    assert_eq!(at_once(limiter.peek(&CALLS)).unwrap().remaining(), 10);
}

#[test]
fn a_penalty_of_zero_stores_nothing() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    let snapshot = at_once(limiter.penalize(&CALLS, 0)).unwrap();
    assert_eq!((snapshot.remaining(), snapshot.fits()), (10, true));
    assert_eq!(at_once(limiter.block(&HOT, Duration::ZERO)).unwrap().remaining(), 100);
    assert!(memory.is_empty());
    assert!(admitted(&limiter, &CALLS, 1, 4));
    assert_eq!(at_once(limiter.penalize(&CALLS, 0).key(1_u64)).unwrap().remaining(), 6);
    assert_eq!(at_once(limiter.block(&CALLS, Duration::ZERO).key(1_u64)).unwrap().remaining(), 6);
    // Less than a tick counts as a tick.
    let snapshot = at_once(limiter.block(&CALLS, Duration::from_nanos(1)).key(1_u64)).unwrap();
    assert!(!snapshot.fits());
}

#[test]
fn a_block_holds_until_its_end_and_reset_lifts_it() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let snapshot = at_once(limiter.block(&CALLS, HOUR).key(1_u64)).unwrap();
    assert_eq!((snapshot.remaining(), snapshot.wait()), (0, Some(HOUR)));
    for _ in 0..100 {
        assert!(!admitted(&limiter, &CALLS, 1, 1), "refusals do not lengthen the block");
    }
    clock.advance(HOUR - Duration::from_micros(1));
    assert!(!admitted(&limiter, &CALLS, 1, 0));
    clock.advance(Duration::from_micros(1));
    assert!(admitted(&limiter, &CALLS, 1, 0));
    assert!(!admitted(&limiter, &CALLS, 1, 1), "the bucket opens empty");
    clock.advance(SECOND * 6);
    assert!(admitted(&limiter, &CALLS, 1, 1));

    at_once(limiter.block(&CALLS, DAY).key(1_u64)).unwrap();
    at_once(limiter.reset(&CALLS).key(1_u64)).unwrap();
    assert_eq!(remaining(&limiter, &CALLS, 1), 10);
}

#[test]
fn a_penalty_during_a_block_adds_to_it_and_earlier_debt_is_refilled_meanwhile() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    at_once(limiter.block(&CALLS, HOUR).key(1_u64)).unwrap();
    at_once(limiter.penalize(&CALLS, 10).key(1_u64)).unwrap();
    at_once(limiter.penalize(&CALLS, 20).key(2_u64)).unwrap();
    at_once(limiter.block(&CALLS, HOUR).key(2_u64)).unwrap();
    let waits =
        [1_u64, 2].map(|key| at_once(limiter.peek(&CALLS).key(key).cost(0)).unwrap().wait());
    assert_eq!(waits, [Some(HOUR + MINUTE), Some(HOUR)]);
}

#[test]
fn all_shards_pay_and_all_are_closed() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock).seed(1);
    let snapshot = at_once(limiter.penalize(&HOT, 57)).unwrap();
    assert_eq!(snapshot.remaining(), 43, "exactly 57 less");
    assert_eq!(snapshot.tokens().to_string(), "43");
    assert_eq!(snapshot.state(), at_once(limiter.peek(&HOT)).unwrap().state());

    // A token with a number of units that three shards cannot pay evenly.
    let uneven = Limit::new("uneven", Quota::token_bucket(3, SECOND).shards(3));
    let snapshot = at_once(limiter.penalize(&uneven, 1)).unwrap();
    assert_eq!(snapshot.state().value, 2 * i64::try_from(uneven.bucket().token()).unwrap());

    at_once(limiter.block(&HOT, MINUTE)).unwrap();
    for second in 0..60 {
        for _ in 0..20 {
            assert!(!is_admitted(limiter.limit(&HOT)), "in second {second}");
        }
        clock.advance(SECOND);
    }
    clock.advance(SECOND * 6);
    assert!(is_admitted(limiter.limit(&HOT)), "each shard has a token again");
    at_once(limiter.block(&HOT, DAY)).unwrap();
    at_once(limiter.reset(&HOT)).unwrap();
    assert_eq!(at_once(limiter.peek(&HOT)).unwrap().remaining(), 100);
}

#[test]
fn a_blocked_window_stays_closed_until_its_end_and_advertises_it() {
    let clock = ManualClock::new(Timestamp::from_micros(25 * 3_600_000_000));
    let limiter = limiter(&clock);
    let daily = Limit::new("daily", Quota::fixed_window(5, DAY).start(Timestamp::UNIX_EPOCH));
    let snapshot = at_once(limiter.block(&daily, HOUR)).unwrap();
    assert_eq!(snapshot.wait(), Some(HOUR * 23));
    assert_eq!(snapshot.window_start(), Some(Timestamp::UNIX_EPOCH + DAY));
    // A block beyond the end of the window lasts to the end of the next one.
    let snapshot = at_once(limiter.block(&daily, DAY)).unwrap();
    assert_eq!(snapshot.wait(), Some(HOUR * 47));
    clock.advance(HOUR * 47 - Duration::from_micros(1));
    assert!(!is_admitted(limiter.limit(&daily)));
    clock.advance(Duration::from_micros(1));
    assert_eq!(at_once(limiter.peek(&daily)).unwrap().remaining(), 4);
}

#[test]
fn buckets_that_begin_below_full_and_buckets_without_capacity_can_be_closed() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let new = Limit::new("new", Quota::token_bucket(10, MINUTE).initial(2));
    let spaced = Limit::new("spaced", Quota::token_bucket(10, MINUTE).capacity(0));
    for limit in [&new, &spaced] {
        assert_eq!(at_once(limiter.block(limit, HOUR)).unwrap().wait(), Some(HOUR));
        clock.advance(HOUR - Duration::from_micros(1));
        assert!(!is_admitted(limiter.limit(limit).cost(0)));
        clock.advance(Duration::from_micros(1));
        assert!(is_admitted(limiter.limit(limit).cost(0)));
    }
}

#[test]
fn other_plans_leave_a_key_blocked() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let limit = |quota: &str| Limit::try_new("plan", quota.parse().unwrap()).unwrap();
    let (free, pro) = (limit("1 per hour"), limit("1000 per second"));
    at_once(limiter.block(&free, DAY)).unwrap();
    for plan in [&pro, &free, &pro] {
        let wait = at_once(limiter.peek(plan)).unwrap().wait().unwrap();
        assert!(wait >= DAY && wait <= DAY + HOUR * 2, "{wait:?}");
    }
    // In its last tick, a closed bucket looks like one that is merely in debt.
    clock.advance(DAY - Duration::from_micros(2));
    assert!(!at_once(limiter.peek(&pro)).unwrap().fits());
    assert_eq!(at_once(limiter.peek(&pro)).unwrap().remaining(), 0);
    clock.advance(Duration::from_micros(2));
    // Then it is empty: 1 of 1 is used, as with any upgrade.
    assert_eq!(at_once(limiter.peek(&pro)).unwrap().remaining(), 999);
}

/// Once a refusal under a plan has advertised its wait, the block ends at that time, with a bucket
/// that is empty under that plan.
#[test]
fn a_block_ends_as_the_last_refusal_advertised() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let limit = |quota: &str| Limit::try_new("plan", quota.parse().unwrap()).unwrap();
    let (free, pro) = (limit("1 per hour"), limit("1000 per second"));
    at_once(limiter.block(&free, DAY)).unwrap();
    let told = |plan| at_once(limiter.limit(plan)).unwrap_err().retry_after().unwrap();
    let ms = Duration::from_millis(1);
    assert_eq!(told(&pro), DAY + ms);
    // All tokens of the larger plan are used, and come back by it until the smaller one admits.
    let back = told(&free);
    assert!(back >= DAY + SECOND && back < DAY + SECOND + ms, "{back:?}");
    assert_eq!(told(&pro), DAY + ms);
    clock.advance(DAY + ms - Duration::from_micros(1));
    assert!(!is_admitted(limiter.limit(&pro)));
    clock.advance(Duration::from_micros(1));
    assert!(is_admitted(limiter.limit(&pro)));
}

/// In a former version, a block on a token bucket became an ordinary debt once it had been counted
/// in a window that had begun, and was over when it was counted in the first quota again.
#[test]
fn a_block_outlasts_plans_in_windows() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let limit = |quota: &str| Limit::try_new("plan", quota.parse().unwrap()).unwrap();
    let (bucket, window) = (limit("1000 per second"), limit("fixed window: 1000 per day"));
    let end = START + MINUTE;
    at_once(limiter.block(&bucket, MINUTE)).unwrap();
    for plan in [&window, &bucket, &window, &bucket] {
        // A penalty is stored under the quota of its plan.
        let _ = at_once(limiter.penalize(plan, 1)).unwrap();
        let wait = at_once(limiter.limit(plan).cost(0)).unwrap_err().retry_after().unwrap();
        assert!(START + wait >= end && START + wait <= end + DAY * 2, "{wait:?}");
    }
}

fn missing(bucket: &Bucket, state: State) -> u128 {
    u128::from(bucket.capacity().abs_diff(state.value))
}

#[test]
fn a_request_that_may_wait_for_less_than_a_block_is_refused_at_once_with_the_wait() {
    let limiter = limiter(&ManualClock::new(START));
    at_once(limiter.block(&CALLS, MINUTE)).unwrap();
    let within = |most| at_once(limiter.limit(&CALLS).reserve_within(most));
    assert_eq!(within(MINUTE).unwrap_err().retry_after(), Some(MINUTE + SECOND * 6));
    let turn = within(MINUTE + SECOND * 6).expect("it may wait");
    assert_eq!(turn.wait(), MINUTE + SECOND * 6);
    // A call on several limits is refused as well, although the other has tokens.
    let both = at_once(limiter.limit(&HOT).and(&CALLS)).unwrap_err();
    assert!(both.retry_after() > Some(MINUTE));
    assert_eq!(at_once(limiter.peek(&HOT)).unwrap().remaining(), 100);
}

#[test]
fn a_permit_that_is_refunded_during_a_block_does_not_open_the_bucket() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let permit = at_once(limiter.limit(&CALLS).cost(9)).unwrap();
    at_once(limiter.block(&CALLS, HOUR)).unwrap();
    assert_eq!(at_once(permit.refund()).unwrap().remaining(), 0);
    let wait = at_once(limiter.limit(&CALLS)).unwrap_err().retry_after();
    assert_eq!(wait, Some(HOUR + SECOND * 6));
}

#[test]
fn a_clock_that_is_set_back_opens_no_closed_bucket() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    at_once(limiter.block(&CALLS, HOUR)).unwrap();
    clock.set(Timestamp::from_micros(START.as_micros() - 5_000_000));
    let wait = at_once(limiter.peek(&CALLS).cost(0)).unwrap().wait();
    assert_eq!(wait, Some(HOUR + SECOND * 5), "the block ends at the same instant");
}

#[test]
fn a_closed_bucket_is_evicted_last() {
    let (memory, limiter) = store(Memory::new().max_keys(100), &ManualClock::new(START));
    at_once(limiter.block(&CALLS, DAY).key(0_u64)).unwrap();
    for key in 1..10_000 {
        assert!(admitted(&limiter, &CALLS, key, 9));
    }
    assert!(memory.len() <= 100);
    assert!(!admitted(&limiter, &CALLS, 0, 1));
    memory.purge();
    assert!(!admitted(&limiter, &CALLS, 0, 1));
}

/// Buckets of other limits may take much longer to refill than a block lasts.
#[test]
fn a_closed_bucket_is_not_evicted_for_buckets_that_refill_slowly() {
    static YEARLY: Limit =
        Limit::new("yearly", Quota::token_bucket(10, Duration::from_hours(8_760)));
    let clock = ManualClock::new(START);
    let (memory, limiter) = store(Memory::new().max_keys(100), &clock);
    at_once(limiter.block(&CALLS, MINUTE).key(0_u64)).unwrap();
    for key in 1..10_000 {
        assert!(admitted(&limiter, &YEARLY, key, 9));
    }
    assert!(memory.len() <= 100);
    clock.advance(MINUTE - Duration::from_micros(1));
    assert!(!admitted(&limiter, &CALLS, 0, 1));
    // After the block, it is evicted like any other.
    clock.advance(MINUTE);
    assert!(admitted(&limiter, &CALLS, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn reservations_from_before_a_block_keep_their_instants_and_later_ones_come_after_it() {
    let limiter = paused();
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let before = reserve(&limiter, &SPACED, 1);
    let blocked = at_once(limiter.block(&SPACED, SECOND)).unwrap();
    let end = blocked.at() + SECOND;
    let later = reserve(&limiter, &SPACED, 1);
    assert_eq!((before.wait(), later.wait()), (ms(100), ms(1_100)));
    let begun = tokio::time::Instant::now();
    let _permit = before.ready().await;
    assert!(begun.elapsed() < ms(102));
    // The reservation is given up, and the bucket stays closed.
    drop(later);
    assert!(at_once(limiter.limit(&SPACED)).is_err_and(|error| error.is_too_large()));
    assert!(reserve(&limiter, &SPACED, 1).at() >= end);
}

#[tokio::test(start_paused = true)]
async fn a_slot_from_before_a_block_moves_no_waiter_before_its_end() {
    let limiter = paused();
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let before = reserve(&limiter, &SPACED, 1);
    at_once(limiter.block(&SPACED, SECOND)).unwrap();
    let begun = tokio::time::Instant::now();
    let [first, second] = [1_100, 1_200].map(|wait| {
        let later = reserve(&limiter, &SPACED, 1);
        assert_eq!(later.wait(), ms(wait));
        tokio::spawn(async move {
            let _permit = later.ready().await;
            begun.elapsed()
        })
    });
    tollgate_testing::queue::settled().await;
    drop(before);
    // The bucket is empty at the end of the block, although a waiter from before it has left.
    assert_eq!(first.await.unwrap().as_millis() / 50, 22);
    assert_eq!(second.await.unwrap().as_millis() / 50, 24);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_carries_out_a_penalty_although_the_call_is_dropped() {
    let (late, limiter, past) = Late::new();
    let held = late.close();
    ask_and_drop(limiter.block(&CALLS, HOUR));
    ask_and_drop(limiter.penalize(&HOT, 50));
    assert_eq!((tokens(&past, &CALLS), tokens(&past, &HOT)), (10.0, 100.0));
    held.let_go();
    tollgate_testing::queue::settled().await;
    assert!(tokens(&past, &CALLS) < 0.0);
    assert_eq!(tokens(&past, &HOT), 50.0);
    late.open();
    assert!(limiter.block(&CALLS, HOUR).await.unwrap().wait() == Some(HOUR));
}

#[test]
fn once_a_bucket_is_blocked_no_thread_is_admitted() {
    static WIDE: Limit = Limit::new("wide", Quota::token_bucket(1_000_000_000, HOUR).shards(4));
    for limit in [&WIDE, &Limit::new("one", Quota::token_bucket(1_000_000_000, HOUR))] {
        let limiter = limiter(&ManualClock::new(START));
        let (blocked, begun) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| {
                scope.spawn(|| {
                    let mut refused = 0;
                    while refused < 1_000 {
                        // Read before the call: a call that starts after the block has to be
                        // refused.
                        let is_blocked = blocked.load(Ordering::Acquire);
                        let permit = at_once(limiter.limit(limit));
                        assert!(!(is_blocked && permit.is_ok()), "admitted after the block");
                        refused += u32::from(is_blocked);
                        // A token from before the block comes back after it, and does not open the
                        // bucket.
                        if let Ok(permit) = permit {
                            at_once(permit.refund()).unwrap();
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            while begun.load(Ordering::Relaxed) < 1_000 {
                std::thread::yield_now();
            }
            at_once(limiter.block(limit, HOUR)).unwrap();
            blocked.store(true, Ordering::Release);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

#[test]
fn a_block_and_a_refund_in_one_list_are_both_carried_out() {
    let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
    assert!(admitted(&limiter, &CALLS, 1, 5) && admitted(&limiter, &CALLS, 2, 5));
    let keys = [Key::from(1_u64), Key::from(2_u64)];
    let [one, two] = [&keys[0], &keys[1]].map(|key| BucketId::new("calls", key));
    let bucket = CALLS.bucket();
    let refunds =
        [Adjustment::block(one, bucket, HOUR), Adjustment::refund(two, bucket, bucket.capacity())];
    assert_eq!(refunds[0].change(), Change::Block { time: HOUR });
    let refunded = at_once(memory.adjust(&refunds).wait()).unwrap();
    assert_eq!(refunded.verdict(), Verdict::Admitted);
    assert!(!admitted(&limiter, &CALLS, 1, 0));
    assert_eq!(remaining(&limiter, &CALLS, 2), 10);
}

/// A store that panics when its answer is polled, and counts the polls.
#[derive(Debug)]
struct Panicking(Arc<AtomicU32>);

impl Panicking {
    fn answer<T: Send + 'static>(&self) -> Answer<T> {
        let polls = Arc::clone(&self.0);
        Answer::pending(poll_fn(move |_| {
            polls.fetch_add(1, Ordering::Relaxed);
            panic!("the store is broken")
        }))
    }
}

impl Backend for Panicking {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        self.answer()
    }

    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        self.answer()
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        self.answer()
    }
}

#[tokio::test]
async fn an_answer_that_panics_is_not_polled_again() {
    let polls = Arc::<AtomicU32>::default();
    let limiter = RateLimiter::new(Panicking(Arc::clone(&polls)));
    let penalized = tokio::spawn(async move { limiter.penalize(&CALLS, 1).await.is_ok() });
    assert!(penalized.await.unwrap_err().is_panic());
    // Gives a task that polls the answer again the time to do so.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}
