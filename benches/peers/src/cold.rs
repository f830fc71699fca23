//! Empties the caches that a core has for itself, as the other work of a server does.

use std::hint::black_box;

/// Twice what a second level holds, which has both code and data.
const BYTES: usize = 4 << 20;

/// What is read and run in place of other work.
pub struct Elsewhere {
    memory: Vec<u8>,
}

impl Elsewhere {
    pub fn new() -> Self {
        Self { memory: vec![1; BYTES] }
    }

    /// Afterwards, code and data of what ran before have left the first and the second level. Data
    /// alone would leave the first level's code where it is.
    pub fn visit(&self) {
        for line in self.memory.chunks(64) {
            black_box(line.first().copied());
        }
        for code in CODE {
            black_box(code(black_box(1)));
        }
    }
}

/// Some 80 KiB, of which no two functions are the same.
static CODE: [fn(u64) -> u64; 256] = {
    macro_rules! row {
        ($($high:literal)*) => { [$(row!(@ $high)),*] };
        (@ $high:literal) => {
            row!(@ $high: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
        };
        (@ $high:literal: $($low:literal)*) => {
            [$(other::<{ $high * 16 + $low + 1 }> as fn(u64) -> u64),*]
        };
    }
    let rows = row!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    let mut all = [rows[0][0]; 256];
    let mut nth = 0;
    while nth < all.len() {
        all[nth] = rows[nth / 16][nth % 16];
        nth += 1;
    }
    all
};

/// Some 300 bytes of code, as each number is a part of its instruction.
#[inline(never)]
fn other<const N: u64>(number: u64) -> u64 {
    macro_rules! steps {
        ($number:expr; $first:literal $($step:literal)*) => {
            steps!(
                ($number ^ const { N.wrapping_mul($first) })
                    .wrapping_mul(const { N.wrapping_mul($first) | 1 })
                    .rotate_left(17);
                $($step)*
            )
        };
        ($number:expr;) => { $number };
    }
    steps!(number;
        0x9e37_79b9_7f4a_7c15 0xbf58_476d_1ce4_e5b9 0x94d0_49bb_1331_11eb 0xd6e8_feb8_6659_fd93
        0xa076_1d64_78bd_642f 0xe703_7ed1_a0b4_28db 0x8ebc_6af0_9c88_c6e3 0x5899_65cc_7537_4cc3
        0x1d8e_4e27_c47d_124f 0xeb44_acca_b455_d165)
}
