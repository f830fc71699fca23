//! Tallies over time, whatever the times of a log are.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tollgate::Timestamp;

use super::program::replay::Tally;
use super::program::series::{MAX_ROWS, Series};

proptest! {
    /// Against a tally of each second.
    #[test]
    fn rows_are_put_together_and_nothing_is_lost(
        (begin, span) in (-5_000_000_000_i64..5_000_000_000, prop::sample::select(vec![10, 5_000, 9_000_000, 1 << 40])),
        parts in prop::collection::vec(0..1_000_i64, 1..40),
        max_rows in 1..100_i64,
    ) {
        let mut series = Series::new();
        let mut seconds: BTreeMap<i64, u64> = BTreeMap::new();
        for part in parts {
            let second = begin + span / 1_000 * part;
            series.at(Timestamp::from_unix_seconds(second)).merge(Tally { requests: 1, ..Tally::default() });
            *seconds.entry(second).or_default() += 1;
        }
        for (series, max_rows) in [(series.within(max_rows), max_rows), (series, MAX_ROWS)] {
            prop_assert!(series.span() <= max_rows.max(2), "{}", series.span());
            let mut expected: BTreeMap<i64, u64> = BTreeMap::new();
            for (second, requests) in &seconds {
                *expected.entry(second.div_euclid(series.width)).or_default() += requests;
            }
            let found: BTreeMap<_, _> =
                series.rows.iter().map(|(row, tally)| (*row, tally.requests)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn rows_have_widths_that_people_use() {
    for (seconds, unit, begin) in [
        (40, "second", "1970-01-01 00:00:39"),
        (3_000, "minute", "1970-01-01 00:49"),
        (20_000, "5 minutes", "1970-01-01 05:30"),
        (86_400, "hour", "1970-01-01 23:00"),
        (7 * 86_400, "3 hours", "1970-01-07 21:00"),
        (60 * 86_400, "day", "1970-03-01 00:00"),
        (200 * 86_400, "4 days", "1970-07-16 00:00"),
    ] {
        let mut series = Series::new();
        for second in [0, seconds - 1] {
            series
                .at(Timestamp::from_unix_seconds(second))
                .merge(Tally { requests: 1, ..Tally::default() });
        }
        let series = series.within(72);
        let (last, _) = series.rows.last_key_value().unwrap();
        assert_eq!((series.unit().as_str(), series.begin(*last).as_str()), (unit, begin));
    }
}
