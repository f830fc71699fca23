//! The whole service of the example.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/service.rs"]
mod example;

use http::Method;
use tollgate_config::Config;
use tollgate_testing::web::{send, serve};

#[tokio::test]
async fn the_whole_service_limits_without_redis_and_shows_it() {
    let text = include_str!("../../examples/service.toml");
    let config = Config::from_text("service.toml", text).unwrap();
    // No server listens there, so the fallback decides.
    let (app, limiter) = example::app(&config, "redis://127.0.0.1:1", "secret").unwrap();
    let server = serve(app).await;
    let get =
        async |path: &str, fields: &[(&str, &str)]| send(server, Method::GET, path, fields).await;
    let mut admitted = 0;
    // Five at once. On a slow machine, some more come back meanwhile.
    let asks = async |tenant| get("/", &[("x-tenant", tenant)]).await.status;
    while asks(["Acme", "acme"][admitted % 2]).await == 200 {
        admitted += 1;
        assert!(admitted < 30, "the tenant is never refused");
    }
    assert!(admitted >= 5, "{admitted}");
    assert_eq!(asks("other").await, 200);
    assert_eq!(get("/", &[]).await.status, 400);

    let page = get("/metrics", &[]).await.body;
    let refused = "tollgate_decisions_total{tollgate_limit=\"per-tenant\",\
                   tollgate_outcome=\"refused\",tollgate_source=\"layer\"} 1";
    assert!(page.contains(refused), "{page}");

    assert_eq!(get("/admin/limits", &[]).await.status, 401);
    assert_eq!(get("/admin/limits", &[("authorization", "Bearer guess")]).await.status, 403);
    let limits = get("/admin/limits", &[("authorization", "Bearer secret")]).await;
    assert_eq!(limits.status, 200);
    assert!(limits.body.contains("5 per minute"), "{}", limits.body);

    let larger = text.replace("5 per minute", "50 per minute");
    let larger = Config::from_text("service.toml", &larger).unwrap();
    config.apply(&larger, &limiter).unwrap();
    assert_eq!(asks("acme").await, 200);
}
