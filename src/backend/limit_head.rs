//! A limit's name as two words, which are what the memory store hashes.

/// A name of at most 16 bytes as two words, padded with zeros. For a longer name, two zeros.
///
/// A limit computes it once, so that no decision reads the bytes of a short name. For example,
/// `login` becomes the bytes `login\0\0\0` as a little-endian word, and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitHead([u64; 2]);

impl LimitHead {
    /// The words of this name.
    #[must_use]
    pub const fn new(name: &str) -> Self {
        let (mut bytes, mut words, mut shift) = (name.as_bytes(), [0_u64; 2], 0_u32);
        // A name with a zero byte would look like a shorter one, so it counts as too long.
        while let [byte, rest @ ..] = bytes
            && *byte != 0
            && shift < 128
        {
            // `u64::from` is not const.
            let byte = u64::from_le_bytes([*byte, 0, 0, 0, 0, 0, 0, 0]);
            let [low, high] = words;
            words = match shift {
                ..64 => [low | byte << shift, high],
                _ => [low, high | byte << shift.saturating_sub(64)],
            };
            (bytes, shift) = (rest, shift.saturating_add(8));
        }
        Self(if bytes.is_empty() { words } else { [0; 2] })
    }

    /// The words, if they are the whole name and the name is not empty. Then different names have
    /// different words.
    #[inline(always)]
    #[must_use]
    pub const fn whole(self) -> Option<[u64; 2]> {
        match self.0 {
            [0, _] => None,
            words => Some(words),
        }
    }
}
