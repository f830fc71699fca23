//! Windows of a calendar on a real server, which knows none: a node that is wrong about the server's
//! time, and a window that ends between its look and the decision.

use std::time::Duration;

use tollgate::backend::{Backend, Memory};
use tollgate::clock::{Clock, ManualClock};
use tollgate::quota::Calendar;
use tollgate::{Limit, Quota, RateLimiter, Timestamp};
use tollgate_conformance::history::{History, START, expect_ready, play_step};
use tollgate_kit::store_time::StoreTime;

use crate::cases::seeds;

const TICK: Duration = Duration::from_micros(1);
const DAY: i64 = 86_400_000_000;

/// Stores on a server, by the prefix of their keys.
pub trait Connect<S>: AsyncFn(&ManualClock, String) -> S {}

impl<S, F: AsyncFn(&ManualClock, String) -> S> Connect<S> for F {}

/// What a store believes of the server's time.
type TimeOf<S> = fn(&S) -> &StoreTime;

/// Holds that a node whose clock is days off is answered as memory answers.
pub async fn a_clock_that_is_days_off_changes_no_answer<S: Backend>(
    connect: impl Connect<S>,
    time_of: TimeOf<S>,
) {
    let clock = ManualClock::new(START);
    let mut again = 0;
    for seed in seeds(16) {
        clock.set(START);
        let store = connect(&clock, format!("o{seed}")).await;
        let memory = Memory::new().clock(clock.clone()).keep_full();
        let mut history = History::new(seed);
        let time = time_of(&store);
        for played in 0..100 {
            history.pass(&clock);
            let step = history.step();
            let most = history.dice.pick(&[0, 4 * DAY, 400 * DAY]);
            let ahead = i64::try_from(history.dice.up_to(2 * most.unsigned_abs())).unwrap() - most;
            time.believe(ahead);
            let here = expect_ready(play_step(&memory, &step)).unwrap();
            let there = play_step(&store, &step).wait().await.unwrap();
            assert_eq!(here, there, "seed {seed}, {played} steps before: {step:?}");
            again += u64::from(time.ahead() != ahead);
        }
    }
    assert!(again > 20, "{again}");
}

/// Each month of two years, to the microsecond and to the second of `Retry-After`.
pub async fn a_month_ends_although_a_node_still_believes_in_it<S>(
    connect: impl Connect<S>,
    time_of: TimeOf<S>,
) where
    S: Backend + Clone,
{
    let limit = Limit::new("plan", Quota::calendar(1, Calendar::monthly().zone("Europe/Berlin")));
    let start: Timestamp = "2027-01-15T12:00:00Z".parse().unwrap();
    let clock = ManualClock::new(start);
    let store = connect(&clock, "months".to_owned()).await;
    let limiter = RateLimiter::new(store.clone());
    for month in 0..24 {
        limiter.limit(&limit).key("alice").await.unwrap();
        let refused = limiter.limit(&limit).key("alice").await.unwrap_err();
        let wait = refused.retry_after().unwrap();
        clock.advance(wait - TICK);
        // As if the call had been made long before.
        time_of(&store).believe(-10 * DAY);
        let refused = limiter.limit(&limit).key("alice").await.unwrap_err();
        assert_eq!(refused.retry_after(), Some(TICK), "{month}");
        clock.advance(TICK);
        let begun = clock.now().to_string();
        let midnights = ["-01T00:00:00Z", "T23:00:00Z", "T22:00:00Z"];
        assert!(midnights.iter().any(|midnight| begun.ends_with(midnight)), "{begun}");
        time_of(&store).believe(-1);
    }
}
