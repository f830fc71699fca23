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
    /// The same, of a handle with observers. It has a tag of its own, so that one look at the tag
    /// tells the shortest path that it may decide.
    #[cfg(feature = "memory")]
    Observed(Arc<Memory>),
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

    /// The same store for a handle that has observers, or has none.
    #[cfg_attr(
        not(feature = "memory"),
        expect(unused_variables, reason = "only memory has a path that observers rule out")
    )]
    pub(super) fn observed(self, has_observers: bool) -> Self {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) | Self::Observed(memory) => match has_observers {
                true => Self::Observed(memory),
                false => Self::Memory(memory),
            },
            Self::Other(backend) => Self::Other(backend),
        }
    }

    pub(super) fn backend(&self) -> &dyn Backend {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) | Self::Observed(memory) => &**memory,
            Self::Other(backend) => &**backend,
        }
    }

    pub(super) fn share(&self) -> Arc<dyn Backend> {
        match self {
            #[cfg(feature = "memory")]
            Self::Memory(memory) | Self::Observed(memory) => Arc::<Memory>::clone(memory),
            Self::Other(backend) => Arc::clone(backend),
        }
    }
}
