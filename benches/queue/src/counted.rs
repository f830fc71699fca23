//! Counts the bytes that are held, when told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Off while anything is timed: what is left then is the reading of a flag.
static COUNTS: AtomicBool = AtomicBool::new(false);
static HELD: AtomicI64 = AtomicI64::new(0);

fn count(bytes: usize, sign: i64) {
    if COUNTS.load(Ordering::Relaxed) {
        HELD.fetch_add(sign * i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(bytes, layout) }
    }
}

/// What `work` makes, and how many bytes more are held after it than before.
pub fn held<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = HELD.load(Ordering::Relaxed);
    COUNTS.store(true, Ordering::Relaxed);
    let made = work();
    COUNTS.store(false, Ordering::Relaxed);
    (made, HELD.load(Ordering::Relaxed) - before)
}
