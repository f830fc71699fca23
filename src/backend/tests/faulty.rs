//! A store that fails as a test says, call by call, and counts its calls.

use std::future::pending;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory, OwnedAdjustment,
    OwnedBucketId, OwnedCharge,
};

/// What the store does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend) enum Fault {
    /// Answers at once.
    None,
    /// Answers when it is polled for the second time; the call takes effect in between.
    Late,
    /// Takes effect at once, and answers when it is polled for the second time.
    Slow,
    /// Fails at once, without an effect.
    Fail,
    /// Fails when it is polled for the second time, without an effect.
    FailLate,
    /// Takes effect, and then fails: the answer is lost.
    Lose,
    /// Takes effect, and never answers.
    Silent,
    /// Answers each reading twice.
    Twice,
}

pub(in crate::backend) type Script = Box<dyn FnMut(u64) -> Fault + Send>;

/// A memory store behind faults.
pub(in crate::backend) struct Faulty {
    pub(in crate::backend) inner: Arc<Memory>,
    calls: AtomicU64,
    script: Mutex<Script>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Faulty({} calls)", self.calls())
    }
}

impl Faulty {
    /// A store that does with each call what `script` says of its number, from 1 on.
    pub(in crate::backend) fn new(
        inner: Memory,
        script: impl FnMut(u64) -> Fault + Send + 'static,
    ) -> Arc<Self> {
        let (inner, calls) = (Arc::new(inner), AtomicU64::new(0));
        Arc::new(Self { inner, calls, script: Mutex::new(Box::new(script)) })
    }

    /// What it does from now on.
    pub(in crate::backend) fn set(&self, fault: Fault) {
        *self.script.lock().unwrap() = Box::new(move |_| fault);
    }

    /// What it does with each call, by its number.
    pub(in crate::backend) fn script(&self) -> impl DerefMut<Target = Script> {
        self.script.lock().unwrap()
    }

    /// How many calls it got.
    pub(in crate::backend) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn answer<T: Send + 'static>(
        &self,
        twice: impl FnOnce(T) -> T + Send + 'static,
        ask: impl FnOnce(&Memory) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let nth = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = (self.script.lock().unwrap())(nth);
        let inner = Arc::clone(&self.inner);
        let failed = move || Err(BackendError::unavailable("faulty", format!("call {nth} failed")));
        match fault {
            Fault::None => ask(&inner),
            Fault::Twice => ask(&inner).map(twice),
            Fault::Fail => Answer::Ready(failed()),
            Fault::Late => Answer::pending(async move {
                tokio::task::yield_now().await;
                ask(&inner).wait().await
            }),
            Fault::Slow => {
                let answer = ask(&inner);
                Answer::pending(async move {
                    tokio::task::yield_now().await;
                    answer.wait().await
                })
            }
            Fault::FailLate => Answer::pending(async move {
                tokio::task::yield_now().await;
                failed()
            }),
            Fault::Lose => Answer::pending(async move {
                let _lost = ask(&inner).wait().await;
                failed()
            }),
            Fault::Silent => {
                drop(ask(&inner));
                Answer::pending(pending())
            }
        }
    }
}

fn doubled(applied: Applied) -> Applied {
    let twice = applied.readings().iter().flat_map(|reading| [*reading; 2]).collect();
    Applied::many(applied.now(), twice)
}

impl Backend for Faulty {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
        self.answer(doubled, move |inner| {
            inner.apply(&owned.iter().map(OwnedCharge::as_charge).collect::<Vec<_>>())
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        self.answer(doubled, move |inner| {
            inner.adjust(&owned.iter().map(OwnedAdjustment::as_adjustment).collect::<Vec<_>>())
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
        self.answer(
            |done| done,
            move |inner| inner.reset(&owned.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>()),
        )
    }
}
