use axum::response::sse::{Event, Sse};
use axum::{Router, routing::post};
use futures_util::{Stream, StreamExt, stream};
use std::convert::Infallible;
use tollgate::key::global;
use tollgate::middleware::Meter;
use tollgate::{DAY, Limit, Quota, RateLimitExt, RateLimiter};

const LLM: Limit = Limit::new("llm-tokens", Quota::token_bucket(1_000, DAY));

async fn chat(meter: Meter) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let words = stream::iter(["forty", "-", "two"]); // in production, the words as they come
    Sse::new(words.map(move |word| {
        meter.add(1);
        Ok(Event::default().data(word))
    }))
}

fn app(limiter: &RateLimiter) -> Router {
    let layer = limiter.layer(&LLM).key(global()).cost(300).settle();
    Router::new().route("/chat", post(chat).rate_limit(layer))
}

mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use tower::ServiceExt;

    #[tokio::test]
    async fn a_stream_costs_what_it_has_sent() {
        let limiter = RateLimiter::in_memory();
        let request = http::Request::post("/chat").body(Body::empty()).unwrap();
        let response = app(&limiter).oneshot(request).await.unwrap();
        assert_eq!(limiter.peek(&LLM).await.unwrap().remaining(), 700); // it runs
        to_bytes(response.into_body(), 1_000).await.unwrap();
        assert_eq!(limiter.peek(&LLM).await.unwrap().remaining(), 997); // it has cost 3
    }
}
