//! A wrapper that answers from a task: what it carries there as owned values is decided as if the
//! store had been asked at once.

use std::sync::Arc;

use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory, OwnedAdjustment, OwnedBucketId,
    OwnedCharge,
};
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Limit, Quota, RateLimited, RateLimiter};
use tollgate_testing::START;

/// Asks the store in a task of its own.
#[derive(Debug)]
struct InTask(Arc<Memory>);

impl InTask {
    fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Memory) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let memory = Arc::clone(&self.0);
        let task = tokio::spawn(async move { ask(&memory).wait().await });
        Answer::pending(async move { task.await.unwrap() })
    }
}

impl Backend for InTask {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
        self.ask(move |memory| {
            memory.apply(&owned.iter().map(OwnedCharge::as_charge).collect::<Vec<_>>())
        })
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        self.ask(move |memory| {
            memory.adjust(&owned.iter().map(OwnedAdjustment::as_adjustment).collect::<Vec<_>>())
        })
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let owned: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
        self.ask(move |memory| {
            memory.reset(&owned.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>())
        })
    }
}

const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(5, HOUR).max_reserved(5));
const SHARDS: Limit = Limit::new("a-limit-in-four-shards", Quota::fixed_window(40, DAY).shards(4));

/// What a limiter answers to calls of all kinds.
async fn answers(limiter: RateLimiter) -> Result<Vec<u64>, RateLimited> {
    let mut told = Vec::new();
    let left = async |key: &str| limiter.peek(&EXPORTS).key(key).await.map(|now| now.remaining());
    let permit = limiter.limit(&EXPORTS).key("alice").cost(3).and(&SHARDS).cost(9).await?;
    told.extend(permit.snapshots().map(|snapshot| snapshot.remaining()));
    permit.settle(1).await?;
    told.push(left("alice").await?);
    let reservation = limiter.limit(&EXPORTS).key("alice").cost(6).reserve().await?;
    told.push(reservation.wait().as_secs());
    drop(reservation.keep());
    told.push(u64::from(
        limiter.limit(&EXPORTS).key("alice").await.is_err_and(|error| error.is_refused()),
    ));

    // A permit from before a reset gives nothing back after it.
    let before = limiter.limit(&EXPORTS).key("bob").cost(5).await?;
    limiter.reset(&EXPORTS).key("bob").await?;
    let _after = limiter.limit(&EXPORTS).key("bob").cost(5).await?;
    before.refund().await?;
    told.push(left("bob").await?);
    limiter.block(&EXPORTS, DAY).key("carol").await?;
    told.push(left("carol").await?);
    Ok(told)
}

#[tokio::test(start_paused = true)]
async fn owned_charges_are_decided_like_borrowed_ones() {
    let memory = || Memory::new().clock(ManualClock::new(START));
    let wanted = answers(RateLimiter::new(memory()).seed(1)).await.unwrap();
    let found = answers(RateLimiter::new(InTask(Arc::new(memory()))).seed(1)).await.unwrap();
    assert_eq!(found, wanted);
    assert_eq!(found, [2, 31, 4, 1440, 1, 0, 0]);
}
