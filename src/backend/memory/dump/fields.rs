//! The numbers of a block, one after the other.

use crate::clock::Timestamp;

/// What is left to read of a content.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'c>(&'c [u8]);

impl<'c> Fields<'c> {
    pub(super) const fn new(content: &'c [u8]) -> Self {
        Self(content)
    }

    /// The next bytes; `None` if there are fewer.
    pub(super) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.bytes().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.bytes().map(i64::from_le_bytes)
    }

    pub(super) fn timestamp(&mut self) -> Option<Timestamp> {
        self.i64().map(Timestamp::from_micros)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
