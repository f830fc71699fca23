//! The list of debtors: parts of the store's keys, in bounded steps.

use super::engine::Optimistic;
use super::swap_store::SwapStore;
use tollgate::backend::{BackendError, DebtorReport};
use tollgate_kit::debtors::SortedPage;
use tollgate_kit::stored::{decode_record, read_bucket_name};

/// How many keys a step reads, and how many steps a page makes.
const KEYS: usize = 500;
const MAX_STEPS: usize = 4;

impl<S: SwapStore> Optimistic<S> {
    /// Fills a page.
    pub(super) async fn list(&self, mut page: SortedPage) -> Result<DebtorReport, BackendError> {
        let mut at = self.now();
        for _ in 0..MAX_STEPS {
            let Some(range) = page.place() else { break };
            // The ends are of ASCII, unless a client has made up a cursor.
            let ends = [&range.first, &range.behind].map(|end| String::from_utf8_lossy(end));
            let [first, behind] = &ends;
            let Some(found) = self.get_ref().scan(first, behind, KEYS).await? else {
                return Ok(DebtorReport::Unsupported);
            };
            // After the values: a bucket that was charged later than this time would seem to be
            // blocked.
            at = self.now();
            let last = found.last().filter(|_| found.len() >= KEYS);
            let last = last.map(|(name, _)| name.clone().into_bytes());
            let limit: Box<str> = page.query().limit().into();
            let entries = found.into_iter().map(|(name, value)| {
                // What is no bucket is not in debt: calls on it fail, and say so.
                let record = decode_record(&value).ok();
                let bucket = read_bucket_name(&limit, &name).zip(record);
                (name.into_bytes(), bucket)
            });
            page.take(entries, last, at);
        }
        Ok(page.finish(at))
    }
}
