//! The works, and how their instructions are counted.

use std::collections::BTreeMap;
use std::env;
use std::num::NonZero;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[cfg(feature = "peers")]
use super::peers;
use super::{decisions, layers, observed, trace};

/// Does one work so often.
pub type Work = fn(u32);

/// The instructions of a work, each time that it is done.
pub type Counts = Vec<(&'static str, f64)>;

const TIMES: u32 = 20_000;

const WORKS: &[(&str, Work)] = &[
    ("address", decisions::address),
    #[cfg(feature = "peers")]
    ("address: governor", peers::address_of_governor),
    ("string", decisions::string),
    #[cfg(feature = "peers")]
    ("string: governor", peers::string_of_governor),
    ("address refused", decisions::address_refused),
    #[cfg(feature = "peers")]
    ("address refused: governor", peers::address_refused_of_governor),
    ("100,000 addresses", decisions::many_addresses),
    ("three limits", decisions::three_limits),
    ("eight limits", decisions::eight_limits),
    ("two shards", decisions::two_shards),
    ("address, another replaced", decisions::another_replaced),
    ("address replaced", decisions::address_replaced),
    ("newcomer", decisions::newcomer),
    ("newcomer at the bound", decisions::newcomer_at_the_bound),
    ("layer", layers::plain),
    #[cfg(feature = "peers")]
    ("layer: tower_governor", peers::tower_governor),
    ("layer with fields", layers::with_fields),
    #[cfg(feature = "peers")]
    ("layer with fields: tower_governor", peers::tower_governor_with_headers),
    ("layer, another replaced", layers::another_replaced),
    ("layer replaced", layers::replaced),
    ("layer with fields replaced", layers::with_fields_replaced),
    ("layer refused", layers::refused),
    #[cfg(feature = "peers")]
    ("layer refused: tower_governor", peers::refused_by_tower_governor),
    ("address, observed", observed::address_silent),
    ("address, metrics", observed::address_counting),
    ("address, Prometheus", observed::address_prometheus),
    ("address refused, Prometheus", observed::refused_prometheus),
    ("layer, observed", observed::layer_silent),
    ("layer, metrics", observed::layer_counting),
    ("layer, Prometheus", observed::layer_prometheus),
];

/// Whose cache lines are counted.
const IN_LINES: &[(&str, &str)] = &[
    ("lines of address", "address"),
    #[cfg(feature = "peers")]
    ("lines of address: governor", "address: governor"),
    ("lines of layer", "layer"),
    #[cfg(feature = "peers")]
    ("lines of layer: tower_governor", "layer: tower_governor"),
    ("lines of layer with fields", "layer with fields"),
    #[cfg(feature = "peers")]
    ("lines of layer with fields: tower_governor", "layer with fields: tower_governor"),
];

/// What a request takes without a layer, which is not counted for the layer.
const BARE: (&str, Work) = ("bare service", layers::bare);
const BARE_LINES: (&str, &str) = ("lines of bare service", BARE.0);

pub fn work(name: &str) -> Option<Work> {
    let mut all = WORKS.iter().chain([&BARE]);
    all.find_map(|&(known, work)| (known == name).then_some(work))
}

/// Counts all works under valgrind, and nothing of what comes before them. Of a layer it is what it
/// adds; of a refusal all that is done. Then the cache lines of some.
///
/// Each work has a process of its own, so as many are counted at a time as there are processors.
///
/// # Errors
///
/// If valgrind is missing (Debian: `apt-get install valgrind`) or fails.
pub fn all() -> Result<Counts, String> {
    let works = [BARE].iter().chain(WORKS).map(|&(name, _)| (name, name, collected as Counter));
    let lines =
        IN_LINES.iter().chain([&BARE_LINES]).map(|&(name, work)| (name, work, lines as Counter));
    let names: Vec<_> = works.chain(lines).collect();
    let next = AtomicUsize::new(0);
    let count = || {
        let mut counted = Vec::new();
        while let Some((name, work, count)) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            counted.push((*name, count(work)?));
        }
        Ok(counted)
    };
    let counted: Result<Vec<_>, String> = thread::scope(|scope| {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let counters: Vec<_> = (0..processors).map(|_| scope.spawn(count)).collect();
        counters.into_iter().map(|counter| counter.join().expect("no counter panics")).collect()
    });
    let counted: BTreeMap<_, _> = counted?.into_iter().flatten().collect();
    let count = |name: &'static str| {
        let bare = match name {
            _ if name.contains("refused") => 0.0,
            _ if name.starts_with("layer") => counted[BARE.0],
            _ if name.starts_with("lines of layer") => counted[BARE_LINES.0],
            _ => 0.0,
        };
        (name, counted[name] - bare)
    };
    let names = WORKS.iter().map(|&(name, _)| name).chain(IN_LINES.iter().map(|&(name, _)| name));
    Ok(names.map(count).collect())
}

type Counter = fn(&str) -> Result<f64, String>;

fn lines(name: &str) -> Result<f64, String> {
    let lines = trace::of(name)?.lines();
    Ok(f64::from(u32::try_from(lines).map_err(|error| error.to_string())?))
}

fn collected(name: &str) -> Result<f64, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*measured*")
        .arg(program)
        .args(["loop", name, &TIMES.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error} (Debian: apt-get install valgrind)"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    let count: f64 = count.ok_or_else(|| format!("valgrind counted nothing of {name}: {text}"))?;
    Ok(count / f64::from(TIMES))
}
