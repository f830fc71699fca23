//! Where a limiter's buckets are.

#[cfg(feature = "memory")]
use std::any::Any;
use std::sync::Arc;

use crate::backend::Backend;
#[cfg(feature = "memory")]
use crate::backend::Memory;

/// The store of a limiter.
#[derive(Debug)]
pub(super) enum Store {
    /// This process: called without an indirection, so that a decision is one piece of code.
    #[cfg(feature = "memory")]
    Memory(Arc<Memory>),
    /// Any other.
    Other(Arc<dyn Backend>),
}

impl Store {
    pub(super) fn of(backend: impl Backend) -> Self {
        let backend = Arc::new(backend);
        #[cfg(feature = "memory")]
        {
            let any: Arc<dyn Any + Send + Sync> = backend.clone();
            if let Ok(memory) = any.downcast() {
                return Self::Memory(memory);
            }
        }
        Self::Other(backend)
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) => &**memory,
            Self::Other(backend) => &**backend,
        }
    }
}
