use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use tollgate::key::header;
use tollgate::{DAY, Limit, Quota, Rule};

static FREE: Limit = Limit::new("per-tenant", Quota::token_bucket(3, DAY));

/// The limits of tenants that have bought more, shared with the task that reads them.
type Plans = Arc<RwLock<HashMap<String, Arc<Limit>>>>;

fn rule(plans: Plans) -> Rule {
    Rule::new(&FREE).key(header("x-tenant")).limit_with(move |head| {
        let tenant = head.headers().get("x-tenant")?.to_str().ok()?;
        let plan = plans.read().ok()?.get(tenant).cloned();
        Some(plan.unwrap_or_else(|| Arc::new(FREE.clone())))
    })
}

fn upgrade(plans: &Plans, tenant: &str, quota: Quota) -> Result<(), Box<dyn std::error::Error>> {
    let limit = Arc::new(Limit::try_new("per-tenant", quota)?); // the same name: the same bucket
    plans.write().map_err(|_| "poisoned")?.insert(tenant.to_owned(), limit);
    Ok(())
}

mod tests {
    use super::*;
    use http::{Request, Response};
    use std::convert::Infallible;
    use tollgate::RateLimiter;
    use tower::{Layer, ServiceExt, service_fn};

    #[tokio::test]
    async fn a_plan_that_is_bought_counts_at_once() {
        let plans = Plans::default();
        let hello =
            |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new("hello")));
        let service = RateLimiter::in_memory().layer(rule(plans.clone())).layer(service_fn(hello));
        let ask = async || {
            let request = Request::builder().header("x-tenant", "alice").body(()).unwrap();
            service.clone().oneshot(request).await.unwrap().status().as_u16()
        };
        for status in [200, 200, 200, 429] {
            assert_eq!(ask().await, status);
        }
        upgrade(&plans, "alice", "100 per day".parse().unwrap()).unwrap();
        for _ in 0..97 {
            assert_eq!(ask().await, 200);
        }
        assert_eq!(ask().await, 429);
    }
}
