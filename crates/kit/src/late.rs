//! Whether a call is late because of its store, or because of this process.

use std::convert::Infallible;
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::Instant;

use tollgate::backend::BackendError;

/// How long this process takes to bring an answer from a socket to its caller, as measured now.
///
/// The instant at which a caller looks at its deadline, and the tasks that are ready before it, tell
/// that without the store. A client that floods this process can only make it longer.
#[derive(Clone, Copy, Debug)]
pub struct Lag(Duration);

impl Lag {
    /// Lets all tasks that are ready run, as often as an answer changes tasks on its way.
    pub async fn since(deadline: Instant) -> Self {
        match Self::or_answer(deadline, || None::<Infallible>).await {
            Ok(never) => match never {},
            Err(lag) => lag,
        }
    }

    /// As [`since`](Self::since), unless an answer is there meanwhile: one that came in time, and that
    /// a busy process has not passed on yet.
    pub async fn or_answer<T>(
        deadline: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, Self> {
        for _ in 0..HOPS {
            yield_now().await;
            if let Some(answer) = look() {
                return Ok(answer);
            }
        }
        Err(Self(deadline.elapsed()))
    }

    /// Whether this process takes so much of this time that an answer may be late because of that.
    pub fn is_felt(self, within: Duration) -> bool {
        self.0 >= within / 8
    }

    /// This, or what a task of the runtime feels that brings the answers: the caller may be a thread of
    /// its own, which does not stand in line with the tasks.
    pub async fn or_that_of(
        self,
        runtime: &tokio::runtime::Handle,
        deadline: Instant,
        within: Duration,
    ) -> Self {
        match self.is_felt(within) {
            true => self,
            false => runtime.spawn(Self::since(deadline)).await.unwrap_or(self),
        }
    }

    /// The error of a call that was late with so much time: no [outage](BackendError::is_outage) if
    /// this process took as much as half of it.
    pub fn error(self, backend: &'static str, within: Duration) -> BackendError {
        match self.0 >= within / 2 {
            true => BackendError::overloaded(backend, within),
            false => BackendError::timeout(backend, within),
        }
    }
}

/// Waits for a call for so long.
///
/// # Errors
///
/// If it is late: as [`Lag::error`].
pub async fn in_time<T>(
    backend: &'static str,
    within: Duration,
    call: impl Future<Output = T>,
) -> Result<T, BackendError> {
    let begun = Instant::now();
    match tokio::time::timeout(within, call).await {
        Ok(answer) => Ok(answer),
        Err(_) => {
            let ends = begun.checked_add(within).unwrap_or(begun);
            Err(Lag::since(ends).await.error(backend, within))
        }
    }
}

/// Waits for an exchange of several steps with a server for so long, and for as much longer as this
/// process is late with the steps; `None` if it takes longer.
pub async fn patiently<T>(within: Duration, exchange: impl Future<Output = T>) -> Option<T> {
    let mut exchange = std::pin::pin!(exchange);
    let (begun, mut most) = (Instant::now(), Duration::ZERO);
    loop {
        let deadline = begun.checked_add(within)?.checked_add(most.saturating_mul(STEPS))?;
        if let Ok(done) = tokio::time::timeout_at(deadline, exchange.as_mut()).await {
            return Some(done);
        }
        let lag = Lag::since(deadline).await;
        if !lag.is_felt(within) || lag.0 <= most {
            return None;
        }
        most = lag.0;
    }
}

/// How many steps there are: to connect, to log in with TLS, and to ask something. Each takes as many tasks
/// as an answer.
const STEPS: u32 = 8;

/// How many tasks an answer passes between socket and caller, and one more for the socket.
const HOPS: usize = 4;
