//! The task that looks after lots, and what wakes callers.

use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::advance;

use crate::Leasing;
use tollgate::SECOND;
use tollgate::backend::{Answer, Applied, Backend, BackendError, Key};
use tollgate::clock::{ManualClock, Timestamp, TokioClock};

use super::driver::{HOT, WINDOW, node};
use super::stores::{Manner, Moody};

const TRIP: Duration = Duration::from_millis(1);

fn paused() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_record_without_lots_is_not_looked_at() {
    const IDLE: u32 = 20_000;
    let store = Moody::new(Manner::AtOnce);
    let node = Leasing::new(store).lease(&HOT.limit()).max_keys(200_000).clock(TokioClock::new());
    let bucket = HOT.bucket();
    for key in 0..IDLE {
        let key = Key::from(key);
        assert!(node.apply(&[HOT.take(&key, &bucket, 1)]).wait().await.is_ok());
    }
    assert_eq!(node.records(), IDLE as usize);
    assert_eq!(node.tick(), 0);
    let begun = std::time::Instant::now();
    for _ in 0..50 {
        node.tick();
    }
    println!("a tick beside {IDLE} records: {:?}", begun.elapsed() / 50);
}

/// Lots that no request uses any more go back, unless that is not worth a trip. The longer a lot is
/// idle, the fewer looks there are.
#[tokio::test(start_paused = true)]
async fn a_lot_is_looked_at_a_few_times() {
    const KEYS: u32 = 500;
    for limit in [&HOT, &WINDOW] {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let store = Moody::new(Manner::AtOnce);
        let node = Leasing::new(store).lease(&limit.limit()).clock(clock.clone());
        let bucket = limit.bucket();
        for _ in 0..20 {
            for key in 0..KEYS {
                let key = Key::from(key);
                assert!(node.apply(&[limit.take(&key, &bucket, 20)]).wait().await.is_ok());
            }
            clock.advance(Duration::from_micros(500));
            advance(Duration::from_micros(500)).await;
        }
        let lots = (0..KEYS).filter(|key| node.held(&Key::from(*key)) > 0).count();
        assert!(lots > 400, "{lots}");
        let mut looks = Vec::new();
        for _ in 0..110 {
            clock.advance(10 * TRIP);
            looks.push(node.tick());
        }
        let all: usize = looks.iter().sum();
        println!("{}: {lots} lots, looks {looks:?}", limit.0);
        assert!(all <= 10 * lots, "{all} looks at {lots} lots: {looks:?}");
        assert!(looks[100..].iter().all(|looks| *looks == 0), "{looks:?}");
    }
}

/// A task that is dropped with its runtime is followed by one in the next runtime.
#[test]
fn lots_are_looked_after_although_a_runtime_has_shut_down() {
    let store = Moody::new(Manner::AtOnce);
    let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
    let node = Leasing::new(store).lease(&WINDOW.limit()).clock(clock.clone());
    let (key, bucket) = (Key::from("all"), WINDOW.bucket());
    for nth in 1..=2 {
        let runtime = paused();
        runtime.block_on(async {
            for _ in 0..100 {
                let take = WINDOW.take(&key, &bucket, 20);
                assert!(node.apply(&[take]).wait().await.is_ok());
                clock.advance(Duration::from_micros(500));
                advance(Duration::from_micros(500)).await;
            }
        });
        let held = node.held(&key);
        assert!(held > 0 && node.is_ticking(), "{held} in runtime {nth}");
        drop(runtime);
        assert!(!node.is_ticking());
        // All lots are void.
        clock.advance(2 * SECOND);
    }
}

/// A waker that decides at once, as one may that runs its task where it is woken.
struct AskAgain {
    node: Arc<Leasing<Moody>>,
    answers: Mutex<mpsc::Sender<Result<Applied, BackendError>>>,
}

impl Wake for AskAgain {
    fn wake(self: Arc<Self>) {
        let (key, bucket) = (Key::from("all"), HOT.bucket());
        if let Answer::Ready(answer) = self.node.apply(&[HOT.take(&key, &bucket, 1)]) {
            self.answers.lock().unwrap().send(answer).unwrap();
        }
    }
}

#[test]
fn callers_are_woken_when_no_lock_is_held() {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let runtime = paused();
        runtime.block_on(async {
            let store = Moody::new(Manner::After(TRIP));
            let node = node(&store);
            let (key, bucket) = (Key::from("all"), HOT.bucket());
            let (sender, answers) = mpsc::channel();
            let waker = AskAgain { node: Arc::clone(&node), answers: Mutex::new(sender) };
            let waker = Waker::from(Arc::new(waker));
            let mut calls = Vec::new();
            for _ in 0..40 {
                let mut call = Box::pin(node.apply(&[HOT.take(&key, &bucket, 1)]).wait());
                if call.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    calls.push(call);
                }
                advance(Duration::from_micros(200)).await;
            }
            tokio::time::sleep(5 * TRIP).await;
            assert!(answers.try_iter().any(|answer| answer.is_ok()));
        });
        done.send(()).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok(), "a waker has met a lock");
}
