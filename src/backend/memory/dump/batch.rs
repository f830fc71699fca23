//! The buckets of a block, with their quotas.

use std::collections::HashMap;

use super::fields::Fields;
use crate::algebra::{Bucket, BucketNumbers, State};
use crate::backend::memory::fingerprint::Tag;
use crate::clock::Timestamp;
use crate::quota::{Kind, MAX_UNITS, WindowStart};

/// The most buckets of a block.
const MOST_BUCKETS: usize = 1_024;

/// The bytes of a quota, and of a bucket.
const QUOTA_BYTES: usize = 58;
const BUCKET_BYTES: usize = 32;

/// The longest content of a block: each bucket has a quota of its own.
pub(super) const LONGEST_CONTENT: usize = 4 + MOST_BUCKETS * (QUOTA_BYTES + BUCKET_BYTES);

/// The buckets of a block that is being written.
#[derive(Debug, Default)]
pub(super) struct BucketBatch {
    /// The place of each quota.
    places: HashMap<Bucket, u16>,
    /// The quota of the last bucket: nearly always that of the next one, too.
    last: Option<(Bucket, u16)>,
    quotas: Vec<u8>,
    buckets: Vec<u8>,
    count: u16,
}

impl BucketBatch {
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.count) >= MOST_BUCKETS
    }

    pub(super) const fn len(&self) -> u16 {
        self.count
    }

    pub(super) fn add(&mut self, (low, high): Tag, bucket: &Bucket, state: State) {
        let place = self.place(bucket);
        // No bucket holds more than its capacity. If one did, the dump could not be read.
        let value = state.value.min(bucket.capacity());
        self.buckets.extend_from_slice(&low.to_le_bytes());
        self.buckets.extend_from_slice(&high.to_le_bytes());
        self.buckets.extend_from_slice(&u32::from(place).to_le_bytes());
        self.buckets.extend_from_slice(&value.to_le_bytes());
        self.buckets.extend_from_slice(&state.ts.as_micros().to_le_bytes());
        self.count = self.count.saturating_add(1);
    }

    /// The place of a quota in this block.
    fn place(&mut self, bucket: &Bucket) -> u16 {
        if let Some((last, place)) = &self.last
            && last == bucket
        {
            return *place;
        }
        // There are at most as many quotas as buckets.
        let next = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        let place = *self.places.entry(*bucket).or_insert(next);
        if place == next {
            write_quota(bucket, &mut self.quotas);
        }
        self.last = Some((*bucket, place));
        place
    }

    /// Moves the content of the block to the end of `block`.
    pub(super) fn take_content(&mut self, block: &mut Vec<u8>) {
        let quotas = u16::try_from(self.places.len()).unwrap_or(u16::MAX);
        block.extend_from_slice(&quotas.to_le_bytes());
        block.extend_from_slice(&self.count.to_le_bytes());
        block.append(&mut self.quotas);
        block.append(&mut self.buckets);
        self.places.clear();
        (self.last, self.count) = (None, 0);
    }
}

fn write_quota(bucket: &Bucket, into: &mut Vec<u8>) {
    let numbers = BucketNumbers::new(bucket);
    into.push(match numbers.kind {
        Kind::TokenBucket => 0,
        Kind::FixedWindow => 1,
    });
    for number in [numbers.step, numbers.gain, numbers.token] {
        into.extend_from_slice(&number.to_le_bytes());
    }
    for units in [numbers.capacity, numbers.floor, numbers.initial] {
        into.extend_from_slice(&units.to_le_bytes());
    }
    let (form, start) = match numbers.start {
        None => (0, Timestamp::UNIX_EPOCH),
        Some(WindowStart::At(start)) => (1, start),
        Some(WindowStart::FirstUse) => (2, Timestamp::UNIX_EPOCH),
        Some(WindowStart::Unknown) => (3, Timestamp::UNIX_EPOCH),
    };
    into.push(form);
    into.extend_from_slice(&start.as_micros().to_le_bytes());
}

/// Reads the buckets of a block, whose check was right.
///
/// # Errors
///
/// What is wrong with the content, or what `each` says.
pub(super) fn read_batch(
    content: &[u8],
    mut each: impl FnMut(Tag, &Bucket, State) -> Result<(), &'static str>,
) -> Result<u16, &'static str> {
    let mut fields = Fields::new(content);
    let counts = fields.u16().zip(fields.u16());
    let (quotas, buckets) = counts.ok_or("has no counts")?;
    let bytes = |count: u16, size| usize::from(count).saturating_mul(size);
    let wanted = bytes(quotas, QUOTA_BYTES).saturating_add(bytes(buckets, BUCKET_BYTES));
    if content.len().checked_sub(4) != Some(wanted) {
        return Err("is longer or shorter than its counts say");
    }
    // Allocates no more than the content, which is there.
    let mut known = Vec::with_capacity(usize::from(quotas));
    for _ in 0..quotas {
        known.push(read_quota(&mut fields).ok_or("has numbers of no possible quota")?);
    }
    for _ in 0..buckets {
        let (tag, place, state) = read_bucket(&mut fields).ok_or("has half a bucket")?;
        let place = usize::try_from(place).ok();
        let bucket =
            place.and_then(|place| known.get(place)).ok_or("refers to a quota that it lacks")?;
        if state.value > bucket.capacity() {
            return Err("has a value above the capacity of its quota");
        }
        if state.value.unsigned_abs() > MAX_UNITS {
            return Err("has a value below the lowest possible one");
        }
        each(tag, bucket, state)?;
    }
    Ok(buckets)
}

fn read_quota(fields: &mut Fields<'_>) -> Option<Bucket> {
    let kind = match fields.u8()? {
        0 => Kind::TokenBucket,
        1 => Kind::FixedWindow,
        _ => return None,
    };
    let (step, gain, token) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (capacity, floor, initial) = (fields.i64()?, fields.i64()?, fields.i64()?);
    let start = match (fields.u8()?, fields.timestamp()?) {
        (0, Timestamp::UNIX_EPOCH) => None,
        (1, start) => Some(WindowStart::At(start)),
        (2, Timestamp::UNIX_EPOCH) => Some(WindowStart::FirstUse),
        (3, Timestamp::UNIX_EPOCH) => Some(WindowStart::Unknown),
        _ => return None,
    };
    BucketNumbers { kind, step, gain, token, capacity, floor, initial, start }.bucket()
}

fn read_bucket(fields: &mut Fields<'_>) -> Option<(Tag, u32, State)> {
    let tag = (fields.u64()?, fields.u32()?);
    let place = fields.u32()?;
    Some((tag, place, State { value: fields.i64()?, ts: fields.timestamp()? }))
}
