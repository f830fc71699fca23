//! What a key takes on the server.

use super::name;
use crate::contestants::{Entrant, KEYS};
use crate::figures::{Figures, Place, unit};
use crate::server::Server;

const TASKS: usize = 256;

pub(super) async fn of_each(server: &Server, entrants: &[Entrant], figures: &mut Figures) {
    eprintln!("memory of {KEYS} keys");
    for each in entrants {
        server.forget_everything().await;
        // What connections and scripts take is there before.
        each.drive.each_once(1, 1).await;
        server.forget_everything().await;
        let before = server.bytes().await;
        each.drive.each_once(KEYS, TASKS).await;
        let each_key = (server.bytes().await - before) / KEYS as f64;
        let place = Place { work: name::MEMORY, tasks: TASKS, keys: KEYS, peer: each.peer };
        figures.add(place, unit::BYTES, each_key);
        figures.add(place, unit::BYTES_OF_ONE, server.bytes_of_one().await);
    }
    server.forget_everything().await;
}
