//! The conformance suite: stores that keep the contract pass it, and each mistake is found.

#![cfg(all(feature = "conformance", feature = "memory"))]

#[cfg(all(feature = "embedded", unix))]
mod embedded;
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
