//! A dump: all that a store holds, as bytes, with which another process goes on.
//!
//! # Design
//!
//! ```text
//! save, load          the calls of the store
//! replacement         a file that is replaced in one step
//! writer, reader      blocks, and the checks of their bytes
//! batch, fields       what blocks hold
//! probe               whether this build names buckets as the one that wrote the dump
//! ```
//!
//! # The format
//!
//! All numbers are little-endian.
//!
//! ```text
//! dump    "tollgate memory\n", version (4 bytes), check (8), and then blocks up to the end
//! block   kind (1), length of the content (4), check (8), content, check (8)
//! ```
//!
//! | kind | content |
//! |---|---|
//! | 1, the first | the store's time (8), the keys of its hash (816), the probe (8) |
//! | 2, any number | the numbers of quotas (2) and of buckets (2), the quotas (58 each), the buckets (32 each) |
//! | 3, the last | the store's time (8), the number of buckets (8), the count of resets (8) |
//!
//! * A quota is its kind (1), step, gain, token, capacity, floor, initial (8 each), and where its
//!   windows start (1 and 8: 0 with the key's phase, 1 at this time, 2 with the first use, 3
//!   unknown). A bucket is its tag (12), the place of its quota in the block (4), value and time
//!   (8 each). Each block has its own quotas, so that neither side keeps a list of all of them.
//! * A check is SipHash-1-3, under constant keys, of all bytes before it. So blocks cannot be left
//!   out, swapped, or taken from another dump without a mismatch in the next check. It finds damage
//!   and is no signature: a program that can write the file can write any state.
//! * A reader uses nothing that it has not checked, and reads no block that is longer than the
//!   longest that a writer makes. So no length allocates more than a block.
//! * The first 28 bytes keep their meaning in all versions. So a later version is told from damage.

mod batch;
mod dump_error;
mod fields;
mod load;
mod probe;
mod reader;
mod replacement;
mod save;
#[cfg(test)]
mod tests;
mod writer;

use siphasher::sip::SipHasher13;

/// The first bytes of a dump.
const MAGIC: [u8; 16] = *b"tollgate memory\n";

/// The version of the format.
const VERSION: u32 = 1;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Store,
    Buckets,
    End,
}

impl BlockKind {
    const fn number(self) -> u8 {
        match self {
            Self::Store => 1,
            Self::Buckets => 2,
            Self::End => 3,
        }
    }
}

/// The bytes before the content of a block: its kind, and the length of the content.
const BLOCK_HEAD: usize = 5;

/// The bytes of a check.
const CHECK: usize = 8;

/// The hash of all bytes so far.
fn new_check() -> SipHasher13 {
    // Any two numbers would do.
    SipHasher13::new_with_keys(0x746f_6c6c_6761_7465, 0x6d65_6d6f_7279_0001)
}
