//! The lines of a header field, as seeds write them down and as failures are shown.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The lines of one header field, each of them any bytes that the `http` crate lets through.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Field(pub Vec<Vec<u8>>);

/// How a field without lines is written down.
const ABSENT: &str = "(absent)";

impl Field {
    /// Reads one that is written down: `\n` begins a line, `\r` is what ends one before that, `\s` a space,
    /// `\t` a tab, `\\` a backslash, `\xff` a byte, and `\(9*abc)` is `abc` nine times.
    #[track_caller]
    pub fn written(text: &str) -> Self {
        if text == ABSENT { Self::default() } else { Self::from_bytes(&unescaped(text)) }
    }

    /// Splits bytes into lines.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect())
    }

    /// The lines as one run of bytes, in which they can be changed.
    pub fn bytes(&self) -> Arc<[u8]> {
        self.0.join(&b'\n').into()
    }

    /// As one text, whatever the bytes are.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Adds these lines to a request or a response.
    pub fn put(&self, name: &str, headers: &mut HeaderMap) {
        let name: HeaderName = name.parse().unwrap();
        for line in &self.0 {
            headers.append(&name, HeaderValue::from_bytes(line).unwrap());
        }
    }

    /// A request with this field and nothing else.
    pub fn request(&self, name: &str) -> http::Request<()> {
        let mut request = http::Request::new(());
        self.put(name, request.headers_mut());
        request
    }

    /// The same field with these blanks around each line.
    pub fn padded(&self, before: &str, after: &str) -> Self {
        let pad = |line: &Vec<u8>| [before.as_bytes(), line, after.as_bytes()].concat();
        Self(self.0.iter().map(pad).collect())
    }
}

/// The bytes that are written down, as in [`Field::written`].
#[track_caller]
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (escape, after) = from.split_at(1);
        rest = after;
        match escape {
            "n" => bytes.push(b'\n'),
            "r" => bytes.push(b'\r'),
            "s" => bytes.push(b' '),
            "t" => bytes.push(b'\t'),
            "\\" => bytes.push(b'\\'),
            "x" => {
                let (digits, after) = rest.split_at(2);
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = after;
            }
            "(" => {
                let (repeated, after) = rest.split_once(')').expect("a `)` for a `\\(`");
                let (times, what) = repeated.split_once('*').expect("as in `\\(9*abc)`");
                bytes.extend(unescaped(what).repeat(times.parse().unwrap()));
                rest = after;
            }
            other => panic!("`\\{other}` in {text:?}"),
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

/// As it is written down, so that a failure can be copied to the seeds.
impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(ABSENT);
        }
        for (nth, line) in self.0.iter().enumerate() {
            f.write_str(if nth == 0 { "" } else { "\\n" })?;
            for (at, &byte) in line.iter().enumerate() {
                match byte {
                    b'\t' => f.write_str("\\t")?,
                    b'\r' => f.write_str("\\r")?,
                    b'\\' => f.write_str("\\\\")?,
                    b' ' if at == 0 || at + 1 == line.len() => f.write_str("\\s")?,
                    0x20..=0x7e => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\x{byte:02x}")?,
                }
            }
        }
        Ok(())
    }
}
