//! Decisions inside a transaction of the application, which come and go with it.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::carrier::lock_patience;
use super::connection::{PostgresConnection, unreadable};
use super::engine::Postgres;
use super::request::{DecideRow, Request};
use super::schema::millis;
use super::store_name::STORE;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
use tollgate::clock::{Clock, SystemClock};
use tollgate_kit::key_name::KeyNames;
use tollgate_kit::operation::{NamedOperation, Operation};

impl Postgres {
    /// Runs `work` with a store that decides on this connection, so inside its transaction.
    ///
    /// If the application rolls the transaction back, its tokens come back. Until it commits, the
    /// rows of the buckets are locked: other requests for these keys wait for it, at most until
    /// their deadline. So decide late in the transaction, and only where the tokens must not be
    /// spent without the work.
    ///
    /// The store is for one limiter, as in the example. It ends with `work`: a permit that lives on
    /// cannot be settled any more. Reservations need no transaction, and one that is dropped in
    /// `work` may not be undone.
    ///
    /// # Errors
    ///
    /// The output of `work` is returned as it is. A decision fails as on the [store](Self) itself,
    /// and PostgreSQL has then aborted the transaction: roll it back. So a failure is
    /// [no outage](BackendError::is_outage) here, and is returned whatever the
    /// [`OnFailure`](tollgate::OnFailure) of the limiter. In a transaction with the isolation
    /// `repeatable read` or `serializable`, a decision fails if the bucket has changed since the
    /// transaction began: roll back and start again.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the transaction may have taken the tokens of the last call. Roll
    /// it back. The same holds for a call that has missed its deadline.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate_postgres::Postgres;
    /// use tollgate::{HOUR, Limit, Quota, RateLimiter};
    ///
    /// const ORDERS: Limit = Limit::new("orders", Quota::token_bucket(10, HOUR));
    ///
    /// async fn order(
    ///     client: &mut tokio_postgres::Client,
    ///     store: &Postgres,
    ///     limiter: &RateLimiter,
    ///     user: &str,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let transaction = client.transaction().await?;
    ///     transaction.execute("INSERT INTO orders (user_name) VALUES ($1)", &[&user]).await?;
    ///     store
    ///         .in_transaction(&transaction, async |store| {
    ///             limiter.with_backend(store).limit(&ORDERS).key(user).await.map(drop)
    ///         })
    ///         .await?;
    ///     // Without this line, neither the order is stored nor is a token taken.
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    pub async fn in_transaction<C, W, T>(&self, mut connection: C, work: W) -> T
    where
        C: PostgresConnection,
        W: AsyncFnOnce(InTransaction) -> T,
    {
        let (ask, mut asked) = mpsc::unbounded_channel();
        let store = InTransaction { names: Arc::clone(&self.names), ask };
        let mut work = pin!(work(store));
        loop {
            let next = poll_fn(|cx| match work.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(Err(done)),
                Poll::Pending => match asked.poll_recv(cx) {
                    Poll::Ready(Some(question)) => Poll::Ready(Ok(question)),
                    // All handles are dropped, and `work` goes on without them.
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                },
            });
            let Question { operation, reply } = match next.await {
                Ok(question) => question,
                Err(done) => return done,
            };
            // A caller that was dropped gets no answer.
            let answer = self.decide_on(&mut connection, &operation).await;
            let _ = reply.send(answer.map_err(BackendError::in_transaction));
        }
    }

    /// Decides about one operation on this connection.
    async fn decide_on<C: PostgresConnection>(
        &self,
        connection: &mut C,
        operation: &NamedOperation,
    ) -> Result<Applied, BackendError> {
        let carrier = self.batcher.carrier();
        // So that the server does not wait for a lock when the call has ended.
        let patience = millis(lock_patience(carrier.deadline)).to_string();
        let call = carrier.schema.call_within_both(&patience);
        let mut timed = carrier.time.begin(carrier.own_time());
        loop {
            let request = Request::new(std::iter::once(operation), timed.around());
            #[cfg(test)]
            let request = request.with_time(carrier.clock.now());
            let call = connection.call(&call, request.names(), request.numbers());
            let (now, stored) = match timeout(carrier.deadline, call).await {
                Ok(answer) => answer?,
                Err(_) => return Err(BackendError::timeout(STORE, carrier.deadline)),
            };
            let answer = DecideRow { now, stored };
            if let Some(now) = request.outside(&answer) {
                timed.outside(STORE, now)?;
                continue;
            }
            let mut replay = request.replay(&answer).ok_or_else(unreadable)?;
            let places = replay.take_places();
            return replay.answer(operation, &places);
        }
    }
}

/// A store that decides inside a transaction, made by [`Postgres::in_transaction`].
pub struct InTransaction {
    names: Arc<KeyNames>,
    ask: mpsc::UnboundedSender<Question>,
}

/// An operation that waits for the connection.
struct Question {
    operation: NamedOperation,
    reply: oneshot::Sender<Result<Applied, BackendError>>,
}

impl InTransaction {
    fn send(&self, operation: NamedOperation) -> Answer<Applied> {
        let (reply, answer) = oneshot::channel();
        // If the transaction is over, the reply is dropped with the question.
        let _ = self.ask.send(Question { operation, reply });
        Answer::pending(async move {
            answer.await.unwrap_or_else(|_| {
                Err(BackendError::undecidable(STORE, "the transaction of this permit is over"))
            })
        })
    }
}

impl Backend for InTransaction {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if charges.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        match NamedOperation::charges(STORE, charges, &self.names) {
            Ok(operation) => self.send(operation),
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        if adjustments.is_empty() {
            return Answer::Ready(Ok(Applied::many(SystemClock::new().now(), Vec::new())));
        }
        self.send(NamedOperation::new(Operation::adjustments(adjustments), &self.names))
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        if ids.is_empty() {
            return Answer::Ready(Ok(()));
        }
        self.send(NamedOperation::new(Operation::resets(ids), &self.names)).map(drop)
    }
}

impl fmt::Debug for InTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").field("names", &self.names).finish_non_exhaustive()
    }
}
