//! The suite over a circuit breaker around a store that works.

use std::sync::Arc;

use tollgate::backend::{CircuitBreaker, Memory};

mod around_memory {
    use super::*;

    tollgate::conformance!(|| CircuitBreaker::new(Memory::new()));
}

mod around_memory_on_a_clock_that_is_set {
    use super::*;

    tollgate::conformance!(|clock| {
        CircuitBreaker::new(Arc::new(Memory::new().clock(clock.clone()))).clock(clock)
    });
}
