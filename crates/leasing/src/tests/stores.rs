//! Stores for tests of the driver: they count, answer later, fail, or do not answer at all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory, OnFailure,
};
use tollgate::clock::TokioClock;

/// How a store answers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// At once, without a future.
    AtOnce,
    /// After this time.
    After(Duration),
    /// It does what is asked, and its answer is lost.
    Mute,
    /// It does nothing, and does not answer.
    Dead,
    /// It does what is asked, and says that it has failed.
    FailsAfter,
    /// It fails at once, and does nothing.
    Fails,
    /// It does nothing, and fails some time later.
    FailsLater,
}

/// A store in tokio's time, whose manners change.
#[derive(Clone, Debug)]
pub(super) struct Moody(Arc<MoodyState>);

#[derive(Debug)]
struct MoodyState {
    inner: Memory,
    calls: AtomicU64,
    usual: Mutex<Manner>,
    /// The manner of the call with this number.
    once: Option<(u64, Manner)>,
    /// What the charges of each call have said about outages.
    said: Mutex<Vec<Vec<Option<OnFailure>>>>,
}

impl Moody {
    pub(super) fn new(usual: Manner) -> Self {
        Self::with(usual, None)
    }

    /// A store that answers the call with this number in another manner.
    pub(super) fn with(usual: Manner, once: Option<(u64, Manner)>) -> Self {
        let inner = Memory::new().clock(TokioClock::new());
        let (calls, usual) = (AtomicU64::new(0), Mutex::new(usual));
        Self(Arc::new(MoodyState { inner, calls, usual, once, said: Mutex::default() }))
    }

    pub(super) fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    pub(super) fn answers(&self, manner: Manner) {
        *self.0.usual.lock().unwrap() = manner;
    }

    /// What the charges of each call since the last look have said about outages.
    pub(super) fn said(&self) -> Vec<Vec<Option<OnFailure>>> {
        std::mem::take(&mut *self.0.said.lock().unwrap())
    }

    fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Memory) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let nth = self.0.calls.fetch_add(1, Ordering::SeqCst);
        let usual = *self.0.usual.lock().unwrap();
        let manner = self.0.once.filter(|(call, _)| *call == nth).map_or(usual, |(_, once)| once);
        let state = Arc::clone(&self.0);
        let failed = || BackendError::unavailable("moody", "in a mood");
        match manner {
            Manner::AtOnce => work(&state.inner),
            Manner::Fails => Answer::Ready(Err(failed())),
            Manner::FailsLater => Answer::pending(async move {
                tokio::time::sleep(LATER).await;
                Err(failed())
            }),
            Manner::FailsAfter => Answer::pending(async move {
                drop(work(&state.inner).wait().await);
                Err(failed())
            }),
            // A single request has the deadline of its store, as all stores have one.
            Manner::Dead => Answer::pending(late()),
            Manner::Mute => {
                drop(work(&state.inner));
                Answer::pending(late())
            }
            Manner::After(time) => Answer::pending(async move {
                tokio::time::sleep(time / 2).await;
                let answer = work(&state.inner).wait().await;
                tokio::time::sleep(time / 2).await;
                answer
            }),
        }
    }
}

/// What callers get of a store that does not answer.
async fn late<T>() -> Result<T, BackendError> {
    tokio::time::sleep(DEADLINE).await;
    Err(BackendError::timeout("moody", DEADLINE))
}

/// What a failure takes that is no deadline.
const LATER: Duration = Duration::from_millis(1);

const DEADLINE: Duration = Duration::from_millis(80);

impl Backend for Moody {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
        self.0.said.lock().unwrap().push(charges.iter().map(Charge::get_on_failure).collect());
        self.answer(move |inner| {
            inner.apply(&owned.iter().map(|charge| charge.as_charge()).collect::<Vec<_>>())
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        self.answer(move |inner| {
            inner.adjust(&owned.iter().map(|one| one.as_adjustment()).collect::<Vec<_>>())
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
        self.answer(move |inner| {
            inner.reset(&owned.iter().map(|id| id.as_id()).collect::<Vec<_>>())
        })
    }
}
