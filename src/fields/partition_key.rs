//! The parameter `pk`: identifies the key of a request without revealing it.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::backend::Key;

/// How the parameter `pk` of draft 11 is computed from a key.
#[derive(Clone)]
pub(crate) struct PartitionKey(PartitionHash);

#[derive(Clone)]
enum PartitionHash {
    Keyed(SipHasher24),
    Custom(Arc<PartitionFn>),
}

type PartitionFn = dyn Fn(&Key) -> Vec<u8> + Send + Sync;

impl PartitionKey {
    /// Hashes keys with this secret.
    pub(crate) fn keyed(secret: [u8; 16]) -> Self {
        Self(PartitionHash::Keyed(SipHasher24::new_with_key(&secret)))
    }

    /// Hashes keys with a random secret, which all layers of the process have in common.
    pub(crate) fn random() -> Self {
        static SECRET: LazyLock<[u8; 16]> = LazyLock::new(|| {
            let random = || RandomState::new().build_hasher().finish().to_le_bytes();
            let mut secret = [0; 16];
            let (first, second) = secret.split_at_mut(8);
            first.copy_from_slice(&random());
            second.copy_from_slice(&random());
            secret
        });
        Self::keyed(*SECRET)
    }

    /// Shows the bytes that this function computes from a key.
    pub(crate) fn from_fn(encode: impl Fn(&Key) -> Vec<u8> + Send + Sync + 'static) -> Self {
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
