//! Keys from header fields that are secrets.

use http::HeaderName;

use super::digest::digest;
use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::header::{MAX_LEN, name, only};
use super::key_error::KeyError;

/// Takes the digest of a header field; made by [`api_key`].
#[derive(Clone, Debug)]
pub struct ApiKey {
    name: HeaderName,
    max_len: usize,
}

/// Takes the digest of the header field of this name, which is a secret: an API key, or a session's id.
///
/// The value is hashed at once (see [`digest`](super::digest)), so neither the log nor a store has it. It has to be
/// there once, and be at most 1,024 bytes long.
///
/// Nobody has verified it: whoever makes up a value has a bucket of its own. Put the layer inside of the
/// authentication, or hold requests to a limit by address as well.
///
/// # Panics
///
/// If this is not the name of a header field.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, Head, KeyExtractor};
///
/// let request = http::Request::builder().header("x-api-key", "s3cret").body(()).unwrap();
/// let extracted = key::api_key("X-Api-Key").extract(&Head::new(&request));
/// assert_eq!(extracted, Ok(Extracted::Key(key::digest("s3cret"))));
/// ```
#[must_use]
#[track_caller]
pub fn api_key(name: &str) -> ApiKey {
    ApiKey { name: self::name(name), max_len: MAX_LEN }
}

impl ApiKey {
    /// Accepts values of at most this many bytes.
    #[must_use]
    pub const fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }
}

impl KeyExtractor for ApiKey {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let secret = only(head, &self.name, self.max_len)?;
        Ok(Extracted::Key(digest(secret)))
    }
}
