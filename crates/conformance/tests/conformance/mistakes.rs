//! Each mistake of a store is found by the checks that are about it, and each check finds one.

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use tollgate::Timestamp;
use tollgate::clock::ManualClock;
use tollgate_conformance::Check;

use crate::mutants::{Mistake, Mutant};

/// Mistakes, and checks that find them.
const FOUND_BY: [(Mistake, &[&str]); 35] = [
    (Mistake::TakesNothing, &["a_concurrent_history_is_within_the_bound"]),
    (
        Mistake::AdmitsOneMore,
        &[
            "a_charge_takes_its_units_or_nothing",
            "callers_at_once_admit_exactly_the_capacity",
            "a_concurrent_history_is_within_the_bound",
        ],
    ),
    (Mistake::StoresRefusals, &["a_refusal_and_a_look_change_nothing"]),
    (Mistake::StoresLooks, &["a_refusal_and_a_look_change_nothing"]),
    (
        Mistake::ChargesListsOneByOne,
        &["a_list_is_all_or_nothing", "lists_in_opposite_orders_are_all_or_nothing"],
    ),
    (Mistake::ChargesRepeatsOnce, &["a_bucket_named_twice_pays_twice"]),
    (
        Mistake::MergesShards,
        &[
            "limits_and_shards_have_buckets_of_their_own",
            "the_fuller_of_two_shards_pays_or_both_do",
        ],
    ),
    (
        Mistake::PaysFromTheSecondShard,
        &[
            "the_fuller_of_two_shards_pays_or_both_do",
            "random_calls_are_answered_as_the_algorithm_says",
        ],
    ),
    (Mistake::GivesShardsTheirOwnWindows, &["windows_begin_at_their_start_or_phase"]),
    (Mistake::IgnoresTheLongestWait, &["a_charge_reserves_within_its_terms"]),
    (
        Mistake::RoundsWaitsDown,
        &[
            "a_retry_is_admitted_at_its_time_and_no_tick_earlier",
            "a_charge_takes_its_units_or_nothing",
        ],
    ),
    (Mistake::IgnoresResets, &["a_reset_makes_the_next_use_the_first"]),
    (Mistake::UndoesWhatWasTouched, &["an_undo_needs_an_untouched_bucket"]),
    (Mistake::RefundsBlocksAway, &["adjustments_do_what_they_say"]),
    (Mistake::JoinsKeysAsText, &["hostile_keys_have_buckets_of_their_own"]),
    (
        Mistake::IgnoresCase,
        &["hostile_keys_have_buckets_of_their_own", "every_character_has_a_bucket_of_its_own"],
    ),
    (Mistake::CutsKeys, &["hostile_keys_have_buckets_of_their_own"]),
    (Mistake::JoinsNamesByColons, &["limits_and_shards_have_buckets_of_their_own"]),
    (Mistake::CountsInSinglePrecision, &["the_edges_of_the_formula_are_exact"]),
    (Mistake::DropsWhatBeginsBelowFull, &["a_full_bucket_equals_none"]),
    (Mistake::KeepsWhatIsLeftOfOldNumbers, &["changed_numbers_keep_what_was_used"]),
    (
        Mistake::TakesSlowerNumbersAtOnce,
        &[
            "slower_numbers_wait_until_they_admit",
            "changed_numbers_keep_what_was_used",
            "random_calls_are_answered_as_the_algorithm_says",
        ],
    ),
    (
        Mistake::AppliesAgainWhenDropped,
        &["a_dropped_call_takes_effect_at_most_once_and_never_in_part"],
    ),
    (
        Mistake::AppliesPartsBetweenPolls,
        &["a_dropped_call_takes_effect_at_most_once_and_never_in_part"],
    ),
    (Mistake::DecidesBeforeItIsPolled, &["answers_can_be_awaited_in_any_order"]),
    (Mistake::LosesUpdates, &["callers_at_once_admit_exactly_the_capacity"]),
    (Mistake::AnswersWithAnOldTime, &["a_charge_takes_its_units_or_nothing"]),
    (Mistake::LeavesOutReadings, &["a_list_is_all_or_nothing"]),
    (Mistake::ListsLimitsThatBeginAlike, &["each_debtor_is_listed_once_and_nothing_else_is"]),
    (Mistake::ListsWhatOwesNothing, &["each_debtor_is_listed_once_and_nothing_else_is"]),
    (Mistake::LosesOneAtEachPage, &["each_debtor_is_listed_once_and_nothing_else_is"]),
    (Mistake::ListsStatesAsStored, &["each_debtor_is_listed_once_and_nothing_else_is"]),
    (Mistake::CountsBlocksAsDebt, &["each_debtor_is_listed_once_and_nothing_else_is"]),
    (Mistake::Fails, &["a_charge_takes_its_units_or_nothing"]),
    (Mistake::ForgetsTimesAhead, &["a_clock_that_goes_back_changes_nothing"]),
];

/// Runs a check on a store with a mistake, and returns the message if it fails.
fn failure(mistake: Mistake, name: &str) -> Option<String> {
    let check = Check::all().find(|check| check.name() == name).expect("a check has this name");
    let failed = catch_unwind(|| match mistake {
        Mistake::StandsStill => {
            check.run(move || Mutant::new(mistake, ManualClock::new(Timestamp::UNIX_EPOCH)));
        }
        _ => check.run_with_clock(move |clock| Mutant::new(mistake, clock)),
    });
    let panic = failed.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.or_else(|| panic.downcast_ref().map(|&text: &&str| text.to_owned())).unwrap())
}

#[test]
fn each_mistake_is_found_by_the_checks_that_are_about_it() {
    let missed: Vec<_> = FOUND_BY
        .iter()
        .flat_map(|(mistake, checks)| checks.iter().map(|check| (*mistake, *check)))
        .filter_map(|(mistake, check)| {
            let found = failure(mistake, check);
            let is_told =
                found.as_ref().is_some_and(|text| text.contains("contract") && text.len() > 100);
            (!is_told).then_some((mistake, check, found))
        })
        .collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

/// It takes two seconds: a clock may show the same time for that long.
#[test]
fn a_clock_that_stands_still_is_found() {
    let found = failure(Mistake::StandsStill, "the_clock_runs").unwrap();
    assert!(found.contains("each call reads the clock"), "{found}");
}

#[test]
fn each_check_finds_a_mistake() {
    let known: BTreeSet<_> =
        FOUND_BY.iter().flat_map(|(_, checks)| checks.iter().copied()).collect();
    let without: Vec<_> =
        Check::all().map(Check::name).filter(|name| !known.contains(name)).collect();
    assert_eq!(without, ["the_clock_runs"], "found by a test of its own");
}

#[test]
fn a_failure_says_what_was_asked_held_due_and_answered() {
    let text =
        failure(Mistake::PaysFromTheSecondShard, "random_calls_are_answered_as_the_algorithm_says");
    let text = text.unwrap();
    for part in
        ["`Backend::apply` breaks the contract", "asked: [Charge", "held: [", "seed ", "call "]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.contains("contract: Applied") && text.contains("answered: Applied"), "{text}");
}

/// The mutants without their mistakes.
mod without_a_mistake {
    use super::*;

    tollgate_conformance::conformance!(|clock| Mutant::new(Mistake::None, clock));
}
