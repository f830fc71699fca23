//! Keys from header fields that hold a secret.

use http::HeaderName;

use super::digest::digest;
use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::header::{MAX_LEN, header_name, single_value};
use super::key_error::{KeyError, Scheme};

/// Takes the digest of a header field as the key; made by [`api_key`].
#[derive(Clone, Debug)]
pub struct ApiKey {
    name: HeaderName,
    max_len: usize,
}

/// Takes the digest of a header field as the key, such as of an API key.
///
/// The value is hashed at once (see [`digest`](super::digest())), so neither the log nor a store
/// gets it. The field has to be present exactly once, with a value of at most 1,024 bytes. Spaces
/// and tabs around the value are ignored.
///
/// **The value is not verified**: a client that makes up values gets a bucket for each. Put the
/// layer inside of the authentication, or also limit requests by address.
///
/// # Panics
///
/// If `name` is not a valid name of a header field.
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
#[doc(alias("x-api-key"))]
#[must_use]
#[track_caller]
pub fn api_key(name: &str) -> ApiKey {
    ApiKey::new(header_name(name))
}

impl ApiKey {
    /// Makes an extractor of the header field of this name.
    #[must_use]
    pub const fn new(name: HeaderName) -> Self {
        Self { name, max_len: MAX_LEN }
    }

    /// Accepts values of at most `bytes` bytes.
    #[must_use]
    pub const fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }
}

impl KeyExtractor for ApiKey {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match single_value(head, &self.name, self.max_len) {
            Ok(secret) => Ok(Extracted::Key(digest(secret))),
            Err(error) if error.is_missing() => Err(error.asking_for(Scheme::ApiKey)),
            Err(error) => Err(error),
        }
    }
}
