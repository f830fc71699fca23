//! Limits that cannot be leased, and why.

use std::time::Duration;

use crate::{LeaseError, Leasing};
use tollgate::Limit;
use tollgate::backend::Memory;
use tollgate::{HOUR, Quota, SECOND};

fn error(quota: Quota) -> String {
    let leasing = Leasing::new(Memory::new()).try_lease(&Limit::new("hot", quota));
    leasing.err().map_or_else(|| "leased".into(), |error: LeaseError| error.to_string())
}

#[test]
fn each_refusal_shows_its_arithmetic_and_the_way_out() {
    let line = "a lease cannot reserve, as nodes do not share their instants (set \
                `.max_reserved(0)`)";
    let windows = "its windows follow a calendar or the first use, so a node does not know when \
                   they end (use `fixed_window` alone, or do not lease this limit)";
    let cases = [
        (Quota::token_bucket(9, SECOND), format!("it may reserve tokens without bound, as max_reserved is not set, and {line}")),
        (Quota::token_bucket(9, SECOND).max_reserved(7), format!("it may reserve 7 tokens, and {line}")),
        (Quota::token_bucket(9_000, SECOND).max_reserved(0).shards(4), "it has 4 shards, which leasing replaces (leave `.shards(4)` out)".into()),
        (Quota::token_bucket(9, SECOND).max_reserved(0).capacity(0), "its capacity is 0, so there is nothing to take in advance (raise the capacity)".into()),
        (Quota::token_bucket(1_000, SECOND).max_reserved(0).capacity(30), "a lot would live for \
                                                                           15ms, half of the time \
                                                                           in which the bucket \
                                                                           fills, and trips to the \
                                                                           store need 20ms (raise \
                                                                           the capacity to what is \
                                                                           gained in 40ms)".into()),
        (Quota::fixed_window(1_000, Duration::from_millis(99)).max_reserved(0), "its window of 99ms is too short for trips to the store (use a window of 100ms or more, or a token bucket)".into()),
        (Quota::token_bucket(1, SECOND).max_reserved(0), "of its capacity of 1 tokens, the store would hold 0.5, less than one request takes (raise the capacity)".into()),
        (Quota::fixed_window(1_000, SECOND).max_reserved(0).from_first_use(), windows.into()),
    ];
    for (quota, why) in cases {
        assert_eq!(error(quota), format!("limit `hot` cannot be leased: {why}"));
    }
    assert_eq!(
        error(Quota::calendar(1_000, tollgate::kit::Calendar::monthly()).max_reserved(0)),
        format!("limit `hot` cannot be leased: {windows}")
    );
    for quota in [
        Quota::token_bucket(1_000, SECOND).max_reserved(0).capacity(40),
        Quota::fixed_window(1, Duration::from_millis(100)).max_reserved(0),
        Quota::token_bucket(2, SECOND).max_reserved(0),
        Quota::token_bucket(1_000, HOUR).max_reserved(0),
    ] {
        assert_eq!(error(quota), "leased");
    }
}

#[test]
fn a_deadline_is_at_most_a_quarter_of_a_life() {
    let quota = Quota::token_bucket(1_000, SECOND).max_reserved(0).capacity(100);
    let deadline = Duration::from_millis(20);
    let leasing = Leasing::new(Memory::new()).deadline(deadline);
    assert_eq!(
        leasing.try_lease(&Limit::new("hot", quota)).unwrap_err().to_string(),
        "limit `hot` cannot be leased: its deadline of 20ms is longer than 12.5ms, a quarter of \
         the life of its lots (set a deadline of at most 12.5ms, or raise the capacity)"
    );
}

#[test]
#[should_panic(expected = "longer than 12.5ms, a quarter of the life of its lots")]
fn a_deadline_that_is_set_later_is_checked_as_well() {
    let quota = Quota::token_bucket(1_000, SECOND).max_reserved(0).capacity(100);
    let leasing = Leasing::new(Memory::new()).lease(&Limit::new("hot", quota));
    drop(leasing.deadline(Duration::from_millis(20)));
}
