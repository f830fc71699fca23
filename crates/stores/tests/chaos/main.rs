//! Healthy keys beside one sick thing, on each store and each wrapper: they see no error, nothing is
//! admitted that the policy does not allow, and nothing is lost or minted.
//!
//! ```sh
//! cargo test -p tollgate-stores --test chaos                           # each case for a quarter of a second
//! cargo test --release -p tollgate-stores --test chaos -- table        # for longer: the tables of docs/design/faults.md
//! cargo test --release -p tollgate-stores --test chaos -- saturated flood
//! cargo test --release -p tollgate-stores --test chaos -- floods       # see `floods`
//! cargo test --release -p tollgate-stores --test chaos -- soak 3600    # see `soak`
//! ```
//!
//! Other arguments are parts of cases: `redis`, `flood`. Without any, a case takes half a second, and two
//! run beside each other. With the number of cases that CI plays, they run one after another, and those
//! of the wrappers around servers as well. Times are printed, and never fail.

mod case;
mod floods;
mod place;
mod soak;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_testing::cases::times;

use self::case::{Case, Span};
use self::place::{Sick, Store};

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return println!("chaos: test");
    }
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["process", rest @ ..] => runtime().block_on(soak::process(rest)),
        ["flooder", rest @ ..] => runtime().block_on(floods::flooder(rest)),
        ["floods", rest @ ..] => runtime().block_on(floods::floods(rest)),
        ["soak", rest @ ..] => runtime().block_on(soak::soak(rest)),
        ["table", parts @ ..] => {
            table(parts, Span::seconds(2.0, 0.0, 3.0).with_pauses(), true, 1);
        }
        ["saturated", parts @ ..] => table(parts, Span::seconds(2.0, 3.0, 3.0), true, 1),
        parts => {
            let (sick, is_quick) = (if in_ci() { 0.5 } else { 0.25 }, parts.is_empty() && !in_ci());
            let together = if is_quick { 2 } else { 1 };
            table(parts, Span::seconds(0.2, 0.0, sick), !is_quick, together);
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Whether the number of cases is that of CI.
fn in_ci() -> bool {
    times(2, 1) == 2
}

/// Plays all cases whose names have one of these parts, so many beside each other, and prints a row for
/// each.
fn table(parts: &[&str], span: Span, with_wrappers: bool, together: usize) {
    println!("{}", span.head());
    // A wrapper hands its calls on to a server, which is played without one too.
    let stores = Store::all().into_iter().filter(|store| with_wrappers || store.is_bare());
    let cases = stores.flat_map(|store| Sick::ALL.map(|sick| (store, sick)));
    let (alone, cases): (Vec<_>, Vec<_>) = cases
        .filter(|&(store, sick)| store.has(sick))
        .filter(|&(store, sick)| {
            let name = name(store, sick);
            parts.is_empty() || parts.iter().any(|part| name.contains(part))
        })
        .partition(|&(store, sick)| together > 1 && store.limits_this_process(sick));
    let next = AtomicUsize::new(0);
    let play_next = || {
        let mut broken = Vec::new();
        while let Some(&(store, sick)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            broken.extend(play(store, sick, span));
        }
        broken
    };
    let mut broken = thread::scope(|scope| {
        let playing: Vec<_> = (0..together).map(|_| scope.spawn(play_next)).collect();
        playing.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    broken.extend(alone.into_iter().flat_map(|(store, sick)| play(store, sick, span)));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

fn name(store: Store, sick: Sick) -> String {
    format!("{}, {}", store.name(), sick.name())
}

/// Plays a case, prints its row, and returns what must not have happened.
fn play(store: Store, sick: Sick, span: Span) -> Vec<String> {
    // With a runtime of its own: nothing of one case goes on in the next.
    let runtime = runtime();
    let case = runtime.block_on(Case::play(store, sick, span));
    runtime.shutdown_timeout(Duration::from_secs(5));
    println!("{}", case.row(store, sick, span));
    let name = name(store, sick);
    case.broken().into_iter().map(|what| format!("{name}: {what}")).collect()
}
