//! When a limit starts again, as a page on usage shows it.

use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Limit, MINUTE, Quota, Snapshot, Timestamp};
use tollgate_testing::{START, at_once, limiter};

static DAILY: Limit = Limit::new("daily", Quota::fixed_window(100, DAY).start(START));
static PHASED: Limit = Limit::new("phased", Quota::fixed_window(5, HOUR));
static ROLLING: Limit =
    Limit::new("rolling", Quota::fixed_window(10, HOUR).capacity(30).initial(0).start(START));
static BUCKET: Limit = Limit::new("bucket", Quota::token_bucket(60, HOUR));

/// When a snapshot says that the window ends, that the limit starts again, and that it is full.
#[track_caller]
fn times(snapshot: &Snapshot) -> [Option<Timestamp>; 3] {
    [snapshot.window_end(), snapshot.resets_at(), Some(snapshot.full_at())]
}

#[test]
fn a_window_starts_again_at_its_end_whether_it_is_used_or_not() {
    let clock = ManualClock::new(START + 6 * HOUR);
    let limiter = limiter(&clock);
    let end = Some(START + DAY);
    let seen = || at_once(limiter.peek(&DAILY).key(7)).unwrap();
    assert_eq!(times(&seen()), [end, end, Some(START + 6 * HOUR)], "unused, and so full");
    let permit = at_once(limiter.limit(&DAILY).key(7).cost(100)).unwrap();
    assert_eq!(times(&permit.snapshot()), [end; 3]);
    let refused = at_once(limiter.limit(&DAILY).key(7)).unwrap_err();
    assert_eq!(times(&refused.snapshots()[0]), [end; 3]);
    assert_eq!(refused.retry_after(), Some(18 * HOUR), "a refusal waits for the same instant");
    assert_eq!(times(&at_once(permit.settle(90)).unwrap()), [end; 3]);
    // The next window begins without a request.
    clock.set(START + DAY);
    assert_eq!(times(&seen()), [Some(START + 2 * DAY), Some(START + 2 * DAY), Some(START + DAY)]);
    clock.set(START + 9 * DAY + HOUR);
    let next = Some(START + 10 * DAY);
    assert_eq!(times(&seen()), [next, next, Some(START + 9 * DAY + HOUR)]);
}

#[test]
fn a_window_in_debt_gains_at_its_end_and_is_whole_later() {
    let clock = ManualClock::new(START + HOUR);
    let limiter = limiter(&clock);
    let [end, full] = [Some(START + DAY), Some(START + 4 * DAY)];
    let owes = at_once(limiter.penalize(&DAILY, 350).key(7)).unwrap();
    assert_eq!(times(&owes), [end, end, full]);
    assert_eq!(times(&at_once(limiter.peek(&DAILY).key(7)).unwrap()), [end, end, full]);
    let reserved = at_once(limiter.limit(&DAILY).key(7).cost(20).reserve()).unwrap();
    assert_eq!(times(&reserved.snapshot()), [end, end, full]);
    // With a capacity above the rate, what a window brings is not all.
    let seen = at_once(limiter.peek(&ROLLING)).unwrap();
    let (start, step) = (START + HOUR, HOUR);
    assert_eq!(times(&seen), [Some(start + step), Some(start + step), Some(start + 3 * step)]);
}

/// A block closes a window until the end of the one in which it ends.
#[test]
fn a_blocked_key_starts_again_when_the_block_is_over() {
    let limiter = limiter(&ManualClock::new(START + HOUR));
    let blocked = at_once(limiter.block(&DAILY, 2 * DAY).key(7)).unwrap();
    assert_eq!(blocked.blocked_until(), Some(START + 3 * DAY));
    assert_eq!(blocked.resets_at(), blocked.blocked_until());
    assert_eq!(blocked.window_end(), blocked.blocked_until());
    // A bucket is empty then, and full a while later.
    let blocked = at_once(limiter.block(&BUCKET, 2 * DAY).key(7)).unwrap();
    assert_eq!(blocked.blocked_until(), Some(START + HOUR + 2 * DAY));
    assert_eq!(times(&blocked), [None, Some(blocked.full_at()), Some(START + 2 * HOUR + 2 * DAY)]);
}

#[test]
fn a_bucket_starts_again_when_it_is_full() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let times_of = |cost: u64| {
        let limit = Limit::try_new(format!("bucket {cost}"), *BUCKET.quota()).unwrap();
        at_once(limiter.penalize(&limit, cost)).unwrap();
        let [end, resets, full] = times(&at_once(limiter.peek(&limit)).unwrap());
        assert_eq!((end, resets), (None, full));
        resets.unwrap().since(START)
    };
    assert_eq!([0, 1, 60, 90].map(times_of), [0, 1, 60, 90].map(|minutes| minutes * MINUTE));
    clock.advance(7 * MINUTE);
    let unused = at_once(limiter.peek(&BUCKET)).unwrap();
    assert_eq!(unused.resets_at(), Some(unused.at()));
}

/// Where no start is given, each key has windows of its own: an hour that it first asks in may be
/// over in a minute.
#[test]
fn keys_start_again_at_times_of_their_own_and_those_with_a_start_together() {
    let limiter = limiter(&ManualClock::new(START));
    let left = |limit: &Limit, key: u64| {
        let seen = at_once(limiter.peek(limit).key(key)).unwrap();
        let (start, end) = (seen.window_start().unwrap(), seen.window_end().unwrap());
        assert!(start <= START && START < end && seen.resets_at() == Some(end));
        end.since(START).as_secs()
    };
    let mut lefts: Vec<_> = (0..200).map(|key| left(&PHASED, key)).collect();
    lefts.sort_unstable();
    let (shortest, longest) = (lefts[0], lefts[199]);
    assert!(shortest < 120 && longest > 3_480, "{shortest} s to {longest} s");
    assert!((1_500..2_100).contains(&lefts[100]), "{} s", lefts[100]);
    for key in 0..200 {
        assert_eq!(left(&DAILY, key), 86_400);
    }
}
