//! Reading a dump, block by block, each after its check.

use std::hash::Hasher as _;
use std::io::{ErrorKind, Read};
use std::mem;

use siphasher::sip::SipHasher13;

use super::batch::LONGEST_CONTENT;
use super::dump_error::DumpProblem;
use super::fields::Fields;
use super::{BLOCK_HEAD, BlockKind, CHECK, MAGIC, VERSION, new_check};

/// A dump that is being read.
pub(super) struct DumpReader<'r> {
    input: &'r mut dyn Read,
    /// How many bytes were read.
    at: u64,
    check: SipHasher13,
    /// The content of the present block and its check.
    block: Vec<u8>,
}

/// A block whose check was right.
pub(super) struct DumpBlock<'b> {
    pub(super) kind: BlockKind,
    /// The byte of the dump at which the block begins.
    pub(super) at: u64,
    pub(super) content: &'b [u8],
}

impl DumpBlock<'_> {
    /// This block has something wrong in it.
    pub(super) fn wrong(&self, what: &'static str) -> DumpProblem {
        DumpProblem::Content { at: self.at, what }
    }
}

impl<'r> DumpReader<'r> {
    /// Reads the magic and the version.
    pub(super) fn begin(input: &'r mut dyn Read) -> Result<Self, DumpProblem> {
        let mut reader = Self { input, at: 0, check: new_check(), block: Vec::new() };
        let mut head = [0; MAGIC.len() + 4 + CHECK];
        let filled = reader.fill(&mut head)?;
        let begun = head.get(..filled).unwrap_or_default();
        let is_dump = begun.iter().zip(&MAGIC).all(|(byte, wanted)| byte == wanted);
        if !is_dump {
            return Err(DumpProblem::Other);
        }
        if filled < head.len() {
            return Err(DumpProblem::Cut { at: reader.at });
        }
        let Some((begun, check)) = head.split_last_chunk::<CHECK>() else {
            return Err(DumpProblem::Cut { at: reader.at });
        };
        reader.pass(0, begun, check)?;
        let mut fields = Fields::new(begun);
        let version = fields.bytes::<16>().and_then(|_| fields.u32()).unwrap_or(0);
        match version {
            VERSION => Ok(reader),
            0 => {
                Err(DumpProblem::Content { at: 0, what: "has the format 0, which does not exist" })
            }
            newer => Err(DumpProblem::Newer { version: newer }),
        }
    }

    /// The next block.
    pub(super) fn block(&mut self) -> Result<DumpBlock<'_>, DumpProblem> {
        let at = self.at;
        let mut head = [0; BLOCK_HEAD + CHECK];
        self.fill_all(&mut head)?;
        let mut fields = Fields::new(&head);
        let (kind, len) = fields.u8().zip(fields.u32()).unwrap_or_default();
        if let Some((head, check)) = head.split_last_chunk::<CHECK>() {
            self.pass(at, head, check)?;
        }
        let len = usize::try_from(len).ok().filter(|len| *len <= LONGEST_CONTENT);
        let len = len.ok_or(DumpProblem::Content { at, what: "is longer than a block can be" })?;
        let mut block = mem::take(&mut self.block);
        block.clear();
        block.resize(len.saturating_add(CHECK), 0);
        self.fill_all(&mut block)?;
        if let Some((content, check)) = block.split_last_chunk::<CHECK>() {
            self.pass(at, content, check)?;
        }
        self.block = block;
        let content = self.block.get(..len).unwrap_or_default();
        let kinds = [BlockKind::Store, BlockKind::Buckets, BlockKind::End];
        match kinds.into_iter().find(|known| known.number() == kind) {
            Some(kind) => Ok(DumpBlock { kind, at, content }),
            None => Err(DumpProblem::Content { at, what: "is of no known kind" }),
        }
    }

    /// Compares the check of these bytes, and of all before them.
    fn pass(&mut self, at: u64, bytes: &[u8], check: &[u8; CHECK]) -> Result<(), DumpProblem> {
        self.check.write(bytes);
        if self.check.finish().to_le_bytes() != *check {
            return Err(DumpProblem::Mismatch { at });
        }
        self.check.write(check);
        Ok(())
    }

    /// Makes sure that nothing follows.
    pub(super) fn end(mut self) -> Result<(), DumpProblem> {
        match self.fill(&mut [0])? {
            0 => Ok(()),
            _ => Err(DumpProblem::Longer { at: self.at.saturating_sub(1) }),
        }
    }

    fn fill_all(&mut self, buffer: &mut [u8]) -> Result<(), DumpProblem> {
        let filled = self.fill(buffer)?;
        if filled < buffer.len() { Err(DumpProblem::Cut { at: self.at }) } else { Ok(()) }
    }

    /// Fills the buffer as far as there are bytes.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, DumpProblem> {
        let mut filled = 0_usize;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(read) => {
                    filled = filled.saturating_add(read);
                    self.at = self.at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(DumpProblem::Read(error)),
            }
        }
        Ok(filled)
    }
}
