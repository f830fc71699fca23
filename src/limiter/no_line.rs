//! Without the memory store there are no lines.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::queue::{Drained, QueueBucket, QueueRegistry};
use crate::algebra::State;
use crate::clock::Timestamp;

#[derive(Debug)]
pub(crate) enum LineSlot {}

#[derive(Debug)]
pub(crate) struct LineTurn {
    pub(crate) slot: LineSlot,
    pub(crate) at: Timestamp,
}

#[derive(Debug)]
pub(crate) struct LineWait(LineSlot);

impl LineSlot {
    pub(crate) const fn told(&self) -> Timestamp {
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

impl LineWait {
    pub(crate) const fn new(
        slot: LineSlot,
        _jitter: Duration,
        _drained_by: Option<Arc<QueueRegistry>>,
    ) -> Self {
        Self(slot)
    }
}

impl Future for LineWait {
    type Output = Result<LineTurn, Drained>;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.0 {}
    }
}
