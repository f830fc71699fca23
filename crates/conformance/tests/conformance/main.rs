//! The conformance suite: stores that keep the contract pass it, and each mistake is found.

mod mistakes;
mod mutants;
mod wrappers;

mod memory {
    use tollgate::backend::Memory;

    tollgate_conformance::conformance!(Memory::new);
}

mod memory_on_a_clock_that_is_set {
    use tollgate::backend::Memory;

    tollgate_conformance::conformance!(|clock| Memory::new().clock(clock));
}

mod memory_with_keys {
    use tollgate::backend::Memory;

    tollgate_conformance::conformance!(|clock| Memory::new().keep_keys().clock(clock));
}
