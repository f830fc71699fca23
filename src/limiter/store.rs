//! Where a limiter keeps its buckets.

#[cfg(feature = "memory")]
use std::any::Any;
use std::sync::Arc;

use crate::backend::Backend;
#[cfg(feature = "memory")]
use crate::backend::Memory;

/// Where the buckets of a limiter are.
#[derive(Clone, Debug)]
pub(super) enum Store {
    /// In this process. Called without dynamic dispatch, so that a decision can be inlined.
    #[cfg(feature = "memory")]
    Memory(Arc<Memory>),
    Other(Arc<dyn Backend>),
}

impl Store {
    pub(super) fn new(backend: impl Backend) -> Self {
        let backend = Arc::new(backend);
        #[cfg(feature = "memory")]
        {
            let any: Arc<dyn Any + Send + Sync> = backend.clone();
            // Limiters that share a memory store share its lines.
            if let Some(shared) = any.downcast_ref::<Arc<Memory>>() {
                return Self::Memory(Arc::clone(shared));
            }
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

    pub(super) fn share(&self) -> Arc<dyn Backend> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) => Arc::<Memory>::clone(memory),
            Self::Other(backend) => Arc::clone(backend),
        }
    }
}
