//! Plays the random calls of the conformance suite to two stores at once.

pub(in crate::backend) use crate::backend::conformance::history::*;
use crate::backend::tests::START;
use crate::backend::{Answer, Backend, BackendError};
use crate::clock::{Clock, ManualClock};

impl History {
    /// Moves the clock to the time of the next call.
    pub(in crate::backend) fn pass(&mut self, clock: &ManualClock) {
        clock.set(self.next_time(clock.now(), START));
    }
}

/// Plays a step to a store, and returns the whole answer as text.
pub(in crate::backend) fn play_step(store: &dyn Backend, step: &Step) -> Answer<String> {
    match step {
        Step::Apply(takes) => {
            let charges: Vec<_> = takes.iter().map(TestCharge::charge).collect();
            store.apply(&charges).map(|applied| format!("{applied:?}"))
        }
        Step::Adjust(backs) => {
            let adjustments: Vec<_> = backs.iter().map(TestAdjustment::adjustment).collect();
            store.adjust(&adjustments).map(|applied| format!("{applied:?}"))
        }
        Step::Reset(targets) => {
            let ids: Vec<_> = targets.iter().map(TestBucket::id).collect();
            store.reset(&ids).map(|()| "reset".to_owned())
        }
    }
}

pub(in crate::backend) fn expect_ready<T>(answer: Answer<T>) -> Result<T, BackendError> {
    match answer {
        Answer::Ready(answer) => answer,
        Answer::Pending(_) => panic!("the memory store has to answer at once"),
    }
}
