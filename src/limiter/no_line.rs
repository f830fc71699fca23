//! Without the memory store there are no lines.

use std::task::{Poll, Waker};

use tokio::time::Instant;

use super::queue::{Drained, QueueBucket};
use crate::algebra::State;
use crate::clock::Timestamp;

#[derive(Debug)]
pub(crate) enum LineSlot {}

#[derive(Debug)]
pub(crate) struct LineTurn {
    pub(crate) slot: LineSlot,
    pub(crate) at: Timestamp,
}

impl LineSlot {
    pub(crate) const fn told(&self) -> Timestamp {
        match *self {}
    }

    pub(crate) const fn turn(&self) -> Instant {
        match *self {}
    }

    pub(crate) const fn deadline(&self) -> Instant {
        match *self {}
    }

    pub(crate) const fn poll(&self, _: &Waker) -> Poll<Result<Timestamp, Drained>> {
        match *self {}
    }

    pub(crate) const fn grant(&self) {
        match *self {}
    }

    pub(crate) fn keep(self) {
        match self {}
    }

    pub(crate) fn use_up(&mut self) {
        match *self {}
    }

    pub(crate) fn buckets(&self) -> impl Iterator<Item = (&QueueBucket, State)> {
        match *self {}
        #[expect(unreachable_code, reason = "it tells the type")]
        std::iter::empty()
    }
}
