//! When the breaker opens, probes and closes.

use super::*;
use crate::algebra::Verdict;
use crate::backend::Adjustment;

#[tokio::test]
async fn failures_in_a_row_open_the_breaker_and_then_no_call_is_made() {
    let case = Case::new(|_| Fault::FailLate);
    for _ in 0..3 {
        assert_eq!(case.breaker.state(), CircuitState::Closed);
        let error = case.call().await.unwrap_err();
        assert!(error.is_outage() && !error.is_circuit_open());
    }
    assert_eq!(case.breaker.state(), CircuitState::Open);
    for _ in 0..1_000 {
        let Answer::Ready(Err(error)) = case.ask() else { panic!("it fails at once") };
        assert!(error.is_outage() && error.is_circuit_open() && !error.is_timeout());
        assert_eq!(error.retry_after(), Some(PAUSE));
    }
    assert_eq!(case.store.calls(), 3);
    // The wait becomes shorter with time.
    case.clock.advance(PAUSE / 4);
    assert_eq!(case.call().await.unwrap_err().retry_after(), Some(PAUSE * 3 / 4));
    let text = case.call().await.unwrap_err().to_string();
    let wanted = "the circuit breaker is open: faulty backend could not decide: call 3 failed";
    assert_eq!(text, wanted);
}

#[tokio::test]
async fn an_answer_in_between_begins_the_count_again() {
    let case = Case::new(|nth| if nth % 3 == 0 { Fault::Late } else { Fault::Fail });
    for nth in 1..=300 {
        assert_eq!(case.call().await.is_ok(), nth % 3 == 0);
    }
    assert_eq!((case.breaker.state(), case.store.calls()), (CircuitState::Closed, 300));
}

#[tokio::test]
async fn refusals_are_answers() {
    let case = Case::new(|_| Fault::None);
    case.ask_of("full", 1_000_000).wait().await.unwrap();
    for _ in 0..100 {
        let refused = case.ask_of("full", 1).wait().await.unwrap();
        assert_eq!(refused.verdict(), Verdict::Refused);
    }
    assert_eq!(case.breaker.state(), CircuitState::Closed);
    // They begin the count again, too.
    for _ in 0..50 {
        case.store.set(Fault::Fail);
        case.call().await.unwrap_err();
        case.call().await.unwrap_err();
        case.store.set(Fault::None);
        case.ask_of("full", 1).wait().await.unwrap();
    }
    assert_eq!(case.breaker.state(), CircuitState::Closed);
}

/// Errors that a client can cause, or that the server itself answers, never open the breaker.
#[test]
fn only_an_outage_is_a_failure() {
    use super::super::circuit::CallEnd;
    let outages = [
        BackendError::unavailable("a", "b"),
        BackendError::timeout("a", PAUSE),
        BackendError::circuit_open(PAUSE, BackendError::timeout("a", PAUSE)),
    ];
    for error in outages {
        assert!(matches!(CallEnd::of(Some(&error)), CallEnd::Failed(_)), "{error}");
    }
    assert!(matches!(CallEnd::of(Some(&BackendError::full("a", "b"))), CallEnd::Answered));
    for error in [BackendError::undecidable("a", "b"), BackendError::cross_slot("a")] {
        assert!(matches!(CallEnd::of(Some(&error)), CallEnd::Unknown), "{error}");
    }
}

#[tokio::test]
async fn each_failed_probe_doubles_the_pause_up_to_the_longest() {
    let case = Case::new(|_| Fault::Fail);
    case.open().await;
    let mut calls = case.store.calls();
    for times in [1, 2, 4, 8, 10, 10, 10] {
        let pause = PAUSE * times;
        case.clock.advance(pause - Duration::from_micros(1));
        assert!(case.call().await.unwrap_err().is_circuit_open());
        assert_eq!((case.breaker.state(), case.store.calls()), (CircuitState::Open, calls));
        case.clock.advance(Duration::from_micros(1));
        assert_eq!(case.breaker.state(), CircuitState::HalfOpen);
        assert!(!case.call().await.unwrap_err().is_circuit_open(), "the probe asks the store");
        calls += 1;
        assert_eq!((case.breaker.state(), case.store.calls()), (CircuitState::Open, calls));
    }
}

#[tokio::test]
async fn a_store_that_is_back_gets_one_call_then_two_and_then_all() {
    let case = Case::new(|_| Fault::Fail);
    case.open().await;
    case.clock.advance(PAUSE);
    case.store.set(Fault::Late);
    for at_once in [1, 2, 4, 8, 16] {
        let mut answers: Vec<_> = (0..40).map(|_| case.ask()).collect();
        let passed = answers.iter().filter(|answer| matches!(answer, Answer::Pending(_))).count();
        assert_eq!(passed, at_once);
        // The first one succeeds, and the others are dropped without an answer.
        answers.remove(0).wait().await.unwrap();
    }
    assert_eq!(case.breaker.state(), CircuitState::Closed);
    // The next outage begins with the first pause.
    case.open().await;
    assert_eq!(case.call().await.unwrap_err().retry_after(), Some(PAUSE));
}

#[tokio::test]
async fn a_failure_while_it_is_half_open_opens_it_again() {
    let case = Case::new(|_| Fault::Fail);
    case.open().await;
    case.clock.advance(PAUSE);
    case.store.set(Fault::None);
    case.call().await.unwrap();
    case.call().await.unwrap();
    case.store.set(Fault::Fail);
    case.call().await.unwrap_err();
    assert_eq!(case.breaker.state(), CircuitState::Open);
    assert_eq!(case.call().await.unwrap_err().retry_after(), Some(2 * PAUSE));
}

#[tokio::test]
async fn a_dropped_probe_frees_its_place_at_once() {
    let case = Case::new(|_| Fault::Fail);
    case.open().await;
    case.clock.advance(PAUSE);
    case.store.set(Fault::Late);
    for polls in 0..2 {
        let probe = case.ask();
        assert!(case.call().await.unwrap_err().is_circuit_open());
        let Answer::Pending(mut probe) = probe else { panic!("the probe asks the store") };
        for _ in 0..polls {
            assert!(futures_util::poll!(&mut probe).is_pending());
        }
        drop(probe);
    }
    assert_eq!(case.breaker.state(), CircuitState::HalfOpen);
    case.call().await.unwrap();
}

/// The breaker does not wait for a probe that never ends: no other call would reach the store.
#[tokio::test]
async fn a_probe_without_an_answer_counts_as_failed_after_the_longest_pause() {
    let case = Case::new(|_| Fault::Fail);
    case.open().await;
    case.clock.advance(PAUSE);
    case.store.set(Fault::Silent);
    let silent = case.ask();
    case.clock.advance(10 * PAUSE);
    assert_eq!(case.call().await.unwrap_err().retry_after(), Some(PAUSE), "not yet");
    case.clock.advance(Duration::from_micros(1));
    assert_eq!(case.call().await.unwrap_err().retry_after(), Some(2 * PAUSE));
    case.clock.advance(2 * PAUSE);
    case.store.set(Fault::None);
    case.call().await.unwrap();
    drop(silent);
    assert_eq!(case.breaker.state(), CircuitState::HalfOpen);
}

/// An answer from before the breaker opened says nothing about the store now.
#[tokio::test]
async fn late_answers_from_before_do_not_count() {
    let case = Case::new(|_| Fault::Late);
    let (before, failing) = (case.ask(), {
        case.store.set(Fault::FailLate);
        [case.ask(), case.ask()]
    });
    case.open().await;
    before.wait().await.unwrap();
    assert_eq!(case.breaker.state(), CircuitState::Open);
    case.clock.advance(PAUSE);
    case.store.set(Fault::None);
    case.call().await.unwrap();
    for late in failing {
        late.wait().await.unwrap_err();
    }
    assert_eq!(case.breaker.state(), CircuitState::HalfOpen);
}

#[tokio::test]
async fn adjustments_and_resets_count_as_well() {
    let case = Case::new(|_| Fault::Fail);
    let bucket = Bucket::new(&Quota::token_bucket(1, HOUR)).unwrap();
    let id = BucketId::new("limit", &Key::GLOBAL);
    let adjust = || case.breaker.adjust(&[Adjustment::refund(id, &bucket, 1)]);
    adjust().wait().await.unwrap_err();
    case.breaker.reset(&[id]).wait().await.unwrap_err();
    case.call().await.unwrap_err();
    assert!(adjust().wait().await.unwrap_err().is_circuit_open());
    assert!(case.breaker.reset(&[id]).wait().await.unwrap_err().is_circuit_open());
    case.clock.advance(PAUSE);
    case.store.set(Fault::None);
    case.breaker.reset(&[id]).wait().await.unwrap();
    adjust().wait().await.unwrap();
}

/// Whichever call fails, the next one is made, and the breaker stays closed.
#[tokio::test]
async fn one_failure_at_any_place_does_no_harm() {
    let all = [Fault::Fail, Fault::FailLate, Fault::Lose, Fault::Late, Fault::Twice];
    for (at, fault) in (1..=12).flat_map(|at| all.map(|fault| (at, fault))) {
        let case = Case::new(move |nth| if nth == at { fault } else { Fault::None });
        for nth in 1..=12 {
            let fails = nth == at && !matches!(fault, Fault::Late | Fault::Twice);
            assert_eq!(case.call().await.is_err(), fails, "{fault:?} at {at}: call {nth}");
        }
        assert_eq!((case.breaker.state(), case.store.calls()), (CircuitState::Closed, 12));
    }
}
