//! Tollgate: the call that a user writes.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Limit, Quota, RateLimiter};
use tollgate_redis::Redis;

use super::{Allowance, Answer, Contestant, names};
use crate::server::Server;

/// Long enough that a pause of the machine fails nothing.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct Ours {
    limiter: RateLimiter,
    limit: &'static Limit,
    keys: Arc<[String]>,
}

impl Ours {
    pub(super) async fn new(server: &Server, allowance: Allowance) -> Self {
        let redis = Redis::at(server.url()).deadline(DEADLINE).connect().await;
        let limiter = RateLimiter::new(redis.expect("a connection to the server"));
        let Allowance { name, rate, period, burst } = allowance;
        let quota = Quota::token_bucket(rate.into(), period).capacity(burst.into());
        // As long-lived as a `static`; one for each allowance.
        let limit = Box::leak(Box::new(Limit::new(name, quota)));
        Self { limiter, limit, keys: names() }
    }
}

impl Contestant for Ours {
    async fn decide(&mut self, key: usize) -> Answer {
        let permit = self.limiter.limit(self.limit).key(self.keys[key].as_str()).await;
        Answer::admitted_if(match permit {
            Err(error) if error.is_refused() => Ok(false),
            answer => answer.map(|_permit| true),
        })
    }
}
