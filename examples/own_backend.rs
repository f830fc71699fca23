//! A store of one's own: the code of the guide "Write your own backend", and a limiter on it.
//!
//! Run it with `cargo run --example own_backend`. `cargo test --example own_backend` runs the
//! conformance suite on the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, BucketRecord, BucketStore,
    Charge, OwnedAdjustment, OwnedBucketId, OwnedCharge, adjust_all, apply_all, reset_all,
};
use tollgate::{Timestamp, clock::Clock};

type Row = [i64; 6];

/// The rows of one call: as they were read, and as they are to be written.
struct Rows {
    now: Timestamp,
    rows: HashMap<OwnedBucketId, (Option<Row>, Option<Row>)>,
}

impl BucketStore for Rows {
    fn now(&mut self) -> Timestamp {
        self.now
    }
    fn read(&mut self, id: BucketId<'_>) -> Option<BucketRecord> {
        let (_, row) = self.rows.get(&id.into_owned())?;
        row.and_then(BucketRecord::from_numbers)
    }
    fn write(&mut self, id: BucketId<'_>, record: BucketRecord) {
        self.rows.entry(id.into_owned()).or_default().1 = Some(record.to_numbers());
    }
    fn forget(&mut self, id: BucketId<'_>) {
        self.rows.entry(id.into_owned()).or_default().1 = None;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct TableStore {
    /// Stands for the table of a database.
    table: Arc<Mutex<HashMap<OwnedBucketId, Row>>>,
    clock: Arc<dyn Clock>,
}

impl TableStore {
    pub(crate) fn new(clock: impl Clock) -> Self {
        Self { table: Arc::default(), clock: Arc::new(clock) }
    }

    /// One query that reads rows.
    async fn select(&self, ids: &[OwnedBucketId]) -> Rows {
        tokio::task::yield_now().await; // the network
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |id| (table.get(id).copied(), table.get(id).copied());
        Rows { now: self.clock.now(), rows: ids.iter().map(|id| (id.clone(), row(id))).collect() }
    }

    /// One transaction that writes rows, if all of them are still as they were read.
    async fn update(&self, rows: &Rows) -> bool {
        tokio::task::yield_now().await; // the network
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let is_unchanged = rows.rows.iter().all(|(id, (read, _))| table.get(id) == read.as_ref());
        for (id, (_, new)) in rows.rows.iter().filter(|_| is_unchanged) {
            match new {
                Some(row) => table.insert(id.clone(), *row),
                None => table.remove(id),
            };
        }
        is_unchanged
    }

    /// Reads, decides and writes; again, if another call wrote in between.
    fn call<T: Send + 'static>(
        &self,
        ids: Vec<OwnedBucketId>,
        decide: impl Fn(&mut Rows) -> T + Send + 'static,
    ) -> Answer<T> {
        let store = self.clone();
        Answer::pending(async move {
            for _ in 0..1_000 {
                let mut rows = store.select(&ids).await;
                let answer = decide(&mut rows);
                if store.update(&rows).await {
                    return Ok(answer);
                }
            }
            Err(BackendError::contended("table", 1_000))
        })
    }
}

impl Backend for TableStore {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let ids = charges.iter().flat_map(Charge::ids).map(|id| id.into_owned()).collect();
        let owned: Vec<_> = charges.iter().map(|charge| charge.into_owned()).collect();
        self.call(ids, move |rows| {
            apply_all(rows, &owned.iter().map(OwnedCharge::as_charge).collect::<Vec<_>>())
        })
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        let ids = adjustments.iter().map(|one| one.id().into_owned()).collect();
        let owned: Vec<_> = adjustments.iter().map(|one| one.into_owned()).collect();
        self.call(ids, move |rows| {
            adjust_all(rows, &owned.iter().map(OwnedAdjustment::as_adjustment).collect::<Vec<_>>())
        })
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        let ids: Vec<_> = ids.iter().map(|id| id.into_owned()).collect();
        self.call(ids.clone(), move |rows| {
            reset_all(rows, &ids.iter().map(OwnedBucketId::as_id).collect::<Vec<_>>());
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), tollgate::RateLimited> {
    use tollgate::{HOUR, Limit, Quota, RateLimiter, clock::SystemClock};

    let exports = Limit::new("exports", Quota::token_bucket(2, HOUR));
    let limiter = RateLimiter::new(TableStore::new(SystemClock::new()));
    for _ in 0..3 {
        match limiter.limit(&exports).key("alice").await {
            Ok(permit) => println!("admitted, {} left", permit.remaining()),
            Err(refused) => println!("{refused}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod conformance {
    tollgate_conformance::conformance!(|clock| super::TableStore::new(clock));
}
