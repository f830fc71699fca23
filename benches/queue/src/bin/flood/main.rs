//! How late requests run that wait in a queue, while another client floods the same server with
//! frames of HTTP/2 that ask for nothing.
//!
//! The server has a runtime of one thread, so that whatever it does for one client delays the others.

mod attacker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::time::{sleep, sleep_until};
use tollgate::middleware::Queue;
use tollgate::{Limit, Quota, RateLimitExt, RateLimiter, SECOND};
use tower::util::MapRequestLayer;

use crate::attacker::{Flood, Flooding};

/// One request each 5 ms, and nothing saved up.
const EVERY: Duration = Duration::from_millis(5);
static LIMIT: Limit = Limit::new("line", Quota::token_bucket(200, SECOND).capacity(0));

const REQUESTS: u32 = 600;

/// When the first of them is due.
const AHEAD: Duration = Duration::from_secs(3);
const TOKENS_AHEAD: u64 = 600;

fn main() {
    println!("lateness of {REQUESTS} requests that wait, of which one is due each {EVERY:?}");
    println!("                                    the queue's                      bare timers");
    println!(
        "  another client sends        p50        p99        max        p50        p99        max   \
         frames a second   stood in the queue"
    );
    for flood in Flood::ALL {
        let Figures { lateness, of_timers, frames, came } = run(flood);
        let [p50, p99, max] = parts(lateness);
        let [timer_p50, timer_p99, timer_max] = parts(of_timers);
        println!(
            "  {:<20} {p50:>7.3} ms {p99:>7.3} ms {max:>7.3} ms {timer_p50:>7.3} ms \
             {timer_p99:>7.3} ms {timer_max:>7.3} ms {frames:>17.0} {came:>20}",
            flood.name()
        );
    }
}

/// What a flood has shown.
struct Figures {
    /// How late each request ran, and tasks beside them that only sleep.
    lateness: Vec<Duration>,
    of_timers: Vec<Duration>,
    /// How many frames were sent in a second.
    frames: f64,
    /// How many requests of the flood came to the queue.
    came: u64,
}

/// The median, the last of a hundred, and the longest.
fn parts(mut times: Vec<Duration>) -> [f64; 3] {
    times.sort_unstable();
    [50, 99, 100].map(|part| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3)
}

type Instants = Arc<Mutex<Vec<Instant>>>;

fn run(flood: Flood) -> Figures {
    let (tell, address) = mpsc::channel();
    let (ran, slept) = (Instants::default(), Instants::default());
    let (runs, sleeps) = (Arc::clone(&ran), Arc::clone(&slept));
    let came = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&came);
    thread::spawn(move || serve(&tell, runs, sleeps, counted));
    let address = address.recv().expect("the server listens");
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let frames = runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..REQUESTS {
            connections.push(TcpStream::connect(address).await.expect("the server listens"));
        }
        let asking: Vec<_> = connections.into_iter().map(|one| tokio::spawn(ask(one))).collect();
        // They wait by then, and the first turn is still to come.
        sleep(AHEAD / 2).await;
        let flooding = Flooding::start(flood, address);
        for one in asking {
            one.await.expect("it does not panic");
        }
        flooding.stop()
    });
    let [lateness, of_timers] = [&ran, &slept].map(lateness);
    assert_eq!(lateness.len(), REQUESTS as usize);
    Figures { lateness, of_timers, frames, came: came.load(Ordering::Relaxed) }
}

/// One is due each 5 ms.
fn lateness(at: &Instants) -> Vec<Duration> {
    let at = std::mem::take(&mut *at.lock().expect("nothing panics while it writes"));
    // The one that was the least late has set the pace.
    let early = |(number, at): (u32, &Instant)| at.checked_sub(EVERY * number);
    let start = (0..).zip(&at).filter_map(early).min().expect("there are some");
    (0..).zip(&at).map(|(number, at)| at.duration_since(start + EVERY * number)).collect()
}

fn serve(tell: &mpsc::Sender<SocketAddr>, ran: Instants, slept: Instants, came: Arc<AtomicU64>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let queue = Queue::new(Duration::from_secs(60));
        let limiter = RateLimiter::in_memory();
        // So that all requests are there before the first turn.
        let ahead = limiter.limit(&LIMIT).cost(TOKENS_AHEAD).reserve().await;
        drop(ahead.expect("the debt is allowed").keep());
        let layer = limiter.layer(&LIMIT).queue(queue);
        let run = async move || ran.lock().expect("nothing panics here").push(Instant::now());
        let count = MapRequestLayer::new(move |request: Request| {
            came.fetch_add(1, Ordering::Relaxed);
            request
        });
        let app = Router::new()
            .route("/", get(run).rate_limit(layer.clone()))
            .route("/same", get(async || ()).rate_limit(layer).layer(count))
            .route("/free", get(async || ()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        tell.send(listener.local_addr().expect("a bound socket has an address"))
            .expect("a listener");
        // Beside the requests, from the first turn to the last.
        let first = tokio::time::Instant::now() + AHEAD;
        for number in 0..REQUESTS {
            let slept = Arc::clone(&slept);
            tokio::spawn(async move {
                sleep_until(first + EVERY * number).await;
                slept.lock().expect("nothing panics here").push(Instant::now());
            });
        }
        axum::serve(listener, app).await.expect("axum's server does not fail");
    });
}

/// Asks on a connection, and waits for the answer.
async fn ask(mut connection: TcpStream) {
    let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    connection.write_all(request).await.expect("it is open");
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}
