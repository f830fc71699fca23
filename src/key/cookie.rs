//! Keys from cookies.

use std::sync::Arc;
use std::{fmt, iter, mem};

use http::header::COOKIE;

use super::digest::Digest;
use super::extractor::{Extracted, KeyExtractor};
use super::head::{Head, trim};
use super::key_error::KeyError;
use crate::backend::Key;

/// Takes the digest of a cookie as the key, such as of the id of a session.
///
/// The value is hashed at once (see [`digest`](super::digest())), so neither the log nor a store
/// gets it. All spellings of a value are one key: quotes, percent-encoding, and white space around
/// it, including that of Unicode, make no difference. The same holds for the name. All `Cookie`
/// field lines are read, up to 65,536 bytes in total.
///
/// * Two cookies of this name with different values are an error. Servers differ in which of the
///   two they use (RFC 6265, section 5.4): a client could otherwise be counted by one cookie and
///   served by the other, and would get a bucket for each value that it makes up.
/// * A cookie that the server encrypts, or signs together with the time, changes each time it is
///   set, and its old values may stay valid. A client that collects them gets a bucket for each.
///   Use the content of the cookie as the key instead, for instance by
///   [`extension`](super::extension()).
/// * If the name begins with `__Host-`, no other host of the domain can set a second cookie.
///
/// **The value is not verified**: a client that makes up cookies gets a bucket for each. Also limit
/// requests by address, as the example `anonymous_sessions` does.
///
/// # Panics
///
/// If `name` is not a valid name of a cookie (a token of RFC 9110, section 5.6.2). [`try_cookie`]
/// returns `None` instead.
///
/// # Examples
///
/// ```
/// use tollgate::key::{self, Extracted, Head, KeyExtractor};
///
/// let request = http::Request::builder().header("cookie", "theme=dark; session=31d4d96e");
/// let extracted = key::cookie("session").extract(&Head::new(&request.body(()).unwrap()));
/// assert_eq!(extracted, Ok(Extracted::Key(key::digest("31d4d96e"))));
/// ```
#[doc(alias = "session")]
#[must_use]
#[track_caller]
pub fn cookie(name: &str) -> impl KeyExtractor + Clone + fmt::Debug + use<> {
    match try_cookie(name) {
        Some(cookie) => cookie,
        None => panic!(
            "{name:?} is not the name of a cookie (use letters, digits, hyphens and underscores)"
        ),
    }
}

/// As [`cookie`], of a name that is only known at run time; `None` if no cookie can have it.
///
/// # Examples
///
/// ```
/// use tollgate::key;
///
/// assert!(key::try_cookie("session").is_some());
/// assert!(key::try_cookie("my session").is_none());
/// ```
#[must_use]
pub fn try_cookie(name: &str) -> Option<impl KeyExtractor + Clone + fmt::Debug + use<>> {
    let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !name.is_empty() && name.bytes().all(is_in);
    is_name.then(|| Cookie { name: name.into() })
}

#[derive(Clone, Debug)]
struct Cookie {
    name: Arc<str>,
}

/// More than any browser sends, and few enough to be read in microseconds.
const MAX_LEN: usize = 65_536;

impl KeyExtractor for Cookie {
    fn extract(&self, head: &Head<'_>) -> Result<Extracted, KeyError> {
        let name = &self.name;
        let lines = || head.headers().get_all(COOKIE).iter().map(trim);
        let len = lines().fold(0, |len: usize, line| len.saturating_add(line.len()));
        if len > MAX_LEN {
            return Err(KeyError::invalid(format!(
                "no key: the cookies are {len} bytes long (at most {MAX_LEN} are read)"
            )));
        }
        let pairs = lines().flat_map(|line| line.split(|&byte| byte == b';'));
        let mut values = pairs.filter_map(|pair| value_if_named(name.as_bytes(), pair));
        let Some(value) = values.next() else {
            return Err(KeyError::missing_named(name, |name| {
                format!(
                    "no key: the request has no `{name}` cookie (send it, or choose by \
                     `missing_key` what happens without it)"
                )
            }));
        };
        if values.any(|other| other != value && !decode(other).eq(decode(value))) {
            return Err(KeyError::invalid(format!(
                "no key: the request has more than one `{name}` cookie, and they differ (send it once)"
            )));
        }
        if value.is_empty() {
            return Err(KeyError::empty(format!(
                "no key: the `{name}` cookie is empty (send a value, or no cookie)"
            )));
        }
        Ok(Extracted::Key(digest_decoded(value)))
    }
}

/// The value of this pair without quotes, if the pair has this name.
fn value_if_named<'a>(name: &[u8], pair: &'a [u8]) -> Option<&'a [u8]> {
    let equals = pair.iter().position(|&byte| byte == b'=')?;
    let (named, value) = pair.split_at_checked(equals)?;
    let (named, value) = (trim_text(named), trim_text(value.strip_prefix(b"=")?));
    // Servers decode names as well, so an encoded name must not hide the cookie.
    let is_same = || named.contains(&b'%') && decode(named).eq(name.iter().copied());
    (named == name || is_same()).then_some(unquote(value))
}

/// Trims white space, including that of Unicode: servers that read cookies as text do so, as the
/// crate `cookie` does, which `tower-sessions` uses. Bytes that are not UTF-8 are kept.
fn trim_text(text: &[u8]) -> &[u8] {
    if text.is_ascii() {
        return text.trim_ascii();
    }
    let blanks = |text: &str, trim: fn(&str) -> &str| text.len().saturating_sub(trim(text).len());
    let first = text.utf8_chunks().next();
    let leading = first.map_or(0, |chunk| blanks(chunk.valid(), str::trim_start));
    let text = text.get(leading..).unwrap_or(text);
    let last = text.utf8_chunks().last().filter(|chunk| chunk.invalid().is_empty());
    let trailing = last.map_or(0, |chunk| blanks(chunk.valid(), str::trim_end));
    text.get(..text.len().saturating_sub(trailing)).unwrap_or(text)
}

/// Strips quotes, as some servers do, before or after decoding.
fn unquote(value: &[u8]) -> &[u8] {
    let quotes: [&[u8]; 2] = [b"\"", b"%22"];
    let opened = quotes.iter().find_map(|quote| value.strip_prefix(*quote));
    let closed = opened.and_then(|rest| quotes.iter().find_map(|quote| rest.strip_suffix(*quote)));
    closed.unwrap_or(value)
}

/// Hashes the decoded value. A session store may decode the value too, so all encodings of one id
/// have to be one key.
fn digest_decoded(value: &[u8]) -> Key {
    let mut digest = Digest::default();
    for (plain, encoded) in chunks(value) {
        digest.update(plain);
        encoded.iter().for_each(|byte| digest.update(&[*byte]));
    }
    digest.key()
}

/// Decodes percent-encoding.
fn decode(text: &[u8]) -> impl Iterator<Item = u8> {
    chunks(text).flat_map(|(plain, encoded)| plain.iter().copied().chain(encoded))
}

/// Splits a text into runs of plain bytes, each with the percent-encoded byte after it, if any.
fn chunks(text: &[u8]) -> impl Iterator<Item = (&[u8], Option<u8>)> {
    let mut rest = text;
    iter::from_fn(move || {
        let Some(at) = rest.iter().position(|&byte| byte == b'%') else {
            return (!rest.is_empty()).then(|| (mem::take(&mut rest), None));
        };
        let (before, from) = rest.split_at_checked(at)?;
        if let [_, high, low, after @ ..] = from
            && let Some((high, low)) = hex(*high).zip(hex(*low))
        {
            rest = after;
            return Some((before, Some(high << 4 | low)));
        }
        // A percent sign without two hexadecimal digits stands for itself.
        let (before, after) = rest.split_at_checked(at.saturating_add(1))?;
        rest = after;
        Some((before, None))
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| value.try_into().ok())
}
