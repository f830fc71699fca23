//! A service that runs in several processes: its buckets are in Redis if there is one, and in memory if
//! it runs alone. A process that loses its Redis goes on by half of each limit, and comes back by itself.
//!
//! To watch that, start a Redis, a way to it that can be cut, and two servers, each in a terminal of its
//! own:
//!
//! ```sh
//! redis-server --port 6399 --save ''
//! socat TCP-LISTEN:6398,fork,reuseaddr TCP:127.0.0.1:6399
//! PORT=3000 REDIS_URL=redis://127.0.0.1:6399 cargo run -p tollgate-redis --example fleet
//! PORT=3001 REDIS_URL=redis://127.0.0.1:6398 cargo run -p tollgate-redis --example fleet
//! ```
//!
//! Then type, and read the field `ratelimit`:
//!
//! ```sh
//! curl -i http://127.0.0.1:3000/        # r=9
//! curl -i http://127.0.0.1:3001/        # r=8: both count in Redis
//! # stop socat by Ctrl-C, so that the second server loses its Redis
//! curl -i http://127.0.0.1:3001/        # r=3: it had taken 1 of the 5 that are its half
//! curl -i http://127.0.0.1:3001/login   # 503: a login needs Redis
//! curl http://127.0.0.1:3001/store      # after some of these: the circuit is open
//! curl -i http://127.0.0.1:3000/        # r=7: the first server has noticed nothing
//! # start socat again
//! curl -i http://127.0.0.1:3001/        # within 2 seconds: r=6
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tollgate::backend::{CircuitBreaker, DenyCache, Fallback, Memory};
use tollgate::key::ClientIp;
use tollgate::{HOUR, Limit, OnFailure, Quota, RateLimiter};
use tollgate_redis::Redis;

const PER_CLIENT: Limit = Limit::new("fleet-per-client", Quota::token_bucket(10, HOUR));

/// No password is tried while attempts cannot be counted.
const LOGIN: Limit =
    Limit::new("fleet-login", Quota::token_bucket(5, HOUR)).on_failure(OnFailure::Refuse);

/// How many processes there are: without Redis, each has this part of a limit.
const NODES: u32 = 2;

/// Redis and what stands around it, from the store outwards.
type Store = Fallback<DenyCache<Arc<CircuitBreaker<Redis>>>, Memory>;

/// One process of the fleet.
pub(crate) struct Node {
    limiter: RateLimiter,
    /// To look at; none if the process runs alone.
    store: Option<(Arc<CircuitBreaker<Redis>>, Arc<Store>)>,
}

impl Node {
    /// A node on the Redis at this URL, or by itself. It does not wait for Redis.
    pub(crate) fn new(url: Option<&str>) -> Result<Self, Box<dyn Error>> {
        let Some(url) = url else {
            return Ok(Self { limiter: RateLimiter::in_memory(), store: None });
        };
        let breaker = CircuitBreaker::new(Redis::at(url).connect_lazily()?);
        let breaker = Arc::new(breaker.max_pause(Duration::from_secs(2)));
        let store = DenyCache::new(Arc::clone(&breaker));
        let store = Arc::new(Fallback::new(store, Memory::new()).nodes(NODES));
        Ok(Self { limiter: RateLimiter::new(Arc::clone(&store)), store: Some((breaker, store)) })
    }

    pub(crate) fn app(&self) -> Router {
        let limited = |limit| self.limiter.layer(limit).key(ClientIp::peer());
        let store = self.store.clone();
        let describe = async move || match store {
            Some((breaker, store)) => format!(
                "circuit open: {}, admitted here {}, refused here {}\n",
                breaker.is_open(),
                store.admitted(),
                store.refused()
            ),
            None => "in memory\n".to_owned(),
        };
        Router::new()
            .route("/", get(async || "hello\n").layer(limited(&PER_CLIENT)))
            .route("/login", get(async || "welcome\n").layer(limited(&LOGIN)))
            .route("/store", get(describe))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").ok();
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let app = Node::new(url.as_deref())?.app();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("try: curl -i http://{}/", listener.local_addr()?);
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
