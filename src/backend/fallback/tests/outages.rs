//! Decisions while the store fails.

use std::time::Duration;

use super::*;
use crate::backend::Adjustment;
use crate::limiter::RateLimited;

#[tokio::test]
async fn each_node_has_its_part_of_the_limit() {
    for (nodes, part) in [(0, 10), (1, 10), (2, 5), (3, 3), (5, 2), (10, 1), (1_000, 1)] {
        let case = Case::new(nodes);
        case.fail();
        for left in (0..part).rev() {
            let permit = case.limiter.limit(&TEN).await.unwrap();
            assert!(permit.is_decided());
            assert_eq!(permit.remaining(), left, "{nodes} nodes");
        }
        let refused = case.limiter.limit(&TEN).await.unwrap_err();
        assert!(refused.is_refused());
        let wait = refused.retry_after().unwrap();
        // A third of ten leaves a third of a token behind.
        let exact = HOUR / 10 * nodes.max(1);
        assert!(wait <= exact && wait >= exact * 2 / 3, "{nodes} nodes: {wait:?}");
        case.clock.advance(wait - Duration::from_micros(1));
        assert!(case.limiter.limit(&TEN).await.is_err());
        case.clock.advance(Duration::from_micros(1));
        assert!(case.limiter.limit(&TEN).await.is_ok());
        assert_eq!((case.fallback.admitted(), case.fallback.refused()), (part + 1, 2));
        assert_eq!(case.in_store(&TEN), 10);
    }
}

#[tokio::test]
async fn a_limit_may_have_numbers_of_its_own() {
    let case = Case::with(|fallback| {
        fallback.nodes(5).quota("ten", Quota::fixed_window(4, SECOND)).unwrap()
    });
    case.fail();
    for left in [3, 2, 1, 0] {
        assert_eq!(case.limiter.limit(&TEN).await.unwrap().remaining(), left);
    }
    let refused = case.limiter.limit(&TEN).await.unwrap_err();
    assert!(refused.retry_after().unwrap() <= SECOND);
    case.clock.advance(SECOND);
    assert_eq!(case.limiter.limit(&TEN).cost(3).await.unwrap().remaining(), 1);
    let quota = Quota::token_bucket(1, HOUR).capacity(u64::MAX);
    assert!(Fallback::new(Memory::new(), Memory::new()).quota("ten", quota).is_err());
    let nothing = Fallback::new(Memory::new(), Memory::new()).quota("ten", Quota::none());
    assert_eq!(
        nothing.unwrap_err().to_string(),
        "a quota of 0 cannot be counted in an outage (set `OnFailure::Refuse` for the limit, or \
         use a rate above zero)"
    );
    // A limit that grants nothing is refused, whatever its store is.
    case.fail();
    let paused = Limit::try_new("ten", Quota::none()).unwrap();
    let refused = case.limiter.limit(&paused).await.unwrap_err();
    assert!(refused.is_refused() && refused.retry_after().is_none());
}

#[tokio::test]
async fn what_never_fits_the_part_is_not_decided() {
    let case = Case::new(5);
    assert!(case.limiter.limit(&TEN).cost(3).await.is_ok());
    case.fail();
    let error = case.limiter.limit(&TEN).cost(3).await.unwrap_err();
    assert!(error.is_outage());
    assert!(case.limiter.limit(&TEN).cost(11).await.unwrap_err().is_too_large());
    // So large a number of nodes that a part cannot be counted.
    let case = Case::new(u32::MAX);
    case.fail();
    assert!(case.limiter.limit(&TEN).await.unwrap_err().is_outage());
}

/// A peek is asked to see how the limit stands, which this process does not know.
#[tokio::test]
async fn peeks_fail() {
    let case = Case::new(1);
    case.fail();
    assert!(case.limiter.peek(&TEN).await.unwrap_err().is_outage());
    case.recover();
    assert_eq!(case.limiter.peek(&TEN).await.unwrap().remaining(), 10);
}

#[tokio::test]
async fn several_limits_are_all_or_nothing() {
    let case = Case::new(2);
    let two = Limit::new("two", Quota::token_bucket(4, HOUR));
    case.fail();
    let call = async || case.limiter.limit(&TEN).and(&two).await;
    for left in [1, 0] {
        assert_eq!(call().await.unwrap().remaining(), left);
    }
    let refused = call().await.unwrap_err();
    assert_eq!(refused.limit().name(), "two");
    assert_eq!(case.limiter.limit(&TEN).await.unwrap().remaining(), 2);
    let permit = case.limiter.limit(&TEN).and(&two).cost(0).await.unwrap();
    permit.refund().await.unwrap();
}

#[tokio::test]
async fn a_limit_in_shards_pays_and_gets_back_in_its_shards() {
    let shards = Limit::new("shards", Quota::token_bucket(80, HOUR).shards(4));
    let case = Case::new(2);
    case.fail();
    let mut permits = Vec::new();
    for _ in 0..40 {
        if let Ok(permit) = case.limiter.limit(&shards).cost(3).await {
            permits.push(permit);
        }
    }
    // Each shard has 10 tokens. A request draws two, so some are left.
    assert!((9..=13).contains(&permits.len()), "{}", permits.len());
    case.recover();
    for permit in permits {
        permit.refund().await.unwrap();
    }
    case.fail();
    for shard in 0..4 {
        let look =
            Charge::look(BucketId::new("shards", &Key::GLOBAL).shard(shard), shards.bucket(), 0);
        let Answer::Ready(Ok(applied)) = case.local.apply(&[look]) else { panic!() };
        assert_eq!(applied.readings()[0].state().value, shards.bucket().capacity());
    }
}

/// A reservation in an outage is for now, or refused: there is no line to wait in.
#[tokio::test]
async fn reservations_are_for_now_or_refused() {
    let waits = Limit::new("waits", Quota::token_bucket(10, HOUR).max_reserved(50));
    let case = Case::new(2);
    // One waits for the store already, and keeps its instant.
    let before = case.limiter.limit(&waits).cost(12).reserve().await.unwrap();
    assert_eq!(before.wait(), HOUR / 5);
    case.limiter.reset(&waits).await.unwrap();
    case.fail();
    let now = case.limiter.limit(&waits).cost(5).reserve().await.unwrap();
    assert_eq!(now.wait(), Duration::ZERO);
    let refused = case.limiter.limit(&waits).cost(2).reserve().await.unwrap_err();
    assert!(refused.is_refused());
    assert_eq!(refused.retry_after(), Some(HOUR / 10 * 4));
    drop(now);
    let again = case.limiter.limit(&waits).cost(5).reserve().await.unwrap();
    let permit = again.ready().await;
    assert_eq!(permit.settle(1).await.unwrap().remaining(), 4);
    assert_eq!(case.in_store(&waits), 10, "none of it has reached the store");
    drop(before);
}

/// Waiters stand in line for the store. Tokens that come back to the local store are not theirs.
#[tokio::test]
async fn a_local_refund_grants_no_waiter_of_the_store() {
    let waits = Limit::new("waits", Quota::token_bucket(10, HOUR).max_reserved(50));
    let case = Case::new(1);
    case.fail();
    let local = case.limiter.limit(&waits).cost(5).await.unwrap();
    case.recover();
    let _all = case.limiter.limit(&waits).cost(10).await.unwrap();
    let waiter = case.limiter.limit(&waits).cost(2).reserve().await.unwrap();
    let mut ready = Box::pin(waiter.ready());
    assert!(futures_util::poll!(&mut ready).is_pending());
    local.refund().await.unwrap();
    assert!(futures_util::poll!(&mut ready).is_pending());
    assert_eq!(case.in_store(&waits), -2);
}

#[tokio::test]
async fn errors_that_are_no_outage_are_passed_on() {
    use crate::backend::{Adjustment, Applied, BackendError};

    #[derive(Debug)]
    struct Full;
    impl Backend for Full {
        fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
            Answer::Ready(Err(BackendError::full("full", "no room")))
        }
        fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
            Answer::Ready(Err(BackendError::full("full", "no room")))
        }
        fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
            Answer::Ready(Err(BackendError::full("full", "no room")))
        }
    }
    let limiter = RateLimiter::new(Fallback::new(Full, Memory::new()));
    let denied: RateLimited = limiter.limit(&TEN).await.unwrap_err();
    assert!(denied.is_unavailable() && !denied.is_outage());
}

/// A layer of several limits is refused at build if its store charges one at a time.
#[test]
fn what_the_store_cannot_do_is_not_promised() {
    use crate::backend::{Adjustment, Applied, CircuitBreaker, DenyCache};

    #[derive(Debug)]
    struct OneByOne(Memory);
    impl Backend for OneByOne {
        fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
            self.0.apply(charges)
        }
        fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
            self.0.adjust(adjustments)
        }
        fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
            self.0.reset(ids)
        }
        fn charges_several(&self) -> bool {
            false
        }
    }
    let wrapped = |store| DenyCache::new(CircuitBreaker::new(store));
    let one_by_one = Fallback::new(wrapped(OneByOne(Memory::new())), Memory::new());
    assert!(!one_by_one.charges_several());
    assert!(
        Fallback::new(DenyCache::new(CircuitBreaker::new(Memory::new())), Memory::new())
            .charges_several()
    );
}

/// They were counted in the local store until they were lost, with nothing in flight.
#[tokio::test]
async fn what_ends_in_an_outage_is_no_longer_in_flight_here() {
    static TWO: Limit = Limit::new("two", Quota::in_flight(2).lost_after(HOUR));
    let case = Case::new(1);
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(case.limiter.limit(&TWO).await.unwrap().in_flight());
    }
    case.fail();
    assert!(case.limiter.limit(&TWO).await.unwrap_err().is_refused());
    drop(running);
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    assert_eq!(case.limiter.limit(&TWO).await.unwrap().remaining(), 1);
}

/// A part of the numbers was taken for full, so nothing came back to it.
#[tokio::test]
async fn what_ends_comes_back_to_the_part_of_a_node() {
    static MANY: Limit = Limit::new("many", Quota::in_flight(30).lost_after(HOUR));
    for (nodes, part) in [(1, 30), (2, 15), (3, 10), (7, 4)] {
        let case = Case::new(nodes);
        for _ in 0..part {
            drop(case.limiter.limit(&MANY).await.unwrap().in_flight());
            tokio::task::yield_now().await;
        }
        assert_eq!(case.left_in_outage(&MANY).await, part);
        // The work of other nodes leaves little in the store.
        let others = Charge::take(BucketId::new("many", &Key::GLOBAL), MANY.bucket(), 25);
        assert!(matches!(case.store.inner.apply(&[others]), Answer::Ready(Ok(_))));
        for _ in 0..part {
            let running = case.limiter.limit(&MANY).await.unwrap().in_flight();
            case.fail();
            drop(running);
            tokio::task::yield_now().await;
            case.recover();
            drop(case.store.inner.adjust(&[Adjustment::refund(others.id(), MANY.bucket(), 1)]));
        }
        assert_eq!(case.left_in_outage(&MANY).await, part);
    }
}

/// A waiter that runs by what another request returns had paid nothing here, and nothing came back.
#[tokio::test]
async fn what_a_waiter_is_granted_comes_back_to_the_local_store() {
    static ONE: Limit = Limit::new("one", Quota::in_flight(1).lost_after(HOUR));
    for runs in [true, false] {
        let case = Case::new(1);
        let running = case.limiter.limit(&ONE).await.unwrap().in_flight();
        let mut waits = case.limiter.limit(&ONE).reserve().await.unwrap().ready();
        assert!(tokio::time::timeout(Duration::ZERO, &mut waits).await.is_err());
        drop(running);
        match runs {
            true => drop(waits.await.in_flight()),
            false => drop(waits),
        }
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        assert_eq!((case.in_store(&ONE), case.left_in_outage(&ONE).await), (1, 1));
    }
}
