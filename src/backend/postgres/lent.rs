//! A connection of the pool, while a call uses it.

use deadpool_postgres::{ClientWrapper, Object};

/// A connection in use. It goes back to the pool only by [`give_back`](Self::give_back): if the
/// call fails, or is dropped, its answer could still come.
#[derive(Default)]
pub(super) struct Lent(Option<Object>);

impl Lent {
    pub(super) fn keep(&mut self, connection: Object) -> &ClientWrapper {
        self.0.insert(connection)
    }

    /// The call has its answer.
    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(Object::take(connection));
        }
    }
}
