use tollgate::{DAY, Limit, Quota, RateLimited, RateLimiter};

const PAID: Limit = Limit::new("per-tenant", Quota::token_bucket(1_000, DAY));
const PAUSED: Limit = Limit::new("per-tenant", Quota::none());

async fn export(limiter: &RateLimiter, is_paid: bool) -> Result<&'static str, RateLimited> {
    let limit = if is_paid { &PAID } else { &PAUSED };
    limiter.limit(limit).key("acme").await?;
    Ok("300 rows")
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn a_paused_plan_is_refused_without_a_wait_or_a_charge() {
        let limiter = RateLimiter::in_memory();
        assert!(export(&limiter, true).await.is_ok());
        let refused = export(&limiter, false).await.unwrap_err();
        assert!(refused.is_refused() && refused.retry_after().is_none());
        assert_eq!(limiter.peek(&PAID).key("acme").await.unwrap().remaining(), 999);
    }
}
