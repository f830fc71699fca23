//! An axum server over loopback under `wrk`, with the layer and without it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate::fields::Dialect;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

use super::name;
use crate::peers::layers::ours_layer;
use crate::peers::{Allowance, name as who};
use crate::rounds::{Contest, Figures, Plan};

const ROUNDS: usize = 9;
const CONNECTIONS: &str = "64";

pub fn run(plan: &Plan) -> Vec<Figures> {
    if Command::new("wrk").arg("--version").stdout(Stdio::null()).spawn().is_err() {
        eprintln!(
            "  {}: left out, as `wrk` is missing (Debian: apt-get install wrk)",
            name::SERVER
        );
        return Vec::new();
    }
    let runtime = Runtime::new().expect("a runtime");
    let layer = |dialect| ours_layer(Allowance::OPEN, dialect, 1);
    let hello = || Router::new().route("/", get(async || "hello"));
    let governor = GovernorConfigBuilder::default()
        .period(Allowance::OPEN.interval())
        .burst_size(Allowance::OPEN.burst)
        .finish();
    let governor = GovernorLayer::new(governor.expect("numbers above zero"));
    let mut contest = Contest::new(name::SERVER, "requests per second");
    let seconds = if plan.quick { 1 } else { 2 };
    for (name, router) in [
        (who::BARE, hello()),
        (who::OURS, hello().layer(layer(Dialect::default()))),
        (who::OURS_NO_FIELDS, hello().layer(layer(Dialect::None))),
        (who::TOWER_GOVERNOR, hello().layer(governor)),
    ] {
        let address = serve(&runtime, router);
        contest.enter(name, move || wrk(address, seconds));
    }
    contest.run(plan.rounds(ROUNDS))
}

fn serve(runtime: &Runtime, router: Router) -> SocketAddr {
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("the address of a listener");
    // With its state, so that its layers are applied once and not anew on every request.
    let router = router.with_state(()).into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async { axum::serve(listener, router).await });
    address
}

/// Requests per second, as `wrk` says.
fn wrk(address: SocketAddr, seconds: u32) -> f64 {
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", CONNECTIONS, "--duration"])
        .args([format!("{seconds}s"), format!("http://{address}/")])
        .output()
        .expect("wrk runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("Non-2xx"), "all are admitted: {text}");
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    rate.and_then(|rate| rate.trim().parse().ok()).unwrap_or_else(|| panic!("{text}"))
}
