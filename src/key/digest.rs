//! Digests of secrets, which are all that is kept of them.

use sha2::{Digest as _, Sha256};

use crate::backend::Key;

/// The key of a secret, such as an API key: its digest, of which nobody can tell the secret.
///
/// It is what [`bearer`](super::bearer), [`api_key`](super::api_key) and [`cookie`](super::cookie) make of
/// what they find: the first 16 bytes of SHA-256, the same in every process and for ever. So a handler
/// can name the bucket of a token that it knows.
///
/// A secret that can be guessed can be guessed from its digest too: let tokens have 128 bits of chance.
///
/// # Examples
///
/// ```
/// use tollgate::key;
///
/// // As `printf %s s3cret | sha256sum | head -c 32` says.
/// assert_eq!(key::digest("s3cret").to_string(), "1ec1c26b50d5d3c58d9583181af80766");
/// ```
#[must_use]
pub fn digest(secret: impl AsRef<[u8]>) -> Key {
    let mut digest = Digest::default();
    digest.update(secret.as_ref());
    digest.key()
}

/// A secret that is fed piece by piece.
#[derive(Clone, Default)]
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(super) fn key(self) -> Key {
        let full: [u8; 32] = self.0.finalize().into();
        // 128 bits are enough that no two secrets meet, and leave room for an address in a short key.
        match full.as_chunks::<16>() {
            ([first, _], _) => Key::from(*first),
            _ => Key::from(full),
        }
    }
}
