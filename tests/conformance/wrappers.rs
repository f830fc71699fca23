//! The suite over wrappers: one that passes answers on, and one that answers in both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::algebra::Verdict;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, DebtorQuery, DebtorReport, Memory,
    OwnedAdjustment, OwnedBucketId, OwnedCharge,
};

/// Counts refusals, as in the documentation of `Backend`.
#[derive(Debug)]
struct Counting<B> {
    inner: B,
    refused: &'static AtomicU64,
}

impl<B: Backend> Backend for Counting<B> {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let refused = self.refused;
        let count = move |applied: &Applied| {
            refused.fetch_add(u64::from(applied.verdict() == Verdict::Refused), Ordering::Relaxed);
        };
        match self.inner.apply(charges) {
            Answer::Ready(answer) => Answer::Ready(answer.inspect(count)),
            Answer::Pending(answer) => Answer::pending(async move { answer.await.inspect(count) }),
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.inner.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.inner.reset(ids)
    }

    fn charges_several(&self) -> bool {
        self.inner.charges_several()
    }

    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        self.inner.debtors(query)
    }
}

mod that_count {
    use super::*;

    static REFUSED: AtomicU64 = AtomicU64::new(0);

    tollgate::conformance!(|| Counting { inner: Memory::new(), refused: &REFUSED });
}

/// Answers each third call at once, each third when it is polled, and each third from a task.
#[derive(Debug)]
struct ByTurns {
    inner: Arc<Memory>,
    calls: AtomicU64,
}

impl ByTurns {
    fn answer<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Memory) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let inner = Arc::clone(&self.inner);
        match self.calls.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => ask(&inner),
            1 => Answer::pending(async move {
                tokio::task::yield_now().await;
                let answer = ask(&inner).wait().await;
                tokio::task::yield_now().await;
                answer
            }),
            _ => {
                let task = tokio::spawn(async move { ask(&inner).wait().await });
                Answer::pending(async move { task.await.unwrap() })
            }
        }
    }
}

impl Backend for ByTurns {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
        self.answer(move |inner| {
            inner.apply(&owned.iter().map(OwnedCharge::as_charge).collect::<Vec<_>>())
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        self.answer(move |inner| {
            inner.adjust(&owned.iter().map(OwnedAdjustment::as_adjustment).collect::<Vec<_>>())
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
        self.answer(move |inner| {
            inner.reset(&owned.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>())
        })
    }

    fn debtors(&self, query: &DebtorQuery) -> Answer<DebtorReport> {
        let query = query.clone();
        self.answer(move |inner| inner.debtors(&query))
    }
}

mod that_answer_at_once_and_later {
    use super::*;

    tollgate::conformance!(|clock| ByTurns {
        inner: Arc::new(Memory::new().clock(clock)),
        calls: AtomicU64::new(0),
    });
}
