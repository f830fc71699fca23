//! The partition that a request's quota comes from, told without telling the key.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::backend::Key;

/// The parameter `pk` of draft 11 (section 4.1.3): which partition of the quota a request belongs to, so
/// that a client which acts for several users, or asks for several resources, can tell their quotas apart.
///
/// It is never the [`Key`] itself, which may be an address or a user's name, but the first 12 bytes of a keyed
/// hash of it (SipHash-2-4, 128 bits): whoever has no secret cannot find a key by trying out all of them. A
/// limit that everybody shares has no partitions, so nothing is told for it.
///
/// # Examples
///
/// ```
/// use tollgate::fields::PartitionKey;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter, key};
///
/// const PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(10, MINUTE));
///
/// // In earnest from the configuration, the same for all processes.
/// let secret = [7; 16];
/// let layer = RateLimiter::in_memory()
///     .layer(PER_USER)
///     .key(key::header("x-user"))
///     .partition_key(PartitionKey::keyed(secret));
/// # drop(layer);
/// ```
#[derive(Clone)]
pub struct PartitionKey(Kind);

#[derive(Clone)]
enum Kind {
    Keyed(SipHasher24),
    Own(Arc<Made>),
}

type Made = dyn Fn(&Key) -> Vec<u8> + Send + Sync;

impl PartitionKey {
    /// A hash under this secret: processes that have the same one tell the same partitions.
    #[must_use]
    pub fn keyed(secret: [u8; 16]) -> Self {
        Self(Kind::Keyed(SipHasher24::new_with_key(&secret)))
    }

    /// A hash under a secret of this process: after a restart, and in another process behind the same
    /// address, the same key is told as another partition. Clients that remember partitions then take it for a
    /// new one; nothing else depends on it.
    #[must_use]
    pub fn random() -> Self {
        let random = || RandomState::new().build_hasher().finish().to_le_bytes();
        let mut secret = [0; 16];
        let (first, second) = secret.split_at_mut(8);
        first.copy_from_slice(&random());
        second.copy_from_slice(&random());
        Self::keyed(secret)
    }

    /// What this function makes of a key, byte for byte; nothing is told where that is empty.
    ///
    /// The draft advises to document how it is made, so that clients can work it out beforehand, and to put
    /// nothing sensitive into it. Everybody who sees the response sees it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::fields::PartitionKey;
    ///
    /// // The last part of keys such as `("tenant", 17)`, which is no secret.
    /// let shown = PartitionKey::from_fn(|key| {
    ///     key.to_string().rsplit('|').next().unwrap_or_default().into()
    /// });
    /// # drop(shown);
    /// ```
    #[must_use]
    pub fn from_fn(made: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self(Kind::Own(Arc::new(made)))
    }

    /// The partition of a key, in base64.
    pub(crate) fn of(&self, key: &Key) -> Option<String> {
        let bytes = key.as_bytes();
        if bytes.is_empty() {
            return None;
        }
        let made = match &self.0 {
            Kind::Own(made) => STANDARD.encode(made(key)),
            Kind::Keyed(hasher) => {
                let mut hasher = *hasher;
                hasher.write(bytes);
                let hash = hasher.finish128().as_bytes();
                STANDARD.encode(hash.first_chunk::<LEN>().unwrap_or(&[0; LEN]))
            }
        };
        Some(made).filter(|made| !made.is_empty())
    }
}

/// 96 bits: two of a billion keys have the same with a probability of one in 10^11. A multiple of
/// three needs no padding.
const LEN: usize = 12;

/// Without the secret.
impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Keyed(_) => "PartitionKey(keyed)",
            Kind::Own(_) => "PartitionKey(own)",
        })
    }
}
