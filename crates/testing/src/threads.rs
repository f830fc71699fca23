//! Tasks on real threads, in simulated time.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Wake, Waker};

use tokio::runtime::Runtime;
use tokio::time::advance;

use super::queue::ms;

const THREADS: usize = 4;

/// A task of a thread, and whether it was woken.
struct Task(Pin<Box<dyn Future<Output = ()> + Send>>, Arc<Woken>);

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Polls the woken tasks on several threads until all are done. Each round advances the time by a
/// millisecond and calls `begins`. Returns the number of rounds.
pub fn on_threads<F>(
    runtime: &Runtime,
    tasks: impl IntoIterator<Item = F>,
    mut begins: impl FnMut(u32),
) -> u32
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut shares: [Vec<Task>; THREADS] = Default::default();
    for (nth, task) in tasks.into_iter().enumerate() {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        shares[nth % THREADS].push(Task(Box::pin(task), woken));
    }
    let left = AtomicUsize::new(shares.iter().map(Vec::len).sum());
    let (barrier, over, panicked) =
        (Barrier::new(THREADS + 1), AtomicBool::new(false), Mutex::new(None));
    let mut rounds = 0;
    std::thread::scope(|scope| {
        for share in &mut shares {
            scope.spawn(|| {
                let _guard = runtime.enter();
                loop {
                    barrier.wait();
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    // The other threads would never stop waiting for a thread that has panicked.
                    let polled = catch_unwind(AssertUnwindSafe(|| poll_woken(share, &left)));
                    if let Err(panic) = polled {
                        *panicked.lock().unwrap() = Some(panic);
                    }
                    barrier.wait();
                }
            });
        }
        while left.load(Ordering::Acquire) > 0
            && rounds < 60_000
            && panicked.lock().unwrap().is_none()
        {
            barrier.wait();
            let guard = runtime.enter();
            begins(rounds);
            drop(guard);
            runtime.block_on(async {
                advance(ms(1)).await;
                // Timers, and tasks that call the store.
                for _ in 0..4 {
                    tokio::task::yield_now().await;
                }
            });
            rounds += 1;
            barrier.wait();
        }
        over.store(true, Ordering::Release);
        barrier.wait();
    });
    if let Some(panicked) = panicked.into_inner().unwrap() {
        resume_unwind(panicked);
    }
    assert_eq!(left.into_inner(), 0, "a thread was never woken");
    rounds
}

/// Polls the tasks that are woken until none is.
fn poll_woken(tasks: &mut Vec<Task>, left: &AtomicUsize) {
    tasks.retain_mut(|Task(task, woken)| {
        let waker = Waker::from(Arc::clone(woken));
        while woken.0.swap(false, Ordering::AcqRel) {
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                left.fetch_sub(1, Ordering::AcqRel);
                return false;
            }
        }
        true
    });
}
