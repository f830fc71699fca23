//! Times that lie in the future, where the store has a clock, and where each host goes by its own.

use std::sync::Arc;

use super::{CasMap, on};
use crate::Optimistic;
use tollgate::clock::ManualClock;
use tollgate::{HOUR, MINUTE, days};
use tollgate::{Limit, Quota, RateLimiter, Timestamp};
use tollgate_conformance::history::START;

static LOGIN: Limit = Limit::new("login", Quota::token_bucket(2, HOUR));
static SHARDS: Limit = Limit::new("shards", Quota::token_bucket(8, HOUR).shards(2));

async fn gains_from_now_on<const SEVERAL: bool>() {
    let clock = ManualClock::new(START + days(3_650));
    let (map, store) =
        on(CasMap::<SEVERAL> { clock: Some(clock.clone()), tells_time: true, ..CasMap::default() });
    // One try, as no other call is faster.
    let limiter = RateLimiter::new(store.deadline(HOUR).tries(1));
    drop(limiter.limit(&LOGIN).key("a").cost(2).await.unwrap());
    for _ in 0..8 {
        drop(limiter.limit(&SHARDS).key("a").await.unwrap());
    }
    drop(limiter.block(&LOGIN, HOUR).key("blocked").await.unwrap());
    clock.set(START);
    // A look is enough.
    assert_eq!(limiter.peek(&LOGIN).key("a").await.unwrap().remaining(), 0);
    let swaps = map.counts()[1];
    assert!(limiter.limit(&SHARDS).key("a").await.unwrap_err().is_refused());
    // The refusal compares both once more, if it can.
    let compared = u64::from(SEVERAL);
    assert_eq!(map.counts()[1], swaps + 2 + compared, "both shards");
    clock.advance(MINUTE * 30);
    drop(limiter.limit(&LOGIN).key("a").await.unwrap());
    for _ in 0..4 {
        drop(limiter.limit(&SHARDS).key("a").await.unwrap());
    }
    assert!(limiter.limit(&SHARDS).key("a").await.unwrap_err().is_refused());
    // A block keeps its word, by the clock that has set it.
    let blocked = limiter.limit(&LOGIN).key("blocked").await.unwrap_err();
    assert!(blocked.retry_after() > Some(days(3_649)), "{blocked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bucket_of_a_time_years_ahead_of_the_clock_of_the_store_gains_from_now_on() {
    gains_from_now_on::<true>().await;
    gains_from_now_on::<false>().await;
}

/// Two hosts that differ take turns. Were the time of the one read as now by the other, the bucket
/// would gain the difference with each turn.
#[tokio::test(start_paused = true)]
async fn hosts_with_clocks_of_their_own_leave_times_as_they_are() {
    for clocks in [[START + HOUR * 2, START], [START, Timestamp::UNIX_EPOCH]] {
        let map = Arc::new(CasMap::<true>::default());
        let clocks = clocks.map(ManualClock::new);
        let hosts = clocks
            .each_ref()
            .map(|clock| RateLimiter::new(Optimistic::new(Arc::clone(&map)).clock(clock.clone())));
        let mut admitted = 0;
        for _ in 0..60 {
            for (limiter, clock) in hosts.iter().zip(&clocks) {
                admitted += u32::from(limiter.limit(&LOGIN).key("a").await.is_ok());
                clock.advance(MINUTE);
            }
        }
        // The capacity, and what an hour brings.
        assert!(admitted <= 4, "{admitted}");
    }
}
