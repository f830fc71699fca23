//! The suite over wrappers of a store that works: those that a service has around it, and one that
//! answers in both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate::DAY;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, CircuitBreaker, DebtorQuery,
    DebtorReport, DenyCache, Fallback, Memory, OwnedAdjustment, OwnedBucketId, OwnedCharge,
};
use tollgate_conformance::Check;

/// What the cache refuses has to be what the store would refuse, to the bit.
mod that_a_service_has_on_a_clock_that_is_set {
    use super::*;

    tollgate_conformance::conformance!(|clock| {
        let store = CircuitBreaker::new(Memory::new().clock(clock.clone())).clock(clock.clone());
        let store = DenyCache::new(store).clock(clock.clone()).max_age(DAY);
        Fallback::new(store, Memory::new().clock(clock)).nodes(3)
    });
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

/// Gives each bucket a shard that the other store does not see, and hands on its lines all the same.
#[derive(Debug)]
struct Renaming(Memory);

impl Backend for Renaming {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let renamed = charges.iter().map(|charge| charge.with_id(charge.id().shard(7)));
        self.0.apply(&renamed.collect::<Vec<_>>())
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(&ids.iter().map(|id| id.shard(7)).collect::<Vec<_>>())
    }

    fn lines(&self) -> Option<&Memory> {
        self.0.lines()
    }
}

#[test]
#[should_panic = "leave `lines` out of a wrapper that renames buckets"]
fn a_wrapper_that_hands_on_the_lines_of_other_buckets_fails() {
    let check = Check::all().find(|one| one.name() == "a_charge_takes_its_units_or_nothing");
    check.unwrap().run_with_clock(|clock| Renaming(Memory::new().clock(clock)));
}

mod that_answer_at_once_and_later {
    use super::*;

    tollgate_conformance::conformance!(|clock| ByTurns {
        inner: Arc::new(Memory::new().clock(clock)),
        calls: AtomicU64::new(0),
    });
}
