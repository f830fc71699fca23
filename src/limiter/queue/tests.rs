//! What is not public yet.

use std::task::{Context, Waker};

use tokio::time::{Instant, advance};

use crate::backend::{Key, Memory};
use crate::clock::TokioClock;
use crate::limiter::{Limit, RateLimiter, Ready};
use crate::quota::{Quota, SECOND};

/// How many wait, for how many seconds, and how many have left.
fn status(limiter: &RateLimiter, key: &'static str) -> (usize, Option<u64>, u64) {
    let status = limiter.queues().status("spaced", &Key::from(key));
    let until = status.until.map(|until| until - Instant::now());
    (status.waiting, until.map(|until| until.as_secs()), status.left)
}

#[tokio::test(start_paused = true)]
async fn a_queue_tells_how_many_wait_for_a_key() {
    let limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
    let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    let mut line: Vec<std::pin::Pin<Box<Ready>>> = Vec::new();
    let polled = |ready: &mut std::pin::Pin<Box<Ready>>| {
        ready.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert_eq!(status(&limiter, "alice"), (0, None, 0));
    for _ in 0..4 {
        let own = limiter.limit(&limit).key("alice").reserve().await.unwrap();
        line.push(Box::pin(own.ready()));
        assert!(!line.last_mut().is_some_and(polled));
    }
    assert_eq!(status(&limiter, "alice"), (4, Some(4), 0));
    assert_eq!(status(&limiter, "bob"), (0, None, 0));
    drop(line.remove(1));
    assert_eq!(status(&limiter, "alice"), (3, Some(3), 1));
    advance(3 * SECOND).await;
    assert!(line.iter_mut().all(polled));
    assert_eq!(status(&limiter, "alice"), (0, None, 0));
}
