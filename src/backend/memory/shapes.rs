//! The numbers that the buckets of a shard count in, each kept once.

use std::num::NonZeroU32;

use crate::algebra::Bucket;

/// A shard's few different [`Bucket`]s, named by small numbers.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    shapes: Vec<Shape>,
}

#[derive(Debug)]
struct Shape {
    bucket: Bucket,
    /// The slots that name it; at zero its place may be given to other numbers.
    slots: usize,
}

impl Shapes {
    /// The numbers of this name.
    pub(super) fn get(&self, name: NonZeroU32) -> Option<&Bucket> {
        self.at(name).map(|shape| &shape.bucket)
    }

    /// The name of these numbers, with one more slot that uses them.
    ///
    /// `None` after four billion different quotas in one shard.
    pub(super) fn enter(&mut self, bucket: &Bucket) -> Option<NonZeroU32> {
        let known = self.shapes.iter().position(|shape| shape.slots > 0 && shape.bucket == *bucket);
        let index = match known.or_else(|| self.shapes.iter().position(|shape| shape.slots == 0)) {
            Some(index) => index,
            None => {
                self.shapes.push(Shape { bucket: *bucket, slots: 0 });
                self.shapes.len().saturating_sub(1)
            }
        };
        let shape = self.shapes.get_mut(index)?;
        shape.bucket = *bucket;
        shape.slots = shape.slots.saturating_add(1);
        // Names begin at one.
        NonZeroU32::new(u32::try_from(index.saturating_add(1)).ok()?)
    }

    /// One slot less uses these numbers.
    pub(super) fn leave(&mut self, name: NonZeroU32) {
        if let Some(shape) = usize::try_from(name.get().saturating_sub(1))
            .ok()
            .and_then(|index| self.shapes.get_mut(index))
        {
            shape.slots = shape.slots.saturating_sub(1);
        }
    }

    fn at(&self, name: NonZeroU32) -> Option<&Shape> {
        self.shapes.get(usize::try_from(name.get().saturating_sub(1)).ok()?)
    }
}
