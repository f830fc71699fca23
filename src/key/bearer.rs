//! Keys from bearer tokens.

use http::header::AUTHORIZATION;

use super::digest::digest;
use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::header::single_value;
use super::key_error::{KeyError, Scheme};

/// Takes the digest of the bearer token as the key; made by [`bearer`].
#[derive(Clone, Copy, Debug)]
pub struct Bearer {
    max_len: usize,
}

/// Takes the digest of the bearer token as the key (RFC 6750, section 2.1).
///
/// It reads the field `Authorization: Bearer ..`. The token is hashed at once (see
/// [`digest`](super::digest())), so neither the log nor a store gets it. The field may have at most
/// 8,192 bytes. The token is case-sensitive, and spaces and tabs around it are ignored. If the
/// field is absent or has another scheme, the key is missing. A scheme that is not ASCII is an
/// error.
///
/// **The token is not verified**: a client that makes up tokens gets a bucket for each. Put the
/// layer inside of the authentication, or also limit requests by address.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, Head, KeyExtractor};
///
/// let request = http::Request::builder().header("authorization", "Bearer mF_9.B5f-4.1JqM");
/// let request = request.body(()).unwrap();
/// let extracted = key::bearer().extract(&Head::new(&request));
/// assert_eq!(extracted, Ok(Extracted::Key(key::digest("mF_9.B5f-4.1JqM"))));
/// ```
#[doc(alias("authorization", "jwt", "access token"))]
#[must_use]
pub const fn bearer() -> Bearer {
    Bearer { max_len: 8_192 }
}

impl Bearer {
    /// Accepts `Authorization` fields of at most `bytes` bytes.
    #[must_use]
    pub const fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }
}

impl KeyExtractor for Bearer {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let value = match single_value(head, &AUTHORIZATION, self.max_len) {
            Err(error) if error.is_missing() => return Err(no_token()),
            value => value?,
        };
        // The grammar allows one space here. Lenient servers accept other blanks, so these must not
        // make another key of the same token.
        let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(value.len());
        let Some((scheme, token)) = value.split_at_checked(end) else {
            return Err(no_token());
        };
        // A server that reads the field as UTF-8 may trim Unicode white space and find the token.
        // The request must not pass as one without a token.
        if !scheme.is_ascii() {
            return Err(KeyError::invalid(
                "no key: the scheme in the `authorization` header is not ASCII (send \
                 `Authorization: Bearer ..`)",
            ));
        }
        if !scheme.eq_ignore_ascii_case(b"bearer") {
            return Err(no_token());
        }
        match token.trim_ascii() {
            [] => Err(KeyError::empty(
                "no key: the bearer token is empty (send a token, or no `authorization` header)",
            )),
            token if is_token68(token) => Ok(Extracted::Key(digest(token))),
            _ => Err(KeyError::invalid(
                "no key: the bearer token is malformed (it may have letters, digits and `-._~+/`, \
                 and `=` at its end)",
            )),
        }
    }
}

fn no_token() -> KeyError {
    KeyError::missing(
        "no key: the request has no bearer token (send `Authorization: Bearer ..`, or choose by \
         `missing_key` what happens without one)",
    )
    .asking_for(Scheme::Bearer)
}

fn is_token68(token: &[u8]) -> bool {
    let end = token.iter().rposition(|&byte| byte != b'=');
    let is_in = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    end.and_then(|end| token.get(..=end)).is_some_and(|token| token.iter().all(is_in))
}
