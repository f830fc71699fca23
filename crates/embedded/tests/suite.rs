//! The suite over the embedded store, on real files: a durable one by the system's clock, and a fast
//! one by a clock that is set.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process, thread};

use tollgate_conformance::Check;
use tollgate_embedded::{Durability, Embedded, EmbeddedBuilder};

/// A new file. Its directory entry is removed at once: the store keeps the open file, and nothing is
/// left behind.
fn open(durability: Durability, more: impl FnOnce(EmbeddedBuilder) -> EmbeddedBuilder) -> Embedded {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nth = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("tollgate-suite-{}-{nth}.db", process::id()));
    let builder = Embedded::at(&path).durability(durability).deadline(Duration::from_secs(60));
    let store = more(builder).open().unwrap();
    fs::remove_file(&path).unwrap();
    store
}

/// By the system's clock, each check in a thread: most of them wait for the disk. Unit tests of the
/// store play random calls to a durable file, with restarts.
#[test]
fn a_durable_file_keeps_the_contract() {
    let is_short = |check: &&'static Check| {
        check.runs_with_own_clock()
            && check.name() != "random_calls_are_answered_as_the_algorithm_says"
    };
    let checks: Vec<_> = Check::all().filter(is_short).collect();
    assert!(checks.len() > 20, "{checks:?}");
    thread::scope(|scope| {
        for check in &checks {
            scope.spawn(|| check.run(|| open(Durability::Durable, |builder| builder)));
        }
    });
}

mod on_a_clock_that_is_set {
    use tollgate_embedded::Durability;

    tollgate_conformance::conformance!(
        |clock| super::open(Durability::Fast, |builder| builder.clock(clock))
    );
}
