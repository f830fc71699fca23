//! limitador in memory: fixed windows, by the variables of a request.

use std::collections::HashMap;
use std::sync::Arc;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

use super::Allowance;

/// `keys` is the number of keys that it has to hold; it has no bound of its own.
pub fn limitador(allowance: Allowance, keys: usize) -> impl FnMut(&String) -> bool + Clone + Send {
    let limiter = RateLimiter::new(2 * keys.max(1_000) as u64);
    let user = "user_id".try_into().expect("the name of a variable");
    let Allowance { period, burst, .. } = allowance;
    limiter.add_limit(Limit::new("namespace", burst.into(), period.as_secs(), [], [user]));
    let limiter = Arc::new(limiter);
    let namespace = Namespace::from("namespace");
    move |key| {
        let variables = HashMap::from([("user_id".to_owned(), key.clone())]);
        let context = Context::from(variables);
        let answer = limiter.check_rate_limited_and_update(&namespace, &context, 1);
        answer.is_ok_and(|checked| !checked.limited)
    }
}
