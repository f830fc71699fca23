//! Tokens that come back: at once through this cache, and late by a bound through another node.

use super::*;

#[tokio::test]
async fn a_refund_or_a_reset_through_the_cache_is_seen_at_once() {
    for later in [Fault::None, Fault::Late, Fault::Slow] {
        let case = Case::new(move |_| later);
        assert!(case.take(10).await && !case.take(1).await);
        case.refund(1).wait().await.unwrap();
        assert!(case.take(1).await && !case.take(1).await);
        case.reset().wait().await.unwrap();
        assert!(case.take(10).await && !case.take(1).await);
    }
}

/// The refusal was decided before the tokens came back, and its answer arrives after them.
#[tokio::test]
async fn a_refusal_from_before_a_refund_is_not_remembered() {
    for resets in [false, true] {
        let case = Case::new(|_| Fault::None);
        assert!(case.take(10).await);
        case.store.set(Fault::Slow);
        let refused = case.apply(&Key::GLOBAL, 1);
        case.store.set(Fault::None);
        match resets {
            true => case.reset().wait().await.unwrap(),
            false => drop(case.refund(5).wait().await.unwrap()),
        }
        assert_eq!(refused.wait().await.unwrap().verdict(), Verdict::Refused);
        assert!(case.take(5).await);
    }
}

/// While a refund is under way, the store may have made it already.
#[tokio::test]
async fn nothing_is_refused_from_memory_while_a_refund_is_under_way() {
    let case = Case::new(|_| Fault::None);
    assert!(case.take(10).await && !case.take(1).await);
    case.store.set(Fault::Late);
    let Answer::Pending(mut refund) = case.refund(10) else { panic!() };
    assert!(futures_util::poll!(&mut refund).is_pending());
    case.store.set(Fault::None);
    let asked = case.store.calls();
    assert!(!case.take(1).await && !case.take(1).await);
    assert_eq!(case.store.calls(), asked + 2);
    refund.await.unwrap();
    assert!(case.take(10).await);
}

/// Dropped at each of its awaits, a refund may still be made later. It is then seen as late as one
/// of another node.
#[tokio::test]
async fn a_dropped_refund_leaves_the_cache_usable() {
    for (fault, polls) in [(Fault::Late, 0), (Fault::Late, 1), (Fault::Slow, 0), (Fault::Slow, 1)] {
        let case = Case::new(|_| Fault::None);
        assert!(case.take(10).await && !case.take(1).await);
        case.store.set(fault);
        let Answer::Pending(mut refund) = case.refund(1) else { panic!() };
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut refund).is_pending());
        }
        drop(refund);
        case.store.set(Fault::None);
        assert_eq!(case.take(1).await, fault == Fault::Slow);
        assert!(!case.take(1).await);
        let asked = case.store.calls();
        assert!(!case.take(1).await);
        assert_eq!(case.store.calls(), asked, "it remembers again");
    }
}

#[tokio::test]
async fn what_another_node_gives_back_is_seen_after_a_second_at_the_latest() {
    for resets in [false, true] {
        let case = Case::new(|_| Fault::None);
        assert!(case.take(10).await && !case.take(5).await);
        let id = BucketId::new("limit", &Key::GLOBAL);
        match resets {
            true => drop(case.store.inner.reset(&[id])),
            false => {
                drop(case.store.inner.adjust(&[Adjustment::refund(id, &case.bucket, i64::MAX)]))
            }
        }
        assert!(case.has(5));
        case.clock.advance(SECOND);
        assert!(!case.take(5).await, "it may be late by a second");
        case.clock.advance(Duration::from_micros(1));
        assert!(case.take(5).await);
    }
}

#[tokio::test]
async fn nothing_is_remembered_for_no_time() {
    let case = Case::new(|_| Fault::None);
    let cache = DenyCache::new(Arc::clone(&case.store)).max_age(Duration::ZERO);
    let units = case.bucket.units(10).unwrap();
    let take = Charge::take(BucketId::new("limit", &Key::GLOBAL), &case.bucket, units);
    for _ in 0..10 {
        cache.apply(&[take]).wait().await.unwrap();
    }
    assert_eq!(case.store.calls(), 10);
}

/// Threads with a key each, all in one set of the table: what a thread gives back is there when it
/// asks again, whatever the others do meanwhile.
#[test]
fn no_thread_is_refused_what_it_has_just_given_back() {
    let cache = DenyCache::new(Memory::new()).max_keys(8);
    let bucket = Bucket::new(&Quota::token_bucket(10, HOUR * 1_000)).unwrap();
    let units = bucket.units(10).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (cache, bucket) = (&cache, &bucket);
            scope.spawn(move || {
                let key = Key::from(thread);
                let id = BucketId::new("limit", &key);
                let take = || {
                    let answer = cache.apply(&[Charge::take(id, bucket, units)]);
                    let Answer::Ready(Ok(applied)) = answer else { panic!() };
                    applied.verdict()
                };
                for _ in 0..3_000 {
                    assert_eq!(take(), Verdict::Admitted);
                    assert_eq!([take(), take(), take()], [Verdict::Refused; 3]);
                    drop(cache.adjust(&[Adjustment::refund(id, bucket, i64::MAX)]));
                }
            });
        }
    });
    assert!(cache.refused() > 100, "{}", cache.refused());
}

/// Whichever call fails, or is dropped at whichever await, nothing is refused that the store has.
#[tokio::test]
async fn faults_and_dropped_calls_never_make_a_refusal() {
    let faults = [
        Fault::Late,
        Fault::Slow,
        Fault::Fail,
        Fault::FailLate,
        Fault::Lose,
        Fault::Silent,
        Fault::Twice,
    ];
    for (at, fault, polls) in (1..=10)
        .flat_map(|at| faults.map(|fault| [0, 1, 2].map(|polls| (at, fault, polls))).concat())
    {
        let case = Case::new(move |nth| if nth == at { fault } else { Fault::None });
        for nth in 1..=30_u64 {
            let tokens = 1 + nth % 4;
            let fits = case.has(tokens);
            let answer = match nth % 7 {
                0 => case.refund(3).map(|_| true),
                5 => case.reset().map(|()| true),
                _ => case
                    .apply(&Key::GLOBAL, tokens)
                    .map(move |applied| applied.verdict() == Verdict::Admitted),
            };
            let answer = match answer {
                Answer::Ready(answer) => Some(answer),
                Answer::Pending(mut answer) => {
                    let mut end = None;
                    for _ in 0..polls {
                        if let std::task::Poll::Ready(found) = futures_util::poll!(&mut answer) {
                            end = Some(found);
                            break;
                        }
                    }
                    end
                }
            };
            if let Some(Ok(admitted)) = answer
                && !matches!(nth % 7, 0 | 5)
            {
                assert_eq!(admitted, fits, "{fault:?} at {at}, {polls} polls: call {nth}");
            }
        }
    }
}

/// A customer of a smaller plan waits for the refill of the larger one, and no longer: the cache
/// knows the bucket in the numbers in which the store counts it.
#[tokio::test]
async fn slower_numbers_are_refused_from_memory_until_the_faster_ones_have_refilled() {
    let case = Case::new(|_| Fault::None);
    let slow = Bucket::new(&Quota::token_bucket(2, HOUR)).unwrap();
    assert!(case.take(10).await);
    let ask = || {
        let id = BucketId::new("limit", &Key::GLOBAL);
        let charge = Charge::take(id, &slow, slow.units(1).unwrap());
        let Answer::Ready(Ok(applied)) = case.cache.apply(&[charge]) else { panic!() };
        applied
    };
    // 9 of the 10 that are used have to come back, at 10 an hour.
    assert_eq!(ask().wait(), HOUR * 9 / 10);
    let asked = case.store.calls();
    assert_eq!(ask().wait(), HOUR * 9 / 10);
    assert!(!case.take(1).await, "the larger plan is refused by the same state");
    assert_eq!(case.store.calls(), asked + 1, "only the larger plan asks the store");
    case.clock.advance(SECOND);
    assert_eq!(ask().wait(), HOUR * 9 / 10 - SECOND);
    case.clock.advance(HOUR * 9 / 10 - SECOND);
    assert_eq!(ask().verdict(), Verdict::Admitted);
}
