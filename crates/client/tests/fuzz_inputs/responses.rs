//! What a client reads of whole responses: each kind of server that was recorded, and what comes of
//! them when they are changed.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_client::{Reading, RefusalScope, read};
use tollgate_testing::fuzz::bytes::{draws_each, fields};
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

const WORDS: [&str; 40] = [
    "\\n:status: 429",
    "\\n:status: 403",
    "\\n:status: 503",
    "\\nretry-after: ",
    "\\nretry-after-ms: ",
    "\\ndate: Tue, 14 Nov 2023 22:13:20 GMT",
    "\\nratelimit: ",
    "\\nratelimit-policy: ",
    "\\nratelimit-limit: ",
    "\\nratelimit-remaining: ",
    "\\nratelimit-reset: ",
    "\\nx-ratelimit-limit: ",
    "\\nx-ratelimit-remaining: ",
    "\\nx-ratelimit-reset: ",
    "\\nx-ratelimit-reset-after: ",
    "\\nx-ratelimit-remaining-minute: ",
    "\\nx-ratelimit-scope: shared",
    "\\nx-ratelimit: ",
    "\\nx-shopify-shop-api-call-limit: ",
    "\\ngrpc-status: 8",
    "\\ngrpc-status-details-bin: ",
    "\\ngrpc-retry-pushback-ms: ",
    "0",
    "7",
    "100",
    "1700000060",
    "99999999999999999999",
    "-1",
    ".5",
    ";w=60",
    ", ",
    "6m0s",
    "120ms",
    "2023-11-14T22:13:50Z",
    "+02:00",
    "Tue, 14 Nov 2023 22:13:50 GMT",
    "\"api\";r=0;t=30",
    "{\"remaining\":0,\"until\":\"2023-11-14T22:13:50Z\"}",
    "40/40",
    "GgA",
];

fn response_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/client.txt"))
}

/// The response that is written in these lines. What is no field is left out.
fn response(field: &Field) -> (StatusCode, HeaderMap) {
    let (mut status, mut headers) = (StatusCode::OK, HeaderMap::new());
    for line in &field.0 {
        let line = String::from_utf8_lossy(line);
        let Some((name, value)) = split(&line) else { continue };
        if name == ":status" {
            status = value.parse().unwrap_or(status);
        } else if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name), HeaderValue::try_from(value))
        {
            headers.append(name, value);
        }
    }
    (status, headers)
}

/// The name and the value. The first colon may be that of `:status`.
fn split(line: &str) -> Option<(&str, &str)> {
    let colon = line.char_indices().skip(1).find(|(_, c)| *c == ':')?.0;
    Some((&line[..colon], line[colon + 1..].trim_matches([' ', '\t'])))
}

/// A reading as the seeds write it.
fn shown(reading: &Reading) -> String {
    let mut shown = if reading.is_refused() { "refused" } else { "passed" }.to_owned();
    if let Some(wait) = reading.retry_after() {
        shown += &format!(" {wait:?}");
    }
    if reading.is_final() {
        shown += " final";
    }
    shown += match reading.scope() {
        RefusalScope::Resource => " of a resource",
        RefusalScope::Host => " of the host",
        _ => "",
    };
    for limit in reading.limits() {
        let quota = limit.quota().map_or("-".to_owned(), |quota| quota.to_string());
        let time = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{time:?}"));
        let (window, reset) = (time(limit.window()), time(limit.reset()));
        let (name, remaining) = (limit.name(), limit.remaining());
        shown += &format!("; {name} {remaining}/{quota} w {window} t {reset}");
    }
    for unreadable in reading.unreadable() {
        shown += &format!("; unread {}", unreadable.field());
    }
    shown
}

#[test]
fn each_recorded_response_is_read() {
    let mut wrong = Vec::new();
    for Seed { field, wanted } in response_seeds() {
        let (status, headers) = response(&field);
        let shown = shown(&read(&headers, status));
        if shown != wanted {
            wrong.push(format!("{field:?}\n  read: {shown}\nwanted: {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn responses() -> impl Strategy<Value = Field> {
    fields(&response_seeds(), &WORDS)
}

#[test]
fn responses_of_all_kinds_are_drawn() {
    // Refused or not, with a wait or not, all read or not; a response that passes has no wait.
    draws_each(&responses(), 6, |field| {
        let (status, headers) = response(&field);
        let reading = read(&headers, status);
        let wait = reading.retry_after().is_some();
        (reading.is_refused(), wait, reading.unreadable().is_empty())
    });
}

proptest! {
    /// Any response has a reading, which is bounded; and what cannot be read makes no wait shorter.
    #[test]
    fn any_response_has_a_bounded_reading(field in responses()) {
        let (status, headers) = response(&field);
        let reading = read(&headers, status);
        prop_assert!(reading.limits().len() <= 8 && reading.unreadable().len() <= 8);
        for limit in reading.limits() {
            let year = Duration::from_secs(365 * 86_400);
            prop_assert!(limit.name().len() <= 128 || headers.contains_key(limit.name()));
            prop_assert!(limit.reset().is_none_or(|reset| reset <= year));
            prop_assert!(limit.window().is_none_or(|window| !window.is_zero() && window <= year));
            prop_assert!(limit.remaining() > 0 || limit.reset() != Some(Duration::ZERO));
        }
        let names: BTreeSet<_> = reading.unreadable().iter().map(|one| one.field().as_str()).collect();
        prop_assert_eq!(names.len(), reading.unreadable().len());
        for unreadable in reading.unreadable() {
            prop_assert!(unreadable.value().len() <= 4 * 64 && unreadable.value().is_ascii());
            prop_assert!(headers.contains_key(unreadable.field()));
        }
        prop_assert!(reading.is_refused() || reading.retry_after().is_none());
        // A field beside the others that cannot be read.
        let mut worse = headers.clone();
        worse.append("retry-after", HeaderValue::from_static("soon"));
        let others =
            ["retry-after-ms", "x-ms-retry-after-ms", "x-ratelimit-retry-after", "grpc-status"];
        others.iter().for_each(|name| drop(worse.remove(*name)));
        let is_refused = matches!(status.as_u16(), 403 | 429 | 503);
        let wait = read(&worse, status).retry_after();
        // What its other lines say still counts, if it is longer.
        let mut lines = HeaderMap::new();
        for name in ["retry-after", "date"] {
            for line in headers.get_all(name) {
                lines.append(name, line.clone());
            }
        }
        let named = read(&lines, StatusCode::TOO_MANY_REQUESTS).retry_after();
        let least = named.unwrap_or_default().max(tollgate_client::ASSUMED_WAIT);
        prop_assert_eq!(wait, is_refused.then_some(least));
    }

    /// The fields of a response may come in any order.
    #[test]
    fn the_order_of_fields_changes_no_wait(field in responses()) {
        let (status, mut headers) = response(&field);
        let mut turned = field.clone();
        // The lines of one field stay in order.
        let name = |line: &Vec<u8>| {
            let line = String::from_utf8_lossy(line);
            split(&line).map(|(name, _)| name.to_ascii_lowercase())
        };
        turned.0.sort_by_key(|line| std::cmp::Reverse(name(line)));
        let (other, mut turned) = response(&turned);
        // Without it, the time of this machine would count, which goes on.
        let date = HeaderValue::from_static("Tue, 14 Nov 2023 22:13:20 GMT");
        for headers in [&mut headers, &mut turned] {
            headers.insert("date", date.clone());
        }
        // Of two statuses the last holds here, and gRPC takes the first of two details.
        let is_grpc = headers.keys().any(|name| name.as_str().starts_with("grpc-"));
        if other == status && !is_grpc {
            let [one, two] = [&headers, &turned].map(|headers| read(headers, status));
            prop_assert_eq!(one.retry_after(), two.retry_after());
        }
    }
}

// What is written in the forms that servers use, by other libraries, is read back.

/// A count as a field, in one of its forms. Other counts beside it are not smaller.
fn count(number: u64, form: u8, window: u64) -> String {
    match form {
        0 => number.to_string(),
        1 => format!("{number}.0"),
        2 => format!("{number};w={window}"),
        3 => format!("{}, {number}", number + 7),
        4 => format!(" {number},{number} ; w={window} "),
        _ => format!("00{number}.99"),
    }
}

/// A time from this second on, in one of its forms.
fn time(seconds: u64, now: u64, form: u8) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(now + seconds);
    match form {
        0 => seconds.to_string(),
        1 => (now + seconds).to_string(),
        2 => ((now + seconds) * 1_000).to_string(),
        3 => humantime::format_rfc3339_seconds(at).to_string(),
        4 => humantime::format_rfc3339_micros(at).to_string(),
        5 => humantime::format_rfc3339_seconds(at).to_string().replace('Z', "+00:00"),
        6 => httpdate::fmt_http_date(at),
        7 => humantime::format_duration(Duration::from_secs(seconds)).to_string().replace(' ', ""),
        _ => format!("{seconds}.000"),
    }
}

const NAMES: [[&str; 3]; 6] = [
    ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset-after"],
    ["x-rate-limit-limit", "x-rate-limit-remaining", "x-rate-limit-reset"],
    [
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        "anthropic-ratelimit-requests-reset",
    ],
    ["x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"],
];

proptest! {
    #[test]
    fn counts_and_times_are_read_in_each_form(
        names in select(NAMES.to_vec()),
        (quota, remaining) in (1_u64..1_000_000, 0_u64..1_000_000),
        window in 1_u64..1_000_000,
        seconds in 1_u64..2_000_000,
        now in 1_500_000_000_u64..4_000_000_000,
        (counts, times) in ((0_u8..6, 0_u8..6), 0_u8..9),
    ) {
        let [limit, left, reset] = names;
        let date = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(now));
        let fields = [
            (limit, count(quota, counts.0, window).replace(&format!("{}, ", quota + 7), "")),
            (left, count(remaining, counts.1, window)),
            (reset, time(seconds, now, times)),
            ("date", date),
        ];
        let headers: HeaderMap = fields
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::try_from(value).unwrap()))
            .collect();
        let reading = read(&headers, StatusCode::TOO_MANY_REQUESTS);
        prop_assert_eq!(reading.unreadable(), []);
        let [limit] = reading.limits() else { panic!("one limit: {reading:?}") };
        let reset = Duration::from_secs(seconds);
        let has_window = [counts.0, counts.1].iter().any(|form| matches!(form, 2 | 4));
        prop_assert_eq!(limit.name(), left);
        prop_assert_eq!((limit.quota(), limit.remaining()), (Some(quota), remaining));
        prop_assert_eq!(limit.reset(), Some(reset));
        prop_assert_eq!(limit.window(), has_window.then_some(Duration::from_secs(window)));
        prop_assert_eq!(reading.retry_after(), (remaining == 0).then_some(reset));
    }

    #[test]
    fn the_delay_of_grpc_is_read_as_another_library_writes_it(
        delay in any::<Option<(u32, u32)>>(),
        message in "[ -~]{0,20}",
    ) {
        let delay = delay.map(|(seconds, nanos)| {
            Duration::new(u64::from(seconds), nanos % 1_000_000_000)
        });
        let mut details = ErrorDetails::with_request_info("id", "data");
        if let Some(delay) = delay {
            details.set_retry_info(Some(delay));
        }
        let status = Status::with_error_details(Code::ResourceExhausted, message, details);
        let mut headers = HeaderMap::new();
        status.add_header(&mut headers).unwrap();
        let reading = read(&headers, StatusCode::OK);
        prop_assert!(reading.is_refused() && reading.unreadable().is_empty());
        prop_assert_eq!(reading.retry_after(), delay);
    }
}
