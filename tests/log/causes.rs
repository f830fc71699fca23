//! What an error of the store shows to a program that reads only one part of it: its `Display`, its
//! `Debug`, or a line of the log.

use std::cell::RefCell;
use std::error::Error;
use std::fmt;
use std::io::{self, Write};

use axum::response::IntoResponse;
use http::StatusCode;
use tollgate::backend::BackendError;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tollgate_testing::at_once;
use tollgate_testing::broken::Broken;
use tracing_subscriber::fmt::format::debug_fn;

const LOGIN: Limit = Limit::new("login", Quota::token_bucket(10, MINUTE));

/// An error as a store that reads files would get it.
const DISK: &str = "files backend could not decide: cannot read `login`: no such disk";

fn disk() -> BackendError {
    BackendError::unavailable(
        "files",
        Layered("cannot read `login`", io::Error::other("no such disk")),
    )
}

/// Prints an error as `anyhow`, `eyre` and `std::error::Report` do: with all its causes.
fn report(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", report(cause)),
        None => error.to_string(),
    }
}

#[test]
fn an_error_of_the_store_shows_its_causes_once() {
    let error = disk();
    assert_eq!(error.to_string(), DISK);
    assert_eq!(report(&error), DISK);
    assert!(error.source().is_none(), "a reporter would print the cause twice");
    let full = BackendError::full("files", "no space is left");
    assert_eq!(full.to_string(), "files backend is full: no space is left");
    let undecidable = BackendError::undecidable("files", "the name is too long");
    assert_eq!(
        undecidable.to_string(),
        "files backend can never decide this: the name is too long"
    );
}

/// Many error types print their source, and return it as well.
#[test]
fn a_cause_that_repeats_its_own_cause_is_shown_without_the_copy() {
    let twice = Repeating(io::Error::other("no such disk"));
    let error = BackendError::unavailable("files", twice);
    assert_eq!(error.to_string(), "files backend could not decide: cannot read: no such disk");
}

/// `fn main() -> Result<(), BackendError>` prints its error by `Debug`.
#[test]
fn a_main_that_returns_an_error_of_the_store_prints_its_causes() {
    let error = disk();
    let printed = format!("{error:?}");
    assert!(
        printed.contains("cannot read `login`") && printed.contains("no such disk"),
        "{printed}"
    );
    let boxed: Box<dyn Error> = error.into();
    assert_eq!(format!("{boxed:?}"), printed);
    assert_eq!(boxed.to_string(), DISK);
}

#[test]
fn the_cause_itself_is_there_for_a_program_that_looks_at_it() {
    let error = disk();
    let cause = error.cause().expect("there is one");
    assert_eq!(cause.to_string(), "cannot read `login`");
    let io = cause.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    assert_eq!(io.map(io::Error::kind), Some(io::ErrorKind::Other));
    assert!(BackendError::timeout("files", MINUTE).cause().is_none());
}

/// A subscriber that writes JSON reads the `Display` of an error, and none of its sources.
#[test]
fn a_log_that_reads_no_sources_has_the_cause() {
    let limiter = RateLimiter::new(Broken { later: false });
    let told = "broken backend could not decide: connection refused";
    let fields = debug_fn(|writer, field, value| write!(writer, "[{field}: {value:?}]"));
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).fmt_fields(fields).with_writer(|| Log).finish();
    // With one for all threads beside it, no thread without a subscriber switches an event off.
    tollgate_testing::log::log_of(|| ());
    let error = tracing::subscriber::with_default(subscriber, || {
        at_once(limiter.limit(&LOGIN)).unwrap_err()
    });
    assert_eq!(report(&error), format!("limit `login` could not be decided: {told}"));
    assert_eq!(error.into_response().status(), StatusCode::SERVICE_UNAVAILABLE);
    let log = String::from_utf8(LOG.take()).unwrap();
    assert!(log.contains(&format!("[error: {told}]")), "{log}");
    assert!(log.contains("[limit: \"login\"]"), "{log}");
}

thread_local! {
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A message of its own level, and what caused it.
#[derive(Debug)]
struct Layered(&'static str, io::Error);

impl fmt::Display for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Layered {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.1)
    }
}

/// Prints its source, and returns it.
#[derive(Debug)]
struct Repeating(io::Error);

impl fmt::Display for Repeating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot read: {}", self.0)
    }
}

impl Error for Repeating {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
