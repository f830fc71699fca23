//! Requests that two processes count in one store while they are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::limiter::InFlight;
use tollgate::{HOUR, Limit, Quota, RateLimiter};

use super::dice::Dice;
use super::traffic::wait_until;

static THREE: Limit = Limit::new("three at once", Quota::in_flight(3).lost_after(HOUR));
static CRASHED: Limit = Limit::new("crashed", Quota::in_flight(3).lost_after(HOUR));

const TASKS: u64 = 4;
const CALLS: u64 = 60;

/// Never more than three run in both processes together, whether they end or their calls are dropped,
/// and all tokens are back at the end.
pub async fn three_run_at_most(nodes: [RateLimiter; 2]) {
    let running = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for (node, task) in (0..nodes.len()).flat_map(|node| (0..TASKS).map(move |task| (node, task))) {
        let (limiter, running) = (nodes[node].clone(), Arc::clone(&running));
        tasks.push(tokio::spawn(async move {
            let (dice, mut admitted) = (&mut Dice((node as u64) << 16 | task), 0);
            for _ in 0..CALLS {
                let call = limiter.limit(&THREE);
                let answer = match dice.below(4) {
                    // Its client has gone before the store has answered.
                    0 => tokio::select! {
                        biased;
                        answer = call => answer,
                        () = tokio::task::yield_now() => continue,
                    },
                    _ => call.await,
                };
                match answer {
                    Ok(permit) => {
                        let permit = permit.in_flight();
                        let others = running.fetch_add(1, Ordering::SeqCst);
                        assert!(others < 3, "{others} others run");
                        for _ in 0..dice.below(20) {
                            tokio::task::yield_now().await;
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        admitted += 1;
                        drop(permit);
                    }
                    Err(error) => {
                        assert!(error.is_refused(), "{error}");
                        assert_eq!(error.retry_after(), None, "the end of a request is unknown");
                    }
                }
            }
            admitted
        }));
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert!(admitted > 3, "only {admitted} have run");
    wait_until("all tokens come back", async || left(&nodes[0], &THREE).await == 3).await;
}

/// A process that crashes gives nothing back: what it held is there again after an hour, and a request
/// that has run for longer gives nothing back a second time. `set_clock` puts the clock of the store
/// ahead by so many seconds.
pub async fn lost_tokens_are_there_again(nodes: [RateLimiter; 2], set_clock: impl Fn(i64)) {
    let [crashes, lives] = &nodes;
    std::mem::forget(start(crashes).await.unwrap());
    std::mem::forget(start(crashes).await.unwrap());
    let slow = start(lives).await.unwrap();
    assert!(start(lives).await.is_none());
    // A minute less: a test may take as long.
    set_clock(3_540);
    assert!(start(lives).await.is_none(), "the hour is not over");
    set_clock(3_601);
    let running = [start(lives).await.unwrap(), start(lives).await.unwrap()];
    assert_eq!(left(crashes, &CRASHED).await, 1);
    drop(slow);
    let third = start(crashes).await.unwrap();
    assert!(start(lives).await.is_none(), "the token of the slow one was there before");
    drop((running, third));
    wait_until("all tokens come back", async || left(lives, &CRASHED).await == 3).await;
}

async fn start(limiter: &RateLimiter) -> Option<InFlight<'_>> {
    match limiter.limit(&CRASHED).await {
        Ok(permit) => Some(permit.in_flight()),
        Err(error) => {
            assert!(error.is_refused(), "{error}");
            None
        }
    }
}

async fn left(limiter: &RateLimiter, limit: &Limit) -> u64 {
    limiter.peek(limit).await.unwrap().remaining()
}
