//! The conformance suite over a map, with other tasks at each of its steps.

use std::time::Duration;

use super::CasMap;
use crate::Optimistic;

fn store() -> Optimistic<CasMap<true>> {
    let map = CasMap { hesitates: true, ..CasMap::default() };
    // Hashing 64 KiB takes long where nothing is optimised.
    Optimistic::new(map).deadline(Duration::from_secs(60))
}

mod by_a_clock_that_is_set {
    tollgate_conformance::conformance!(|clock| super::store().clock(clock));
}

mod by_a_clock_that_runs {
    tollgate_conformance::conformance!(|| super::store());
}
