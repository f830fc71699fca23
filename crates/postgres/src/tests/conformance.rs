//! The conformance suite on a real server, with a clock that the suite sets.

use super::engine::with_clock;

tollgate_conformance::conformance!(
    |clock| async move { with_clock(&clock).connect().await.unwrap() }
);
