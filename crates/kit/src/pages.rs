//! Pages of lists that operators ask for: one at a time, and beside the decisions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::batch::{Batcher, Carrier};
use tollgate::backend::{Answer, BackendError, DebtorReport};

/// Lets a store make one page at a time, however many are asked for.
#[derive(Clone, Debug, Default)]
pub struct PageTurns(Arc<Mutex<()>>);

/// How long a page may take.
#[derive(Clone, Copy, Debug)]
pub struct PageTime {
    /// By when it has to be answered.
    pub deadline: Instant,
    /// When no step begins any more. Time is left to answer with what was found.
    end: Instant,
}

impl PageTime {
    /// The time of a page that is asked for now.
    pub fn new<C: Carrier>(batcher: &Batcher<C>) -> Self {
        let (deadline, within) = (batcher.deadline(), batcher.within());
        let half = within.checked_div(2).unwrap_or(Duration::ZERO);
        Self { deadline, end: deadline.checked_sub(half).unwrap_or(deadline) }
    }

    /// The pause before each step, in which decisions go first.
    pub async fn pause() {
        sleep(PAUSE).await;
    }

    /// Whether no further step begins.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }
}

impl PageTurns {
    /// Answers with a page, by the deadline.
    ///
    /// The page is made in a task, which goes on when the caller leaves: a connection expects its
    /// answers all the same.
    pub fn answer<C: Carrier>(
        &self,
        batcher: &Batcher<C>,
        time: PageTime,
        page: impl Future<Output = Result<DebtorReport, BackendError>> + Send + 'static,
    ) -> Answer<DebtorReport> {
        let (turns, within) = (Arc::clone(&self.0), batcher.within());
        let page = batcher.spawn(async move {
            let _turn = turns.lock().await;
            page.await
        });
        // In a task too: a caller outside of tokio has no timer.
        let page = batcher.spawn(async move {
            let late = |_| Err(BackendError::timeout(C::STORE, within));
            timeout_at(time.deadline, page).await.unwrap_or_else(late)
        });
        Answer::pending(page)
    }
}

/// A step takes Redis 0.1 ms, and PostgreSQL one or two. So a server has most of its time for
/// decisions, even if pages are asked for without end.
const PAUSE: Duration = Duration::from_millis(1);
