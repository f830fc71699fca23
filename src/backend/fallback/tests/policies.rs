//! Limits that say what happens in an outage.

use super::*;
use crate::backend::OnFailure;

static CLOSED: Limit =
    Limit::new("closed", Quota::token_bucket(10, HOUR)).on_failure(OnFailure::Refuse);
static OPEN: Limit = Limit::new("open", Quota::token_bucket(10, HOUR)).on_failure(OnFailure::Admit);

#[tokio::test]
async fn a_limit_decides_for_itself() {
    let case = Case::new(2);
    case.fail();
    let limiter = &case.limiter;
    assert!(limiter.limit(&CLOSED).await.unwrap_err().is_outage());
    for nth in 1..=20 {
        let permit = limiter.limit(&OPEN).await.unwrap();
        assert!(!permit.is_decided());
        assert_eq!(limiter.passed_uncounted(), nth);
    }
    assert!(limiter.limit(&TEN).await.unwrap().is_decided());
    assert_eq!(case.fallback.admitted(), 1);
    // Whatever the limiter says.
    let open = limiter.clone().on_failure(OnFailure::Admit);
    assert!(open.limit(&CLOSED).await.unwrap_err().is_outage());
    assert!(open.limit(&CLOSED).reserve().await.unwrap_err().is_outage());
    let closed = limiter.clone().on_failure(OnFailure::Refuse);
    assert!(!closed.limit(&OPEN).await.unwrap().is_decided());
    assert!(!closed.limit(&OPEN).reserve().await.unwrap().ready().await.is_decided());
}

#[tokio::test]
async fn of_several_limits_the_strictest_counts() {
    let case = Case::new(2);
    case.fail();
    let limiter = case.limiter.clone().on_failure(OnFailure::Admit);
    assert!(limiter.limit(&OPEN).and(&CLOSED).await.unwrap_err().is_outage());
    assert!(limiter.limit(&CLOSED).and(&TEN).await.unwrap_err().is_outage());
    let counted = async || limiter.limit(&OPEN).and(&TEN).await;
    for left in [4, 3, 2, 1, 0] {
        let permit = counted().await.unwrap();
        let snapshots: Vec<_> = permit.snapshots().map(|one| one.remaining()).collect();
        assert_eq!(snapshots, [10, left]);
    }
    let refused = counted().await.unwrap_err();
    assert!(refused.is_refused() && refused.limit().name() == "ten");
    // Nothing was taken of the limit that passes uncounted, here or in the store.
    assert_eq!((case.in_local(&OPEN), case.in_store(&OPEN)), (10, 10));
}

/// Without a wrapper, a limit has the same two choices.
#[tokio::test]
async fn policies_need_no_fallback() {
    let store = Faulty::new(Memory::new(), |_| Fault::Fail);
    let limiter = RateLimiter::new(store);
    assert!(!limiter.limit(&OPEN).await.unwrap().is_decided());
    assert!(limiter.limit(&CLOSED).await.unwrap_err().is_outage());
    assert!(limiter.limit(&TEN).await.unwrap_err().is_outage());
    assert!(limiter.limit(&TEN).and(&OPEN).await.unwrap_err().is_outage());
    let open = limiter.on_failure(OnFailure::Admit);
    assert!(!open.limit(&TEN).and(&OPEN).await.unwrap().is_decided());
    assert!(open.limit(&TEN).and(&CLOSED).await.unwrap_err().is_outage());
    assert_eq!(open.passed_uncounted(), 2);
}
