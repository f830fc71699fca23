use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next, Result};
use tollgate::{Limit, Quota, RateLimiter, SECOND};

static PER_HOST: Limit = Limit::new("per-host", Quota::token_bucket(10, SECOND).capacity(0));

struct Turns(RateLimiter);

#[async_trait::async_trait]
impl Middleware for Turns {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let turn = self.0.limit(&PER_HOST).key(host).reserve_within(5 * SECOND).await;
        turn.map_err(Error::middleware)?.ready().await;
        next.run(request, extensions).await
    }
}

fn client(limiter: RateLimiter) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(Turns(limiter)).build()
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn each_host_has_its_turns() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/", axum::routing::get(async || "hello"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let limiter = RateLimiter::in_memory();
        let response = client(limiter.clone()).get(url).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "hello");
        assert!(!limiter.peek(&PER_HOST).key("127.0.0.1").await.unwrap().fits());
    }
}
