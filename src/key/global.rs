//! One key for all requests.

use std::fmt;

use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::key_error::KeyError;
use crate::backend::Key;

/// Gives all requests the same key, and so one bucket.
///
/// This is the default of a rule. Said by name, it tells the log that one bucket for all is meant: a
/// layer without any key is warned of when it first refuses a request. Calls take no extractor: without
/// a [`key`](crate::limiter::LimitCall::key), they use that bucket.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Head, Key, KeyExtractor, global};
///
/// let request = http::Request::new(());
/// assert_eq!(global().extract(&Head::new(&request)), Ok(Extracted::Key(Key::GLOBAL)));
/// ```
#[doc(alias = "GlobalKeyExtractor")]
#[must_use]
pub const fn global() -> impl KeyExtractor + Copy + fmt::Debug {
    Global
}

#[derive(Clone, Copy, Debug)]
struct Global;

impl KeyExtractor for Global {
    fn extract(&self, _: &Head<'_>) -> Result<Extracted, KeyError> {
        Ok(Extracted::Key(Key::GLOBAL))
    }

    fn is_global(&self) -> bool {
        true
    }
}
