//! The observers of a handle, and what becomes of their panics.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
#[cfg(feature = "tracing")]
use std::sync::atomic::{AtomicBool, Ordering};

use super::observer::Observer;

/// The observers of a handle; at least one.
#[derive(Clone)]
pub(crate) struct Observers {
    all: Vec<Arc<dyn Observer>>,
    /// Whether a panic of one of them was logged.
    #[cfg(feature = "tracing")]
    has_panicked: Arc<AtomicBool>,
}

impl Observers {
    /// The same with one more.
    pub(crate) fn with(before: Option<&Arc<Self>>, observer: impl Observer) -> Arc<Self> {
        let mut all = before.map(|before| before.all.clone()).unwrap_or_default();
        all.push(Arc::new(observer));
        Arc::new(Self {
            all,
            #[cfg(feature = "tracing")]
            has_panicked: Arc::default(),
        })
    }

    /// Tells all of them, unless one of them asks: it would be told of itself without end.
    ///
    /// Must not be called while a lock is held: an observer is code of others.
    pub(in crate::limiter) fn tell(&self, event: impl Fn(&dyn Observer)) {
        let Some(_telling) = Telling::begin(self) else { return };
        for observer in &self.all {
            // Nothing of ours is borrowed mutably by the call, so nothing is left half done.
            if catch_unwind(AssertUnwindSafe(|| event(&**observer))).is_err() {
                self.note_panic();
            }
        }
    }

    #[cold]
    fn note_panic(&self) {
        #[cfg(feature = "tracing")]
        if !self.has_panicked.swap(true, Ordering::Relaxed) {
            tracing::error!("an observer panicked, which changes no decision (logged once)");
        }
    }
}

thread_local! {
    /// The observers that this thread tells at the moment, each as its address.
    static TOLD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// That this thread tells observers, until it is dropped.
struct Telling;

impl Telling {
    /// `None` if this thread tells these observers already. While it ends, it tells without a mark.
    fn begin(observers: &Observers) -> Option<Self> {
        let place = std::ptr::from_ref(observers).addr();
        let begin = |told: &RefCell<Vec<usize>>| {
            let mut told = told.borrow_mut();
            let is_new = !told.contains(&place);
            if is_new {
                told.push(place);
            }
            is_new
        };
        match TOLD.try_with(begin) {
            Ok(false) => None,
            Ok(true) | Err(_) => Some(Self),
        }
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = TOLD.try_with(|told| told.borrow_mut().pop());
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.all.len())
    }
}
