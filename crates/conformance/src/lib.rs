//! A test suite for the contract of [`Backend`](tollgate::backend::Backend), for any store.
//!
//! Add the crate to your `[dev-dependencies]`, and write one line in a file of its own, such as
//! `tests/conformance.rs`:
//!
//! ```
//! # mod tests {
//! # use tollgate::backend::Memory;
//! tollgate_conformance::conformance!(|| Memory::new());
//! # }
//! ```
//!
//! That makes one `#[test]` for each check. Each connects to the store anew, by the closure, which
//! returns the store, or a future of it: `|| async { MyStore::connect(URL).await.unwrap() }`.
//! It runs within a tokio runtime of one thread, so no other dependency is needed.
//!
//! # A clock that the suite sets
//!
//! If your store can take its time from outside, let the closure have a clock as its argument, and
//! let the store read it. Then time also jumps by hours and goes back, and more checks run:
//!
//! ```
//! # mod tests {
//! # use tollgate::backend::Memory;
//! tollgate_conformance::conformance!(|clock| Memory::new().clock(clock));
//! # }
//! ```
//!
//! The clock is a [`ManualClock`](tollgate::clock::ManualClock), and begins in the year 2100. A store
//! on a server sends its time with each call: `|clock| async move { MyStore::connect(URL, clock).await }`.
//!
//! # What is checked
//!
//! The suite makes each call to the store, and then to a map of records by
//! [`apply_all`](tollgate::backend::apply_all), [`adjust_all`](tollgate::backend::adjust_all) and
//! [`reset_all`](tollgate::backend::reset_all), at the time that the store has [reported](tollgate::backend::Applied::now).
//! The two answers have to be equal to the bit: each verdict, state, number of units and wait. A test that
//! fails shows the call, the state of the bucket, the answer of the contract, and that of the store. Random calls are the same in each run, and the message names their seed.
//!
//! A store may leave out [`debtors`](tollgate::backend::Backend::debtors). If it lists or counts them, that is
//! checked as well.
//!
//! Concurrent calls have no known order. There, the suite counts the admitted units, and checks them by [`check_history`](tollgate::algebra::check_history).
//!
//! # What the store needs
//!
//! * Buckets that no other test and no other run uses meanwhile: a database or a prefix of its own.
//!   Buckets from an earlier run do no harm. Tests of one suite use different buckets.
//! * Room for some 2,000 buckets, with keys of up to 64 KiB, and names of limits as long.
//! * Lists of charges on several buckets. A cluster needs a layout that keeps them together.
//!
//! The environment variable `TOLLGATE_CONFORMANCE_SEEDS` sets the number of random histories, 16 by
//! default. With fewer of them, fewer of the rare characters of Unicode are tried in keys.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::exhaustive_enums,
    clippy::exhaustive_structs,
    reason = "this is test code: it panics where a store is wrong, and its numbers are its own"
)]

mod check;
mod checks;
#[doc(hidden)]
pub mod dice;
#[doc(hidden)]
pub mod history;
mod list;
mod model;
mod quotas;
mod subject;
mod trial;

pub use self::check::Check;
#[doc(hidden)]
pub use self::subject::{AtOnce, IntoStore, Later};

/// What the macros name.
#[doc(hidden)]
pub mod suite {
    pub use super::list::{run, run_with_clock};
    pub use tollgate::clock::ManualClock;
}

/// Tests a store: makes a `#[test]` of each check of the [suite](crate).
///
/// The argument is a closure that returns a [`Backend`](tollgate::backend::Backend), or a future of
/// one. If it takes an argument, that is the [clock](tollgate::clock::ManualClock) which the store has
/// to read.
///
/// # Examples
///
/// ```
/// # use tollgate::backend::Memory;
/// mod with_its_own_clock {
/// #   use super::*;
///     tollgate_conformance::conformance!(|| async { Memory::new() });
/// }
/// mod with_a_clock_that_is_set {
/// #   use super::*;
///     tollgate_conformance::conformance!(|clock| Memory::new().clock(clock));
/// }
/// ```
#[macro_export]
macro_rules! conformance {
    (|$clock:ident $(: $type:ty)?| $store:expr $(,)?) => {
        $crate::__conformance_list! {
            __conformance_tests { with_clock |$clock: $crate::suite::ManualClock| $store }
        }
    };
    ($connect:expr $(,)?) => {
        $crate::__conformance_list! { __conformance_tests { own $connect } }
    };
}

/// Makes tests of the checks in a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (own $connect:expr; any $($any:ident)*; own $($own:ident)*; set $($set:ident)*;) => {
        $crate::__conformance_tests! { run; $connect; $($any)* $($own)* }
    };
    (with_clock $connect:expr; any $($any:ident)*; own $($own:ident)*; set $($set:ident)*;) => {
        $crate::__conformance_tests! { run_with_clock; $connect; $($any)* $($set)* }
    };
    ($run:ident; $connect:expr; $($check:ident)*) => {$(
        #[test]
        // `|| Mine::new()` reads better here than `Mine::new`, and clippy would say so in every test.
        #[allow(clippy::redundant_closure)]
        fn $check() {
            $crate::suite::$run(stringify!($check), $connect);
        }
    )*};
}

/// Passes the names of all checks on to another macro: those for any store, those for a store that
/// reads its own clock, and those for a store whose clock is set.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_list {
    ($then:ident { $($first:tt)* }) => {
        $crate::$then! { $($first)*;
            any
            a_charge_takes_its_units_or_nothing
            a_charge_reserves_within_its_terms
            the_fuller_of_two_shards_pays_or_both_do
            a_list_is_all_or_nothing
            a_bucket_named_twice_pays_twice
            a_refusal_and_a_look_change_nothing
            adjustments_do_what_they_say
            an_undo_needs_an_untouched_bucket
            a_reset_makes_the_next_use_the_first
            the_edges_of_the_formula_are_exact
            windows_begin_at_their_start_or_phase
            a_full_bucket_equals_none
            changed_numbers_keep_what_was_used
            slower_numbers_wait_until_they_admit
            hostile_keys_have_buckets_of_their_own
            every_character_has_a_bucket_of_its_own
            limits_and_shards_have_buckets_of_their_own
            each_debtor_is_listed_once_and_nothing_else_is
            a_dropped_call_takes_effect_at_most_once_and_never_in_part
            answers_can_be_awaited_in_any_order
            callers_at_once_admit_exactly_the_capacity
            lists_in_opposite_orders_are_all_or_nothing
            a_concurrent_history_is_within_the_bound
            random_calls_are_answered_as_the_algorithm_says;
            own
            the_clock_runs;
            set
            a_retry_is_admitted_at_its_time_and_no_tick_earlier
            a_clock_that_goes_back_changes_nothing;
        }
    };
}
