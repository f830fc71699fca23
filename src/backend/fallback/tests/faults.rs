//! Each kind of failure at each place, and calls that are dropped at each await.

use super::*;

/// Whichever call of the store fails, in whichever way: each request is decided, and no more is
/// admitted than both stores hold.
#[tokio::test]
async fn one_failure_at_any_place_is_bridged() {
    for fault in [Fault::Fail, Fault::FailLate, Fault::Lose, Fault::Late, Fault::Slow] {
        for at in 1..=14 {
            let case = Case::new(1);
            *case.store.script() = Box::new(move |nth| if nth == at { fault } else { Fault::None });
            let mut admitted = 0;
            for _ in 1..=14 {
                let answer = case.limiter.limit(&TEN).await;
                assert!(answer.as_ref().is_ok() || answer.as_ref().unwrap_err().is_refused());
                admitted += u64::from(answer.is_ok());
            }
            // The one that the store failed was taken locally, so the store has one left for another.
            // Once the tokens are gone in both, nothing is.
            let bridged = matches!(fault, Fault::Fail | Fault::FailLate) && at <= 10;
            assert_eq!(admitted, 10 + u64::from(bridged), "{fault:?} at {at}");
        }
    }
}

/// A store that answers twice as much is not understood, and that is no outage.
#[tokio::test]
async fn an_answer_of_the_wrong_length_is_passed_on() {
    let case = Case::new(1);
    case.store.set(Fault::Twice);
    let error = case.limiter.limit(&TEN).await.unwrap_err();
    assert!(error.is_unavailable() && !error.is_outage());
}

#[tokio::test]
async fn a_store_that_never_answers_is_waited_for_until_the_call_is_dropped() {
    let case = Case::new(1);
    case.store.set(Fault::Silent);
    {
        let mut call = Box::pin(case.limiter.limit(&TEN));
        for _ in 0..10 {
            assert!(futures_util::poll!(&mut call).is_pending());
        }
    }
    case.fail();
    assert_eq!(case.limiter.limit(&TEN).await.unwrap().remaining(), 9);
}

#[tokio::test]
async fn dropped_calls_leave_both_stores_usable() {
    for fault in [Fault::Late, Fault::Slow, Fault::FailLate, Fault::Lose] {
        for polls in 0..3 {
            let case = Case::new(1);
            for _ in 0..3 {
                case.store.set(fault);
                let mut call = Box::pin(case.limiter.limit(&TEN));
                for _ in 0..polls {
                    if futures_util::poll!(&mut call).is_ready() {
                        break;
                    }
                }
                drop(call);
            }
            case.recover();
            assert!(case.in_store(&TEN) >= 7 && case.in_local(&TEN) >= 7);
            assert!(case.limiter.limit(&TEN).cost(7).await.is_ok());
            case.fail();
            assert!(case.limiter.limit(&TEN).cost(4).await.unwrap_err().is_refused());
        }
    }
}
