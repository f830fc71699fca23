//! Keys from a header field: as it is, or the digest of a secret.

use http::HeaderName;
#[cfg(feature = "credentials")]
use http::header::AUTHORIZATION;

#[cfg(feature = "credentials")]
use super::bearer::{no_token, token};
#[cfg(feature = "credentials")]
use super::digest::digest;
use super::extractor::{Extracted, KeyExtractor};
use super::head::{Head, trim};
use super::key_error::KeyError;
#[cfg(feature = "credentials")]
use super::key_error::Scheme;
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

/// Takes a header field as the key; made by [`header`], `api_key` and `bearer`.
#[derive(Clone, Debug)]
pub struct Header {
    name: HeaderName,
    max_len: usize,
    case: Case,
    content: Content,
}

/// What the field has.
#[derive(Clone, Copy, Debug)]
enum Content {
    Text,
    /// A secret, of which the key is the digest.
    #[cfg(feature = "credentials")]
    Secret(Scheme),
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
#[cfg(feature = "credentials")]
#[doc(alias("x-api-key"))]
#[must_use]
#[track_caller]
pub fn api_key(name: &str) -> Header {
    Header { content: Content::Secret(Scheme::ApiKey), ..header(name) }
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
#[cfg(feature = "credentials")]
#[doc(alias("authorization", "jwt", "access token"))]
#[must_use]
pub const fn bearer() -> Header {
    let content = Content::Secret(Scheme::Bearer);
    Header { name: AUTHORIZATION, max_len: 8_192, case: Case::Sensitive, content }
}

/// Enough for most values. A bound keeps clients from filling a store with long keys; stores accept
/// any length.
const MAX_LEN: usize = 1_024;

impl Header {
    /// Makes an extractor of the header field of this name.
    #[must_use]
    pub const fn new(name: HeaderName) -> Self {
        Self { name, max_len: MAX_LEN, case: Case::Sensitive, content: Content::Text }
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

    fn text(&self, value: &[u8]) -> Result<Extracted, KeyError> {
        // Of the control characters, a header value can only contain the tab.
        let is_printable = |text: &&str| text.is_ascii() && !text.as_bytes().contains(&b'\t');
        let Some(text) = str::from_utf8(value).ok().filter(is_printable) else {
            return Err(KeyError::invalid(format!(
                "no key: the `{}` header is not printable ASCII (encode it, as in \
                 percent-encoding)",
                self.name
            )));
        };
        Ok(Extracted::Key(match self.case {
            Case::Insensitive if text.bytes().any(|byte| byte.is_ascii_uppercase()) => {
                Key::from(text.to_ascii_lowercase())
            }
            _ => Key::from(text),
        }))
    }

    #[cfg(feature = "credentials")]
    fn secret(&self, scheme: Scheme, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let secret = match (single_value(head, &self.name, self.max_len), scheme) {
            (Err(error), Scheme::ApiKey) if error.is_missing() => {
                return Err(error.asking_for(Scheme::ApiKey));
            }
            (Err(error), Scheme::Bearer) if error.is_missing() => return Err(no_token()),
            (value, Scheme::ApiKey) => value?,
            (value, Scheme::Bearer) => token(value?)?,
        };
        Ok(Extracted::Key(match self.case {
            Case::Insensitive => digest(secret.to_ascii_lowercase()),
            Case::Sensitive => digest(secret),
        }))
    }
}

impl KeyExtractor for Header {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match self.content {
            Content::Text => self.text(single_value(head, &self.name, self.max_len)?),
            #[cfg(feature = "credentials")]
            Content::Secret(scheme) => self.secret(scheme, head),
        }
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
fn single_value<'h>(
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
