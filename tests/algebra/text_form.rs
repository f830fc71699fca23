//! The text form of a quota: what it reads, what it prints, and that the two agree.

use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use tollgate::quota::Kind;
use tollgate::{DAY, HOUR, MINUTE, Quota, SECOND, Timestamp};
use tollgate_testing::draw::draw;

#[test]
fn periods_are_read_as_people_write_them_and_printed_in_the_largest_exact_unit() {
    let millis = Duration::from_millis;
    let micros = Duration::from_micros;
    table(&[
        ("10 per second", Quota::token_bucket(10, SECOND), "10 per second"),
        ("10/minute", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 / minute", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10/s", Quota::token_bucket(10, SECOND), "10 per second"),
        ("10/1m", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 per 60s", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 per 1 minute", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 per 1 hour", Quota::token_bucket(10, HOUR), "10 per hour"),
        ("10 per day", Quota::token_bucket(10, DAY), "10 per day"),
        ("10 per 1 week", Quota::token_bucket(10, DAY * 7), "10 per week"),
        ("10 per 2 weeks", Quota::token_bucket(10, DAY * 14), "10 per 14 days"),
        ("10 per 30 days", Quota::token_bucket(10, DAY * 30), "10 per 30 days"),
        ("10 per 36 hours", Quota::token_bucket(10, HOUR * 36), "10 per 36 hours"),
        ("10 per 1h 30m", Quota::token_bucket(10, MINUTE * 90), "10 per 90 minutes"),
        ("10 per 1h30m", Quota::token_bucket(10, MINUTE * 90), "10 per 90 minutes"),
        ("10 per 90s", Quota::token_bucket(10, SECOND * 90), "10 per 90 seconds"),
        ("10 per 1.5s", Quota::token_bucket(10, millis(1_500)), "10 per 1500 ms"),
        ("10 per millisecond", Quota::token_bucket(10, millis(1)), "10 per millisecond"),
        ("10 per 250 ms", Quota::token_bucket(10, millis(250)), "10 per 250 ms"),
        ("10 per microsecond", Quota::token_bucket(10, micros(1)), "10 per microsecond"),
        ("10 per 7us", Quota::token_bucket(10, micros(7)), "10 per 7 us"),
        ("10 per 7µs", Quota::token_bucket(10, micros(7)), "10 per 7 us"),
        (
            "1 per 9007199254740992us",
            Quota::token_bucket(1, micros(1 << 53)),
            "1 per 9007199254740992 us",
        ),
    ]);
}

#[test]
fn units_have_the_names_that_people_use() {
    for (period, names) in [
        (DAY * 7, &["w", "week", "weeks"][..]),
        (DAY, &["d", "day", "days"]),
        (HOUR, &["h", "hr", "hrs", "hour", "hours"]),
        (MINUTE, &["m", "min", "mins", "minute", "minutes"]),
        (SECOND, &["s", "sec", "secs", "second", "seconds"]),
        (Duration::from_millis(1), &["ms", "millisecond", "milliseconds"]),
        (Duration::from_micros(1), &["us", "µs", "microsecond", "microseconds"]),
    ] {
        for name in names {
            for text in [format!("10 per 3{name}"), format!("10/1 {name} 2{name}")] {
                assert_eq!(text.parse(), Ok(Quota::token_bucket(10, period * 3)), "`{text}`");
            }
        }
        let alone = format!("10/{}", names[0]);
        assert_eq!(alone.parse(), Ok(Quota::token_bucket(10, period)), "`{alone}`");
    }
}

#[test]
fn a_period_may_be_plural_and_in_any_case() {
    for (text, quota, printed) in [
        ("10 per minutes", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 per Minute", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 per MINUTES", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("10 per 2 Minutes", Quota::token_bucket(10, MINUTE * 2), "10 per 2 minutes"),
        ("10 per 1 Hour 30 MINS", Quota::token_bucket(10, MINUTE * 90), "10 per 90 minutes"),
        ("10 PER Day", Quota::token_bucket(10, DAY), "10 per day"),
        ("10/Sec", Quota::token_bucket(10, SECOND), "10 per second"),
        ("fixed window: 10 per Days", Quota::fixed_window(10, DAY), "fixed window: 10 per day"),
    ] {
        assert_eq!(text.parse(), Ok(quota), "`{text}`");
        assert_eq!(quota.to_string(), printed);
    }
    // Of an abbreviation the case may be meant: `M` is a month elsewhere.
    for text in ["10 per M", "10 per 3M", "10/S", "10 per 5 Ms", "10 per HR", "10 per 7µS"] {
        assert!(text.parse::<Quota>().is_err(), "`{text}`");
    }
}

#[test]
fn the_kind_comes_first_and_may_be_left_out_for_a_token_bucket() {
    table(&[
        ("token bucket: 10/minute", Quota::token_bucket(10, MINUTE), "10 per minute"),
        (" token bucket :10/minute ", Quota::token_bucket(10, MINUTE), "10 per minute"),
        ("fixed window: 10/minute", Quota::fixed_window(10, MINUTE), "fixed window: 10 per minute"),
        ("fixed window:10/minute", Quota::fixed_window(10, MINUTE), "fixed window: 10 per minute"),
    ]);
}

#[test]
fn options_come_in_any_order_and_are_printed_in_one() {
    let bucket = Quota::token_bucket(10, MINUTE);
    table(&[
        ("10 per minute, capacity 20", bucket.capacity(20), "10 per minute, capacity 20"),
        ("10/minute,capacity 20", bucket.capacity(20), "10 per minute, capacity 20"),
        ("10/minute ,  capacity\t20 ", bucket.capacity(20), "10 per minute, capacity 20"),
        ("10/minute, capacity 0", bucket.capacity(0), "10 per minute, capacity 0"),
        ("10/minute, max_reserved 0", bucket.max_reserved(0), "10 per minute, max_reserved 0"),
        ("10/minute, initial 0", bucket.initial(0), "10 per minute, initial 0"),
        ("10/minute, shards 4", bucket.shards(4), "10 per minute, shards 4"),
        ("10/minute, shards 1", bucket, "10 per minute"),
        (
            "10/minute, shards 4, initial 5, max_reserved 80, capacity 20",
            bucket.capacity(20).max_reserved(80).initial(5).shards(4),
            "10 per minute, capacity 20, max_reserved 80, initial 5, shards 4",
        ),
    ]);
}

#[test]
fn quotas_that_count_alike_are_equal_however_they_are_written() {
    let hash = |quota: &Quota| {
        let mut hasher = std::hash::DefaultHasher::new();
        quota.hash(&mut hasher);
        hasher.finish()
    };
    let all = [
        &["10 per second", "10 per second, capacity 10", "10/1000 ms, initial 10, shards 1"][..],
        &["10 per second, capacity 20", "10/s, capacity 20, initial 20"],
        &["10 per second, initial 9", "10 per second, capacity 10, initial 9"],
        &["10 per second, max_reserved 0"],
        &["10 per second, shards 2"],
        &["fixed window: 10 per second", "fixed window: 10 per second, capacity 10"],
        &[
            "fixed window: 10 per day, start 1970-01-01T00:00:00Z",
            "fixed window: 10 per day, start 2026-01-01T00:00:00Z",
            "fixed window: 10 per day, start @-86400000000, capacity 10",
        ],
        &["fixed window: 10 per day, start 2026-01-01T00:00:01Z"],
        &["fixed window: 10 per day"],
        &["10 per minute"],
        &["600 per minute, capacity 10"],
    ];
    for (nth, one) in all.iter().enumerate() {
        for (other_nth, other) in all.iter().enumerate() {
            for (one, other) in
                one.iter().flat_map(|one| other.iter().map(move |other| (one, other)))
            {
                let [left, right] = [one, other].map(|text| text.parse::<Quota>().unwrap());
                assert_eq!(left == right, nth == other_nth, "`{one}`, `{other}`");
                assert!(left != right || hash(&left) == hash(&right), "`{one}`, `{other}`");
            }
        }
    }
}

#[test]
fn numbers_may_be_grouped_by_underscores() {
    table(&[
        ("40_000/minute", Quota::token_bucket(40_000, MINUTE), "40000 per minute"),
        (
            "007 per minute, capacity 1_000",
            Quota::token_bucket(7, MINUTE).capacity(1_000),
            "7 per minute, capacity 1000",
        ),
    ]);
}

#[test]
fn a_start_is_a_date_or_a_number_of_microseconds() {
    let starting = |micros| Quota::fixed_window(10, DAY).start(Timestamp::from_micros(micros));
    let new_year = 1_767_225_600_000_000;
    for (given, micros, printed) in [
        ("2026-01-01T00:00:00Z", new_year, "2026-01-01T00:00:00Z"),
        ("@1767225600000000", new_year, "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.25Z", new_year + 250_000, "2026-01-01T00:00:00.250000Z"),
        ("2026-01-01T00:00:00.000001Z", new_year + 1, "2026-01-01T00:00:00.000001Z"),
        ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
        ("@0", 0, "1970-01-01T00:00:00Z"),
        ("@-1", -1, "@-1"),
        ("@-9223372036854775808", i64::MIN, "@-9223372036854775808"),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000, "9999-12-31T23:59:59Z"),
        ("@253402300799000001", 253_402_300_799_000_001, "@253402300799000001"),
        ("@9223372036854775807", i64::MAX, "@9223372036854775807"),
    ] {
        let text = format!("fixed window: 10 per day, start {given}");
        let canonical = format!("fixed window: 10 per day, start {printed}");
        table(&[(&text, starting(micros), &canonical)]);
    }
}

/// A duration that is within range only until its parts are added must not panic on the way.
#[test]
fn the_longest_durations_are_refused_like_any_other() {
    for period in [
        "18446744073709551615s",
        "18446744073709551615s 1s",
        "18446744073709551615s 1000ms",
        "18446744073709551615s 500ms 500ms",
        "18446744073709551615 years",
        "18446744073709551615.9s",
        "99999999999999999999s",
    ] {
        assert!(format!("10 per {period}").parse::<Quota>().is_err(), "{period}");
    }
}

/// More than usual, as a text takes no time; or as many as `PROPTEST_CASES` asks for.
fn many() -> ProptestConfig {
    let usual = ProptestConfig::default();
    ProptestConfig { cases: usual.cases.max(2_048), ..usual }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn a_printed_quota_is_read_back_unchanged(quota in quotas()) {
        let text = quota.to_string();
        prop_assert_eq!(text.parse(), Ok(quota), "{}", text);
    }
}

/// The property above is worth only as much as the quotas that are drawn.
#[test]
fn the_quotas_that_are_drawn_have_every_option_and_none() {
    let drawn = draw(&quotas(), 500);
    for kind in [Kind::TokenBucket, Kind::FixedWindow] {
        let drawn: Vec<_> = drawn.iter().filter(|quota| quota.kind() == kind).collect();
        for option in [", capacity ", ", max_reserved ", ", initial ", ", shards ", ", start "] {
            let with = drawn.iter().filter(|quota| quota.to_string().contains(option)).count();
            let possible = kind == Kind::FixedWindow || option != ", start ";
            assert_eq!(with > 20, possible, "{with} of {kind:?} with `{option}`");
            assert!(drawn.len() - with > 20, "{with} of {} {kind:?}", drawn.len());
        }
    }
}

#[test]
fn the_text_form_of_requests_in_flight() {
    let of = Quota::in_flight;
    for (quota, text) in [
        (of(4), "4 in flight"),
        (of(1).lost_after(HOUR), "1 in flight, lost_after 1 hour"),
        (of(1).lost_after(90 * MINUTE), "1 in flight, lost_after 90 minutes"),
        (of(40).max_reserved(8), "40 in flight, max_reserved 8"),
        (of(2).max_reserved(0).lost_after(DAY), "2 in flight, lost_after 1 day, max_reserved 0"),
    ] {
        assert_eq!(quota.to_string(), text);
        assert_eq!(text.parse(), Ok(quota));
    }
    assert_eq!(
        " 4  IN  Flight , max_reserved 3,lost_after 1h 30m".parse(),
        Ok(of(4).max_reserved(3).lost_after(90 * MINUTE))
    );
    assert_eq!("0 in flight".parse(), Ok(Quota::none()));
    assert_ne!(of(4), Quota::fixed_window(4, of(4).period()).from_first_use());
    assert_eq!((of(4).get_lost_after(), of(4).lost_after(DAY).get_lost_after()), (None, Some(DAY)));
    assert_eq!(Quota::fixed_window(4, DAY).get_lost_after(), None);
}

#[test]
fn requests_in_flight_have_no_settings_of_rates_and_rates_none_of_theirs() {
    let options = "a quota of requests in flight has no capacity, initial, start or shards (drop them; \
                   `max_reserved` bounds how many requests wait)";
    let lost = "the tokens of a rate come back by themselves, so none is lost (drop `lost_after`, or \
                count requests in flight)";
    for (text, wanted) in [
        ("4 in flight, capacity 4", options),
        ("4 in flight, initial 4", options),
        ("4 in flight, start first use", options),
        ("4 in flight, start 2026-01-01T00:00:00Z", options),
        ("4 in flight, shards 2", options),
        ("4 per hour, lost_after 1 hour", lost),
        ("fixed window: 4 in flight", "requests in flight are of no kind (write `4 in flight`)"),
        ("1.5 in flight", "requests `1.5` is not a whole number from 0 to 18446744073709551615"),
        (
            "4 in flight, lost_after soon",
            "`soon` is not a period (write `minute`, `90 seconds`, `1h 30m` or `30 days`)",
        ),
        (
            "4 in flight, lost_after 1h, lost_after 2h",
            "`lost_after` is given twice (leave one out)",
        ),
    ] {
        let error = text.parse::<Quota>().unwrap_err().to_string();
        assert_eq!(error, format!("`{text}` is not a quota: {wanted}"));
    }
    let none = Quota::try_in_flight(0).unwrap_err().to_string();
    assert!(none.starts_with("quota of 0 requests in flight is empty"), "{none}");
    assert!(Quota::in_flight(4).capacity(8).validated().is_err());
    assert!(Quota::in_flight(4).lost_after(std::time::Duration::ZERO).validated().is_err());
}

#[cfg(feature = "serde")]
mod serde {
    use std::collections::BTreeMap;

    use tollgate::{DAY, MINUTE, Quota, Timestamp};

    fn quotas() -> BTreeMap<String, Quota> {
        let exports = Quota::fixed_window(100, DAY).start(Timestamp::UNIX_EPOCH).shards(4);
        let quotas =
            [("login", Quota::token_bucket(10, MINUTE).capacity(20)), ("exports", exports)];
        quotas.map(|(name, quota)| (name.to_owned(), quota)).into()
    }

    const CONFIGURATION: &str = r#"{"exports":"fixed window: 100 per day, start 1970-01-01T00:00:00Z, shards 4","login":"10 per minute, capacity 20"}"#;

    #[test]
    fn a_quota_in_json_is_its_text() {
        assert_eq!(serde_json::to_string(&quotas()).unwrap(), CONFIGURATION);
        let read: BTreeMap<String, Quota> = serde_json::from_str(CONFIGURATION).unwrap();
        assert_eq!(read, quotas());
    }

    #[test]
    fn a_quota_is_read_from_borrowed_owned_and_escaped_strings() {
        let quota = Quota::token_bucket(10, MINUTE);
        assert_eq!(serde_json::from_str::<Quota>(r#""10/minute""#).unwrap(), quota);
        assert_eq!(serde_json::from_str::<Quota>(r#""10\u002fminute""#).unwrap(), quota);
        assert_eq!(serde_json::from_reader::<_, Quota>(&br#""10/minute""#[..]).unwrap(), quota);
        assert_eq!(serde_json::from_value::<Quota>("10/minute".into()).unwrap(), quota);
    }

    #[test]
    fn a_wrong_text_in_json_says_what_is_wrong_and_where() {
        let error = serde_json::from_str::<Quota>(r#""10 per fortnight""#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`10 per fortnight` is not a quota: `fortnight` is not a period (write `minute`, \
             `90 seconds`, `1h 30m` or `30 days`) at line 1 column 18"
        );
        let error = serde_json::from_str::<Quota>(r#""10/minute, shards 0""#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`10/minute, shards 0` is not a quota: 0 shards hold no tokens (use 1 or more) at \
             line 1 column 21"
        );
    }

    #[test]
    fn json_that_is_no_text_is_answered_with_an_example() {
        for (json, given) in [
            ("10", "integer `10`"),
            ("1.5", "floating point `1.5`"),
            ("null", "null"),
            ("true", "boolean `true`"),
            (r#"["10/minute"]"#, "sequence"),
            (r#"{"rate":10}"#, "map"),
        ] {
            let message = serde_json::from_str::<Quota>(json).unwrap_err().to_string();
            // Where it is found is up to the format.
            let (said, _) = message.rsplit_once(" at line 1 column ").unwrap();
            let expected = "expected a quota like \"10 per minute, capacity 20\"";
            assert_eq!(said, format!("invalid type: {given}, {expected}"));
        }
    }
}

// Helpers.

/// Each text is this quota and is printed so, which is the same quota again.
#[track_caller]
fn table(rows: &[(&str, Quota, &str)]) {
    for &(text, quota, printed) in rows {
        assert_eq!(text.parse(), Ok(quota), "`{text}`");
        assert_eq!(quota.to_string(), printed, "`{text}`");
        assert_eq!(printed.parse(), Ok(quota), "`{printed}`");
    }
}

/// Quotas of every shape that are valid, each of them: the options are drawn from what fits.
fn quotas() -> impl Strategy<Value = Quota> {
    let kind = select(&[Kind::TokenBucket, Kind::FixedWindow][..]);
    let shards = prop_oneof![Just(1_u32), 2_u32..=4, 1_u32..=1_000];
    (kind, rates(), periods(), shards).prop_flat_map(|(kind, rate, period, shards)| {
        let quota = match kind {
            Kind::TokenBucket => Quota::token_bucket(rate, period),
            _ => Quota::fixed_window(rate, period),
        };
        let fits = tokens_that_fit(&quota);
        (capacities(rate, fits), starts(), any::<[bool; 4]>()).prop_flat_map(
            move |(capacity, start, [debt, initial, late, split])| {
                // Ten times the capacity has to fit where no debt is set.
                let debt = debt || capacity.unwrap_or(rate) > fits / 11;
                let quota = capacity.map_or(quota, |tokens| quota.capacity(tokens));
                let quota = if split { quota.shards(shards) } else { quota };
                let quota = match kind {
                    Kind::FixedWindow if late => quota.start(start),
                    _ => quota,
                };
                let most = quota.get_capacity();
                (0..=fits - most, 0..=most).prop_map(move |(owed, first)| {
                    let quota = if debt { quota.max_reserved(owed) } else { quota };
                    let quota = if initial { quota.initial(first) } else { quota };
                    quota.validated().unwrap_or_else(|error| panic!("`{quota}`: {error}"))
                })
            },
        )
    })
}

fn rates() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..=10, 1_u64..=1_000, 1_u64..=1_000_000, 1_u64..=1_000_000_000_000]
}

/// From a microsecond to 30 days: whole units, odd numbers of the small ones, and the ends.
fn periods() -> impl Strategy<Value = Duration> {
    const LONGEST: u64 = 30 * 86_400_000_000;
    let units = [1, 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000_u64];
    let whole = (select(units.to_vec()), prop_oneof![Just(1_u64), 1_u64..=200])
        .prop_map(|(unit, count)| (unit * count).min(LONGEST));
    prop_oneof![whole, 1..=LONGEST, (0..LONGEST / 2).prop_map(|half| 2 * half + 1), Just(LONGEST)]
        .prop_map(Duration::from_micros)
}

/// None where the rate fits too, and numbers from nothing to the largest.
fn capacities(rate: u64, fits: u64) -> impl Strategy<Value = Option<u64>> {
    let some = prop_oneof![0..=fits.min(20), 0..=fits, Just(fits)].prop_map(Some);
    prop_oneof![Just((rate <= fits).then_some(None)), some.prop_map(Some)]
        .prop_map(move |capacity| capacity.unwrap_or(Some(fits)))
}

fn starts() -> impl Strategy<Value = Timestamp> {
    let since_2026 = 1_767_225_600_000_000..1_800_000_000_000_000_i64;
    let seconds = (0_i64..300_000_000_000).prop_map(|seconds| seconds * 1_000_000);
    prop_oneof![
        Just(0),
        Just(i64::MIN),
        Just(i64::MAX),
        -1_000_i64..=1_000,
        since_2026,
        seconds,
        any::<i64>(),
    ]
    .prop_map(Timestamp::from_micros)
}

/// How many tokens come to 2^53 units at most, by the formula of the design: in the longest step whose
/// gain does.
fn tokens_that_fit(quota: &Quota) -> u64 {
    const MOST: u128 = 1 << 53;
    let (rate, period) = (u128::from(quota.rate()), quota.period().as_micros());
    let steps = (0..=6).map(|zeros| 10_u128.pow(zeros));
    let fits = |step| {
        let common = gcd(rate * step, period);
        let (gain, token) = (rate * step / common, period / common);
        (gain <= MOST).then(|| u64::try_from(MOST / token).unwrap())
    };
    match quota.kind() {
        Kind::TokenBucket => steps.filter_map(fits).max().unwrap(),
        _ => 1 << 53,
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
