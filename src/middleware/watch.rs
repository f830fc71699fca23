//! When a layer looks at requests for mistakes that cost more than a look at the head.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::setup_check::REQUESTS;

/// Whether the next requests of a layer are watched: those after another layer with a limit of the
/// same name was made, or another service by the same layer.
///
/// A watched request has a ledger, so that a layer further in can compare what both have charged.
/// All accesses are relaxed, since no decision depends on them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_on: AtomicBool,
    /// How many requests are still watched.
    left: AtomicU32,
    /// How many services the layer has made, up to two.
    services: AtomicU32,
    has_met_neighbors: AtomicBool,
}

/// The services of a layer, as far as they matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServiceCount {
    First,
    Second,
    Later,
}

impl Watch {
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Watches the next thousand requests.
    pub(super) fn start(&self) {
        // Relaxed, as all accesses here: no decision depends on them. If another thread sees the
        // flag before the number, it ends the watch, and a line of the log is missing.
        self.left.store(REQUESTS, Ordering::Relaxed);
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Counts a watched request. Returns whether it is the first since the [start](Self::start).
    pub(super) fn count_request(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if left.is_ok_and(|left| left > 1) {
            return left == Ok(REQUESTS);
        }
        self.is_on.store(false, Ordering::Relaxed);
        false
    }

    /// Counts a service. axum makes one for each route, and some of them for each connection.
    pub(super) fn count_service(&self) -> ServiceCount {
        // Read first: a server may make a service for each connection, and would have all of them
        // write this number.
        if self.services.load(Ordering::Relaxed) > 1 {
            return ServiceCount::Later;
        }
        match self.services.fetch_add(1, Ordering::Relaxed) {
            0 => ServiceCount::First,
            1 => ServiceCount::Second,
            _ => ServiceCount::Later,
        }
    }

    /// Whether the other layers were not yet told that this one has requests.
    pub(super) fn meets_neighbors(&self) -> bool {
        !self.has_met_neighbors.swap(true, Ordering::Relaxed)
    }
}
