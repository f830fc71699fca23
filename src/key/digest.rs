//! Digests of secrets, which are kept in place of the secrets.

use sha2::{Digest as _, Sha256};

use crate::backend::Key;

/// Hashes a secret, such as an API key, into a key that does not reveal it.
///
/// [`bearer`](super::bearer()), [`api_key`](super::api_key()) and [`cookie`](super::cookie()) make
/// such keys. The digest is the first 16 bytes of SHA-256: the same in every process and in every
/// version, so a handler can name the bucket of a token that it knows.
///
/// A secret that can be guessed can also be found from its digest. Tokens should have 128 random
/// bits.
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

/// The digest of a secret that comes in pieces.
#[derive(Clone, Default)]
pub(super) struct Digest(Sha256);

impl Digest {
    pub(super) fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    pub(super) fn key(self) -> Key {
        let full: [u8; 32] = self.0.finalize().into();
        // 128 bits rule out collisions in practice, and a tuple with an address still fits into a
        // key without an allocation.
        match full.as_chunks::<16>() {
            ([first, _], _) => Key::from(*first),
            _ => Key::from(full),
        }
    }
}
