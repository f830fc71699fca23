//! Every interleaving of the counter's clock, up to three switches between its threads: no
//! thread reads half of an anchor that another writes.
//!
//! The file is the crate's own, with loom's atomics in place of the standard library's.

#![expect(dead_code, reason = "the clock's other parts are not under test")]

#[path = "../../../src/clock/counter.rs"]
mod counter;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use counter::{Counter, CounterSource};
use loom::thread;

/// The sum of two numbers that belong together.
const SUM: u64 = 1_000;

/// Time as the threads set it, which loom does not reorder: only the clock's own atomics are tried.
#[derive(Debug, Default)]
struct Scripted(AtomicU64);

impl CounterSource for Arc<Scripted> {
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// The value that was read as the count. Added to the value that was read as the time, it shows
    /// whether the two belong together.
    fn nanos_between(&self, from: u64, _: u64) -> u64 {
        from
    }

    fn system_nanos(&self) -> u64 {
        SUM - self.count()
    }
}

/// One thread reads the clock, and another asks the system for the time twice.
fn explore(looks: u32, look: fn(&Counter<Arc<Scripted>>)) {
    let mut model = loom::model::Builder::new();
    // More switches than that take hours, and have never shown more.
    model.preemption_bound = Some(3);
    model.check(move || {
        let script = Arc::new(Scripted::default());
        let counter = loom::sync::Arc::new(Counter::new(Arc::clone(&script)));
        let onlooker = {
            let counter = loom::sync::Arc::clone(&counter);
            thread::spawn(move || (0..looks).for_each(|_| look(&counter)))
        };
        for now in 1..3 {
            script.0.store(now, Ordering::SeqCst);
            let _ = counter.resync();
        }
        onlooker.join().expect("the onlooker saw what belongs together");
        belongs_together(&counter);
    });
}

fn belongs_together(counter: &Counter<Arc<Scripted>>) {
    if let Some(told) = counter.try_read() {
        assert_eq!(told, SUM, "two numbers that do not belong together");
    }
}

fn main() {
    explore(2, belongs_together);
    println!("Reading while another thread writes is sound.");
    explore(1, |counter| {
        let _ = counter.resync();
        belongs_together(counter);
    });
    println!("Two threads that write are sound.");
}
