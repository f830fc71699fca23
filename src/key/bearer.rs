//! The grammar of bearer tokens.

use super::key_error::{KeyError, Scheme};

/// The token in a value of `Authorization`.
pub(super) fn token(value: &[u8]) -> Result<&[u8], KeyError> {
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
        token if is_token68(token) => Ok(token),
        _ => Err(KeyError::invalid(
            "no key: the bearer token is malformed (it may have letters, digits and `-._~+/`, \
             and `=` at its end)",
        )),
    }
}

pub(super) fn no_token() -> KeyError {
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
