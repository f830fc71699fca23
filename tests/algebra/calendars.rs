//! Windows of a calendar against an oracle that knows when each begins, and no formula.
//!
//! Months, weeks and days of several zones, daylight saving in both directions, costs of several
//! tokens, roll-over, reservations into debt, and clocks that step back. A port of a model that was
//! played before there was code.

use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::date;
use jiff::tz::TimeZone;
use tollgate::algebra::{Bucket, State, Terms, Verdict, block, charge, charge_pair, rescale};
use tollgate::quota::{Calendar, Weekday};
use tollgate::{Quota, Timestamp};
use tollgate_testing::cases::times;
use tollgate_testing::dice;

const ZONES: [&str; 6] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "America/Sao_Paulo",
];

const HOUR: i64 = 3_600_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Day,
    Week,
    Month,
}

const UNITS: [Unit; 3] = [Unit::Day, Unit::Week, Unit::Month];

impl Unit {
    fn calendar(self, zone: &'static str) -> Calendar {
        match self {
            Self::Day => Calendar::daily(),
            Self::Week => Calendar::weekly(Weekday::Monday),
            Self::Month => Calendar::monthly(),
        }
        .zone(zone)
    }

    fn longest(self) -> i64 {
        match self {
            Self::Day => 26 * HOUR,
            Self::Week => 170 * HOUR,
            Self::Month => 746 * HOUR,
        }
    }

    /// The starts of all windows from 2023 to 2032, by the rules of the zone.
    fn starts(self, zone: &str) -> Vec<i64> {
        let zone = TimeZone::get_bundled(zone);
        let days = date(2023, 1, 1).series(1.day()).take_while(|day| day.year() < 2033);
        let begins = |day: &jiff::civil::Date| match self {
            Self::Day => true,
            Self::Week => day.weekday() == jiff::civil::Weekday::Monday,
            Self::Month => day.day() == 1,
        };
        days.filter(begins)
            .map(|day| day.to_zoned_datetime(zone.clone()).unwrap().start_of_day().unwrap())
            .map(|start| start.timestamp().as_microsecond())
            .collect()
    }
}

/// The zone of the bundled database.
trait Bundled {
    fn get_bundled(name: &str) -> TimeZone;
}

impl Bundled for TimeZone {
    fn get_bundled(name: &str) -> TimeZone {
        jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap()
    }
}

/// Knows when tokens arrive, and counts them one start of a window after another.
struct Oracle<'s> {
    starts: &'s [i64],
    rate: i64,
    capacity: i64,
    held: Option<(i64, usize)>,
}

impl Oracle<'_> {
    fn window(&self, at: i64) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    fn charge(&mut self, at: i64, cost: i64, debt: i64) -> (Verdict, i64) {
        let now = self.window(at);
        let (mut value, mut window) = self.held.unwrap_or((self.capacity, now));
        while window < now {
            (value, window) = (self.capacity.min(value + self.rate), window + 1);
        }
        let left = value - cost;
        if left >= 0 {
            self.held = Some((left, window));
            return (Verdict::Admitted, 0);
        }
        let (mut paid, mut due) = (left, window);
        while paid < 0 {
            (paid, due) = (paid + self.rate, due + 1);
        }
        let wait = self.starts[due] - at;
        if -left <= debt {
            self.held = Some((left, window));
            return (Verdict::Reserved, wait);
        }
        (Verdict::Refused, wait)
    }
}

/// splitmix64.
struct Dice(dice::Dice);

impl Dice {
    fn below(&mut self, sides: i64) -> i64 {
        i64::try_from(self.0.below(u64::try_from(sides).unwrap())).unwrap()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(i64::try_from(all.len()).unwrap())).unwrap()]
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn micros(wait: Duration) -> i64 {
    i64::try_from(wait.as_micros()).unwrap()
}

#[test]
fn charges_are_what_counting_the_starts_of_windows_says() {
    let known: Vec<_> =
        ZONES.iter().flat_map(|zone| UNITS.map(|unit| (*zone, unit, unit.starts(zone)))).collect();
    let (mut charges, mut refusals) = (0, 0);
    for seed in 0..times(20_000, 300) {
        let mut dice = Dice(dice::Dice(seed));
        let place = dice.below(i64::try_from(known.len()).unwrap());
        let (zone, unit, starts) = &known[usize::try_from(place).unwrap()];
        let rate = 1 + dice.below(5);
        let (capacity, debt) = (rate * (1 + dice.below(4)), dice.pick(&[0, 0, 3, 9]));
        let [rate_u, capacity_u, debt_u] = [rate, capacity, debt].map(i64::unsigned_abs);
        let quota = Quota::calendar(rate_u, unit.calendar(zone));
        let quota = quota.capacity(capacity_u).max_reserved(debt_u);
        let bucket = Bucket::new(&quota).unwrap();
        let mut oracle = Oracle { starts, rate, capacity, held: None };
        let mut stored: Option<State> = None;
        let (early, late) = (starts[starts.len() / 4], starts[starts.len() / 3]);
        let mut time = early + dice.below(late - early);
        for _ in 0..60 {
            let typical = unit.longest() / dice.pick(&[2, 7, 40]);
            let longest = dice.below(3 * unit.longest());
            let passed = [0, 1, dice.below(typical), longest];
            time += dice.pick(&passed);
            if dice.below(100) < 15 {
                // Exactly when a window begins, or a microsecond beside that.
                time = starts[oracle.window(time) + 1] + dice.pick(&[-1, 0, 1]);
            }
            // A clock that steps back, sometimes by more than a window of a day.
            let back = dice.pick(&[HOUR, HOUR, 40 * HOUR]);
            let now = if dice.below(10) == 0 { time - dice.below(back) } else { time };
            let cost = 1 + dice.below(capacity);
            let units = bucket.units(cost.unsigned_abs()).unwrap();
            let decide = |stored: Option<State>, now: i64, floor: i64| {
                let state = stored.unwrap_or_else(|| bucket.absent(at(now), at(0)));
                charge(&bucket, state, units, Terms::reserving(floor), at(now))
            };
            let charged = decide(stored, now, bucket.floor());
            let told = (charged.verdict(), micros(charged.wait()));
            let before = stored;
            let what = || format!("seed {seed}: {quota} at {now}, cost {cost}, from {before:?}");
            assert_eq!(told, oracle.charge(now, cost, debt), "{}", what());
            charges += 1;
            if charged.verdict() == Verdict::Refused {
                refusals += 1;
                // Tight: refused a microsecond before, and admitted then.
                let then = now + told.1;
                assert_eq!(decide(stored, then - 1, 0).verdict(), Verdict::Refused, "{}", what());
                assert_eq!(decide(stored, then, 0).verdict(), Verdict::Admitted, "{}", what());
            } else {
                stored = Some(charged.after());
            }
            // Refreshed once is refreshed, also where the clock has stepped back.
            let after = charged.after();
            assert_eq!(bucket.refresh(after, at(now)), after, "{}", what());
        }
    }
    assert!(charges >= 10_000 && refusals * 4 > charges, "{refusals} of {charges} refused");
}

#[test]
fn two_shards_wait_until_the_window_in_which_they_hold_the_cost() {
    let zone = "Europe/Berlin";
    for unit in UNITS {
        let starts = unit.starts(zone);
        for seed in 0..times(4_000, 200) {
            let mut dice = Dice(dice::Dice(seed));
            let rate = (2 * (1 + dice.below(3))).unsigned_abs();
            let quota = Quota::calendar(rate, unit.calendar(zone)).shards(2).capacity(3 * rate);
            let bucket = Bucket::of_shard(&quota).unwrap();
            let nth = usize::try_from(20 + dice.below(60)).unwrap();
            let now = at(starts[nth] + dice.below(20 * HOUR));
            let shards = [0, 1].map(|_| {
                let value = bucket.capacity() - dice.below(2 * bucket.capacity());
                let back = usize::try_from(dice.below(3)).unwrap();
                State { value, ts: at(starts[nth - back]) }
            });
            let units = 1 + dice.below(2 * bucket.capacity());
            let charged = charge_pair(&bucket, shards, units, Terms::AT_ONCE, now);
            if charged.verdict() == Verdict::Refused {
                let admits = |at| {
                    let charged = charge_pair(&bucket, shards, units, Terms::AT_ONCE, at);
                    charged.verdict() == Verdict::Admitted
                };
                let then = now + charged.wait();
                assert!(starts.contains(&then.as_micros()), "seed {seed}: {quota}");
                assert!(admits(then), "seed {seed}: {quota}: {shards:?}, {units}");
                assert!(!admits(at(then.as_micros() - 1)), "seed {seed}: {quota}: {shards:?}");
            }
        }
    }
}

#[test]
fn days_of_23_and_of_25_hours_are_days() {
    let bucket = Bucket::new(&Quota::calendar(1, Calendar::daily().zone("Europe/Berlin"))).unwrap();
    // The days before which and on which clocks change in 2026, and the hours that they have.
    for (day, hours) in [
        ("2026-03-28T23:00:00Z", 23),
        ("2026-03-29T22:00:00Z", 24),
        ("2026-10-24T22:00:00Z", 25),
        ("2026-10-25T23:00:00Z", 24),
    ] {
        let start: Timestamp = day.parse().unwrap();
        let empty = State { value: 0, ts: start };
        let wait = charge(&bucket, empty, 1, Terms::AT_ONCE, start).wait();
        assert_eq!(wait, Duration::from_secs(hours * 3_600), "{day}");
    }
}

#[test]
fn a_month_is_as_long_as_it_is() {
    let bucket = Bucket::new(&Quota::calendar(1, Calendar::monthly())).unwrap();
    for (month, days) in [("2027-02", 28), ("2028-02", 29), ("2028-04", 30), ("2028-12", 31)] {
        let start: Timestamp = format!("{month}-01T00:00:00Z").parse().unwrap();
        let empty = State { value: 0, ts: start };
        let wait = charge(&bucket, empty, 1, Terms::AT_ONCE, start).wait();
        assert_eq!(wait, Duration::from_secs(days * 86_400), "{month}");
        assert_eq!(bucket.full_at(empty), start + wait);
    }
}

/// A bucket that changes to a calendar while the clock is a moment behind gains when the month is
/// over; a block holds to the end of the month in which it ends.
#[test]
fn a_time_ahead_costs_no_month_unless_it_is_a_block() {
    let old = Bucket::new(&Quota::token_bucket(3, Duration::from_secs(60))).unwrap();
    let new = Bucket::new(&Quota::calendar(3, Calendar::monthly())).unwrap();
    let now: Timestamp = "2027-02-27T12:00:00Z".parse().unwrap();
    let [march, april] =
        ["2027-03-01T00:00:00Z", "2027-04-01T00:00:00Z"].map(|at| at.parse::<Timestamp>().unwrap());
    let just_before = |at: Timestamp| Timestamp::from_micros(at.as_micros() - 1);
    let ahead = |seconds| now + Duration::from_secs(seconds);
    // What is left, and how far it lies ahead.
    for (value, ts, gains) in [
        (1, ahead(1), march),
        (0, ahead(1), march),
        (-1, ahead(1), march),
        (-1, just_before(march), march),
        (-1, march, april),
        (0, march, march),
    ] {
        let state = State { value: value * old.units(1).unwrap(), ts };
        let converted = rescale(&old, &new, state, now, now);
        let gained = |at| new.refresh(converted, at).value - converted.value;
        assert_eq!(
            [gained(just_before(gains)), gained(gains)],
            [0, (3 - value).clamp(0, 3)],
            "{value} at {ts:?}"
        );
    }
}

/// Two plans that take over with each request, the one by a calendar, convert a block to and fro.
#[test]
fn a_block_that_is_converted_to_and_fro_ends_when_it_did_once() {
    let bucket = Bucket::new(&Quota::token_bucket(3, Duration::from_secs(60))).unwrap();
    for calendar in [Calendar::monthly(), Calendar::weekly(Weekday::Monday), Calendar::daily()] {
        let windows = Bucket::new(&Quota::calendar(3, calendar)).unwrap();
        for days in 0..800 {
            let now: Timestamp = "2027-01-20T12:00:00Z".parse().unwrap();
            let end = now + Duration::from_secs(days * 86_400 + 1);
            let blocked = block(&bucket, bucket.absent(now, now), end, now);
            let once = rescale(&bucket, &windows, blocked, now, now);
            let opens = windows.gains_next(once);
            // With the window in which it ends, or the next one.
            let window = windows.absent(end, end);
            let next = windows.gains_next(window);
            let latest = windows.gains_next(windows.absent(next, next));
            assert!(opens == next || opens == latest, "{calendar}, {days}: {opens:?}");
            let mut held = once;
            for _ in 0..20 {
                held = rescale(&windows, &bucket, held, now, now);
                held = rescale(&bucket, &windows, held, now, now);
            }
            assert_eq!(windows.gains_next(held), opens, "{calendar}, {days}");
        }
    }
}

/// When a bucket gains next.
trait Gains {
    fn gains_next(&self, state: State) -> Timestamp;
}

impl Gains for Bucket {
    fn gains_next(&self, state: State) -> Timestamp {
        self.full_at(State { value: self.capacity() - 1, ..state })
    }
}

#[test]
fn the_text_form_names_the_calendar() {
    let berlin = Calendar::monthly().zone("Europe/Berlin");
    for (text, quota) in [
        ("1000 per month in Europe/Berlin", Quota::calendar(1_000, berlin)),
        ("1_000/MONTH in europe/berlin", Quota::calendar(1_000, berlin)),
        ("fixed window: 5 per  day in UTC", Quota::calendar(5, Calendar::daily())),
        ("5 per week in UTC", Quota::calendar(5, Calendar::weekly(Weekday::Monday))),
        (
            "5 per week from Sunday in Etc/GMT+5, capacity 10, max_reserved 3, shards 2",
            Quota::calendar(5, Calendar::weekly(Weekday::Sunday).zone("Etc/GMT+5"))
                .capacity(10)
                .max_reserved(3)
                .shards(2),
        ),
    ] {
        assert_eq!(text.parse(), Ok(quota), "{text}");
        assert_eq!(quota.to_string().parse(), Ok(quota), "{text}");
    }
    for (text, why) in [
        (
            "5 per month",
            "`month` is not a period (write `month in Europe/Berlin`, `week from sunday in UTC` or \
             `day in UTC` for windows of a calendar, or `30 days`)",
        ),
        (
            "5 per month in Europe/Bonn",
            "`Europe/Bonn` is not a time zone (write its name in the database, such as \
             `Europe/Berlin` or `UTC`)",
        ),
        (
            "token bucket: 5 per month in UTC",
            "a token bucket has no windows of a calendar (leave out `token bucket`, or write a \
             period in place of `month in UTC`)",
        ),
        (
            "5 per month in UTC, start 2026-01-01T00:00:00Z",
            "a calendar takes no `start` (drop `start`, or use a period)",
        ),
        (
            "5 per fortnight",
            "`fortnight` is not a period (write `minute`, `90 seconds`, `1h 30m` or `30 days`)",
        ),
    ] {
        let told = text.parse::<Quota>().unwrap_err().to_string();
        assert_eq!(told, format!("`{text}` is not a quota: {why}"));
    }
}
