//! A connection of the pool, while a call uses it.

use deadpool_postgres::{ClientWrapper, Object};

use super::tls::Canceller;

/// A connection in use. It goes back to the pool only by [`give_back`](Self::give_back): if the
/// call fails, or is dropped, its answer could still come. Then the server is told to end it, as it
/// notices only at the end of a statement that a connection is gone.
pub(super) struct Lent {
    connection: Option<Object>,
    canceller: Canceller,
}

impl Lent {
    /// No connection yet.
    pub(super) fn none(canceller: &Canceller) -> Self {
        Self { connection: None, canceller: canceller.clone() }
    }

    pub(super) fn keep(&mut self, connection: Object) -> &ClientWrapper {
        self.connection.insert(connection)
    }

    /// The call has its answer.
    pub(super) fn give_back(mut self) {
        drop(self.connection.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().map(Object::take) else { return };
        if !connection.is_closed() {
            self.canceller.cancel(connection.cancel_token());
        }
    }
}
