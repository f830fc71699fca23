//! How far a long log is read, on standard error if that is a terminal.

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(250);
/// The clock is asked once in so many requests.
const REQUESTS: u64 = 1 << 14;

#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    next: Instant,
    requests: u64,
    has_shown: bool,
    /// Bytes that were read, and how many there are, if that is known.
    read: Rc<Cell<u64>>,
    size: Option<u64>,
}

impl Progress {
    pub(crate) fn new(read: &Rc<Cell<u64>>, size: Option<u64>) -> Self {
        Self {
            is_shown: io::stderr().is_terminal(),
            next: Instant::now() + EVERY,
            requests: 0,
            has_shown: false,
            read: Rc::clone(read),
            size: size.filter(|size| *size > 0),
        }
    }

    /// Counts a request.
    pub(crate) fn request(&mut self) {
        self.requests += 1;
        if !self.is_shown || !self.requests.is_multiple_of(REQUESTS) || Instant::now() < self.next {
            return;
        }
        let millions = self.requests as f64 / 1e6;
        let read = self.read.get();
        self.show(&match self.size {
            Some(size) => {
                let percent = u128::from(read) * 100 / u128::from(size);
                format!("read {millions:.1} million requests, {percent}%")
            }
            None => format!("read {millions:.1} million requests, {} MB", read / 1_000_000),
        });
    }

    /// Shows another step.
    pub(crate) fn show(&mut self, text: &str) {
        if self.is_shown {
            // What cannot be shown is not missed.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            self.has_shown = true;
            self.next = Instant::now() + EVERY;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.has_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
