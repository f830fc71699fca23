//! The list of debtors: parts of the file, in bounded steps.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::NAME;
use super::file::BucketFile;
use tollgate::backend::{BackendError, DebtorReport};
use tollgate::clock::Clock;
use tollgate_kit::debtors::SortedPage;

/// How many records a step reads, and how many steps a page makes. A page takes some milliseconds.
const ROWS: usize = 500;
const MAX_STEPS: usize = 4;

/// Fills a page from the file, on a thread for work that blocks. The decider goes on meanwhile.
pub(super) async fn fill(
    file: Arc<BucketFile>,
    clock: Arc<dyn Clock>,
    page: SortedPage,
) -> Result<DebtorReport, BackendError> {
    let work = spawn_blocking(move || read(&file, &*clock, page));
    let panic = |_| BackendError::internal(NAME, "the database panicked while it was read");
    work.await.map_err(panic)?
}

fn read(
    file: &BucketFile,
    clock: &dyn Clock,
    mut page: SortedPage,
) -> Result<DebtorReport, BackendError> {
    let reader = file.reader()?;
    // After the snapshot that the reader has: a bucket that was charged later than this time would
    // seem to be blocked.
    let now = clock.now();
    for _ in 0..MAX_STEPS {
        let Some(range) = page.place() else { break };
        let (entries, last) = reader.list(page.query().limit(), range, ROWS)?;
        page.take(entries, last, now);
    }
    Ok(page.finish(now))
}
