//! What is wrong with the text form of a key.

use std::fmt;

pub(super) enum KeyTextProblem {
    Nothing,
    EmptyPart,
    Type(Box<str>),
    Digest(Box<str>),
    Number(Box<str>),
    Address(Box<str>),
    Bytes(Box<str>),
    Bool(Box<str>),
    Content { name: &'static str, given: Box<str> },
    Escape(Box<str>),
    Utf8(Box<str>),
}

impl fmt::Display for KeyTextProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str(
                "nothing was given (write `text=` for the empty text, or `*` for the key that all \
                 requests share)",
            ),
            Self::EmptyPart => f.write_str(
                "a part is empty (write `text=` for the empty text, and `|` of text as `%7C`)",
            ),
            Self::Type(given) => write!(
                f,
                "`{given}` is not a type (there are `n=7`, `ip=192.0.2.1`, `b=00ff`, `bool=true`, \
                 `text=` and `else=`; in text, write `=` as `%3D`)"
            ),
            Self::Digest(given) => write!(
                f,
                "`{given}` is a digest, which does not reveal its key (name the key itself)"
            ),
            Self::Number(given) => {
                write!(f, "`{given}` is not a whole number from {} to {}", i64::MIN, u128::MAX)
            }
            Self::Address(given) => write!(
                f,
                "`{given}` is not an address (write `ip=192.0.2.1`, `ip=2001:db8::1` or the \
                 network `ip=2001:db8::/64`)"
            ),
            Self::Bytes(given) => {
                write!(f, "`{given}` is not bytes (write two hexadecimal digits for each byte)")
            }
            Self::Bool(given) => write!(f, "`{given}` is neither `true` nor `false`"),
            Self::Content { name, given } => write!(
                f,
                "`{name}=` takes no value, and it has `{given}` (leave that out, or write `|` \
                 before it)"
            ),
            Self::Escape(given) => write!(
                f,
                "`{given}` is not `%` and two hexadecimal digits (write `%` of text as `%25`)"
            ),
            Self::Utf8(given) => write!(
                f,
                "the bytes of `{given}` are not UTF-8, as text is (write bytes as `b=00ff`)"
            ),
        }
    }
}
