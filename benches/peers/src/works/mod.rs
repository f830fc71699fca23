//! What is measured, work by work.

pub mod flood;
mod hot;
mod keys;
pub(crate) mod layer;
mod limits;
mod million;
mod pause;
mod refusal;
mod server;
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
    pub const REFUSAL: &str = "refusal";
    pub const SERVER: &str = "server";
    pub const KEYS: &str = "keys";
    pub const FLOOD: &str = "flood";
    pub const LIMITS: &str = "limits";
    /// In a program of their own, which counts.
    pub const BYTES: &str = "bytes";
    pub const FLOOD_BYTES: &str = "flood-bytes";
    pub const ALLOCATIONS: &str = "allocations";
}

/// Measures one work, or a few that are alike.
type Work = fn(&Plan) -> Vec<Figures>;

/// All works of this program that the plan wants.
pub fn run(plan: &Plan) -> Vec<Figures> {
    let mut figures = Vec::new();
    let works: [(&[&str], Work); 10] = [
        (&[name::HOT, name::HOT_REFUSED, name::HOT_STRING, name::HOT_STRING_REFUSED], hot::run),
        (&[name::MILLION, name::MILLION_STRING], million::run),
        (&[name::THREADS, name::THREADS_HOT], threads::run),
        (&[name::PAUSE], pause::run),
        (&[name::LAYER, name::LAYER_MANY, name::LAYER_FIELDS], layer::run),
        (&[name::REFUSAL], refusal::run),
        (&[name::LIMITS], limits::run),
        (&[name::KEYS], keys::run),
        (&[name::FLOOD], flood::run),
        (&[name::SERVER], server::run),
    ];
    for (names, work) in works {
        if names.iter().any(|name| plan.wants(name)) {
            figures.extend(work(plan));
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
