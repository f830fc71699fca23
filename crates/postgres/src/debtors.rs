//! The list of debtors: parts of the index of the keys, in bounded steps.
//!
//! # Design
//!
//! The names of a limit lie in two ranges of the index: those of its shards but the first, and those
//! of the first. A page makes up to [`MAX_STEPS`] steps, each of which is a statement that looks at
//! [`ROWS`] rows, and ends earlier when it is full or when half of the deadline has passed. The
//! statement returns the rows that may be in debt, and the algebra of this process judges them.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::carrier::PostgresCarrier;
use super::statement_error::StatementError;
use super::store_name::STORE;
use tollgate::algebra::Bucket;
use tollgate::backend::{Answer, BackendError, BucketRecord, DebtorQuery, DebtorReport};
use tollgate::clock::Timestamp;
use tollgate_kit::batch::Batcher;
use tollgate_kit::debtors::{KeyRange, SortedPage};
use tollgate_kit::key_name::KeyNames;
use tollgate_kit::pages::{PageTime, PageTurns};

/// How many rows a step looks at, which takes the server a millisecond or less.
const ROWS: i64 = 500;

/// How many steps a page makes.
const MAX_STEPS: usize = 4;

/// Makes a page.
pub(super) fn page(
    turns: &PageTurns,
    batcher: &Batcher<PostgresCarrier>,
    names: &Arc<KeyNames>,
    query: &DebtorQuery,
) -> Answer<DebtorReport> {
    let page = match SortedPage::new(STORE, query, names.ranges(query.limit())) {
        Ok(page) => page,
        Err(error) => return Answer::Ready(Err(error)),
    };
    let (time, names) = (PageTime::new(batcher), Arc::clone(names));
    turns.answer(batcher, time, fill(page, batcher.clone(), names, time))
}

/// Fills a page, step by step.
async fn fill(
    mut page: SortedPage,
    batcher: Batcher<PostgresCarrier>,
    names: Arc<KeyNames>,
    time: PageTime,
) -> Result<DebtorReport, BackendError> {
    let (mut at, mut steps) = (None, 0_usize);
    while let Some(range) = page.place() {
        if steps >= MAX_STEPS || (steps > 0 && time.is_over()) {
            break;
        }
        PageTime::pause().await;
        let rows = match batcher.carrier().debtors(range, page.query().bucket()).await {
            Ok(rows) => rows,
            // The next page begins with the step that has failed.
            Err(_) if steps > 0 => break,
            Err(error) => return Err(error.into_error()),
        };
        steps = steps.saturating_add(1);
        let limit: Box<str> = page.query().limit().into();
        let entries = rows.keys.into_iter().zip(rows.records).map(|(name, record)| {
            // What is no bucket is not in debt: calls on it fail, and say so.
            let bucket = names.read(&limit, &name).zip(record);
            (name, bucket)
        });
        page.take(entries, rows.last, rows.now);
        at = Some(rows.now);
    }
    let at = at.ok_or_else(|| BackendError::internal(STORE, "a page of no step"))?;
    Ok(page.finish(at))
}

/// The answer to one statement.
struct DebtorRows {
    now: Timestamp,
    /// The last key that was looked at; `None` at the end of the range.
    last: Option<Vec<u8>>,
    keys: Vec<Vec<u8>>,
    /// The record of each key; `None` if its numbers are not those of a bucket.
    records: Vec<Option<BucketRecord>>,
}

impl DebtorRows {
    /// Reads a row; `None` if it is not that of the function.
    fn read(row: &Row) -> Option<Self> {
        let now = Timestamp::from_micros(row.try_get(0).ok()?);
        let (last, keys) = (row.try_get(1).ok()?, row.try_get::<_, Vec<Vec<u8>>>(2).ok()?);
        let stored: Vec<i64> = row.try_get(3).ok()?;
        let (records, rest) = stored.as_chunks::<6>();
        let records: Vec<_> =
            records.iter().map(|numbers| BucketRecord::from_numbers(*numbers)).collect();
        let is_whole = rest.is_empty() && records.len() == keys.len();
        is_whole.then_some(Self { now, last, keys, records })
    }
}

impl PostgresCarrier {
    /// Looks at some rows of a range.
    async fn debtors(
        &self,
        range: &KeyRange,
        bucket: &Bucket,
    ) -> Result<DebtorRows, StatementError> {
        let numbers = numbers_of(bucket);
        #[cfg(test)]
        let numbers = [numbers, vec![self.clock.now().as_micros()]].concat();
        let typed: [(&(dyn ToSql + Sync), Type); 4] = [
            (&range.first, Type::BYTEA),
            (&range.behind, Type::BYTEA),
            (&ROWS, Type::INT8),
            (&numbers, Type::INT8_ARRAY),
        ];
        // Not prepared: a list is rare.
        let row = self.query(self.schema.debtors(), false, &typed).await?;
        let unread =
            || BackendError::unavailable(STORE, "the answer of the function cannot be read");
        DebtorRows::read(&row).ok_or_else(|| StatementError::Failed(unread()))
    }
}

/// Gain, token, capacity and step, as they are stored.
fn numbers_of(bucket: &Bucket) -> Vec<i64> {
    let state = tollgate::algebra::State { value: bucket.capacity(), ts: Timestamp::UNIX_EPOCH };
    let [_, _, numbers @ ..] = BucketRecord::new(bucket, state).to_numbers();
    numbers.to_vec()
}
