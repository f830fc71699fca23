//! The beginning of a limit's name, as the words that it is hashed in.

/// A name of at most 16 bytes, as two words that are filled up with zeros. Of a longer one, two
/// zeros.
///
/// A limit makes it once, so that no decision reads the bytes of a short name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LimitHead([u64; 2]);

impl LimitHead {
    pub(crate) const fn new(name: &str) -> Self {
        let (mut bytes, mut words, mut shift) = (name.as_bytes(), [0_u64; 2], 0_u32);
        // A zero would look like the end.
        while let [byte, rest @ ..] = bytes
            && *byte != 0
            && shift < 128
        {
            // A constant cannot be made by `u64::from`.
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

    /// The words, if they are the whole name, which is not empty. Different names have different
    /// words then.
    #[cfg(feature = "memory")]
    #[inline(always)]
    pub(super) const fn whole(self) -> Option<[u64; 2]> {
        match self.0 {
            [0, _] => None,
            words => Some(words),
        }
    }
}
