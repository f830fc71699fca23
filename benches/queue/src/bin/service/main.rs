//! How the queue treats requests whose work is settled, seen from a service and its clients over
//! HTTP on this machine.

mod clients;
mod history;
mod ideal;
mod scenario;
mod server;
mod stalls;
mod table;

use std::time::Duration;

use tokio::runtime::Builder;

use crate::history::History;
use crate::scenario::{Scenario, Settled};
use crate::stalls::Stalls;

fn main() {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime of one thread").block_on(async {
        let stalls = Stalls::watch();
        table::heading();
        // One at a time: where the queue is ideal they are decided within milliseconds, which other
        // work would distort.
        for scenario in short() {
            show(&scenario, &clients::run(&scenario).await);
        }
        let of_short = stalls.take();
        // Two at a time, which take 800 descriptors; a process may often open no more than 1,024.
        let [first, second] = long();
        let (first_seen, second_seen) = tokio::join!(run_all(&first), run_all(&second));
        let seen = first_seen.iter().chain(&second_seen);
        first.iter().chain(&second).zip(seen).for_each(|(scenario, seen)| show(scenario, seen));
        println!("\nlongest stall of the program's thread: {of_short:.1?} in the first five");
        println!("scenarios, {:.1?} in the others", stalls.take());
    });
}

fn short() -> Vec<Scenario> {
    let millis = Duration::from_millis;
    vec![
        Scenario::calls("40 calls, not settled; one more at 1 s", 40, Settled::Never),
        Scenario::calls("40 calls, settled; one more at 1 s", 40, Settled::ByResponse),
        Scenario::leavers(
            "40 calls, settled, 30 % of the clients leave; one more at 1 s",
            40,
            millis(2),
        ),
        Scenario::streams("40 calls, settled at the end of a stream; one more at 1 s", 40),
        Scenario::abandoned(
            "40 calls, settled, and all that wait leave; one more after that",
            10_000,
        ),
    ]
}

fn long() -> [Vec<Scenario>; 2] {
    let millis = Duration::from_millis;
    let calls = vec![
        Scenario::calls("200 calls, settled; one more at 1 s", 200, Settled::ByResponse),
        Scenario::leavers(
            "200 calls, settled, 30 % of the clients leave; one more at 1 s",
            200,
            millis(15),
        ),
        Scenario::streams("200 calls, settled at the end of a stream; one more at 1 s", 200),
    ];
    let others = vec![
        Scenario::abandoned("the same at 1,000 tokens a second", 1_000),
        Scenario::mixed("200 requests that cost 1 to 10, 30 % leave", Settled::Never),
        Scenario::mixed("the same, settled at half", Settled::ByResponse),
    ];
    [others, calls]
}

async fn run_all(scenarios: &[Scenario]) -> Vec<History> {
    let mut seen = Vec::new();
    for scenario in scenarios {
        seen.push(clients::run(scenario).await);
    }
    seen
}

fn show(scenario: &Scenario, seen: &History) {
    table::rows(scenario, seen, &ideal::play(scenario));
}
