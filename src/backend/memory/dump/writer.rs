//! Writing a dump, block by block.

use std::hash::Hasher as _;
use std::io::{self, Write};
use std::mem;

use siphasher::sip::SipHasher13;

use super::batch::BucketBatch;
use super::{BLOCK_HEAD, BlockKind, CHECK, MAGIC, VERSION, new_check, probe};
use crate::algebra::{Bucket, State};
use crate::backend::memory::fingerprint::{Hasher, Tag};
use crate::clock::Timestamp;

/// A dump that is being written.
pub(super) struct DumpWriter<'w> {
    output: &'w mut dyn Write,
    check: SipHasher13,
    batch: BucketBatch,
    /// The bytes of the present block, kept for the next.
    block: Vec<u8>,
    buckets: u64,
}

impl<'w> DumpWriter<'w> {
    /// Writes what stands before the buckets.
    pub(super) fn begin(
        output: &'w mut dyn Write,
        hasher: &Hasher,
        begun: Timestamp,
    ) -> io::Result<Self> {
        let (batch, block) = Default::default();
        let mut writer = Self { output, check: new_check(), batch, block, buckets: 0 };
        writer.block.extend_from_slice(&MAGIC);
        writer.block.extend_from_slice(&VERSION.to_le_bytes());
        writer.send(0)?;
        writer.open(BlockKind::Store);
        writer.block.extend_from_slice(&begun.as_micros().to_le_bytes());
        for word in hasher.words() {
            writer.block.extend_from_slice(&word.to_le_bytes());
        }
        writer.block.extend_from_slice(&probe::number(hasher).to_le_bytes());
        writer.close()?;
        Ok(writer)
    }

    pub(super) fn add(&mut self, tag: Tag, bucket: &Bucket, state: State) -> io::Result<()> {
        self.batch.add(tag, bucket, state);
        if self.batch.is_full() { self.send_batch() } else { Ok(()) }
    }

    /// Writes what stands after the buckets.
    pub(super) fn end(mut self, ended: Timestamp, resets: u64) -> io::Result<()> {
        if self.batch.len() > 0 {
            self.send_batch()?;
        }
        self.open(BlockKind::End);
        self.block.extend_from_slice(&ended.as_micros().to_le_bytes());
        self.block.extend_from_slice(&self.buckets.to_le_bytes());
        self.block.extend_from_slice(&resets.to_le_bytes());
        self.close()?;
        self.output.flush()
    }

    fn send_batch(&mut self) -> io::Result<()> {
        self.open(BlockKind::Buckets);
        self.buckets = self.buckets.saturating_add(self.batch.len().into());
        self.batch.take_content(&mut self.block);
        self.close()
    }

    /// Begins a block, whose length is not known yet.
    fn open(&mut self, kind: BlockKind) {
        self.block.push(kind.number());
        self.block.extend_from_slice(&[0; BLOCK_HEAD + CHECK - 1]);
    }

    fn close(&mut self) -> io::Result<()> {
        let mut head = [0; BLOCK_HEAD];
        if let Some((place, content)) = self.block.split_at_checked(BLOCK_HEAD + CHECK)
            && let Some((kind, _)) = place.split_first()
        {
            // A content is far below 4 GiB.
            let [a, b, c, d] = u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes();
            head = [*kind, a, b, c, d];
        }
        let check = self.next_check(&head);
        if let Some(place) = self.block.first_chunk_mut::<BLOCK_HEAD>() {
            *place = head;
        }
        if let Some(place) = self.block.get_mut(BLOCK_HEAD..BLOCK_HEAD + CHECK) {
            place.copy_from_slice(&check);
        }
        self.send(BLOCK_HEAD + CHECK)
    }

    /// Writes the present bytes and the check of all from `from` on, in one write.
    fn send(&mut self, from: usize) -> io::Result<()> {
        let mut block = mem::take(&mut self.block);
        let check = self.next_check(block.get(from..).unwrap_or_default());
        block.extend_from_slice(&check);
        self.output.write_all(&block)?;
        block.clear();
        self.block = block;
        Ok(())
    }

    /// The check of these bytes and all before them.
    fn next_check(&mut self, bytes: &[u8]) -> [u8; CHECK] {
        self.check.write(bytes);
        let check = self.check.finish().to_le_bytes();
        self.check.write(&check);
        check
    }
}
