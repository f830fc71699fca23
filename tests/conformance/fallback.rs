//! The suite over a fallback around a store that works.

use tollgate::backend::{CircuitBreaker, DenyCache, Fallback, Memory};

mod around_memory {
    use super::*;

    tollgate::conformance!(|| Fallback::new(Memory::new(), Memory::new()).nodes(3));
}

mod with_all_wrappers_on_a_clock_that_is_set {
    use super::*;

    tollgate::conformance!(|clock| {
        let store = CircuitBreaker::new(Memory::new().clock(clock.clone())).clock(clock.clone());
        let store = DenyCache::new(store).clock(clock.clone());
        Fallback::new(store, Memory::new().clock(clock)).nodes(3)
    });
}
