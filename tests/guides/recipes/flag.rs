use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tollgate::key::global;
use tollgate::{Limit, MINUTE, Quota, Rule};

const API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));

fn rule(is_on: Arc<AtomicBool>) -> Rule {
    Rule::new(&API).key(global()).only_if(move |_| is_on.load(Ordering::Relaxed))
}

mod tests {
    use super::*;
    use std::convert::Infallible;

    use http::{Request, Response};
    use tollgate::RateLimiter;
    use tower::{Layer, ServiceExt, service_fn};

    #[tokio::test]
    async fn an_operator_switches_the_limit_off() {
        let is_on = Arc::new(AtomicBool::new(true));
        let hello = async |_: Request<()>| Ok::<_, Infallible>(Response::new("hello"));
        let layer = RateLimiter::in_memory().layer(rule(Arc::clone(&is_on)));
        let service = layer.layer(service_fn(hello));
        let ask = async || service.clone().oneshot(Request::new(())).await.unwrap().status();
        assert_eq!((ask().await.as_u16(), ask().await.as_u16()), (200, 429));
        is_on.store(false, Ordering::Relaxed);
        assert_eq!(ask().await, 200);
    }
}
