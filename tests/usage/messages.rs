//! The error for bad input says what was given, what is allowed, and how to fix it.

use std::any::type_name;
use std::error::Error as StdError;
use std::net::SocketAddr;
use std::panic::{UnwindSafe, catch_unwind};
use std::time::Duration;
use std::{fmt, io};

use http::{HeaderValue, Request};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::ManualClock;
use tollgate::key::{
    ClientIp, Extracted, Head, Key, KeyError, KeyExtractor, Proxies, extension, from_fn, header,
    matched_path,
};
use tollgate::limiter::{LimitCall, PeekCall};
use tollgate::quota::QuotaError;
use tollgate::{
    DAY, HOUR, Limit, MINUTE, Permit, Quota, RateLimited, RateLimiter, Reservation, SECOND,
};

const MAX_UNITS: u64 = 1 << 53;

const LOGIN: Limit = Limit::new("login", Quota::token_bucket(10, MINUTE).capacity(20));

// Quotas that are not valid.

#[test]
fn a_quota_needs_a_rate_and_a_period() {
    says(
        Quota::try_token_bucket(0, SECOND),
        "quota of 0 per second is empty (rate and period must both be more than zero; \
         `Quota::none()` grants nothing)",
    );
    says(
        Quota::try_fixed_window(10, Duration::ZERO),
        "quota of 10 per 0 seconds is empty (rate and period must both be more than zero)",
    );
}

#[test]
fn a_period_is_a_whole_number_of_microseconds() {
    says(
        Quota::try_token_bucket(10, Duration::from_nanos(1_500)),
        "period of 1.5µs cannot be counted (use whole microseconds, at most 2^53 of them, which is \
         285 years)",
    );
    says(
        Quota::try_fixed_window(10, SECOND + Duration::from_nanos(1)),
        "period of 1.000000001s cannot be counted (use whole microseconds, at most 2^53 of them, \
         which is 285 years)",
    );
}

#[test]
fn a_period_is_at_most_two_to_the_53_microseconds() {
    says(
        Quota::try_token_bucket(10, Duration::from_micros(MAX_UNITS + 1)),
        "period of 9007199254.740993s cannot be counted (use whole microseconds, at most 2^53 of \
         them, which is 285 years)",
    );
    says(
        Quota::try_fixed_window(10, Duration::MAX),
        "period of 18446744073709551615.999999999s cannot be counted (use whole microseconds, at \
         most 2^53 of them, which is 285 years)",
    );
    assert!(Quota::try_token_bucket(1, Duration::from_micros(MAX_UNITS)).is_ok());
}

#[test]
fn the_error_of_a_capacity_that_does_not_fit_names_one_that_does() {
    says(
        Quota::token_bucket(1, DAY).capacity(10_000_000_000).validated(),
        "capacity of 10000000000 does not fit in 2^53 units: at 1 per day a token counts as 86400, \
         and ten times the capacity may be owed (use a capacity of at most 9477271943, or set \
         `max_reserved`)",
    );
    says(
        Quota::token_bucket(4_999, DAY * 36_500).capacity(10_000_000).validated(),
        "capacity of 10000000 does not fit in 2^53 units: at 4999 per 36500 days a token counts as \
         3153600000, and ten times the capacity may be owed (use a capacity of at most 259651, or \
         set `max_reserved`)",
    );
    says(
        Quota::fixed_window(1, DAY).capacity(MAX_UNITS + 1).max_reserved(0).validated(),
        "capacity of 9007199254740993 does not fit in 2^53 units: at 1 per day a token counts as 1 \
         (use a capacity of at most 9007199254740992)",
    );
}

#[test]
fn the_capacity_that_the_message_names_is_the_largest_that_fits() {
    for quota in quotas() {
        names_the_largest(quota, "capacity", Quota::capacity);
    }
}

#[test]
fn the_capacity_that_the_message_names_is_the_largest_that_fits_with_shards() {
    for quota in sharded_quotas() {
        names_the_largest(quota, "capacity", Quota::capacity);
    }
}

#[test]
fn the_error_of_a_max_reserved_that_does_not_fit_names_one_that_does() {
    says(
        Quota::token_bucket(1, DAY).capacity(20).max_reserved(200_000_000_000).validated(),
        "max_reserved of 200000000000 does not fit in 2^53 units: at 1 per day a token counts as \
         86400, and the capacity counts too (use a max_reserved of at most 104249991354)",
    );
    says(
        Quota::fixed_window(10, DAY).capacity(MAX_UNITS).max_reserved(1).validated(),
        "max_reserved of 1 does not fit in 2^53 units: at 10 per day a token counts as 1, and the \
         capacity counts too (use a max_reserved of at most 0)",
    );
}

#[test]
fn the_max_reserved_that_the_message_names_is_the_largest_that_fits() {
    for quota in quotas() {
        names_the_largest(quota.capacity(20), "max_reserved", Quota::max_reserved);
    }
}

#[test]
fn the_max_reserved_that_the_message_names_is_the_largest_that_fits_with_shards() {
    for quota in sharded_quotas() {
        names_the_largest(quota.capacity(20), "max_reserved", Quota::max_reserved);
    }
}

#[test]
fn the_error_of_a_rate_that_does_not_fit_names_one_that_does() {
    let fixed_window = |rate| Quota::fixed_window(rate, SECOND).capacity(1).validated();
    says(
        fixed_window(MAX_UNITS + 1),
        "rate of 9007199254740993 per second does not fit in 2^53 units (use a rate of at most \
         9007199254740992)",
    );
    assert!(fixed_window(MAX_UNITS).is_ok());

    let token_bucket = |rate| Quota::token_bucket(rate, MINUTE).capacity(1).validated();
    says(
        token_bucket(u64::MAX - 1),
        "rate of 18446744073709551614 per minute does not fit in 2^53 units (use a rate of at most \
         9007199254740992)",
    );
    assert!(token_bucket(MAX_UNITS).is_ok());
}

#[test]
fn a_quota_has_at_least_one_shard() {
    says(
        Quota::token_bucket(10, MINUTE).shards(0).validated(),
        "0 shards hold no tokens (use 1 or more)",
    );
}

/// To look at 10,000,000 shards took `peek` five seconds and 2.4 GB.
#[test]
fn a_quota_has_at_most_so_many_shards_as_a_peek_can_look_at() {
    let quota = Quota::token_bucket(1_000_000, SECOND);
    for (shards, given) in [(10_000_000, "10000000"), (1_025, "1025"), (u32::MAX, "4294967295")] {
        let problem = format!(
            "{given} shards are too many, as `peek` and `reset` ask the store for each of them (use at \
             most 1024)"
        );
        says(quota.shards(shards).validated(), &problem);
        let limit = Limit::try_new("hot", quota.shards(shards)).unwrap_err();
        assert_eq!(limit.source().unwrap().to_string(), problem);
        let text = format!("1000000 per second, shards {given}");
        let parsed = text.parse::<Quota>().unwrap_err();
        assert!(chain(&parsed).concat().contains(&problem), "{parsed}");
    }
    assert!(quota.shards(Quota::MAX_SHARDS).validated().is_ok());
    assert_eq!(Quota::MAX_SHARDS, 1_024);
}

#[test]
fn the_error_of_shards_that_do_not_fit_names_the_fix() {
    // No longer step divides this period.
    let quota = Quota::token_bucket(1, Duration::from_micros(25_920_000_000_001));
    says(
        quota.shards(1_021).validated(),
        "1021 shards of 1 per 25920000000001 us do not fit: a token would be more than 2^53 units \
         (use fewer shards, or a shorter period)",
    );
    assert!(quota.shards(300).validated().is_ok());
    assert!(Quota::token_bucket(1, DAY * 300).shards(1_000).validated().is_ok());
    assert!(Quota::token_bucket(1, DAY).shards(1_000).validated().is_ok());
}

/// Only a token bucket spreads its tokens over the period; a window's token is one unit a shard.
#[test]
fn the_shards_of_a_fixed_window_fit_whatever_the_period() {
    assert_eq!(Quota::fixed_window(10, DAY * 3_650).shards(1_024).validated().err(), None);
}

#[test]
fn only_fixed_windows_have_a_start() {
    says(
        Quota::token_bucket(10, MINUTE).start(tollgate::Timestamp::UNIX_EPOCH).validated(),
        "a token bucket has no start (drop `start`, or use a fixed window)",
    );
}

#[test]
fn initial_is_at_most_the_capacity() {
    says(
        Quota::token_bucket(10, MINUTE).capacity(20).initial(21).validated(),
        "initial of 21 is above the capacity of 20 (use at most 20, or raise the capacity)",
    );
    // Where no capacity is set, it is the rate.
    says(
        Quota::fixed_window(10, MINUTE).initial(11).validated(),
        "initial of 11 is above the capacity of 10 (use at most 10, or raise the capacity)",
    );
    assert!(Quota::token_bucket(10, MINUTE).capacity(20).initial(20).validated().is_ok());
}

// Quotas as text.

#[test]
fn the_error_of_an_unknown_kind_lists_the_kinds() {
    unparsable(
        "leaky bucket: 10 per minute",
        "`leaky bucket` is not a kind (use `token bucket`, which may be left out, or `fixed \
         window`)",
    );
    unparsable(
        "Fixed Window: 10 per minute",
        "`Fixed Window` is not a kind (use `token bucket`, which may be left out, or `fixed \
         window`)",
    );
}

#[test]
fn the_error_of_a_text_without_a_period_shows_one() {
    unparsable("", "it has no rate per period (write `10 per minute`)");
    unparsable("per minute", "it has no rate per period (write `10 per minute`)");
    unparsable("10 per ", "it has no rate per period (write `10 per minute`)");
    unparsable("10", "it has no rate per period (write `10 per minute`)");
    unparsable("10, capacity 20 per minute", "it has no rate per period (write `10 per minute`)");
}

#[test]
fn the_error_of_a_number_with_a_comma_says_so() {
    for text in ["40,000 per day", "10 per minute, capacity 1,000", "1,000 in flight"] {
        unparsable(text, "a comma is no part of a number (leave it out, or write `40_000`)");
    }
}

#[test]
fn the_error_of_a_bad_number_quotes_it() {
    for number in ["ten", "-1", "+1", "1e3", "_1", "18446744073709551616"] {
        let problem =
            |what, most| format!("{what} `{number}` is not a whole number from 0 to {most}");
        unparsable(&format!("{number} per minute"), &problem("rate", u64::MAX));
        for option in ["capacity", "max_reserved", "initial"] {
            let text = format!("10 per minute, {option} {number}");
            unparsable(&text, &problem(option, u64::MAX));
        }
        let text = format!("10 per minute, shards {number}");
        unparsable(&text, &problem("shards", u64::from(u32::MAX)));
    }
    unparsable("/minute", "rate `` is not a whole number from 0 to 18446744073709551615");
    unparsable("10 per minute, ", "no option follows a comma (write one, or leave the comma out)");
    unparsable(
        "10 per minute, shards 4294967296",
        "shards `4294967296` is not a whole number from 0 to 4294967295",
    );
    unparsable(
        "10 per minute, capacity 20 tokens",
        "capacity `20 tokens` is not a whole number from 0 to 18446744073709551615",
    );
}

#[test]
fn the_error_of_a_bad_period_shows_examples() {
    for period in ["fortnight", "", "90", "1 month", "-1s", "1.s", ".5s", "1.5us", "second/minute"]
    {
        let problem = format!(
            "`{period}` is not a period (write `minute`, `90 seconds`, `1h 30m` or `30 days`)"
        );
        unparsable(&format!("10/{period}"), &problem);
        if !period.is_empty() {
            unparsable(&format!("10 per {period}"), &problem);
        }
    }
}

#[test]
fn the_error_of_an_unknown_option_lists_the_options() {
    for option in ["brust 20", "capacity", "capacity=20", "Capacity 20", "20"] {
        unparsable(
            &format!("10 per minute, {option}"),
            &format!(
                "`{option}` is not an option (there are `capacity 20`, `max_reserved 80`, \
                 `initial 5`, `start 2026-01-01T00:00:00Z`, `start first use`, `shards 4` and, of \
                 requests in flight, `lost_after 1 hour`)"
            ),
        );
    }
}

/// The errors for words of other rate limiters name the words to write instead.
#[test]
fn the_error_of_a_burst_says_to_write_capacity() {
    for burst in ["burst 20", "Burst 20", "burst=20", "burst: 20", "burst_size 20"] {
        let problem = format!("`{burst}` is not an option (write `capacity 20`)");
        unparsable(&format!("10 per minute, {burst}"), &problem);
    }
    unparsable("10 per minute, burst", "`burst` is not an option (write `capacity 20`)");
    unparsable(
        "10 per minute, burst 1_000",
        "`burst 1_000` is not an option (write `capacity 1_000`)",
    );
}

#[test]
fn the_error_of_a_fraction_of_a_token_shows_a_longer_period() {
    for (given, rate, instead) in [
        ("1.5 per second", "1.5", "3 per 2 seconds"),
        ("0.5/minute", "0.5", "1 per 2 minutes"),
        ("0.1 per day", "0.1", "1 per 10 days"),
        ("2.50 per 2 Minutes", "2.50", "5 per 4 minutes"),
        ("fixed window: 1.5 per day", "1.5", "3 per 2 days"),
        ("10.0 per minute", "10.0", "10 per minute"),
    ] {
        unparsable(given, &format!("rate `{rate}` is not a whole number (write `{instead}`)"));
        assert!(instead.parse::<Quota>().is_ok(), "{instead}");
    }
    // A fraction that no quota can replace.
    for rate in ["0.0", "1.", ".5", "1.5.5", "1.5e3", "0.0000000000000000000001"] {
        let problem = "is not a whole number from 0 to 18446744073709551615";
        unparsable(&format!("{rate} per second"), &format!("rate `{rate}` {problem}"));
    }
}

#[test]
fn the_error_of_a_repeated_option_names_it() {
    for option in ["capacity 20", "max_reserved 80", "initial 5", "shards 4", "start @0"] {
        let (name, _) = option.split_once(' ').unwrap();
        unparsable(
            &format!("10 per minute, {option}, {option}"),
            &format!("`{name}` is given twice (leave one out)"),
        );
    }
}

#[test]
fn the_error_of_a_bad_start_shows_examples() {
    for start in [
        "tomorrow",
        "2026-01-01",
        "2026-02-30T00:00:00Z",
        "2026-01-01 00:00:00",
        "2026-01-01T00:00:00",
        "1969-12-31T23:59:59Z",
        "@",
        "@1.5",
        "@9223372036854775808",
    ] {
        unparsable(
            &format!("fixed window: 10 per day, start {start}"),
            &format!(
                "start `{start}` is not an instant (write `2026-01-01T00:00:00Z`, `@` and \
                 microseconds since 1970, or `first use`)"
            ),
        );
    }
}

/// Instants are in UTC; one that says otherwise must not be hours off in silence.
#[test]
fn a_text_with_a_start_at_another_offset_is_not_read_as_utc() {
    for start in [
        "00:00:00+02:00",
        "00:00:00.5+02:00",
        "00:00:00.5+2:00Z",
        "00:00:00Z+2:00",
        "00:00:00Z-2:0Z",
        "00:00:00Z or so",
    ] {
        unparsable(
            &format!("fixed window: 10/day, start 2026-01-01T{start}"),
            &format!(
                "start `2026-01-01T{start}` is not an instant (write `2026-01-01T00:00:00Z`, \
                 `@` and microseconds since 1970, or `first use`)"
            ),
        );
    }
}

#[test]
fn a_text_with_numbers_that_are_no_quota_says_so_as_the_numbers_do() {
    unparsable(
        "0 per minute, capacity 5",
        "a quota of 0 has no capacity, max_reserved, initial or start (drop them, or use a rate \
         above zero)",
    );
    unparsable(
        "10 per 0s",
        "quota of 10 per 0 seconds is empty (rate and period must both be more than zero)",
    );
    unparsable(
        "10 per 200000 days",
        "period of 17280000000s cannot be counted (use whole microseconds, at most 2^53 of them, \
         which is 285 years)",
    );
    unparsable("10 per minute, shards 0", "0 shards hold no tokens (use 1 or more)");
    unparsable(
        "10 per minute, start 2026-01-01T00:00:00Z",
        "a token bucket has no start (drop `start`, or use a fixed window)",
    );
    unparsable(
        "10 per minute, capacity 3, initial 4",
        "initial of 4 is above the capacity of 3 (use at most 3, or raise the capacity)",
    );
    unparsable(
        "1 per day, capacity 10_000_000_000",
        "capacity of 10000000000 does not fit in 2^53 units: at 1 per day a token counts as 86400, \
         and ten times the capacity may be owed (use a capacity of at most 9477271943, or set \
         `max_reserved`)",
    );
}

#[test]
fn a_very_long_text_is_cut_in_the_message() {
    let long = "x".repeat(100_000);
    says(
        format!("10 per {long}").parse::<Quota>(),
        &format!(
            "`10 per {}…` is not a quota: `{}…` is not a period (write `minute`, `90 seconds`, \
             `1h 30m` or `30 days`)",
            &long[..53],
            &long[..60]
        ),
    );
    // By characters, not by bytes.
    let wide = "ü".repeat(61);
    says(
        wide.parse::<Quota>(),
        &format!(
            "`{}…` is not a quota: it has no rate per period (write `10 per minute`)",
            "ü".repeat(60)
        ),
    );
    let just_short_enough = "ü".repeat(60);
    unparsable(&just_short_enough, "it has no rate per period (write `10 per minute`)");
}

// Limits.

#[test]
fn the_name_of_a_limit_is_1_to_64_printable_ascii_characters() {
    let longest = "n".repeat(64);
    for name in ["x", " ", "~", "per \"client\"", &longest] {
        assert!(Limit::try_new(name, *LOGIN.quota()).is_ok(), "{name:?}");
    }
    for (name, shown, len) in [
        ("", r#""""#.to_owned(), 0),
        (&*"n".repeat(65), format!("\"{longest}…\""), 65),
        (&*"n".repeat(100_000), format!("\"{longest}…\""), 100_000),
        ("per\nclient", r#""per\nclient""#.to_owned(), 10),
        ("per\u{7f}client", r#""per\u{7f}client""#.to_owned(), 10),
        ("für", r#""für""#.to_owned(), 4),
    ] {
        says(
            Limit::try_new(name, *LOGIN.quota()),
            &format!(
                "limit {shown} has an invalid name of {len} bytes (use 1 to 64 printable ASCII \
                 characters)"
            ),
        );
    }
}

#[test]
fn the_source_of_a_limit_error_is_the_error_of_its_quota() {
    let error = Limit::try_new("exports", Quota::fixed_window(10, DAY).initial(11)).unwrap_err();
    assert_eq!(
        chain(&error),
        [
            r#"limit "exports" has an invalid quota"#,
            "initial of 11 is above the capacity of 10 (use at most 10, or raise the \
             capacity)",
        ]
    );
    assert!(error.source().is_some_and(|source| source.is::<QuotaError>()));
}

#[tokio::test]
async fn a_cost_that_can_never_fit_is_an_error_and_takes_nothing() {
    let limiter = RateLimiter::in_memory();
    for (cost, shown) in [(21, "21"), (u64::MAX, "18446744073709551615")] {
        let message = format!(
            "cost of {shown} can never fit limit `login` (it holds at most 20: ask for \
             less, or raise its capacity)"
        );
        let error = limiter.limit(&LOGIN).key("alice").cost(cost).await.unwrap_err();
        assert_eq!(chain(&error), [message.as_str()]);
        assert!(error.is_too_large() && !error.is_refused());
        assert!(!error.is_unavailable() && !error.is_timeout());
        assert_eq!(error.limit(), &LOGIN);
        assert!(error.retry_after().is_none() && error.snapshots().is_empty());
        // A peek says the same without an error: there is no wait that helps.
        let seen = limiter.peek(&LOGIN).key("alice").cost(cost).await.unwrap();
        assert_eq!((seen.fits(), seen.wait(), seen.cost()), (false, None, cost));
    }
    assert_eq!(limiter.peek(&LOGIN).key("alice").await.unwrap().remaining(), 20);
    assert!(limiter.limit(&LOGIN).key("alice").cost(20).await.is_ok());
}

#[tokio::test]
async fn the_error_of_a_cost_that_two_shards_cannot_grant_shows_the_arithmetic() {
    const HOT: Quota = Quota::token_bucket(100, MINUTE);
    let ask = async |quota: Quota, cost| {
        let limit = Limit::try_new("hot", quota).unwrap();
        let limiter = RateLimiter::in_memory();
        let taken = limiter.limit(&limit).cost(cost).await.unwrap_err();
        let twice = limiter.limit(&limit).cost(cost - 1).and(&limit).await.unwrap_err();
        assert_eq!(taken.to_string(), twice.to_string());
        assert!(taken.is_too_large() && limiter.peek(&limit).await.unwrap().remaining() > 0);
        assert_eq!(limiter.peek(&limit).cost(cost).await.unwrap().wait(), None);
        taken.to_string()
    };
    for (quota, cost, message) in [
        (
            HOT.shards(10),
            30,
            "cost of 30 can never fit limit `hot` (a request takes from at most two of its 10 \
             shards of 10 tokens, 20 together: ask for less, use fewer shards, or raise rate and \
             period together)",
        ),
        (
            HOT.capacity(10).shards(4),
            6,
            "cost of 6 can never fit limit `hot` (a request takes from at most two of its 4 \
             shards of 2.5 tokens, 5 together: ask for less, use fewer shards, or raise its \
             capacity)",
        ),
        (
            HOT.shards(2),
            101,
            "cost of 101 can never fit limit `hot` (its 2 shards of 50 tokens hold 100 together: \
             ask for less, or raise rate and period together)",
        ),
    ] {
        assert_eq!(ask(quota, cost).await, message);
        assert_eq!(
            ask(quota, u64::MAX).await,
            message.replacen(&cost.to_string(), &u64::MAX.to_string(), 1)
        );
    }
}

#[tokio::test]
async fn the_error_of_a_cost_that_two_shards_cannot_reserve_shows_the_arithmetic() {
    let reserve = async |quota: Quota, cost, most| {
        let limit = Limit::try_new("hot", quota).unwrap();
        let limiter = RateLimiter::in_memory();
        limiter.limit(&limit).cost(cost).reserve_within(most).await.unwrap_err().to_string()
    };
    let hot = Quota::token_bucket(100, MINUTE).max_reserved(50).shards(10);
    assert_eq!(
        reserve(hot, 31, Duration::MAX).await,
        "cost of 31 can never fit limit `hot` (a request takes from at most two of its 10 shards of \
         10 tokens, 20 together, and reserves at most 5 of each, 10 together: ask for less, use \
         fewer shards, raise max_reserved, or raise rate and period together)"
    );
    assert_eq!(
        reserve(hot, 26, SECOND).await,
        "cost of 26 can never fit limit `hot` (a request takes from at most two of its 10 shards of \
         10 tokens, 20 together, and reserves at most 5 of each, 10 together, for at most 1s: ask for \
         less, wait for longer, use fewer shards, raise max_reserved, or raise rate and period \
         together)"
    );
    let endless = Quota::token_bucket(100, MINUTE).shards(2);
    assert_eq!(
        reserve(endless, 110, SECOND).await,
        "cost of 110 can never fit limit `hot` (its 2 shards of 50 tokens hold 100 together, and \
         reserve for at most 1s: ask for less, wait for longer, or raise rate and period together)"
    );
    let never = Quota::token_bucket(100, MINUTE).max_reserved(0).shards(10);
    assert_eq!(
        reserve(never, 21, Duration::MAX).await,
        "cost of 21 can never fit limit `hot` (a request takes from at most two of its 10 shards of \
         10 tokens, 20 together: ask for less, use fewer shards, or raise rate and period together)"
    );
}

// Panics, where the documentation promises them.

#[test]
fn a_mistake_in_code_panics_with_what_is_allowed() {
    for (panicked, message) in [
        (
            panic_message(|| Quota::token_bucket(0, SECOND)),
            "a quota needs a rate and a period above zero (`Quota::none()` grants nothing)",
        ),
        (
            panic_message(|| Limit::new("a", Quota::none().capacity(5))),
            "a quota of 0 has no capacity, max_reserved, initial or start (drop them, or use a \
             rate above zero)",
        ),
        (
            panic_message(|| Quota::fixed_window(10, Duration::ZERO)),
            "a quota needs a rate and a period above zero",
        ),
        (
            panic_message(|| Quota::token_bucket(10, Duration::from_nanos(1))),
            "the period must be whole microseconds, at most 2^53 of them",
        ),
        (
            panic_message(|| Limit::new("", *LOGIN.quota())),
            "the name of a limit is 1 to 64 printable ASCII characters",
        ),
        (
            panic_message(|| Limit::new("login\n", *LOGIN.quota())),
            "the name of a limit is 1 to 64 printable ASCII characters",
        ),
        (
            panic_message(|| Limit::new("login", LOGIN.quota().capacity(u64::MAX))),
            "the capacity and ten times as much debt do not fit in 2^53 units (use a lower \
             capacity, or set `max_reserved`)",
        ),
        (
            panic_message(|| Limit::new("login", LOGIN.quota().capacity(u64::MAX).max_reserved(0))),
            "the capacity does not fit in 2^53 units (use a lower one)",
        ),
        (
            panic_message(|| Limit::new("login", LOGIN.quota().max_reserved(u64::MAX))),
            "max_reserved does not fit in 2^53 units (use a lower one)",
        ),
        (
            panic_message(|| Limit::new("login", LOGIN.quota().initial(21))),
            "initial is above the capacity (use less, or raise the capacity)",
        ),
        (
            panic_message(|| Limit::new("login", LOGIN.quota().shards(0))),
            "a quota needs at least one shard",
        ),
        (
            panic_message(|| Limit::new("login", LOGIN.quota().shards(1_025))),
            "a quota has at most 1024 shards",
        ),
        (
            panic_message(|| header("x user")),
            r#""x user" is not the name of a header field (use letters, digits and hyphens)"#,
        ),
    ] {
        assert_eq!(panicked, message);
    }
}

// Keys.

#[test]
fn a_header_that_is_missing_may_be_sent() {
    missing(
        header("X-User").extract(&Head::new(&Request::new(()))),
        "no key: the request has no `x-user` header (send it, or choose by `missing_key` what \
         happens without it)",
    );
}

#[test]
fn a_header_that_cannot_be_a_key_says_why() {
    let long = "x".repeat(65_536);
    for (values, message) in [
        (
            &["f\u{fc}r"][..],
            "no key: the `x-user` header is not printable ASCII (encode it, as in percent-encoding)",
        ),
        (
            &[&*long],
            "no key: the `x-user` header is 65536 bytes long (at most 1024 are taken; `max_len` \
             allows more)",
        ),
        (&[""], "no key: the `x-user` header is empty (send a value, or no header)"),
        (&["alice", "bob"], "no key: the request has more than one `x-user` header (send it once)"),
        (
            &["alice", "alice"],
            "no key: the request has more than one `x-user` header (send it once)",
        ),
    ] {
        invalid(header("x-user").extract(&Head::new(&from_user(values))), message);
    }
}

#[test]
fn a_header_is_held_to_the_length_that_was_set() {
    let request = from_user(&["alice"]);
    invalid(
        header("x-user").max_len(4).extract(&Head::new(&request)),
        "no key: the `x-user` header is 5 bytes long (at most 4 are taken; `max_len` allows more)",
    );
    let found = header("x-user").max_len(5).extract(&Head::new(&request));
    assert_eq!(found, Ok(Extracted::Key(Key::from("alice"))));
}

#[test]
fn an_address_that_is_missing_is_a_misconfiguration() {
    missing(
        ClientIp::peer().extract(&Head::new(&Request::new(()))),
        "no client address: `ConnectInfo` is missing (serve the router with \
         `into_make_service_with_connect_info::<SocketAddr>()`, add a layer of `MockConnectInfo` in \
         tests, or insert a `SocketAddr` as a request extension; tonic: `ClientIp::peer_from`; behind a \
         proxy on a Unix socket, which has no address: `ClientIp::x_forwarded_for(1)`)",
    );
    // The way out works.
    let mut request = Request::new(());
    request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 1], 80)));
    assert!(ClientIp::peer().extract(&Head::new(&request)).is_ok());
}

#[test]
fn a_setup_warning_about_the_address_names_the_fix_and_when_none_is_needed() {
    let warning = |client: ClientIp, field: Option<&str>, peer: [u8; 4]| {
        let mut request = Request::new(());
        request.extensions_mut().insert(SocketAddr::from((peer, 80)));
        let mut fields = field.into_iter().map(|name| name.parse::<http::HeaderName>().unwrap());
        let value = HeaderValue::from_static("203.0.113.7");
        request.headers_mut().extend(fields.next().map(|name| (name, value)));
        client.setup_warning(&Head::new(&request)).map(|warning| warning.to_string())
    };
    let hops = || ClientIp::forwarded(Proxies::hops(1));
    let (public, private) = ([192, 0, 2, 1], [10, 0, 0, 1]);
    for name in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        assert_eq!(
            warning(ClientIp::peer(), Some(name), public),
            Some(format!(
                "`{name}` is present, but no proxy is trusted, so the key is the address of the \
                 peer (behind a proxy, all clients share that address: name the trusted proxies, \
                 as with `ClientIp::x_forwarded_for`; without a proxy, a client made the field up \
                 and nothing is wrong)"
            ))
        );
    }
    assert_eq!(
        warning(hops(), Some("x-forwarded-for"), private).as_deref(),
        Some(
            "`x-forwarded-for` is present, and the field that is read is not, so the key is the \
             address of the proxy (find out which field the trusted proxies write, and have \
             `ClientIp` read that one)"
        )
    );
    assert_eq!(
        warning(ClientIp::peer(), None, private).as_deref(),
        Some(
            "all requests so far came from one private address, though the limit is for each \
             client (if that is a proxy or a NAT router, have it pass on the addresses of the \
             clients, and read them with `ClientIp::x_forwarded_for` or its siblings; if it is one \
             client, nothing is wrong)"
        )
    );
    assert_eq!(warning(ClientIp::peer(), None, public), None);
    assert_eq!(warning(hops(), None, public), None);
}

#[test]
fn an_empty_key_says_where_it_came_from() {
    #[derive(Clone)]
    struct Tenant(&'static str);

    let mut request = Request::new(());
    request.extensions_mut().insert(Tenant(""));
    let head = Head::new(&request);
    invalid(
        extension(|tenant: &Tenant| tenant.0).extract(&head),
        &format!(
            "no key: the key from the extension of type `{}` is empty (have the layer that inserts \
             it always set one, or the closure return `None`)",
            type_name::<Tenant>()
        ),
    );
    invalid(
        from_fn(|_| "").extract(&head),
        "no key: the closure returned an empty one (have it return `None` if there is none)",
    );
}

#[test]
fn an_extension_that_is_missing_says_its_type() {
    #[derive(Clone)]
    struct Tenant(u64);

    missing(
        extension(|tenant: &Tenant| tenant.0).extract(&Head::new(&Request::new(()))),
        &format!(
            "no key: the request has no extension of type `{}` (add the layer that inserts it \
             outside of this one; in axum, by a `.layer(..)` after this one's)",
            type_name::<Tenant>()
        ),
    );
}

#[test]
fn a_matched_path_that_is_missing_says_how_to_add_the_layer() {
    missing(
        matched_path().extract(&Head::new(&Request::new(()))),
        "no key: the request has no matched path (add the layer by `rate_limit` or \
         `route_layer`, so that it runs after routing)",
    );
}

#[test]
fn a_closure_that_finds_no_key_says_where_to_decide() {
    missing(
        from_fn(|_| None::<Key>).extract(&Head::new(&Request::new(()))),
        "no key: the closure found none in the request (choose by `missing_key` what happens then)",
    );
}

// Backends that fail.

#[tokio::test]
async fn a_backend_that_is_down_is_the_source_and_says_why() {
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
    for error in failures(|| BackendError::unavailable("redis", refused())).await {
        assert_eq!(
            chain(&error),
            [
                "limit `login` could not be decided",
                "redis backend could not decide: connection refused",
            ]
        );
        says_nothing_twice(&error);
        assert!(error.is_unavailable() && !error.is_timeout() && !error.is_too_large());
        assert_eq!(error.limit(), &LOGIN);
        assert!(error.source().is_some_and(|source| source.is::<BackendError>()));
    }
}

#[tokio::test]
async fn a_backend_that_is_late_says_how_long_it_had() {
    let late = || BackendError::timeout("redis", Duration::from_millis(50));
    for error in failures(late).await {
        assert_eq!(
            chain(&error),
            ["limit `login` could not be decided", "redis backend could not decide within 50 ms"]
        );
        says_nothing_twice(&error);
        assert!(error.is_timeout() && error.is_unavailable() && !error.is_too_large());
    }
}

#[tokio::test]
async fn a_backend_that_answers_nothing_is_an_error() {
    let limiter = RateLimiter::new(Forgetful);
    for error in [
        limiter.limit(&LOGIN).await.unwrap_err(),
        limiter.limit(&LOGIN).and(&OTHER).await.unwrap_err(),
        limiter.limit(&LOGIN).reserve().await.unwrap_err(),
        limiter.peek(&LOGIN).await.unwrap_err(),
        limiter.penalize(&LOGIN, 1).await.unwrap_err(),
    ] {
        assert_eq!(
            chain(&error),
            [
                "limit `login` could not be decided",
                "the backend has a bug: its answer lacks a charge (please report this)"
            ]
        );
        assert!(error.is_unavailable() && !error.is_timeout());
    }
}

// Refusals as errors.

#[tokio::test]
async fn a_refusal_says_which_limit_and_when_to_come_back() {
    let refused = refused().await;
    assert_eq!(chain(&refused), ["refused by limit `uploads` (retry after 60s)"]);
    assert_eq!((refused.limit().name(), refused.retry_after()), ("uploads", Some(MINUTE)));
    assert!(refused.is_refused() && !refused.is_too_large());
    assert!(!refused.is_unavailable() && !refused.is_timeout());
    let [by] = refused.snapshots() else { panic!("one limit refused") };
    assert_eq!((by.limit(), by.remaining(), by.cost()), (refused.limit(), 0, 1));
    assert_eq!((by.fits(), by.wait()), (false, Some(MINUTE)));
}

#[tokio::test]
async fn a_refusal_by_several_limits_names_each_and_the_longest_wait() {
    const A: Limit = Limit::new("a", Quota::token_bucket(1, SECOND));
    const B: Limit = Limit::new("b", Quota::token_bucket(9, SECOND));
    const C: Limit = Limit::new("c", Quota::token_bucket(1, MINUTE));
    let limiter = RateLimiter::new(Memory::new().clock(ManualClock::default()));
    let call = || limiter.limit(&A).key("alice").and(&B).and(&C).key("alice");
    assert!(call().await.is_ok());
    let refused = call().await.unwrap_err();
    assert_eq!(chain(&refused), ["refused by limit `a`, `c` (retry after 60s)"]);
    assert_eq!((refused.limit(), refused.retry_after()), (&A, Some(MINUTE)));
    let by: Vec<_> = refused.snapshots().iter().map(|one| (one.limit(), one.wait())).collect();
    assert_eq!(by, [(&A, Some(SECOND)), (&C, Some(MINUTE))]);
}

/// An error is no larger than a pointer, so that it makes no `Result` larger than what it is of.
#[tokio::test]
async fn an_error_is_a_pointer_that_goes_anywhere_and_permits_and_calls_stay_small() {
    fn goes_anywhere<E: StdError + Clone + Send + Sync + 'static>(error: E) -> E {
        std::thread::spawn(move || error).join().unwrap()
    }

    let refused = goes_anywhere(refused().await);
    assert_eq!(refused.clone().to_string(), refused.to_string());
    assert_eq!(size_of::<RateLimited>(), size_of::<usize>());
    assert_eq!(size_of::<Reservation>(), size_of::<usize>());
    let sizes = [
        size_of::<Permit<'_>>(),
        size_of::<Result<Permit<'_>, RateLimited>>(),
        size_of::<LimitCall<'_>>(),
        size_of::<LimitCall<'_, Duration>>(),
        size_of::<PeekCall<'_>>(),
    ];
    println!("permit, result, calls to limit, to reserve, to peek: {sizes:?} bytes");
    assert!(sizes.into_iter().zip(LARGEST).all(|(size, largest)| size <= largest), "{sizes:?}");
}

const LARGEST: [usize; 5] = [128, 128, 112, 128, 104];

#[tokio::test]
async fn a_returned_failure_keeps_its_causes_and_repeats_none() {
    let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");
    let down = Failing::AtOnce(BackendError::unavailable("redis", refused));
    let error = RateLimiter::new(down).limit(&LOGIN).await.unwrap_err();
    // Its copy is the same, with the same causes.
    assert_eq!(chain(&error.clone()), chain(&error));
    assert_eq!(chain(&error).len(), 2);
    says_nothing_twice(&error);
    assert!(error.is_unavailable() && !error.is_refused() && !error.is_too_large());
    assert!(error.snapshots().is_empty() && error.retry_after().is_none());
}

#[tokio::test]
async fn a_refusal_is_found_however_deep_it_is() {
    let wrapped: [Box<dyn StdError>; 6] = [
        Box::new(refused().await),
        Box::new(io::Error::other(refused().await)),
        Box::new(Wrapper::of(refused().await)),
        Box::new(io::Error::other(Wrapper::of(io::Error::other(refused().await)))),
        Box::new(Wrapper::of(io::Error::other(Wrapper::of(refused().await)))),
        Box::new(io::Error::other(io::Error::other(io::Error::other(refused().await)))),
    ];
    for error in wrapped {
        let found = RateLimited::find(&*error).unwrap_or_else(|| panic!("nothing in {error:?}"));
        assert_eq!(found.retry_after(), Some(MINUTE), "in {error:?}");
    }
}

#[test]
fn no_refusal_is_found_in_other_errors() {
    let not_found = || io::Error::from(io::ErrorKind::NotFound);
    let others: [Box<dyn StdError>; 5] = [
        Box::new(fmt::Error),
        Box::new(not_found()),
        Box::new(io::Error::other("refused by limit `uploads` (retry after 60s)")),
        Box::new(Wrapper::of(io::Error::other(Wrapper::of(not_found())))),
        Box::new(BackendError::unavailable("redis", not_found())),
    ];
    for error in others {
        assert!(RateLimited::find(&*error).is_none(), "in {error:?}");
    }
}

// Helpers.

/// Asserts that the error has this message and no source.
#[track_caller]
fn says<T: fmt::Debug, E: StdError>(result: Result<T, E>, message: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), message);
    assert!(error.source().is_none(), "it has a source: {error:?}");
}

/// The text, quoted whole, is not a quota because of this problem.
#[track_caller]
fn unparsable(text: &str, problem: &str) {
    says(text.parse::<Quota>(), &format!("`{text}` is not a quota: {problem}"));
}

#[track_caller]
fn missing(extracted: Result<Extracted, KeyError>, message: &str) {
    assert!(extracted.as_ref().is_err_and(KeyError::is_missing), "{extracted:?}");
    says(extracted, message);
}

#[track_caller]
fn invalid(extracted: Result<Extracted, KeyError>, message: &str) {
    assert!(!extracted.as_ref().is_err_and(KeyError::is_missing), "{extracted:?}");
    says(extracted, message);
}

/// What each error of a chain says, outermost first.
fn chain(error: &dyn StdError) -> Vec<String> {
    let mut said = vec![error.to_string()];
    let mut next = error.source();
    while let Some(source) = next {
        said.push(source.to_string());
        next = source.source();
    }
    said
}

#[track_caller]
fn says_nothing_twice(error: &dyn StdError) {
    let said = chain(error);
    for (i, outer) in said.iter().enumerate() {
        for (j, inner) in said.iter().enumerate() {
            assert!(i == j || !outer.contains(inner.as_str()), "{inner:?} twice in {said:?}");
        }
    }
}

/// The message of `quota` with too many tokens names a number that fits, and one more does not.
#[track_caller]
fn names_the_largest(quota: Quota, option: &str, with: fn(Quota, u64) -> Quota) {
    assert!(quota.validated().is_ok(), "`{quota}` is wrong without {option}");
    for given in [u64::MAX, MAX_UNITS + 1] {
        let message = with(quota, given).validated().unwrap_err().to_string();
        let largest = fits(&message, option);
        let at_it = with(quota, largest).validated();
        assert!(at_it.is_ok(), "`{quota}`, {option} {given}: {message}, but: {}", text(&at_it));
        let above = with(quota, largest + 1).validated();
        let Err(error) = above else {
            panic!("`{quota}`, {option} {given}: {message}, but one more fits");
        };
        assert_eq!(fits(&error.to_string(), option), largest, "for `{quota}`");
    }
}

/// The number in "(use a capacity of at most 20, or ..)".
#[track_caller]
fn fits(message: &str, option: &str) -> u64 {
    let before = format!("(use a {option} of at most ");
    let (_, number) =
        message.split_once(&before).unwrap_or_else(|| panic!("no way out: {message}"));
    number.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn text(validated: &Result<Quota, QuotaError>) -> String {
    match validated {
        Ok(quota) => quota.to_string(),
        Err(error) => error.to_string(),
    }
}

/// Quotas with one unit a token, a few, and as many as possible.
fn quotas() -> [Quota; 12] {
    let micros = Duration::from_micros;
    [
        Quota::token_bucket(1, micros(1)),
        Quota::token_bucket(1_000_000, SECOND),
        Quota::token_bucket(999_983, SECOND),
        Quota::token_bucket(7, SECOND),
        Quota::token_bucket(10, MINUTE),
        Quota::token_bucket(1, DAY),
        Quota::token_bucket(999_983, micros(2_591_999_999)).max_reserved(0),
        Quota::token_bucket(20, micros(MAX_UNITS / 32)),
        Quota::fixed_window(1, micros(1)),
        Quota::fixed_window(7, SECOND),
        Quota::fixed_window(100, HOUR),
        Quota::fixed_window(20, micros(MAX_UNITS)),
    ]
}

/// Shards that divide the rate, shards that do not, and very many.
fn sharded_quotas() -> [Quota; 10] {
    [
        Quota::token_bucket(7, SECOND).shards(7),
        Quota::token_bucket(7, SECOND).shards(3),
        Quota::token_bucket(10, MINUTE).shards(4),
        Quota::token_bucket(40_000, MINUTE).shards(10),
        Quota::token_bucket(1_000_000, SECOND).shards(64),
        Quota::token_bucket(1, DAY).shards(1_000),
        Quota::fixed_window(100, HOUR).shards(10),
        Quota::fixed_window(7, SECOND).shards(1_000),
        Quota::fixed_window(7, SECOND).shards(1_024),
        Quota::token_bucket(1_000_000, SECOND).shards(1_024),
    ]
}

fn panic_message<T>(panics: impl FnOnce() -> T + UnwindSafe) -> String {
    let Err(payload) = catch_unwind(panics) else { panic!("there was no panic") };
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

/// A request with these values of `x-user`, as Latin-1.
fn from_user(values: &[&str]) -> Request<()> {
    let mut request = Request::new(());
    for value in values {
        let latin_1: Vec<u8> = value.chars().map(|c| u8::try_from(c).unwrap()).collect();
        request.headers_mut().append("x-user", HeaderValue::from_bytes(&latin_1).unwrap());
    }
    request
}

const OTHER: Limit = Limit::new("other", Quota::token_bucket(10, MINUTE));

/// What each call says of a backend that fails so, at once and later.
async fn failures(error: impl Fn() -> BackendError) -> Vec<RateLimited> {
    let mut errors = Vec::new();
    for backend in [Failing::AtOnce(error()), Failing::Later(error())] {
        let limiter = RateLimiter::new(backend);
        errors.push(limiter.limit(&LOGIN).key("alice").await.unwrap_err());
        errors.push(limiter.limit(&LOGIN).key("alice").and(&OTHER).await.unwrap_err());
        errors.push(limiter.limit(&LOGIN).key("alice").reserve().await.unwrap_err());
        errors.push(limiter.peek(&LOGIN).key("alice").await.unwrap_err());
        errors.push(limiter.penalize(&LOGIN, 1).key("alice").await.unwrap_err());
        errors.push(limiter.block(&LOGIN, HOUR).key("alice").await.unwrap_err());
        errors.push(limiter.reset(&LOGIN).key("alice").await.unwrap_err());
    }
    errors
}

/// A refusal that has to wait for a minute.
async fn refused() -> RateLimited {
    let limit = Limit::new("uploads", Quota::token_bucket(1, MINUTE));
    let limiter = RateLimiter::new(Memory::new().clock(ManualClock::default()));
    assert!(limiter.limit(&limit).await.is_ok());
    limiter.limit(&limit).await.unwrap_err()
}

/// A store that always fails.
#[derive(Debug)]
enum Failing {
    AtOnce(BackendError),
    Later(BackendError),
}

impl Failing {
    fn answer<T: Send + 'static>(&self) -> Answer<T> {
        match self {
            Self::AtOnce(error) => Answer::Ready(Err(error.clone())),
            Self::Later(error) => Answer::pending(std::future::ready(Err(error.clone()))),
        }
    }
}

impl Backend for Failing {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        self.answer()
    }

    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        self.answer()
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        self.answer()
    }
}

/// A store that breaks the contract: it answers for no bucket at all.
#[derive(Debug)]
struct Forgetful;

impl Backend for Forgetful {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(Applied::many(tollgate::Timestamp::UNIX_EPOCH, Vec::new())))
    }

    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        Answer::Ready(Ok(Applied::many(tollgate::Timestamp::UNIX_EPOCH, Vec::new())))
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Answer::Ready(Ok(()))
    }
}

/// An error of another crate around an error.
#[derive(Debug)]
struct Wrapper(Box<dyn StdError + Send + Sync>);

impl Wrapper {
    fn of(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wrapped")
    }
}

impl StdError for Wrapper {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.0)
    }
}
