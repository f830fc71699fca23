//! The table of the repository's README, tollgate beside two other layers: how each behaves, tried
//! here, and what each costs, from the figures of the last whole run.
//!
//! It fails if the README has another table.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::{IntoResponse, Response};
use axum_governor::extractor::{Header, PeerIp, SmartIp};
use axum_governor::nz;
use http::{HeaderName, Request, StatusCode};
use peers_bench::peers::name as peer;
use peers_bench::rounds::{Figures, Spread};
use peers_bench::works::name as work;
use tollgate::key::{ClientIp, Networks, header};
use tollgate::{DAY, Limit, MINUTE, Quota, RateLimiter, Rule};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_governor::GovernorError;
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::{KeyExtractor, SmartIpKeyExtractor};

/// One token every 1.5 seconds, and one at once: a wait that is no whole number of seconds.
const SLOW: Limit = Limit::new("slow", Quota::token_bucket(40, MINUTE).capacity(1));
const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(5, DAY));
const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(1, DAY));

static USER: HeaderName = HeaderName::from_static("x-user");

type Tried = BoxCloneService<Request<Body>, Response, Infallible>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match check().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn check() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = table(&fs::read_to_string(root.join("results/figures.csv"))?).await;
    print!("{table}");
    if fs::read_to_string(root.join("../../README.md"))?.contains(&table) {
        Ok(())
    } else {
        Err(io::Error::other("README.md has another table"))
    }
}

async fn table(figures: &str) -> String {
    let median = medians(figures);
    let bytes = |peer: &str| format!("{:.0}", median(work::BYTES, peer));
    let hot = |peer: &str| format!("{:.0} ns", median(work::HOT, peer));
    let fields = |peer: &str| format!("{:.0} ns", median(work::LAYER_FIELDS, peer));
    let refusal = |peer: &str| format!("{:.1} µs", median(work::REFUSAL, peer) / 1_000.0);
    let text = str::to_owned;
    let rows = [
        (
            "a client that comes back after `Retry-After` is",
            [
                on_return(ours(Rule::new(&SLOW).key(ClientIp::peer()))).await,
                on_return(tower_governor(1_500, 1)).await,
                on_return(axum_governor_slow()).await,
            ],
        ),
        (
            "tokens left of 5 a day, after 1 request and 4 that another limit refused",
            [
                left(ours_two()).await,
                left(tower_governor_two()).await,
                left(axum_governor_two()).await,
            ],
        ),
        (
            "admitted by a limit of 5, of 20 requests with a made-up `X-Forwarded-For`",
            [
                spoofed(ours(Rule::new(&PER_CLIENT).key(behind_proxies()))).await,
                spoofed(tower_governor_smart()).await,
                spoofed(axum_governor_smart()).await,
            ],
        ),
        (
            "waiting in order; settling real costs; paced streams and bodies",
            ["yes; yes; yes", "no; no; no", "no; no; no"].map(text),
        ),
        ("stores", ["memory, file, Redis, PostgreSQL", "memory", "memory"].map(text)),
        (
            "bytes a key in memory",
            [bytes(peer::OURS), bytes(peer::GOVERNOR) + " (governor)", text("–")],
        ),
        (
            "a decision on one hot key",
            [hot(peer::OURS), hot(peer::GOVERNOR) + " (governor)", text("–")],
        ),
        (
            "the layer with header fields adds",
            [fields(peer::OURS), fields(peer::TOWER_GOVERNOR_HEADERS), fields(peer::AXUM_GOVERNOR)],
        ),
        (
            "a refused request, whole",
            [refusal(peer::OURS), refusal(peer::TOWER_GOVERNOR), text("–")],
        ),
    ];
    let mut table =
        String::from("| | tollgate | tower_governor | axum-governor |\n|---|---|---|---|\n");
    for (what, [ours, tower_governor, axum_governor]) in rows {
        let _ = writeln!(table, "| {what} | {ours} | {tower_governor} | {axum_governor} |");
    }
    table
}

/// The median of all rounds, by work and peer; what a layer adds is the median of what it adds in
/// each.
fn medians(figures: &str) -> impl Fn(&str, &str) -> f64 {
    let mut all = BTreeMap::<_, Figures>::new();
    for round in figures.lines().filter_map(Figures::from_csv) {
        let place = (round.work.clone(), round.peer.clone());
        match all.get_mut(&place) {
            Some(figures) => figures.rounds.extend(round.rounds),
            None => drop(all.insert(place, round)),
        }
    }
    let bare = all[&(work::LAYER_FIELDS.to_owned(), peer::BARE.to_owned())].rounds.clone();
    move |work, peer| {
        let mut rounds = all[&(work.to_owned(), peer.to_owned())].rounds.clone();
        if work == work::LAYER_FIELDS {
            rounds.iter_mut().zip(&bare).for_each(|(with, without)| *with -= without);
        }
        Spread::of(&rounds).median
    }
}

// What is tried.

/// What a client gets that was refused, and came back when it was told to.
async fn on_return(mut service: Tried) -> String {
    assert_eq!(ask(&mut service, &[]).await.status(), StatusCode::OK);
    let refused = ask(&mut service, &[]).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    tokio::time::sleep(Duration::from_secs(wait)).await;
    let status = ask(&mut service, &[]).await.status();
    if status == StatusCode::OK { "admitted" } else { "refused again" }.to_owned()
}

/// How many requests of other users a client has left, after four that the limit of one user refused.
async fn left(mut service: Tried) -> String {
    assert_eq!(ask(&mut service, &[("x-user", "alice")]).await.status(), StatusCode::OK);
    for _ in 0..4 {
        let refused = ask(&mut service, &[("x-user", "alice")]).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    let mut left = 0;
    for user in ["bob", "carol", "dan", "erin", "frank"] {
        let status = ask(&mut service, &[("x-user", user)]).await.status();
        left += usize::from(status == StatusCode::OK);
    }
    left.to_string()
}

/// How many requests of one client get through, each with another address before the one that the
/// proxy has appended.
async fn spoofed(mut service: Tried) -> String {
    let mut admitted = 0;
    for n in 1..=20 {
        let made_up = format!("198.51.100.{n}, 203.0.113.7");
        let status = ask(&mut service, &[("x-forwarded-for", &made_up)]).await.status();
        admitted += usize::from(status == StatusCode::OK);
    }
    admitted.to_string()
}

async fn ask(service: &mut Tried, fields: &[(&str, &str)]) -> Response {
    let proxy = SocketAddr::from(([10, 0, 0, 1], 49_152));
    let mut request = Request::builder().extension(ConnectInfo(proxy));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    service.ready().await.unwrap().call(request).await.unwrap()
}

// The layers, around a service that answers "hello".

fn tried<L>(layer: L) -> Tried
where
    L: Layer<Tried>,
    L::Service: Service<Request<Body>, Error = Infallible, Response: IntoResponse, Future: Send>
        + Clone
        + Send
        + 'static,
{
    let hello = service_fn(async |_| Ok("hello".into_response()));
    let layered = layer.layer(BoxCloneService::new(hello));
    BoxCloneService::new(layered.map_response(IntoResponse::into_response))
}

fn ours(rule: Rule) -> Tried {
    tried(RateLimiter::in_memory().layer(rule))
}

fn behind_proxies() -> ClientIp {
    ClientIp::x_forwarded_for(Networks::new(["10.0.0.0/8"]))
}

fn ours_two() -> Tried {
    let per_user = Rule::new(&PER_USER).key(header("x-user"));
    tried(RateLimiter::in_memory().layer(&PER_CLIENT).key(ClientIp::peer()).and(per_user))
}

fn tower_governor(period: u64, burst: u32) -> Tried {
    let config =
        GovernorConfigBuilder::default().per_millisecond(period).burst_size(burst).finish();
    tried(tower_governor::GovernorLayer::new(config.unwrap()))
}

#[derive(Clone, Debug)]
struct User;

impl KeyExtractor for User {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, GovernorError> {
        let user = request.headers().get(&USER).and_then(|user| user.to_str().ok());
        user.map(str::to_owned).ok_or(GovernorError::UnableToExtractKey)
    }
}

fn tower_governor_two() -> Tried {
    let mut user = GovernorConfigBuilder::default();
    let user = user.per_second(86_400).burst_size(1).key_extractor(User).finish().unwrap();
    let client =
        GovernorConfigBuilder::default().per_second(86_400).burst_size(5).finish().unwrap();
    tried(
        tower::ServiceBuilder::new()
            .layer(tower_governor::GovernorLayer::new(client))
            .map_response(IntoResponse::into_response)
            .layer(tower_governor::GovernorLayer::new(user)),
    )
}

fn tower_governor_smart() -> Tried {
    let mut config = GovernorConfigBuilder::default();
    let config =
        config.per_second(86_400).burst_size(5).key_extractor(SmartIpKeyExtractor).finish();
    tried(tower_governor::GovernorLayer::new(config.unwrap()))
}

fn axum_governor_slow() -> Tried {
    let quota = axum_governor::Quota::requests_per_minute(nz!(40u32)).burst(nz!(1u32));
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(quota);
    tried(axum_governor::GovernorLayer::new(config.finish().unwrap()))
}

fn axum_governor_two() -> Tried {
    let hourly = |burst| axum_governor::Quota::requests_per_hour(nz!(1u32)).burst(burst);
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(PeerIp::default())
        .expect_connect_info()
        .quota_default(hourly(nz!(5u32)))
        .stack("user", Header(&USER), hourly(nz!(1u32)));
    tried(axum_governor::GovernorLayer::new(config.finish().unwrap()))
}

fn axum_governor_smart() -> Tried {
    let proxies = "10.0.0.0/8".parse().unwrap();
    let config = axum_governor::GovernorConfigBuilder::default()
        .with_extractor(SmartIp::new().with_trusted_proxies([proxies]))
        .expect_connect_info()
        .quota_default(axum_governor::Quota::requests_per_hour(nz!(1u32)).burst(nz!(5u32)));
    tried(axum_governor::GovernorLayer::new(config.finish().unwrap()))
}
