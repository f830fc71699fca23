//! Where servers are reached that other servers name.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::error::LinkError;

/// The user's map from addresses that servers name to those that lead there from here; none leaves all
/// as they are.
#[derive(Clone, Default)]
pub(crate) struct AddressMap(Option<Arc<MapFn>>);

type MapFn = dyn Fn(&str, u16) -> Option<(String, u16)> + Send + Sync;

impl AddressMap {
    pub(crate) fn new(
        map: impl Fn(&str, u16) -> Option<(String, u16)> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(map)))
    }

    /// The address for one that a server has named. Not to be called with a lock held, as the map is
    /// the user's.
    ///
    /// # Errors
    ///
    /// If the map panics. The address itself may lead to a stranger, who would be sent the login.
    pub(super) fn map(&self, host: &str, port: u16) -> Result<(String, u16), LinkError> {
        let Some(map) = &self.0 else { return Ok((host.to_owned(), port)) };
        match catch_unwind(AssertUnwindSafe(|| map(host, port))) {
            Ok(mapped) => Ok(mapped.unwrap_or_else(|| (host.to_owned(), port))),
            Err(_) => Err(LinkError::new(format!("the address map panicked at {host}:{port}"))),
        }
    }
}

impl fmt::Debug for AddressMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressMap")
    }
}
