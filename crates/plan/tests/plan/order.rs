//! Lines that servers write when requests end, with the times at which they began.

use proptest::prelude::*;
use tollgate::Timestamp;
use tollgate_testing::START;

use super::process::report;
use super::program::line::Entry;
use super::program::order::{MAX_PENDING, Order, WINDOW};

/// All that comes out of it, in order, for lines with these microseconds.
fn sorted(order: &mut Order, times: impl IntoIterator<Item = i64>) -> Vec<(Timestamp, u64)> {
    let mut out = Vec::new();
    for (line, micros) in (1_u64..).zip(times) {
        let at = Timestamp::from_micros(START.as_micros().saturating_add(micros));
        order.push(Entry { at, key: "a".into(), cost: line }, line);
        while let Some(request) = order.pop(false) {
            out.push((request.at, request.cost));
        }
    }
    while let Some(request) = order.pop(true) {
        out.push((request.at, request.cost));
    }
    out
}

proptest! {
    /// Against a stable sort of all lines at once.
    #[test]
    fn lines_out_of_order_by_seconds_are_sorted(
        gaps in prop::collection::vec((0..2_000_000_i64, 0..10_000_000_i64), 0..200),
    ) {
        let mut end = 0;
        let times: Vec<_> = gaps.iter().map(|(gap, duration)| {
            end += gap;
            end - duration
        }).collect();
        let mut order = Order::default();
        let found = sorted(&mut order, times.iter().copied());
        let mut expected: Vec<_> = (1_u64..).zip(times).collect();
        expected.sort_by_key(|(_, micros)| *micros);
        let found: Vec<_> =
            found.iter().map(|(at, line)| (*line, at.as_micros() - START.as_micros())).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(order.early, None);
    }

    #[test]
    fn times_never_go_back(times in prop::collection::vec(any::<i64>(), 0..50)) {
        let found = sorted(&mut Order::default(), times.iter().copied());
        prop_assert_eq!(found.len(), times.len());
        prop_assert!(found.is_sorted_by_key(|(at, _)| *at));
    }
}

#[test]
fn a_line_that_is_too_late_counts_at_the_time_of_the_last_request() {
    let window = i64::try_from(WINDOW.as_micros()).unwrap();
    let mut order = Order::default();
    let found = sorted(&mut order, [0, 1, window + 2, 0]);
    let found: Vec<_> =
        found.iter().map(|(at, line)| (at.since(START).as_micros(), *line)).collect();
    assert_eq!(found[..3], [(0, 1), (1, 2), (1, 4)]);
    let early = order.early.unwrap();
    assert_eq!((early.lines, early.first), (1, 4));

    let text = report(&["1 per hour"], "100 a\n111 a\n99 a\n");
    assert!(
        text.contains(
            "out of order: 1 line, the first is line 3: \
             1970-01-01T00:01:39Z is before 1970-01-01T00:01:40Z"
        ),
        "{text}"
    );
}

/// One line with a wrong clock moved all that followed to its time.
#[test]
fn a_line_of_the_far_future_moves_no_other_line() {
    let log = "0 a\n9999999999 a\n1800 a\n3600 a\n7200 a\n";
    let text = report(&["1 per hour"], log);
    assert!(text.contains("refused    1 of 5 requests"), "{text}");
}

/// A second may have more lines, or longer ones, than memory has room for.
#[test]
fn what_waits_for_its_turn_is_bounded() {
    for key in [1_000, 60_000].map(|length| "a".repeat(length)) {
        let mut order = Order::default();
        let (mut most, mut kept) = (0_usize, 0_usize);
        for line in 0..100_000_000 / key.len() as u64 {
            order.push(Entry { at: START, key: (&*key).into(), cost: 1 }, line);
            kept += 1;
            while order.pop(false).is_some() {
                kept -= 1;
            }
            most = most.max(kept);
        }
        let bytes = most * (40 + key.len());
        assert!((MAX_PENDING - 100_000..=MAX_PENDING).contains(&bytes), "{bytes}");

        // There is room again for lines that are sorted.
        let later = Timestamp::from_micros(START.as_micros() + 2);
        sorted(&mut order, []);
        order.push(Entry { at: later, key: "b".into(), cost: 1 }, 1);
        assert_eq!(order.pop(false), None);
    }
}
