//! The list of all checks.

use super::check::{Check, ClockKind};
use super::checks::*;
use super::subject::IntoStore;
use tollgate::clock::ManualClock;

/// Makes a list of the checks.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_checks {
    (; any $($any:ident)*; own $($own:ident)*; set $($set:ident)*;) => {
        &[
            $($crate::__conformance_checks!(Any $any),)*
            $($crate::__conformance_checks!(Own $own),)*
            $($crate::__conformance_checks!(Set $set),)*
        ]
    };
    ($need:ident $check:ident) => {
        Check {
            name: stringify!($check),
            clock: ClockKind::$need,
            course: |subject| Box::pin($check(subject)),
        }
    };
}

const CHECKS: &[Check] = crate::__conformance_list! { __conformance_checks {} };

impl Check {
    /// All checks of the suite.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        CHECKS.iter()
    }

    fn named(name: &str) -> &'static Self {
        Self::all().find(|check| check.name == name).expect("the macro names checks of the list")
    }
}

/// Runs the check of this name on a store that reads its own clock.
#[doc(hidden)]
pub fn run<M, S: IntoStore<M>>(check: &str, connect: impl FnOnce() -> S + Send + 'static) {
    Check::named(check).run(connect);
}

/// Runs the check of this name on a store that reads the clock which the suite sets.
#[doc(hidden)]
pub fn run_with_clock<M, S: IntoStore<M>>(
    check: &str,
    connect: impl FnOnce(ManualClock) -> S + Send + 'static,
) {
    Check::named(check).run_with_clock(connect);
}
