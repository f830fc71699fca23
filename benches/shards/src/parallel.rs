//! Simulations side by side: none depends on another.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What `work` makes of each item, in their order, with as many threads as there are processors.
pub fn map<T: Sync, U: Send>(items: &[T], work: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(nth) else { return };
                    let made = work(item);
                    done.lock().expect("no panic").push((nth, made));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic");
    done.sort_unstable_by_key(|&(nth, _)| nth);
    done.into_iter().map(|(_, made)| made).collect()
}
