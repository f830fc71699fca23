//! The text form of a key, in which stores name their buckets and operators name a key.

mod read;
mod write;

pub use self::write::{KeySink, is_plain, write_key, write_text};
use super::key::Key;
use crate::clock::ParseError;

impl Key {
    /// The text form of this key: the one that [`from_text`](Self::from_text) reads, that Redis and
    /// PostgreSQL have in the names of buckets, and that no other key has.
    ///
    /// Its parts are joined by `|`:
    ///
    /// | part | as |
    /// |---|---|
    /// | text | letters, digits and `-_.~@+/` as they are, any other byte as `%` and two digits |
    /// | empty text | `text=` |
    /// | a number | `n=7`, `n=-7` |
    /// | bytes, a UUID | `b=00ff` |
    /// | an address | `ip=192.0.2.1`, `ip=2001:db8::1/128` |
    /// | a network | `ip=2001:db8::/64` |
    /// | `true`, `false` | `bool=true`, `bool=false` |
    /// | the mark of a [fallback](Self::fallback) | `else=` |
    /// | the key that all requests share | `*` alone |
    ///
    /// It is printable ASCII, whatever a client has put into the key.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::Key;
    ///
    /// assert_eq!(Key::from("alice@example.com").to_text(), "alice@example.com");
    /// assert_eq!(Key::from(("acme", 7)).to_text(), "acme|n=7");
    /// assert_eq!(Key::from("7").to_text(), "7");
    /// assert_eq!(Key::from("n=7").to_text(), "n%3D7");
    /// assert_eq!(Key::GLOBAL.to_text(), "*");
    /// ```
    #[must_use]
    pub fn to_text(&self) -> String {
        write::text_of(self.as_bytes())
    }

    /// The key of a [text form](Self::to_text).
    ///
    /// It reads what `to_text` writes, and what people write: characters of text that are not
    /// special may stand for themselves, an address needs no prefix, and digits of bytes may be in
    /// any case. Special are `%`, `|` and `=`, and `*` where it stands alone.
    ///
    /// Use it for what an operator types. A client that may write the text form can name any key:
    /// make its key by [`From`].
    ///
    /// # Errors
    ///
    /// If it is no key. The error says what to write.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use tollgate::Key;
    ///
    /// assert_eq!(Key::from_text("ip=192.0.2.1")?, Key::from(Ipv4Addr::new(192, 0, 2, 1)));
    /// assert_eq!(Key::from_text("Zoë")?, Key::from_text("Zo%C3%AB")?);
    /// let error = Key::from_text("id=7").unwrap_err().to_string();
    /// assert_eq!(
    ///     error,
    ///     "`id=7` is not a key: `id` is not a type (there are `n=7`, `ip=192.0.2.1`, `b=00ff`, \
    ///      `bool=true`, `text=` and `else=`; in text, write `=` as `%3D`)"
    /// );
    /// # Ok::<(), tollgate::ParseError>(())
    /// ```
    pub fn from_text(text: &str) -> Result<Self, ParseError> {
        read::parse(text)
    }
}

#[cfg(test)]
mod tests;
