//! Layers over a store that charges one limit at a time.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::Request;
use tollgate::backend::{BackendError, CircuitBreaker, DenyCache, Fallback, Memory};
use tollgate::middleware::Portion;
use tollgate::{DAY, Limit, Quota, RateLimitExt, RateLimiter, Rule};
use tollgate_leasing::Leasing;
use tollgate_optimistic::{Optimistic, Swap, SwapStore};
use tower::ServiceExt as _;

static FIRST: Limit = Limit::new("first", Quota::token_bucket(2, DAY));
static SECOND: Limit = Limit::new("second", Quota::token_bucket(10, DAY));
static THIRD: Limit = Limit::new("third", Quota::token_bucket(10, DAY));

/// A map that swaps one value at a time, or several.
#[derive(Debug, Default)]
struct Map<const SEVERAL: bool>(Mutex<HashMap<String, Vec<u8>>>);

impl<const SEVERAL: bool> SwapStore for Map<SEVERAL> {
    const NAME: &'static str = "map";
    const SWAPS_SEVERAL: bool = SEVERAL;

    async fn load(&self, key: &str) -> Result<Option<Vec<u8>>, BackendError> {
        Ok(self.0.lock().unwrap().get(key).cloned())
    }

    async fn swap(&self, swap: &Swap<'_>) -> Result<bool, BackendError> {
        self.swap_all(std::slice::from_ref(swap)).await
    }

    async fn swap_all(&self, swaps: &[Swap<'_>]) -> Result<bool, BackendError> {
        let mut map = self.0.lock().unwrap();
        if swaps.iter().any(|swap| map.get(swap.key()).map(Vec::as_slice) != swap.old()) {
            return Ok(false);
        }
        for swap in swaps {
            match swap.new_value() {
                Some(value) => map.insert(swap.key().to_owned(), value.to_owned()),
                None => map.remove(swap.key()),
            };
        }
        Ok(true)
    }
}

fn one_at_a_time() -> RateLimiter {
    RateLimiter::new(Optimistic::new(Map::<false>::default()))
}

/// The text of a panic.
#[track_caller]
fn panic_of<T>(run: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(run)) else { panic!("there was no panic") };
    payload.downcast_ref::<String>().unwrap().clone()
}

async fn statuses(app: &Router, requests: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..requests {
        let response = app.clone().oneshot(Request::new(Body::empty())).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    statuses
}

#[test]
fn a_layer_of_several_limits_is_refused_when_it_is_built() {
    let limiter = one_at_a_time();
    assert_eq!(
        panic_of(|| limiter.layer(&FIRST).and(&SECOND)),
        "the store of this limiter cannot charge `first` and `second` in one step, so each request \
         would fail (use a layer for each limit, or a store that can; `Optimistic` needs \
         `SwapStore::swap_all` and `SWAPS_SEVERAL`)"
    );
    // On a route as well, and through handles and wrappers of the store.
    let route = || {
        let route = get(async || "in").rate_limit(limiter.layer(&FIRST).and(&SECOND));
        Router::<()>::new().route("/", route)
    };
    assert!(panic_of(route).contains("use a layer for each limit"));
    let shared = RateLimiter::new(Arc::new(Optimistic::new(Map::<false>::default())));
    assert!(panic_of(|| shared.layer(&FIRST).and(&SECOND)).contains("in one step"));
    let one = || Optimistic::new(Map::<false>::default());
    for wrapped in [
        RateLimiter::new(CircuitBreaker::new(one())),
        RateLimiter::new(DenyCache::new(one())),
        RateLimiter::new(Leasing::new(one())),
        RateLimiter::new(Fallback::new(one(), Memory::new())),
        RateLimiter::new(Fallback::new(Memory::new(), one())),
    ] {
        assert!(panic_of(|| wrapped.layer(&FIRST).and(&SECOND)).contains("in one step"));
    }
    let some = || Rule::new(&SECOND).enforce(Portion::percent(1));
    assert!(panic_of(|| limiter.layer(&FIRST).and(some())).contains("in one step"));
}

#[test]
fn stores_that_charge_several_limits_take_such_a_layer() {
    let several = RateLimiter::new(Optimistic::new(Map::<true>::default()));
    let bridged = RateLimiter::new(Fallback::new(Memory::new(), Memory::new()));
    let memory = RateLimiter::new(Memory::new());
    for limiter in [several, memory, bridged, one_at_a_time().enabled(false)] {
        drop(limiter.layer(&FIRST).and(&SECOND));
    }
}

/// Shadows are charged by themselves.
#[tokio::test]
async fn shadows_may_watch_beside_one_limit() {
    let limiter = one_at_a_time();
    let shadow = |limit| Rule::new(limit).shadow();
    let layer = limiter.layer(&FIRST).and(shadow(&SECOND)).and(shadow(&THIRD));
    let app = Router::new().route("/", get(async || "in")).layer(layer);
    assert_eq!(statuses(&app, 3).await, [200, 200, 429]);
    assert_eq!(limiter.peek(&SECOND).await.unwrap().remaining(), 8);
}

/// The way out that the message names.
#[tokio::test]
async fn a_layer_for_each_limit_holds_requests_to_all_of_them() {
    let limiter = one_at_a_time();
    let route = get(async || "in").rate_limit(limiter.layer(&FIRST));
    let app = Router::new().route("/", route).layer(limiter.layer(&SECOND));
    assert_eq!(statuses(&app, 3).await, [200, 200, 429]);
    assert_eq!(limiter.peek(&FIRST).await.unwrap().remaining(), 0);
    assert_eq!(limiter.peek(&SECOND).await.unwrap().remaining(), 7);
}
