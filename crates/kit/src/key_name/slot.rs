//! The slot of a name in a cluster: CRC-16/XMODEM of its hash tag, modulo 16,384 (Redis cluster
//! specification, "Key distribution model").

use std::sync::LazyLock;

/// The slot of a name. The text between the first opening brace and the next closing one decides,
/// or the whole name if there is no such text. For example, `tollgate:{acme}:login:bob` goes by
/// `acme`.
pub fn slot_of(name: &[u8]) -> u16 {
    let tag = name.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inside = name.get(open.saturating_add(1)..)?;
        inside.get(..inside.iter().position(|&byte| byte == b'}')?)
    });
    let decides = tag.filter(|tag| !tag.is_empty()).unwrap_or(name);
    decides.iter().fold(0, |crc, &byte| step(crc, byte)) & MASK
}

/// The smallest number with decimal digits that hash to this slot.
pub(super) fn number_in(slot: u16) -> u32 {
    NUMBERS.get(usize::from(slot)).copied().unwrap_or(0)
}

/// A number for each slot. The first 109,758 numbers cover all slots.
static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
    let mut numbers = vec![None; SLOTS];
    // The checksums of the numbers so far. That of `123` is one step from that of `12`.
    let mut sums = Vec::new();
    let mut missing = SLOTS;
    for number in 0_u32.. {
        let shorter = usize::try_from(number / 10).ok().filter(|_| number > 9);
        let before = shorter.and_then(|shorter| sums.get(shorter)).copied().unwrap_or(0);
        let last = u8::try_from(number % 10).unwrap_or(0);
        let sum = step(before, b'0' | last);
        sums.push(sum);
        if let Some(free @ None) = numbers.get_mut(usize::from(sum & MASK)) {
            *free = Some(number);
            missing = missing.saturating_sub(1);
            if missing == 0 {
                break;
            }
        }
    }
    numbers.into_iter().flatten().collect()
});

/// The last slot.
pub const LAST: u16 = 16_383;

const SLOTS: usize = 16_384;
const MASK: u16 = LAST;

/// The checksum after one more byte.
#[inline]
fn step(sum: u16, byte: u8) -> u16 {
    let [high, low] = sum.to_be_bytes();
    let change = TABLE.get(usize::from(high ^ byte)).copied().unwrap_or(0);
    u16::from_be_bytes([low, 0]) ^ change
}

/// The checksum of each single byte.
static TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut rest: &mut [u16] = &mut table;
    let mut byte: u16 = 0;
    while let [first, after @ ..] = rest {
        *first = times_x_to_the_8th(byte << 8);
        rest = after;
        byte = byte.wrapping_add(1);
    }
    table
};

/// Multiplies a polynomial by x^8, modulo x^16 + x^12 + x^5 + 1.
const fn times_x_to_the_8th(mut sum: u16) -> u16 {
    let mut bits = 0_u8;
    while bits < 8 {
        let overflows = sum & 0x8000 != 0;
        sum <<= 1;
        if overflows {
            sum ^= 0x1021;
        }
        bits = bits.wrapping_add(1);
    }
    sum
}
