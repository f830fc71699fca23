//! The conformance suite over a map, with other tasks at each of its steps.

use std::time::Duration;

use super::CasMap;
use crate::backend::Optimistic;

fn store() -> Optimistic<CasMap<true>> {
    let map = CasMap { hesitates: true, ..CasMap::default() };
    // Hashing 64 KiB takes long where nothing is optimised.
    Optimistic::new(map).deadline(Duration::from_secs(60))
}

mod by_a_clock_that_is_set {
    crate::conformance!(|clock| super::store().clock(clock));
}

mod by_a_clock_that_runs {
    crate::conformance!(|| super::store());
}
