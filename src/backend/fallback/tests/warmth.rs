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

/// The local bucket has 100 tokens left, so it pays 100 of the 5,000 that a call takes from the store.
/// It got back 5,000.
#[tokio::test]
async fn a_refund_returns_what_the_local_bucket_has_paid_and_no_more() {
    let many = Limit::new("many", Quota::token_bucket(10_000, HOUR));
    let case = Case::new(2);
    let used = case.limiter.limit(&many).cost(4_900).await.unwrap();
    let permit = case.limiter.limit(&many).cost(5_000).await.unwrap();
    assert_eq!(case.in_store(&many), 100);
    permit.refund().await.unwrap();
    case.fail();
    assert!(case.limiter.limit(&many).cost(101).await.unwrap_err().is_refused());
    // Less a 2,047th of the 5,000 at most.
    let permit = case.limiter.limit(&many).cost(97).await.unwrap();
    permit.refund().await.unwrap();
    case.recover();
    // What was paid whole comes back whole.
    used.refund().await.unwrap();
    case.fail();
    assert_eq!(case.limiter.limit(&many).cost(4_997).await.unwrap().remaining(), 0);
}

/// Work that is estimated high leaves a local bucket as if its real cost had been charged at once.
#[tokio::test]
async fn settlements_leave_what_the_real_costs_would_have_left() {
    let many = Limit::new("many", Quota::token_bucket(10_000, HOUR));
    let shards = Limit::new("shards", Quota::token_bucket(40_000, HOUR).shards(2));
    for (limit, most) in [(&many, 1_000), (&shards, 4_000)] {
        let case = Case::new(10);
        for nth in 1..=5 {
            let permit = case.limiter.limit(limit).cost(5_000).await.unwrap();
            permit.settle(500).await.unwrap();
            let (left, right) = (case.left_in_outage(limit).await, most - nth * 500);
            // The part that was paid is rounded down.
            assert!((right - 3 * nth..=right.max(0)).contains(&left), "{left} of {right}");
        }
    }
    // A reservation that is dropped was never made.
    let case = Case::new(10);
    drop(case.limiter.limit(&many).cost(900).await.unwrap());
    drop(case.limiter.limit(&many).cost(5_000).reserve().await.unwrap());
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(case.in_store(&many), 9_100);
    let left = case.left_in_outage(&many).await;
    assert!((97..=100).contains(&left), "{left}");
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
