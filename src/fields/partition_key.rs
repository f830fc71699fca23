//! The parameter `pk`: identifies the key of a request without revealing it.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::backend::Key;

/// The parameter `pk` of draft 11 (section 4.1.3), which shows the partition of a quota.
///
/// A client that acts for several users, or requests several resources, can tell their quotas apart
/// by it.
///
/// The value is not the [`Key`] itself, which may be an address or the name of a user. It is the
/// first 12 bytes of a keyed hash of the key (SipHash-2-4, 128 bits), so without the secret, the
/// key cannot be found by trying all candidates. A limit with one bucket for all requests has no
/// `pk`.
///
/// # Examples
///
/// ```
/// use tollgate::fields::PartitionKey;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter, key};
///
/// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(10, MINUTE));
///
/// // In production, from the configuration, the same for all processes.
/// let secret = [7; 16];
/// let layer = RateLimiter::in_memory()
///     .layer(&PER_USER)
///     .key(key::header("x-user"))
///     .partition_key(PartitionKey::keyed(secret));
/// # drop(layer);
/// ```
#[derive(Clone)]
pub struct PartitionKey(PartitionHash);

#[derive(Clone)]
enum PartitionHash {
    Keyed(SipHasher24),
    Custom(Arc<PartitionFn>),
}

type PartitionFn = dyn Fn(&Key) -> Vec<u8> + Send + Sync;

impl PartitionKey {
    /// Hashes keys with this secret. Processes with the same secret show the same partitions.
    #[must_use]
    pub fn keyed(secret: [u8; 16]) -> Self {
        Self(PartitionHash::Keyed(SipHasher24::new_with_key(&secret)))
    }

    /// Hashes keys with a random secret of this process.
    ///
    /// After a restart, or in another process behind the same address, the same key has another
    /// `pk`. To a client that remembers partitions it then looks like a new one; nothing else
    /// depends on it.
    #[must_use]
    pub fn random() -> Self {
        let random = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut secret = [0; 16];
        let (first, second) = secret.split_at_mut(8);
        first.copy_from_slice(&random());
        second.copy_from_slice(&random());
        Self::keyed(secret)
    }

    /// Shows the bytes that this function computes from a key; if they are empty, the limit has no
    /// `pk`.
    ///
    /// The draft advises to document how they are computed, so that clients can compute them as
    /// well, and to put nothing sensitive into them, since the response shows them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::fields::PartitionKey;
    ///
    /// // The last part of keys such as `("tenant", 17)`, which is not secret.
    /// let shown = PartitionKey::from_fn(|key| {
    ///     key.to_string().rsplit('|').next().unwrap_or_default().into()
    /// });
    /// # drop(shown);
    /// ```
    #[must_use]
    pub fn from_fn(encode: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(PartitionHash::Custom(Arc::new(encode)))
    }

    /// The partition of a key, in base64.
    pub(crate) fn encode(&self, key: &Key) -> Option<String> {
        let bytes = key.as_bytes();
        if bytes.is_empty() {
            return None;
        }
        let base64 = match &self.0 {
            PartitionHash::Custom(encode) => STANDARD.encode(encode(key)),
            PartitionHash::Keyed(hasher) => {
                let mut hasher = *hasher;
                hasher.write(bytes);
                let hash = hasher.finish128().as_bytes();
                STANDARD.encode(hash.first_chunk::<LEN>().unwrap_or(&[0; LEN]))
            }
        };
        Some(base64).filter(|base64| !base64.is_empty())
    }
}

/// 96 bits: among a billion keys, the probability of a collision is one in 10^11. A multiple of
/// three bytes needs no padding in base64.
const LEN: usize = 12;

/// Leaves the secret out.
impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            PartitionHash::Keyed(_) => "PartitionKey(keyed)",
            PartitionHash::Custom(_) => "PartitionKey(custom)",
        })
    }
}
