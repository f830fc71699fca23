//! Decisions a second, and what the server and the client spend on each.

use super::{MANY_KEYS, Plan, TASKS, name};
use crate::contestants::{Answer, Entrant};
use crate::drive::Load;
use crate::figures::{Figures, Place, unit};
use crate::machine;
use crate::server::Server;

/// Every number of tasks, on one key and on many.
pub(super) async fn admitted(
    server: &Server,
    plan: Plan,
    entrants: &[Entrant],
    figures: &mut Figures,
) {
    for tasks in TASKS {
        for keys in [1, MANY_KEYS] {
            let load = Load { tasks, keys, expected: Answer::Admitted };
            contest(server, plan, name::ADMITTED, load, entrants, figures).await;
        }
    }
}

/// One key whose only token is taken.
pub(super) async fn refused(
    server: &Server,
    plan: Plan,
    entrants: &[Entrant],
    figures: &mut Figures,
) {
    for each in entrants {
        each.drive.each_once(1, 1).await;
    }
    let load = Load { tasks: 64, keys: 1, expected: Answer::Refused };
    contest(server, plan, name::REFUSED, load, entrants, figures).await;
}

async fn contest(
    server: &Server,
    plan: Plan,
    work: &'static str,
    load: Load,
    entrants: &[Entrant],
    figures: &mut Figures,
) {
    eprintln!("{work}: {} tasks, {} keys", load.tasks, load.keys);
    for each in entrants {
        each.drive.flood(load, plan.round / 4).await;
    }
    for nth in 0..plan.rounds {
        // The order changes from round to round, so each peer is first sometimes.
        for turn in 0..entrants.len() {
            let each = &entrants[(turn + nth) % entrants.len()];
            round(server, plan, work, load, each, figures).await;
        }
    }
}

async fn round(
    server: &Server,
    plan: Plan,
    work: &'static str,
    load: Load,
    entrant: &Entrant,
    figures: &mut Figures,
) {
    server.reset_counts().await;
    let (server_before, client_before) =
        (server.spent(entrant.command).await, machine::client_cpu());
    let flood = entrant.drive.flood(load, plan.round).await;
    let client_after = machine::client_cpu();
    let spent = server.spent(entrant.command).await;

    let place = Place { work, tasks: load.tasks, keys: load.keys, peer: entrant.peer };
    let server_cpu = (spent.cpu_seconds - server_before.cpu_seconds) * 1e6 / flood.decisions;
    figures.add(place, unit::RATE, flood.rate);
    figures.add(place, unit::SERVER_CPU, server_cpu);
    figures.add(place, unit::COMMAND_TIME, spent.micros / flood.decisions);
    figures.add(place, unit::PER_CALL, flood.decisions / spent.calls);
    if let (Some(before), Some(after)) = (client_before, client_after) {
        figures.add(place, unit::CLIENT_CPU, (after - before) / 1e3 / flood.decisions);
    }
    figures.unexpected(place, flood.unexpected);
}
