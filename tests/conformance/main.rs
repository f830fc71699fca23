//! The conformance suite: stores that keep the contract pass it, and each mistake is found.

#![cfg(all(feature = "conformance", feature = "memory"))]

mod circuit_breaker;
mod deny_cache;
#[cfg(all(feature = "embedded", unix))]
mod embedded;
mod fallback;
#[cfg(all(feature = "leasing", any(feature = "redis", feature = "postgres")))]
mod leasing;
mod mistakes;
mod mutants;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
mod wrappers;

mod memory {
    use tollgate::backend::Memory;

    tollgate::conformance!(Memory::new);
}

mod memory_on_a_clock_that_is_set {
    use tollgate::backend::Memory;

    tollgate::conformance!(|clock| Memory::new().clock(clock));
}

mod memory_that_is_made_later {
    use tollgate::backend::Memory;

    tollgate::conformance!(|clock| async {
        tokio::task::yield_now().await;
        Memory::new().clock(clock)
    });
}
