//! What a server's processor does for one request, with the layer and without it.
//!
//! Each server is a process of its own, which tells what time of the processor it has taken. That
//! is what a request costs, whatever else the machine does meanwhile; how many requests a second
//! there were would say more about the machine.

mod client;
mod process;

pub use self::process::serve;

use self::client::Connections;
use self::process::Server;
use super::name;
use crate::peers::name as peer;
use crate::rounds::{Contest, Effort, Figures, Plan};

/// Many short ones, so that most are over before another program has the core.
const ROUNDS: usize = 101;
const WAVES: usize = 40;
const CONNECTIONS: usize = 64;

pub fn run(plan: &Plan) -> Vec<Figures> {
    let waves = if plan.effort == Effort::Smoke { 1 } else { WAVES };
    let requests = (CONNECTIONS * waves) as f64;
    let mut contest =
        Contest::new(name::SERVER, "ns of processor per request").and(name::SERVER_USER);
    for peer in [
        peer::BARE,
        peer::IDLE_LAYER,
        peer::OURS,
        peer::OURS_NO_FIELDS,
        peer::TOWER_GOVERNOR,
        peer::TOWER_GOVERNOR_HEADERS,
    ] {
        let mut server = Server::start(peer).expect("a server starts");
        let connections = Connections::open(server.address(), CONNECTIONS);
        let mut connections = connections.expect("the server accepts connections");
        contest.enter_all(peer, move || {
            let before = server.used().expect("the server tells its time");
            connections.ask(waves).expect("the server answers");
            let used = server.used().expect("the server tells its time") - before;
            [used.total(), used.user].map(|time| time.as_nanos() as f64 / requests).to_vec()
        });
    }
    contest.run(plan.rounds(ROUNDS))
}
