//! What the library logs.
//!
//! A test that reads it has a binary of its own: one subscriber serves all tests of a binary. If a test
//! without a subscriber met an event first, the event could stay switched off, and a line that is logged
//! once in a process would be lost.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The lines that this thread logs. One subscriber serves all threads: with scoped subscribers, an
/// event that a thread without one meets first is switched off for all threads.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Not within `log_of`: a closure there has a type for each kind of work, and the subscriber with it, which
// is then compiled a hundred times.
fn subscribe() {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(|| Log)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// All that this thread logs meanwhile.
pub fn log_of(work: impl FnOnce()) -> String {
    subscribe();
    LOG.take();
    work();
    String::from_utf8(LOG.take()).unwrap()
}

/// The lines that this thread logs meanwhile, from this level on.
pub fn logged(level: tracing::Level, work: impl FnOnce()) -> Vec<String> {
    let log = log_of(work);
    let level_of = |line: &str| line.split_whitespace().nth(1)?.parse().ok();
    log.lines()
        .filter(|line| level_of(line).is_some_and(|of: tracing::Level| of <= level))
        .map(str::to_owned)
        .collect()
}
