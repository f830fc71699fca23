//! Keys from a header field.

use http::HeaderName;

use super::extractor::{Extracted, KeyExtractor};
use super::field_value::trim;
use super::head::Head;
use super::key_error::KeyError;
use crate::backend::Key;

/// Takes the key from a header field; made by [`header`].
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    max_len: usize,
    case: Case,
}

#[derive(Clone, Copy, Debug)]
enum Case {
    Sensitive,
    Insensitive,
}

/// Takes the key from the header field of this name.
///
/// The field has to be there exactly once, with a value of printable ASCII and at most 1,024 bytes. The
/// value is the key as it is written, without the spaces and tabs around it: upper and lower case differ
/// (unless you [`ignore_case`](Header::ignore_case)), and so do different encodings of one name.
///
/// The client chooses the value. Rely on it behind an authentication that sets the field, not on what a
/// client claims. Do not use a secret as a key: for API keys and sessions there is `api_key`, with the
/// feature `credentials`.
///
/// # Panics
///
/// If `name` is not a valid name of a header field; [`Header::new`] takes a parsed one.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Head, Key, KeyExtractor, header};
///
/// let request = http::Request::builder().header("x-user", "alice").body(()).unwrap();
/// let extracted = header("X-User").extract(&Head::new(&request));
/// assert_eq!(extracted, Ok(Extracted::Key(Key::from("alice"))));
/// ```
#[must_use]
#[track_caller]
pub fn header(name: &str) -> Header {
    Header::new(header_name(name))
}

#[track_caller]
pub(super) fn header_name(name: &str) -> HeaderName {
    match HeaderName::from_bytes(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("{name:?} is not the name of a header field"),
    }
}

/// Enough for most tokens. Stores accept keys of any length.
pub(super) const MAX_LEN: usize = 1_024;

impl Header {
    /// Takes the key from the header field of this name.
    #[must_use]
    pub const fn new(name: HeaderName) -> Self {
        Self { name, max_len: MAX_LEN, case: Case::Sensitive }
    }

    /// Accepts values of at most `bytes` bytes.
    #[must_use]
    pub const fn max_len(mut self, bytes: usize) -> Self {
        self.max_len = bytes;
        self
    }

    /// Treats upper and lower case letters of ASCII as the same.
    ///
    /// Use it for names that your application looks up without regard to case: otherwise, each spelling
    /// has its own bucket.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::key::{Extracted, Head, Key, KeyExtractor, header};
    ///
    /// let request = http::Request::builder().header("x-user", "Alice").body(()).unwrap();
    /// let extracted = header("x-user").ignore_case().extract(&Head::new(&request));
    /// assert_eq!(extracted, Ok(Extracted::Key(Key::from("alice"))));
    /// ```
    #[must_use]
    pub const fn ignore_case(mut self) -> Self {
        self.case = Case::Insensitive;
        self
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let Self { name, max_len, case } = self;
        let value = single_value(head, name, *max_len)?;
        // Of the characters that do not print, only the tab can be in a header value.
        let is_printable = |text: &&str| text.is_ascii() && !text.as_bytes().contains(&b'\t');
        let Some(text) = str::from_utf8(value).ok().filter(is_printable) else {
            return Err(KeyError::invalid(format!(
                "no key: the `{name}` header is not printable ASCII (encode it, as in \
                 percent-encoding)"
            )));
        };
        Ok(Extracted::Key(match case {
            Case::Insensitive if text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Key::from(text.to_ascii_lowercase())
            }
            _ => Key::from(text),
        }))
    }
}

/// The trimmed value of a field that has to be there exactly once and not be empty.
pub(super) fn single_value<'h>(
    head: &Head<'h>,
    name: &HeaderName,
    max_len: usize,
) -> Result<&'h [u8], KeyError> {
    let mut values = head.headers().get_all(name).iter();
    let Some(value) = values.next().map(trim) else {
        return Err(KeyError::missing(format!(
            "no key: the request has no `{name}` header (send it, or choose by `missing_key` what \
             happens without it)"
        )));
    };
    if values.next().is_some() {
        return Err(KeyError::invalid(format!(
            "no key: the request has more than one `{name}` header (send it once)"
        )));
    }
    let len = value.len();
    if len > max_len {
        return Err(KeyError::invalid(format!(
            "no key: the `{name}` header is {len} bytes long (at most {max_len} are taken; \
             `max_len` allows more)"
        )));
    }
    if value.is_empty() {
        return Err(KeyError::empty(format!(
            "no key: the `{name}` header is empty (send a value, or no header)"
        )));
    }
    Ok(value)
}
