use axum::extract::State;
use tollgate::fields::Dialect;
use tollgate::{HOUR, Limit, OnRefusal, Quota, RateLimited, RateLimiter, Snapshot};

const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(100, HOUR));

async fn export(State(limiter): State<RateLimiter>) -> Result<(Snapshot, String), RateLimited> {
    let permit = limiter.limit(&EXPORTS).key("alice").cost(30).await?;
    Ok((permit.snapshot(), "exported".to_owned()))
}

fn limiter() -> RateLimiter {
    let limiter = RateLimiter::in_memory();
    limiter.dialects(Dialect::XRateLimit).on_refusal(OnRefusal::plain_text())
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn a_snapshot_becomes_header_fields() {
        use axum::response::IntoResponse;
        let response = export(State(limiter())).await.into_response();
        assert_eq!(response.headers()["x-ratelimit-remaining"], "70");
    }
}
