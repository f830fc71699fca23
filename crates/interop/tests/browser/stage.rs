//! The playground on a clock that a test steps, and its page in a browser.

use std::net::SocketAddr;
use std::sync::mpsc as blocking;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tollgate::Timestamp;
use tollgate::clock::Clock;

use super::chromium::Chromium;
use super::playground::example;

/// The time of the playground when it starts: a whole millisecond.
const START: Timestamp = Timestamp::from_micros(1_700_000_123_456_000);

/// A server in a thread of its own, whose runtime has its clock paused.
pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    steps: mpsc::UnboundedSender<(Duration, oneshot::Sender<()>)>,
    /// Dropped, it lets the thread end.
    _blocker: blocking::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

/// The paused clock of a runtime, from a whole millisecond on.
#[derive(Debug)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        START + self.0.elapsed()
    }
}

impl Stage {
    pub(crate) fn start() -> Self {
        let (steps, mut ordered) = mpsc::unbounded_channel::<(Duration, oneshot::Sender<()>)>();
        let (blocker, blocked) = blocking::channel::<()>();
        let (told, address) = blocking::channel();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        let thread = thread::spawn(move || {
            runtime.block_on(async move {
                // While a blocking task runs, tokio does not move a paused clock by itself.
                let parked = tokio::task::spawn_blocking(move || blocked.recv().is_err());
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                told.send(listener.local_addr().unwrap()).unwrap();
                let app = example::app(PausedClock(Instant::now()));
                tokio::spawn(async move { axum::serve(listener, app).await });
                while let Some((by, done)) = ordered.recv().await {
                    tokio::time::advance(by).await;
                    done.send(()).unwrap();
                }
                assert!(parked.await.unwrap());
            });
        });
        let address = address.recv().unwrap();
        Self { address, steps, _blocker: blocker, thread: Some(thread) }
    }

    /// Opens the page, and waits until it knows the numbers.
    pub(crate) async fn open(&self, chromium: &Chromium) {
        chromium.open(self.address, "/?clock=manual").await;
        chromium.until("document.querySelector('#curl').textContent.includes('http')").await;
    }

    /// Lets time pass for the server and for the page, once the page has nothing else to do.
    pub(crate) async fn step(&self, chromium: &Chromium, by: Duration) {
        chromium.until("playground.isIdle()").await;
        let (done, is_done) = oneshot::channel();
        self.steps.send((by, done)).unwrap();
        is_done.await.unwrap();
        let tick = format!("playground.tick({}).then(done);", by.as_millis());
        chromium.call(&tick).await.unwrap();
    }

    /// Lets time pass in steps of a tenth of a second.
    pub(crate) async fn play(&self, chromium: &Chromium, time: Duration) {
        for _ in 0..time.as_millis() / 100 {
            self.step(chromium, Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let (steps, _) = mpsc::unbounded_channel();
        self.steps = steps;
        (self._blocker, _) = blocking::channel();
        self.thread.take().unwrap().join().unwrap();
    }
}
