//! The suite over a cache of refusals. On a clock that is set, what the cache refuses has to be what
//! the store would refuse, to the bit.

use tollgate::backend::{CircuitBreaker, DenyCache, Memory};
use tollgate::{DAY, SECOND};

mod around_memory {
    use super::*;

    tollgate::conformance!(|| DenyCache::new(Memory::new()).max_age(SECOND * 30));
}

mod around_memory_on_a_clock_that_is_set {
    use super::*;

    tollgate::conformance!(|clock| {
        let store = CircuitBreaker::new(Memory::new().clock(clock.clone())).clock(clock.clone());
        DenyCache::new(store).clock(clock).max_age(DAY)
    });
}
