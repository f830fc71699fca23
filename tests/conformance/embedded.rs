//! The suite over the embedded store, on real files: durable and fast, by the system's clock and by
//! one that is set.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, fs, process};

use tollgate::backend::{Durability, Embedded, EmbeddedBuilder};

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

mod durable {
    use tollgate::backend::Durability;

    tollgate::conformance!(|| super::open(Durability::Durable, |builder| builder));
}

mod fast {
    use tollgate::backend::Durability;

    tollgate::conformance!(|| super::open(Durability::Fast, |builder| builder));
}

mod on_a_clock_that_is_set {
    use tollgate::backend::Durability;

    tollgate::conformance!(|clock| super::open(Durability::Fast, |builder| builder.clock(clock)));
}
