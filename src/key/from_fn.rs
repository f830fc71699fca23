//! Keys from closures.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::extractor::{Extracted, KeyExtractor};
use super::head::Head;
use super::key_error::KeyError;
use crate::backend::Key;

/// Takes the key from a closure, which gets the head of the request.
///
/// The closure returns a key, an `Option` of one, an [`Extracted`] if it exempts requests, or a
/// `Result` of these: see [`IntoExtracted`]. An empty text is an error. The key cannot borrow from
/// the head: return a [`Key`], which does not allocate up to 36 bytes of text, or a `String`.
///
/// Trim the values of header fields: over HTTP/2, a client can send spaces and tabs around a value,
/// and each spelling would be a key of its own.
///
/// # Examples
///
/// ```
/// use tollgate::key::{Extracted, Key, from_fn};
///
/// let by_language = from_fn(|head| {
///     let language = head.headers().get("accept-language")?;
///     Some(Key::from(language.as_bytes().trim_ascii()))
/// });
/// let but_for_health_checks = from_fn(|head| match head.uri().path() {
///     "/health" => Extracted::Exempt,
///     path => path.into(),
/// });
/// # fn takes(_: impl tollgate::key::KeyExtractor) {}
/// # takes(by_language);
/// # takes(but_for_health_checks);
/// ```
#[doc(alias("keyGenerator", "custom key"))]
pub fn from_fn<F, R>(read: F) -> impl KeyExtractor + Clone
where
    F: Fn(&Head<'_>) -> R + Send + Sync + 'static,
    R: IntoExtracted,
{
    Arc::new(FromFn(read))
}

/// Takes the key from a closure. It is not cloned, as the closure may not be.
pub(crate) struct FromFn<F>(pub(crate) F);

impl<F, R> KeyExtractor for FromFn<F>
where
    F: Fn(&Head<'_>) -> R + Send + Sync + 'static,
    R: IntoExtracted,
{
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        match (self.0)(head).into_extracted() {
            Ok(Extracted::Key(key)) if key.is_empty() => Err(KeyError::empty(
                "no key: the closure returned an empty one (have it return `None` if there is \
                 none)",
            )),
            extracted => extracted,
        }
    }
}

/// What a closure for [`from_fn`] may return.
#[diagnostic::on_unimplemented(
    message = "a closure that makes keys cannot return `{Self}`",
    note = "return a `Key`, a `String`, a number, an address or bytes, an `Option` or a `Result` of \
            it, or an `Extracted`"
)]
pub trait IntoExtracted {
    /// Converts the value into a key, an exemption, or the error of a missing key.
    ///
    /// # Errors
    ///
    /// If there is no key.
    fn into_extracted(self) -> Result<Extracted, KeyError>;
}

impl IntoExtracted for Extracted {
    fn into_extracted(self) -> Result<Extracted, KeyError> {
        Ok(self)
    }
}

/// `None` means that the key is missing.
impl<T: IntoExtracted> IntoExtracted for Option<T> {
    fn into_extracted(self) -> Result<Extracted, KeyError> {
        match self {
            Some(found) => found.into_extracted(),
            None => Err(KeyError::missing(
                "no key: the closure found none in the request (choose by `missing_key` what \
                 happens then)",
            )),
        }
    }
}

impl<T: IntoExtracted> IntoExtracted for Result<T, KeyError> {
    fn into_extracted(self) -> Result<Extracted, KeyError> {
        self.and_then(T::into_extracted)
    }
}

macro_rules! keys {
    ($($type:ty),*) => {$(
        impl IntoExtracted for $type {
            fn into_extracted(self) -> Result<Extracted, KeyError> {
                Ok(Extracted::Key(self.into()))
            }
        }
    )*};
}

keys!(
    Key,
    String,
    &'static str,
    Arc<str>,
    Box<str>,
    Cow<'static, str>,
    u8,
    u16,
    u32,
    u64,
    u128,
    usize,
    i8,
    i16,
    i32,
    i64,
    isize,
    bool,
    IpAddr,
    Ipv4Addr,
    Ipv6Addr,
    Vec<u8>
);

#[cfg(feature = "uuid")]
keys!(uuid::Uuid);

impl<const N: usize> IntoExtracted for [u8; N] {
    fn into_extracted(self) -> Result<Extracted, KeyError> {
        Ok(Extracted::Key(self.into()))
    }
}

impl<A: Into<Key>, B: Into<Key>> IntoExtracted for (A, B) {
    fn into_extracted(self) -> Result<Extracted, KeyError> {
        Ok(Extracted::Key(self.into()))
    }
}

impl<A: Into<Key>, B: Into<Key>, C: Into<Key>> IntoExtracted for (A, B, C) {
    fn into_extracted(self) -> Result<Extracted, KeyError> {
        Ok(Extracted::Key(self.into()))
    }
}
