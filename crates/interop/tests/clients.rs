//! HTTP clients that others wrote, against a real server: each is refused, waits as told, and
//! succeeds.
//!
//! The programs are installed by `scripts/programs`. They wait for a second or two of real time. The
//! server shows whether they have waited: its time stands still until the first refusal and runs
//! from then on, so the speed of the machine does not matter.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::{Limit, Quota, SECOND};
use tollgate_testing::{START, limiter, web};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

static ONE: Limit = Limit::new("one", Quota::token_bucket(1, Duration::from_secs(2)));

/// When the second request comes. A token is there a second and a half later, which is told as two
/// seconds: a timer that fires a millisecond early is no disobedience.
const SECOND_COMES: Duration = Duration::from_millis(500);

/// What a server saw.
#[derive(Clone, Debug)]
struct Server {
    clock: ManualClock,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Whether each request was admitted, and how long after the first refusal it came.
    requests: Vec<(bool, Duration)>,
    refused: Option<Instant>,
}

impl Server {
    /// Serves these routes behind a limit of one request every two seconds.
    async fn start(routes: Router) -> (Self, SocketAddr) {
        let clock = ManualClock::new(START);
        let all = [Dialect::Draft11, Dialect::Draft6, Dialect::XRateLimit];
        let layer = limiter(&clock).layer(&ONE).dialects(all);
        let server = Self { clock, seen: Arc::default() };
        let routes = routes.layer(layer).layer(from_fn_with_state(server.clone(), Self::watch));
        let address = web::serve(routes).await;
        (server, address)
    }

    async fn watch(State(server): State<Self>, request: Request, next: Next) -> Response {
        let since = {
            let seen = server.seen.lock().unwrap();
            let since = seen.refused.map_or(Duration::ZERO, |refused| refused.elapsed());
            let now = if seen.requests.is_empty() { START } else { START + SECOND_COMES };
            server.clock.set(now + since);
            since
        };
        let response = next.run(request).await;
        let mut seen = server.seen.lock().unwrap();
        let admitted = !response.headers().contains_key("retry-after");
        seen.requests.push((admitted, since));
        if !admitted {
            seen.refused.get_or_insert_with(Instant::now);
        }
        response
    }

    /// Of a client that came second: it was refused, has waited for at least so long, and was admitted.
    #[track_caller]
    fn has_seen_one_wait_of(&self, told: Duration) {
        let requests = self.seen.lock().unwrap().requests.clone();
        let admitted: Vec<_> = requests.iter().map(|request| request.0).collect();
        assert_eq!(admitted, [true, false, true], "{requests:?}");
        let waited = requests[2].1 + Duration::from_millis(10);
        assert!(waited >= told, "told to wait for {told:?}, back after {:?}", requests[2].1);
    }
}

/// Where `scripts/programs` puts them.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("programs")
}

/// Lets a program ask for `/`, which prints the status of the last answer.
async fn asks(program: impl AsRef<Path>, args: &[&str]) {
    let (server, address) = Server::start(Router::new().route("/", get(async || "hello"))).await;
    assert_eq!(web::get(address, "/").await.status, 200);
    let url = format!("http://{address}/");
    let mut command = Command::new(program.as_ref());
    // Scripts find what they import next to where they run.
    let folder = installed();
    command.args(args).arg(&url).current_dir(if folder.is_dir() {
        &*folder
    } else {
        Path::new(".")
    });
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    let name = program.as_ref().display().to_string();
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let output = output.unwrap_or_else(|error| {
        panic!("{name} cannot be started: {error} (bash scripts/programs --install clients)")
    });
    let (said, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "{name} failed, maybe for want of `bash scripts/programs --install clients`: {said}{error}"
    );
    assert_eq!(said.split_whitespace().last(), Some("200"), "{said}{error}");
    server.has_seen_one_wait_of(2 * SECOND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urllib3_waits_as_told() {
    let program = "import sys, urllib3
retries = urllib3.Retry(total=3, status_forcelist=[429], backoff_factor=0)
print(urllib3.PoolManager(retries=retries).request('GET', sys.argv[1]).status)";
    asks(installed().join("venv/bin/python"), &["-c", program]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn got_waits_as_told() {
    let program = "import got from 'got';
console.log((await got(process.argv[1])).statusCode);";
    asks("node", &["--input-type=module", "-e", program]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ky_waits_as_told() {
    let program = "import ky from 'ky';
console.log((await ky.get(process.argv[1])).status);";
    asks("node", &["--input-type=module", "-e", program]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_waits_as_told() {
    // With `--fail`, only the last body is printed, and the status behind it.
    let args = ["--silent", "--show-error", "--fail", "--retry", "3"];
    asks("curl", &[&args[..], &["--write-out", " %{http_code}"]].concat()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tonic_waits_as_told() {
    let (_, health) = tonic_health::server::health_reporter();
    let routes = tonic::service::Routes::new(health).prepare().into_axum_router();
    let (server, address) = Server::start(routes).await;
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    client.check(HealthCheckRequest::default()).await.unwrap();
    let mut waits = Vec::new();
    while let Err(status) = client.check(HealthCheckRequest::default()).await {
        let retry_info = status.get_details_retry_info().expect("a time to come back");
        let wait = retry_info.retry_delay.unwrap();
        waits.push(wait);
        tokio::time::sleep(wait).await;
    }
    let exact = 2 * SECOND - SECOND_COMES;
    assert_eq!(waits, [exact]);
    server.has_seen_one_wait_of(exact);
}
