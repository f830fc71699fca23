//! The windows of calendars, by the bundled rules.

use std::collections::HashSet;

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::windows::Windows;
use super::*;

const US_DAY: i64 = 86_400_000_000;

/// All calendars of a zone.
fn all(zone: &str) -> Vec<Calendar> {
    let weeks = WEEKDAYS.map(|(_, first)| Calendar::weekly(first));
    let others = [Calendar::daily(), Calendar::monthly()];
    weeks.into_iter().chain(others).map(|calendar| calendar.zone(zone)).collect()
}

fn rules(zone: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(zone).unwrap()
}

fn local(at: i64, zone: &TimeZone) -> jiff::ZonedDateTime {
    jiff::Timestamp::from_microsecond(at).unwrap().to_zoned_datetime(zone.clone())
}

#[test]
fn the_names_are_those_of_the_bundled_database() {
    let mut bundled: Vec<_> =
        TimeZoneDatabase::bundled().available().map(|name| name.as_str().to_owned()).collect();
    bundled.sort_unstable();
    assert_eq!(bundled, ZONES);
}

#[test]
fn the_step_names_the_calendar() {
    let all: Vec<_> = ZONES.iter().flat_map(|zone| all(zone)).collect();
    let steps: HashSet<_> = all.iter().map(|calendar| calendar.step()).collect();
    assert_eq!(steps.len(), all.len());
    for calendar in all.iter().step_by(97) {
        assert_eq!(Calendar::of_step(calendar.step()), Some(*calendar));
    }
    assert_eq!(Calendar::of_step(NonZeroU64::new(86_400_000_000).unwrap()), None);
}

#[test]
fn windows_begin_where_the_dates_of_the_zone_say_for_ten_years_in_ten_zones() {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "Europe/London",
        "America/New_York",
        // Clocks change at midnight, so some days have none.
        "America/Havana",
        "America/Sao_Paulo",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Pacific/Chatham",
        // Left out 30 December 2011.
        "Pacific/Apia",
    ];
    for name in zones {
        let zone = rules(name);
        for calendar in all(name) {
            // 2011 to 2020 has the odd days of these zones.
            let early = Timestamp::from_micros(1_293_840_000_000_000 - 40 * US_DAY);
            let mut at = calendar.start(early).as_micros();
            let end = at + 3_660 * US_DAY;
            let mut windows = 0;
            while at < end {
                let start = Timestamp::from_micros(at);
                let next = calendar.after(start, 1).as_micros();
                let (before, first) = (local(next - 1, &zone), local(next, &zone));
                let (old, new) = (before.date(), first.date());
                assert!(old < new, "{calendar}: {old} to {new}");
                assert_eq!(first, first.start_of_day().unwrap(), "{calendar}");
                match calendar.every {
                    // The day that was left out was a Friday: its week begins with the day after.
                    Every::Week(_) if old.tomorrow().unwrap() != new => assert_eq!(new.day(), 31),
                    Every::Week(day) => {
                        let number = new.weekday().to_monday_one_offset();
                        assert_eq!(u32::try_from(number).unwrap(), day.number(), "{calendar}");
                    }
                    Every::Month => assert_eq!(new.day(), 1),
                    Every::Day => {}
                }
                // No start is left out: the window is no longer than a day, a week or a month.
                let step = i64::try_from(calendar.step().get()).unwrap();
                assert!(
                    next > at && next - calendar.start(start).as_micros() <= step,
                    "{calendar}"
                );
                for inside in [next, next + 1, next + 3_600_000_000] {
                    assert_eq!(calendar.start(Timestamp::from_micros(inside)).as_micros(), next);
                }
                let last = calendar.start(Timestamp::from_micros(next - 1));
                assert_eq!(calendar.count(last, Timestamp::from_micros(next)), 1, "{calendar}");
                assert_eq!(calendar.ahead(last, Timestamp::from_micros(next)), 1, "{calendar}");
                (at, windows) = (next, windows + 1);
            }
            let wanted = match calendar.every {
                Every::Day => 3_659..=3_661,
                Every::Week(_) => 522..=524,
                Every::Month => 120..=121,
            };
            assert!(wanted.contains(&windows), "{calendar}: {windows}");
        }
    }
}

#[test]
fn windows_are_counted_and_walked_alike_over_all_kept_years_and_beyond() {
    for calendar in [Calendar::monthly().zone("Europe/Berlin"), Calendar::weekly(Weekday::Friday)] {
        let first = Timestamp::from_micros(-40_000 * US_DAY);
        let mut before = None;
        for nth in [0, 1, 2, 500, 799, 1_200, 3_000, 4_500, 9_000, 20_000] {
            let start = calendar.after(first, nth);
            assert_eq!(calendar.start(start), start, "{calendar} {nth}");
            if let Some((earlier, windows)) = before.replace((start, nth)) {
                assert_eq!(calendar.count(earlier, start), nth - windows, "{calendar} {nth}");
                assert_eq!(calendar.after(earlier, nth - windows), start, "{calendar} {nth}");
            }
        }
    }
    let monthly = Calendar::monthly();
    assert_eq!(monthly.count(Timestamp::UNIX_EPOCH, Timestamp::from_micros(-1)), 0);
    for odd in [i64::MIN, i64::MAX] {
        let start = monthly.start(Timestamp::from_micros(odd));
        assert!(start.as_micros().abs_diff(odd) <= monthly.step().get());
        let _ = monthly.after(Timestamp::from_micros(odd), u64::MAX);
        let _ = monthly.count(Timestamp::from_micros(odd), Timestamp::UNIX_EPOCH);
    }
}

#[test]
fn a_time_of_a_window_to_come_lies_ahead_and_tells_which_it_is() {
    for calendar in all("Europe/Berlin").into_iter().chain(all("America/Sao_Paulo")) {
        let mut start = calendar.start(Timestamp::from_micros(1_700_000_000_000_000));
        for _ in 0..40 {
            let next = calendar.after(start, 1);
            for ahead in [1, 2, 12, 60, 700] {
                let time = calendar.time_of(start, ahead);
                assert!(time > next, "{calendar}");
                // Whoever reads it, now or in a later window.
                for later in [0, 1, ahead / 2, ahead - 1, ahead] {
                    let own = calendar.after(start, later.unsigned_abs());
                    assert_eq!(calendar.ahead(own, time), ahead - later, "{calendar} {later}");
                }
                assert_eq!(calendar.after(time, 0), calendar.after(start, ahead.unsigned_abs()));
            }
            start = next;
        }
    }
}

#[test]
fn a_zone_that_changes_its_rules_moves_a_start_by_hours_and_no_window() {
    for calendar in all("Europe/Berlin") {
        let [old, new] =
            ["Europe/Berlin", "Asia/Tokyo"].map(|zone| Windows::new(calendar.every, rules(zone)));
        let from = 1_700_000_000_000_000;
        let first = [old.start(from), new.after(old.start(from), 0)];
        for windows in 0..200 {
            let [one, other] = [old.after(first[0], windows), new.after(first[1], windows)];
            assert!((one - other).abs() <= 9 * 3_600_000_000, "{calendar}");
            let [one, other] = [one, other].map(Timestamp::from_micros);
            assert_eq!((calendar.ahead(one, other), calendar.ahead(other, one)), (0, 0));
        }
    }
}
