//! Keys from a header field.

use http::HeaderName;

use super::extractor::{Extracted, KeyExtractor};
use super::head::{Head, trim};
use super::key_error::KeyError;
use super::setup_warning::SetupWarning;
use crate::backend::Key;

/// The fields in which proxies name the address of a client. A client can write them as well.
pub const ADDRESS_FIELDS: [&str; 6] = [
    "x-forwarded-for",
    "forwarded",
    "x-real-ip",
    "cf-connecting-ip",
    "true-client-ip",
    "fly-client-ip",
];

/// Takes a header field as the key; made by [`header`].
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

/// Takes a header field as the key.
///
/// The field has to be present exactly once, with a value of printable ASCII and at most 1,024
/// bytes. Spaces and tabs around the value are ignored. The key is case-sensitive, unless you
/// [`ignore_case`](Header::ignore_case), and different encodings of one name are different keys.
///
/// **The client chooses the value**, unless a proxy or an authentication in front of the server
/// overwrites the field. For the address of a client behind a proxy, use [`ClientIp`](super::ClientIp);
/// the log warns of a field of proxies as the key. Do not use a secret as a key: for API keys and sessions there is
/// `api_key`, with the feature `credentials`.
///
/// # Panics
///
/// If `name` is not a valid name of a header field. [`Header::new`] takes a parsed name.
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
        Err(_) => {
            panic!("{name:?} is not the name of a header field (use letters, digits and hyphens)")
        }
    }
}

/// Enough for most values. A bound keeps clients from filling a store with long keys; stores accept
/// any length.
pub(super) const MAX_LEN: usize = 1_024;

impl Header {
    /// Makes an extractor of the header field of this name.
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

    /// Ignores the case of ASCII letters.
    ///
    /// Use it for names that your application looks up without regard to case. Otherwise, each
    /// spelling has a bucket of its own.
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
        // Of the control characters, a header value can only contain the tab.
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

    fn setup_warning(&self, _: &Head<'_>) -> Option<SetupWarning> {
        let name = self.name.as_str();
        ADDRESS_FIELDS.contains(&name).then(|| {
            SetupWarning::new(format!(
                "the key is the field `{name}`, which clients can write as well as proxies, so each \
                 client chooses its bucket (use `ClientIp::x_forwarded_for`, `ClientIp::forwarded` or \
                 `ClientIp::header` with the proxies that you trust; if no request gets around a \
                 proxy that overwrites the field, nothing is wrong)"
            ))
        })
    }
}

/// The trimmed value of a field that has to be present exactly once and not be empty.
pub(super) fn single_value<'h>(
    head: &Head<'h>,
    name: &HeaderName,
    max_len: usize,
) -> Result<&'h [u8], KeyError> {
    let mut values = head.headers().get_all(name).iter();
    let Some(value) = values.next().map(trim) else {
        return Err(KeyError::missing_named(name.as_str(), |name| {
            format!(
                "no key: the request has no `{name}` header (send it, or choose by `missing_key` \
                 what happens without it)"
            )
        }));
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
