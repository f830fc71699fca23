use axum::{
    Router,
    routing::{get, post},
};
use tollgate::key::extension;
use tollgate::{RateLimitExt, RateLimiter};
use tollgate_config::{Config, ConfigError};

#[derive(Clone)]
struct User(u64); // inserted by the layer that authenticates

fn app(config: &Config, limiter: &RateLimiter) -> Result<Router, ConfigError> {
    let [login, api, exports] = config.limits(["login", "api", "exports"])?;
    let login = login.layer_with_key(limiter, extension(|user: &User| user.0))?;
    let app = Router::new()
        .route("/login", post(async || "welcome").rate_limit(login))
        .route("/exports", get(async || "rows").rate_limit(exports.layer(limiter)?))
        .route("/health", get(async || "well"))
        .layer(api.layer(limiter)?);
    config.finish()?; // an entry that no code looks up is an error
    Ok(app)
}

fn start(limiter: &RateLimiter) -> Result<Router, ConfigError> {
    app(&Config::from_file("limits.toml")?, limiter)
}

mod tests {
    use super::*;
    use tower::ServiceExt;

    #[tokio::test]
    async fn the_program_takes_the_file_of_the_guide() {
        let guide = include_str!("../../../docs/configuration.md");
        let (_, toml) = guide.split_once("```toml\n").unwrap();
        let (toml, _) = toml.split_once("```").unwrap();
        let config = Config::from_text("limits.toml", toml).unwrap();
        let app = app(&config, &RateLimiter::in_memory()).unwrap();
        let request = http::Request::post("/login").extension(User(7));
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        // Without the address of a client, which the limit `api` counts by.
        assert_eq!(response.status(), 500);
    }
}
