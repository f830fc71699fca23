//! Enforces the structure of `src`: imports run one way, types stay together, names are unique.
//!
//! The sources are read as tokens. Comments, documentation and code under `#[cfg(test)]` do not
//! count. Each module holds one rule, its exceptions with their reasons, and tests which show that
//! the rule can fail.

mod arrows;
mod circles;
mod features;
mod guides;
mod impls;
mod lib_rs;
mod modules;
mod plots;
mod read;

use std::collections::BTreeSet;

use self::read::{room, sources};

/// The rooms, lowest first; those of one layer do not know each other.
const LAYERS: [&[&str]; 10] = [
    &["clock"],
    &["quota"],
    &["algebra"],
    &["backend"],
    &["limiter"],
    &["key", "fields", "observe"],
    &["middleware", "throttle"],
    &["routes"],
    &["kit"],
    &["_guide"],
];

/// External crates, and the rooms and files that may name them.
const CRATES: [(&str, &[&str]); 13] = [
    ("http", &["key/", "fields/", "middleware/", "routes/"]),
    ("http_body", &["key/", "fields/", "middleware/", "routes/", "throttle/body.rs"]),
    ("futures_core", &["throttle/"]),
    ("futures_sink", &["throttle/"]),
    ("httpdate", &["fields/retry_after.rs"]),
    ("ipnet", &["key/client_ip/networks.rs"]),
    (
        "tokio",
        &[
            "clock/",
            "limiter/detached.rs",
            // They measure how long requests wait, and how long the store takes.
            "limiter/events/observers.rs",
            "limiter/handle.rs",
            "limiter/line/",
            "limiter/queue/",
            "limiter/waiting.rs",
            // It measures how long a store has not failed.
            "limiter/failure_log.rs",
            "middleware/queued_call.rs",
            "middleware/read_on.rs",
            // It counts the time between two lines.
            "observe/rare_lines.rs",
        ],
    ),
    ("jiff", &["quota/calendar/"]),
    ("sha2", &["key/digest.rs"]),
    ("uuid", &["backend/key_parts.rs", "key/from_fn.rs"]),
    ("tower_layer", &["middleware/", "routes/"]),
    ("tower_service", &["middleware/", "routes/"]),
    ("axum", &["middleware/read_on.rs", "routes/", "key/client_ip/peer.rs", "key/matched_path.rs"]),
];

fn layer(room: &str) -> Option<usize> {
    LAYERS.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn every_room_has_a_layer() {
    let rooms: BTreeSet<_> = sources().iter().map(|(file, _)| room(file).to_owned()).collect();
    let layered: BTreeSet<_> = LAYERS.concat().into_iter().map(str::to_owned).collect();
    assert_eq!(rooms, layered, "left: what is in src, right: what has a layer");
}
