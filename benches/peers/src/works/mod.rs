//! What is measured, work by work.

pub mod flood;
mod hot;
mod keys;
pub(crate) mod layer;
mod limits;
mod million;
mod pause;
mod refusal;
pub mod server;
mod shards;
mod threads;

use std::time::{Duration, Instant};

use crate::keys::Name;
use crate::rounds::{Figures, Plan};

/// The works, by name.
pub mod name {
    pub const HOT: &str = "hot-ipv4-admitted";
    pub const HOT_REFUSED: &str = "hot-ipv4-refused";
    pub const HOT_STRING: &str = "hot-string-admitted";
    pub const HOT_STRING_REFUSED: &str = "hot-string-refused";
    pub const MILLION: &str = "million-ipv4";
    pub const MILLION_STRING: &str = "million-string";
    pub const THREADS: &str = "threads-million";
    pub const THREADS_HOT: &str = "threads-hot";
    pub const PAUSE: &str = "pause";
    pub const LAYER: &str = "layer-one-key";
    pub const LAYER_MANY: &str = "layer-100k-keys";
    pub const LAYER_FIELDS: &str = "layer-fields";
    /// Each request with empty caches.
    pub const LAYER_COLD: &str = "layer-cold";
    pub const LAYER_FIELDS_COLD: &str = "layer-fields-cold";
    pub const REFUSAL: &str = "refusal";
    pub const SERVER: &str = "server";
    /// The part of it that is not the system's.
    pub const SERVER_USER: &str = "server-user";
    pub const KEYS: &str = "keys";
    pub const FLOOD: &str = "flood";
    /// The part of the flood that comes when ours is full.
    pub const FLOOD_BOUND: &str = "flood-at-bound";
    pub const LIMITS: &str = "limits";
    pub const THREE_LIMITS: &str = "three-limits";
    pub const SHARDS: &str = "shards";
    /// In a program of their own, which counts.
    pub const BYTES: &str = "bytes";
    pub const FLOOD_BYTES: &str = "flood-bytes";
    pub const ALLOCATIONS: &str = "allocations";

    pub const ALL: [&str; 26] = [
        HOT,
        HOT_REFUSED,
        HOT_STRING,
        HOT_STRING_REFUSED,
        MILLION,
        MILLION_STRING,
        THREADS,
        THREADS_HOT,
        PAUSE,
        LAYER,
        LAYER_MANY,
        LAYER_FIELDS,
        LAYER_COLD,
        LAYER_FIELDS_COLD,
        REFUSAL,
        SERVER,
        SERVER_USER,
        KEYS,
        FLOOD,
        FLOOD_BOUND,
        LIMITS,
        THREE_LIMITS,
        SHARDS,
        BYTES,
        FLOOD_BYTES,
        ALLOCATIONS,
    ];
}

/// Measures one work, or a few that are alike.
type Work = fn(&Plan) -> Vec<Figures>;

/// All works of this program that the plan wants.
pub fn run(plan: &Plan) -> Vec<Figures> {
    let mut figures = Vec::new();
    let works: [(&[&str], Work); 11] = [
        (&[name::HOT, name::HOT_REFUSED, name::HOT_STRING, name::HOT_STRING_REFUSED], hot::run),
        (&[name::MILLION, name::MILLION_STRING], million::run),
        (&[name::THREADS, name::THREADS_HOT], threads::run),
        (&[name::PAUSE], pause::run),
        (
            &[
                name::LAYER,
                name::LAYER_MANY,
                name::LAYER_FIELDS,
                name::LAYER_COLD,
                name::LAYER_FIELDS_COLD,
            ],
            layer::run,
        ),
        (&[name::REFUSAL], refusal::run),
        (&[name::LIMITS, name::THREE_LIMITS], limits::run),
        (&[name::SHARDS], shards::run),
        (&[name::KEYS], keys::run),
        (&[name::FLOOD, name::FLOOD_BOUND], flood::run),
        (&[name::SERVER, name::SERVER_USER], server::run),
    ];
    for (names, work) in works {
        if names.iter().any(|name| plan.wants(name)) {
            let of_work = work(plan);
            plan.tell(&of_work);
            figures.extend(of_work);
        }
    }
    figures
}

/// Nanoseconds per decision about these keys, all of which have to be answered like this.
fn decide<K: Name>(keys: &[K], contender: &mut impl FnMut(&K) -> bool, admitted: bool) -> f64 {
    let mut as_wanted = 0_usize;
    let start = Instant::now();
    for key in keys {
        as_wanted += usize::from(contender(key) == admitted);
    }
    let each = nanos_each(start.elapsed(), keys.len());
    assert_eq!(as_wanted, keys.len(), "what is measured would be something else");
    each
}

fn nanos_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}
