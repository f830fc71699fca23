use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::{Router, routing::get};
use tollgate::RateLimiter;
use tollgate_config::{Config, ConfigError, ConfiguredLimit};

type Plans = [ConfiguredLimit; 2];

async fn authenticate(State(plans): State<Plans>, mut request: Request, next: Next) -> Response {
    let [free, pro] = plans;
    let is_pro = request.headers().contains_key("x-pro"); // in production, what your database says
    request.extensions_mut().insert(if is_pro { pro } else { free });
    next.run(request).await
}

fn app(config: &Config, limiter: &RateLimiter) -> Result<Router, ConfigError> {
    let plans: Plans = config.limits(["free", "pro"])?;
    let [free, _] = plans.clone();
    let layer = free.layer(limiter)?.limit_with(move |head| {
        head.extensions().get::<ConfiguredLimit>().unwrap_or(&free).clone()
    });
    config.finish()?;
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    Ok(app.layer(from_fn_with_state(plans, authenticate)))
}

mod tests {
    use super::*;
    use http::StatusCode;
    use tower::ServiceExt;

    fn files() -> [String; 3] {
        let guide = include_str!("../../../docs/configuration.md");
        let (_, plans) = guide.split_once("## Plans").unwrap();
        let (_, toml) = plans.split_once("```toml\n").unwrap();
        let (toml, _) = toml.split_once("```").unwrap();
        let other = toml.replace("60 per minute", "1 per minute").replace("6_000 per", "3 per");
        [toml.to_owned(), other, format!("{toml}key = \"header x-tenant\"\n")]
    }

    async fn status(app: &Router, plan: &str) -> StatusCode {
        let request = http::Request::get("/").header("x-tenant", "acme").header(plan, "");
        let request = request.body(axum::body::Body::empty()).unwrap();
        app.clone().oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn both_plans_follow_a_reload_and_share_what_is_used() {
        let [file, other, _] = files();
        let config = Config::from_text("limits.toml", &file).unwrap();
        let limiter = RateLimiter::in_memory();
        let app = app(&config, &limiter).unwrap();
        let next = Config::from_text("limits.toml", &other).unwrap();
        assert_eq!(config.apply(&next, &limiter).unwrap().quotas().count(), 2);
        for (plan, wanted) in [("x-free", 200), ("x-free", 429), ("x-pro", 200), ("x-pro", 200)] {
            assert_eq!(status(&app, plan).await, wanted, "{plan}");
        }
        assert_eq!(status(&app, "x-pro").await, 429);
    }

    #[test]
    fn a_plan_that_makes_no_layer_has_its_numbers_alone() {
        let [.., keyed] = files();
        let config = Config::from_text("limits.toml", &keyed).unwrap();
        let error = app(&config, &RateLimiter::in_memory()).unwrap_err().to_string();
        assert!(error.contains("limit \"pro\"") && error.contains("`key`"), "{error}");
    }
}
