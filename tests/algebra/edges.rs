//! The formula at the ends of its ranges, called directly.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::algebra::{
    Bucket, State, Terms, Verdict, block, calculate, charge, refund, rescale, undo, untouched,
};
use tollgate::clock::{Clock, ManualClock, SystemClock};
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, SECOND, Timestamp};
use tollgate_testing::{START, at_once, is_admitted, limiter};

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(10, HOUR));

#[test]
fn a_wait_of_exactly_the_longest_is_reserved() {
    let bucket = Bucket::new(&Quota::token_bucket(1, SECOND)).unwrap();
    let empty = State { value: 0, ts: START };
    let one = bucket.units(1).unwrap();
    let within = |wait| {
        let terms = Terms::reserving(bucket.floor()).within(wait);
        charge(&bucket, empty, one, terms, START).verdict()
    };
    assert_eq!(within(SECOND), Verdict::Reserved);
    assert_eq!(within(SECOND - Duration::from_nanos(1)), Verdict::Refused);
}

#[test]
fn a_floor_above_zero_makes_nothing_too_large() {
    let bucket = Bucket::new(&Quota::token_bucket(5, SECOND)).unwrap();
    let terms = Terms::reserving(1);
    let full = State { value: bucket.capacity(), ts: START };
    assert_eq!(charge(&bucket, full, bucket.capacity(), terms, START).verdict(), Verdict::Admitted);
    assert!(!bucket.too_large(5, terms) && bucket.too_large(6, terms));
}

#[test]
fn a_changed_quota_refills_nothing_while_the_clock_is_back() {
    let old = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
    let new = Bucket::new(&Quota::fixed_window(10, HOUR).start(START)).unwrap();
    let back = Timestamp::from_micros(START.as_micros() - 1);
    let changed = rescale(&old, &new, State { value: 0, ts: START }, back, START);
    assert_eq!(changed, State { value: 0, ts: START });
    assert_eq!(new.refresh(changed, START).value, 0);
}

#[test]
fn windows_begin_where_the_new_quota_says() {
    let window = |rate, minutes: u32, start: u32| {
        let start = START + MINUTE * start;
        Bucket::new(&Quota::fixed_window(rate, MINUTE * minutes).start(start)).unwrap()
    };
    let old = window(10, 60, 0);
    let state = State { value: 3, ts: START };
    let ts = |new: &Bucket, at: u32| rescale(&old, new, state, START + MINUTE * at, START).ts;
    assert_eq!(ts(&window(10, 60, 20), 30), START + MINUTE * 20, "another start");
    assert_eq!(ts(&window(10, 30, 0), 45), START + MINUTE * 30, "another period");
    assert_eq!(ts(&window(99, 60, 0), 45), START, "another rate: the same window");
    let bucket = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
    assert_eq!(ts(&bucket, 45), START + MINUTE * 45, "no windows any more");
}

#[test]
fn a_full_bucket_stays_full_when_its_quota_changes() {
    let bucket = |quota| Bucket::new(&quota).unwrap();
    let old = bucket(Quota::token_bucket(10, HOUR));
    let full = State { value: old.capacity(), ts: START };
    // It was filled long ago.
    let empty = State { value: 0, ts: Timestamp::from_micros(0) };
    for new in [
        bucket(Quota::token_bucket(100, MINUTE)),
        bucket(Quota::token_bucket(100, MINUTE).initial(7)),
        bucket(Quota::token_bucket(10, HOUR).initial(0)),
        bucket(Quota::token_bucket(10, HOUR).capacity(0)),
        bucket(Quota::fixed_window(10, HOUR).initial(3)),
    ] {
        for state in [full, empty] {
            assert_eq!(rescale(&old, &new, state, START, START), new.absent(START, START));
        }
        let nearly = State { value: old.capacity() - 1, ..full };
        let changed = rescale(&old, &new, nearly, START, START);
        assert_eq!(changed.value, new.capacity() - 1, "a unit of either is used");
    }
}

#[test]
fn a_debt_beyond_the_largest_number_is_cut() {
    let few = Bucket::new(&Quota::fixed_window(10, DAY).start(START)).unwrap();
    let many = Bucket::new(&Quota::token_bucket(10, DAY)).unwrap();
    let deepest = |bucket: &Bucket| bucket.capacity() - (1 << 53);
    let state = State { value: deepest(&few), ts: START };
    let changed = rescale(&few, &many, state, START, START);
    assert_eq!(changed, State { value: deepest(&many), ts: START });
    // A state that no function returns is no deeper.
    let state = State { value: i64::MIN, ts: START };
    assert_eq!(rescale(&few, &many, state, START, START), changed);
}

#[test]
fn a_cost_above_the_largest_number_is_refused() {
    let answer = calculate(&Quota::token_bucket(10, SECOND), None, START, u64::MAX).unwrap();
    assert_eq!(answer.verdict(), Verdict::Refused);
    assert!(answer.too_large() && answer.too_large_to_reserve());
}

#[test]
fn a_bucket_is_full_again_when_it_says_so() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    static WINDOW: Limit = Limit::new("window", Quota::fixed_window(10, HOUR).start(START));
    for (limit, full_after) in [(&LOGIN, 12 * MINUTE), (&WINDOW, 50 * MINUTE)] {
        clock.set(START + 10 * MINUTE);
        assert!(is_admitted(limiter.limit(limit).cost(2)));
        let seen = at_once(limiter.peek(limit)).unwrap();
        assert_eq!(seen.full_at().since(seen.at()), full_after);
        clock.advance(full_after - Duration::from_micros(1));
        assert_ne!(at_once(limiter.peek(limit)).unwrap().state().value, limit.bucket().capacity());
        clock.advance(Duration::from_micros(1));
        let seen = at_once(limiter.peek(limit)).unwrap();
        assert_eq!(seen.full_at(), seen.at());
    }
}

#[test]
fn limits_of_one_name_with_different_quotas_differ() {
    let other = Limit::new("login", Quota::token_bucket(11, HOUR));
    assert_ne!(LOGIN, other);
    assert_ne!(LOGIN, Limit::new("log-in", *LOGIN.quota()));
    assert_eq!(LOGIN, Limit::try_new(String::from("login"), *LOGIN.quota()).unwrap());
}

#[test]
fn the_system_clock_is_anchored_at_the_epoch_and_goes_on() {
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let clock = SystemClock::new();
    let first = clock.now();
    assert!(first.since(Timestamp::UNIX_EPOCH) + MINUTE >= before);
    // No sleep: a microsecond passes by itself in so many looks.
    assert!((0..10_000_000).any(|_| clock.now() > first));
}

/// So no rule over two numbers can give all back to the one without opening the other.
#[test]
fn debt_from_before_the_clock_was_set_back_is_the_state_of_a_block() {
    let bucket = Bucket::new(&Quota::token_bucket(1, SECOND).capacity(5)).unwrap();
    let back = Timestamp::from_micros(START.as_micros() - 60_000_000);
    let full = |ts| State { value: bucket.capacity(), ts };
    let terms = Terms::reserving(bucket.floor());
    let reserved = charge(&bucket, full(START), bucket.capacity() + 1, terms, START).state();
    let blocked = block(&bucket, full(back), START + Duration::from_micros(1), back);
    assert_eq!(reserved, blocked);
    let refunded = refund(&bucket, reserved, bucket.capacity(), back);
    assert_eq!(refunded, blocked, "a refund does not open a block");
    // A reservation is undone all the same: the state is the one that it has left.
    assert!(untouched(&bucket, reserved, reserved, back));
    assert_eq!(undo(&bucket, reserved, bucket.capacity() + 1, back), full(START));
}
