//! limitador with its storage in Redis: fixed windows, by the variables of a request.

use std::collections::HashMap;
use std::sync::Arc;

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::AsyncRedisStorage;

use super::{Allowance, Answer, Contestant, names};
use crate::server::Server;

#[derive(Clone)]
pub(super) struct Limitador {
    limiter: Arc<AsyncRateLimiter>,
    namespace: Namespace,
    keys: Arc<[String]>,
}

impl Limitador {
    pub(super) async fn new(server: &Server, allowance: Allowance) -> Self {
        let Allowance { name, period, burst, .. } = allowance;
        let storage = AsyncRedisStorage::new(server.url()).await.expect("a connection");
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
        let user = "user_id".try_into().expect("the name of a variable");
        // Limits with an identifier have the shorter keys.
        let limit = Limit::with_id(name, "bench", burst.into(), period.as_secs(), [], [user]);
        limiter.add_limit(limit);
        Self { limiter: Arc::new(limiter), namespace: "bench".into(), keys: names() }
    }
}

impl Contestant for Limitador {
    async fn decide(&mut self, key: usize) -> Answer {
        let variables = HashMap::from([("user_id".to_owned(), self.keys[key].clone())]);
        let context = Context::from(variables);
        let checked = self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1);
        Answer::admitted_if(checked.await.map(|checked| !checked.limited))
    }
}
