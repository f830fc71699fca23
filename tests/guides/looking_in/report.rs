use tollgate::backend::DebtorReport;
use tollgate::{HOUR, Limit, Quota, RateLimited, RateLimiter};

const LOGIN: Limit = Limit::new("login", Quota::token_bucket(5, HOUR));

async fn report(limiter: &RateLimiter) -> Result<String, RateLimited> {
    Ok(match limiter.debtors(&LOGIN).max(10).await? {
        DebtorReport::Page { debtors, .. } => {
            debtors.iter().map(|one| format!("{} {}\n", one.key_text(), one.tokens())).collect()
        }
        DebtorReport::Count { in_debt, .. } => format!("{in_debt} in debt\n"),
        _ => "this store lists nothing\n".to_owned(),
    })
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_counts_those_in_debt() {
        let limiter = RateLimiter::in_memory();
        limiter.penalize(&LOGIN, 20).key("eve").await.unwrap();
        assert_eq!(report(&limiter).await.unwrap(), "1 in debt\n");
    }
}
