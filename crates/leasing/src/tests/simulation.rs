//! What fleets of 1 to 200 nodes make of a quota.

use super::fleet::{Faults, Fleet, FleetReport, Pattern, play};

#[track_caller]
fn is_within_the_bound(fleet: Fleet) -> FleetReport {
    let report = play(fleet);
    println!("{fleet:?}\n  {report:?}");
    assert!(report.decisions > 500, "{fleet:?}: {report:?}");
    assert!(report.excess <= 0.0, "above the bound: {fleet:?}: {report:?}");
    report
}

/// A fleet that asks for twice its quota uses nearly all of it, with less than one trip in 1,000
/// decisions, and shares it fairly.
#[test]
fn steady_demand_uses_the_quota_and_makes_few_trips() {
    for (nodes, pattern, millis) in [(1, Pattern::Even, 1_800), (10, Pattern::Zipf, 2_000)] {
        let fleet = Fleet { rate: 250_000, millis, ..Fleet::new(nodes, pattern) };
        let report = is_within_the_bound(fleet);
        assert!(report.share_used > 0.95 && report.trips < 1.0, "{nodes} {pattern:?}: {report:?}");
        assert!(report.fairness > 0.9, "{nodes} {pattern:?}: {report:?}");
    }
}

#[test]
fn many_nodes_share_a_quota_fairly() {
    for (nodes, pattern, fair) in
        [(2, Pattern::Hog, 0.9), (50, Pattern::Even, 0.85), (200, Pattern::Even, 0.7)]
    {
        let fleet = Fleet { rate: 80_000, millis: 2_200, ..Fleet::new(nodes, pattern) };
        let report = is_within_the_bound(fleet);
        assert!(report.share_used > 0.9, "{nodes} {pattern:?}: {report:?}");
        assert!(report.fairness > fair, "{nodes} {pattern:?}: {report:?}");
    }
}

#[test]
fn demand_that_jumps_leaves_some_tokens_unused() {
    let report = is_within_the_bound(Fleet {
        rate: 200_000,
        millis: 3_500,
        ..Fleet::new(10, Pattern::Jumps)
    });
    assert!(report.share_used > 0.85 && report.trips < 1.0, "{report:?}");
}

/// The rate is low enough for each node to make single requests.
#[test]
fn a_slow_limit_is_charged_request_by_request() {
    let slow = Fleet { rate: 1_000, ..Fleet::new(50, Pattern::Hog) };
    let report = is_within_the_bound(slow);
    assert!(report.share_used > 0.9 && report.fairness > 0.8, "{report:?}");
    let costs =
        Fleet { rate: 1_000, largest_cost: 50, millis: 9_000, ..Fleet::new(10, Pattern::Even) };
    assert!(is_within_the_bound(costs).share_used > 0.85);
}

#[test]
fn faults_cost_tokens_and_never_the_bound() {
    for (nodes, pattern) in [(2, Pattern::Zipf), (10, Pattern::Jumps), (50, Pattern::Pulse)] {
        for seed in 1..=2 {
            let faults = Faults::ALL;
            let fleet = Fleet { faults, seed, rate: 50_000, ..Fleet::new(nodes, pattern) };
            let report = is_within_the_bound(fleet);
            assert!(pattern == Pattern::Pulse || report.share_used > 0.6, "{fleet:?} {report:?}");
        }
    }
}

#[test]
fn lots_of_a_fixed_window_end_with_it() {
    for (nodes, faults) in [(1, Faults::default()), (10, Faults::default()), (10, Faults::ALL)] {
        let fleet =
            Fleet { is_window: true, rate: 30_000, faults, ..Fleet::new(nodes, Pattern::Jumps) };
        let report = is_within_the_bound(fleet);
        assert!(report.share_used > 0.85, "{fleet:?} {report:?}");
    }
}
