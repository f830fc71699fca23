//! Many threads at once: there is never more than one first probe.

use std::sync::Barrier;
use std::thread;

use tollgate_testing::cases::times;

use super::*;

/// Eight threads ask at the instant at which the pause is over, in CI in 300 rounds. Each is one
/// probe of the store, since none of the probes is answered before all threads have asked.
#[test]
fn of_many_threads_exactly_one_is_the_probe() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let case = Case::new(|_| Fault::Fail);
    runtime.block_on(case.open());
    let (mut pause, threads) = (PAUSE, 8);
    for _ in 0..times(300, 60) {
        case.store.set(Fault::FailLate);
        case.clock.advance(pause);
        pause = (2 * pause).min(10 * PAUSE);
        let before = case.store.calls();
        let barrier = Barrier::new(threads);
        let answers: Vec<_> = thread::scope(|scope| {
            let ask = || {
                barrier.wait();
                (0..50).map(|_| case.ask()).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(case.store.calls() - before, 1);
        let is_open = |answer: Result<_, BackendError>| answer.unwrap_err().is_circuit_open();
        let answers = answers.into_iter().map(|answer| runtime.block_on(answer.wait()));
        assert_eq!(answers.filter(|answer| !is_open(answer.clone())).count(), 1);
    }
}

/// Threads ask, drop and answer probes at will while the store comes and goes: the places are all
/// given back, so the breaker closes in the end.
#[test]
fn no_place_is_lost_among_threads() {
    let case = Case::new(|nth| match nth % 7 {
        0..3 => Fault::Fail,
        3 | 4 => Fault::FailLate,
        5 => Fault::Silent,
        _ => Fault::Late,
    });
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let case = &case;
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for nth in 0..2_000 {
                    case.clock.advance(PAUSE / 7);
                    let answer = case.ask();
                    runtime.block_on(async {
                        let Answer::Pending(mut future) = answer else { return };
                        for _ in 0..(nth + thread) % 4 {
                            if futures_util::poll!(&mut future).is_ready() {
                                return;
                            }
                        }
                    });
                }
            });
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    case.store.set(Fault::Late);
    case.clock.advance(10 * PAUSE);
    for _ in 0..5 {
        runtime.block_on(case.call()).unwrap();
    }
    assert_eq!(case.breaker.state(), CircuitState::Closed);
}
