use reqwest::Client;
use std::error::Error;
use tollgate::{Limit, Quota, RateLimiter, SECOND};

// A capacity of 0 spaces the requests evenly; a larger one lets so many go at once.
static THEIRS: Limit = Limit::new("their-api", Quota::token_bucket(10, SECOND).capacity(0));

async fn get(client: &Client, limiter: &RateLimiter, url: &str) -> Result<String, Box<dyn Error>> {
    let turn = limiter.limit(&THEIRS).reserve_within(5 * SECOND).await?; // refused: too many wait
    turn.ready().await;
    Ok(client.get(url).send().await?.error_for_status()?.text().await?)
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_leave_at_even_distances() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/", axum::routing::get(async || "hello"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let (client, limiter) = (Client::new(), RateLimiter::in_memory());
        assert_eq!(get(&client, &limiter, &url).await.unwrap(), "hello");
        assert_eq!(get(&client, &limiter, &url).await.unwrap(), "hello");
        assert!(!limiter.peek(&THEIRS).await.unwrap().fits());
    }
}
