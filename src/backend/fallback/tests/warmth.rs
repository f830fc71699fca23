//! The local buckets follow the store while it works.

use super::*;

#[tokio::test]
async fn a_client_that_has_used_up_its_limit_finds_no_full_bucket() {
    let case = Case::new(2);
    for _ in 0..10 {
        case.limiter.limit(&TEN).await.unwrap();
    }
    case.fail();
    assert!(case.limiter.limit(&TEN).await.unwrap_err().is_refused());
    // Another client has its part.
    assert_eq!(case.limiter.limit(&TEN).key("other").await.unwrap().remaining(), 4);
    assert_eq!((case.fallback.admitted(), case.fallback.refused()), (1, 1));
    // It goes on at the local rate: no debt was piled up.
    case.clock.advance(HOUR / 5);
    assert!(case.limiter.limit(&TEN).await.is_ok());
    assert!(case.limiter.limit(&TEN).await.is_err());
}

#[tokio::test]
async fn refusals_of_the_store_take_nothing_locally() {
    let case = Case::new(1);
    case.limiter.limit(&TEN).cost(7).await.unwrap();
    for _ in 0..20 {
        assert!(case.limiter.limit(&TEN).cost(5).await.unwrap_err().is_refused());
    }
    case.fail();
    assert_eq!(case.limiter.limit(&TEN).cost(3).await.unwrap().remaining(), 0);
}

#[tokio::test]
async fn settlements_and_resets_are_repeated() {
    let case = Case::new(1);
    let permit = case.limiter.limit(&TEN).cost(8).await.unwrap();
    permit.settle(3).await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (7, 7));
    let permit = case.limiter.limit(&TEN).cost(1).await.unwrap();
    permit.settle(5).await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (2, 2));
    case.limiter.reset(&TEN).await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (10, 10));
    case.clock.advance(SECOND); // a reservation at the instant of a reset is not undone
    let reservation = case.limiter.limit(&TEN).cost(4).reserve().await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (6, 6));
    drop(reservation);
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (10, 10));
}

#[tokio::test]
async fn penalties_and_blocks_hold_in_an_outage_too() {
    let case = Case::new(1);
    case.limiter.penalize(&TEN, 9).await.unwrap();
    assert_eq!((case.in_store(&TEN), case.in_local(&TEN)), (1, 1));
    case.fail();
    // It fails, since other nodes do not know of it, and holds here.
    assert!(case.limiter.block(&TEN, HOUR).await.unwrap_err().is_outage());
    assert!(case.limiter.limit(&TEN).await.unwrap_err().retry_after().unwrap() > HOUR);
    assert!(case.limiter.reset(&TEN).await.unwrap_err().is_outage());
    assert_eq!(case.limiter.limit(&TEN).await.unwrap().remaining(), 9);
    assert_eq!(case.in_store(&TEN), 1);
}
