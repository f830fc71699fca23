//! What a client reads of a response: `Retry-After`, and the `Date` beside it.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use proptest::prelude::*;
use proptest::sample::select;
use tokio::time::Instant;
use tollgate_client::ASSUMED_WAIT;
use tollgate_client::retry::RetryLayer;
use tollgate_testing::fuzz::bytes::{blanks, draws_each, fields};
use tollgate_testing::fuzz::days_of;
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};
use tower::{Layer, ServiceExt, service_fn};

const WORDS: [&str; 34] = [
    "Sun, ",
    "Mon, ",
    "Sunday, ",
    "Sun ",
    "06 Nov 1994 ",
    "06-Nov-94 ",
    "Nov  6 ",
    "08:49:37",
    " GMT",
    " 1994",
    "0",
    "1",
    "7",
    "12",
    "99",
    "100",
    "101",
    "31",
    "29 Feb 2024",
    "28 Feb 2023",
    "Thu, 29 Feb 2024 12:00:00 GMT",
    "Jan",
    "Dec",
    ":60",
    ":59",
    "-",
    "+",
    ".",
    " ",
    "\\nSun, 06 Nov 1994 08:49:30 GMT",
    "\\nSunday, 06-Nov-94 08:49:30 GMT",
    "\\nSun Nov  6 08:49:30 1994",
    "18446744073709551616",
    "\\xd9\\xa5",
];

fn retry_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/retry_after.txt"))
}

/// The longest wait that the client is willing to.
const MOST: Duration = Duration::from_secs(100);

/// The status that the client gets at last, and how long it has waited.
fn obeyed(status: StatusCode, headers: &HeaderMap) -> (u16, Duration) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
    }
    let answered = Cell::new(false);
    let service = service_fn(|_: Request<()>| {
        let mut response = Response::new(());
        if !answered.replace(true) {
            *response.status_mut() = status;
            *response.headers_mut() = headers.clone();
        }
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let client = RetryLayer::new().max_wait(MOST).layer(service);
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let start = Instant::now();
            let mut call = pin!(client.oneshot(Request::new(())));
            // Most answers come at once, and need no timer.
            let first = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let response = match first {
                Poll::Ready(response) => response,
                Poll::Pending => call.await,
            };
            (response.unwrap().status().as_u16(), start.elapsed())
        })
    })
}

/// The first line is `Retry-After`, and the second is `Date`; more lines are more lines of the
/// first.
fn headers(field: &Field) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let (told, date): (Vec<_>, Vec<_>) =
        field.0.iter().cloned().enumerate().partition(|one| one.0 != 1);
    for (name, lines) in [("retry-after", told), ("date", date)] {
        Field(lines.into_iter().map(|(_, line)| line).collect()).put(name, &mut headers);
    }
    headers
}

// A second reading: dates by their words, and days counted one by one.

/// The wait that is asked for; `Err` if it depends on the time of this machine, or if another test
/// says what it is: numbers with units, and instants.
fn reference(field: &Field) -> Result<Option<Duration>, ()> {
    let told: Vec<_> = field.0.iter().enumerate().filter(|(nth, _)| *nth != 1).collect();
    if told.is_empty() {
        return Ok(None);
    }
    let mut longest = Duration::ZERO;
    for (_, line) in told {
        longest = longest.max(reference_of_line(field, line)?.unwrap_or(ASSUMED_WAIT));
    }
    Ok(Some(longest))
}

/// The same for one line; `None` if it cannot be read.
fn reference_of_line(field: &Field, line: &[u8]) -> Result<Option<Duration>, ()> {
    let Some(told) = text(line) else { return Ok(None) };
    let mut longest = Duration::ZERO;
    let mut parts = told.split(',').peekable();
    while let Some(part) = parts.next() {
        let dated = parts.peek().map(|next| format!("{part},{next}"));
        let part = part.trim_matches([' ', '\t']);
        let wait = if let Some(seconds) = seconds(part) {
            seconds
        } else if let Some(until) = date(part) {
            since(field, until)?
        } else if let Some(until) = dated.and_then(|text| date(text.trim_matches([' ', '\t']))) {
            parts.next();
            since(field, until)?
        } else if part.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(());
        } else {
            return Ok(None);
        };
        longest = longest.max(wait);
    }
    Ok(Some(longest))
}

/// Whole seconds, rounded up.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let more = fraction.chars().take(9).any(|c| c != '0');
    let number = whole.chars().fold(0_u64, |number, c| {
        let digit = u64::from(c.to_digit(10).unwrap());
        number.checked_mul(10).and_then(|tens| tens.checked_add(digit)).unwrap_or(u64::MAX)
    });
    Some(Duration::from_secs(number.saturating_add(u64::from(more))))
}

/// The time from the `Date` of the response.
fn since(field: &Field, until: i64) -> Result<Duration, ()> {
    let from = field.0.get(1).and_then(|line| date(text(line)?)).ok_or(())?;
    Ok(Duration::from_secs(u64::try_from(until - from).unwrap_or(0)))
}

fn text(line: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(line).ok().filter(|text| text.is_ascii())?;
    Some(text.trim_matches([' ', '\t']))
}

const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The seconds since the epoch of a date in one of the three forms of HTTP.
fn date(text: &str) -> Option<i64> {
    let words: Vec<&str> = text.split(' ').collect();
    let short = |name: &str| DAYS.iter().position(|day| day[..3] == *name);
    let long = |name: &str| DAYS.iter().position(|day| *day == name);
    let number = |text: &str, len: usize| -> Option<i64> {
        let is_number = text.len() == len && text.chars().all(|c| c.is_ascii_digit());
        if is_number { text.parse().ok() } else { None }
    };
    let (weekday, year, month, day, time) = match words[..] {
        [name, day, month, year, time, "GMT"] => {
            (short(name.strip_suffix(',')?)?, number(year, 4)?, month, number(day, 2)?, time)
        }
        [name, date, time, "GMT"] => {
            let mut parts = date.split('-');
            let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
            let year = number(year, 2)?;
            let year = if year < 70 { 2000 + year } else { 1900 + year };
            if parts.next().is_some() {
                return None;
            }
            (long(name.strip_suffix(',')?)?, year, month, number(day, 2)?, time)
        }
        [name, month, day, time, year] => {
            (short(name)?, number(year, 4)?, month, number(day, 2)?, time)
        }
        [name, month, "", day, time, year] => {
            (short(name)?, number(year, 4)?, month, number(day, 1)?, time)
        }
        _ => return None,
    };
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).unwrap() + 1;
    let clock: Vec<&str> = time.split(':').collect();
    let [hour, minute, second] = clock[..] else { return None };
    let (hour, minute, second) = (number(hour, 2)?, number(minute, 2)?, number(second, 2)?);
    let is_time = hour < 24 && minute < 60 && second < 60;
    if year < 1970 || !(1..=days_of(year, month)).contains(&day) || !is_time {
        return None;
    }
    let months = (1970..year).flat_map(|year| (1..=12).map(move |month| (year, month)));
    let months = months.chain((1..month).map(|month| (year, month)));
    let days: i64 = months.map(|(year, month)| days_of(year, month)).sum::<i64>() + day - 1;
    // The epoch was a Thursday.
    if (days + 3) % 7 != i64::try_from(weekday).unwrap() {
        return None;
    }
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[test]
fn seeds_of_waits_are_read_as_recorded() {
    for Seed { field, wanted } in retry_seeds() {
        let read = reference(&field).unwrap();
        assert_eq!(
            read.map_or("none".to_owned(), |wait| wait.as_secs().to_string()),
            wanted,
            "{field:?}"
        );
        agrees(StatusCode::TOO_MANY_REQUESTS, &field).unwrap();
    }
}

fn agrees(status: StatusCode, field: &Field) -> Result<(), TestCaseError> {
    let tick = Duration::from_millis(1);
    let (last, waited) = obeyed(status, &headers(field));
    prop_assert!(waited <= MOST + tick);
    let is_obeyed = matches!(status.as_u16(), 429 | 503);
    match reference(field) {
        Ok(Some(wait)) if wait <= MOST && is_obeyed => {
            prop_assert_eq!(last, 200);
            prop_assert!(waited >= wait && waited <= wait + tick, "{:?} for {:?}", waited, wait);
        }
        Err(()) if is_obeyed => {
            prop_assert!(last == 200 || (last, waited) == (status.as_u16(), Duration::ZERO));
        }
        _ => prop_assert_eq!((last, waited), (status.as_u16(), Duration::ZERO)),
    }
    Ok(())
}

/// A client without a longest wait, which is told the longest wait that there is: it waits, and
/// does not panic.
#[tokio::test(start_paused = true)]
async fn the_longest_wait_can_be_waited_for() {
    for told in ["18446744073709551615", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let service = service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(
                Response::builder().status(429).header("retry-after", told).body(()).unwrap(),
            )
        });
        let client = RetryLayer::new().max_wait(Duration::MAX).jitter(Duration::MAX).layer(service);
        let mut call = pin!(client.oneshot(Request::new(())));
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "{told}");
    }
}

/// A date in one of the three forms, some seconds after another one.
fn dates() -> impl Strategy<Value = Field> {
    let form = || select(vec![0_u8, 1, 2]);
    let instant =
        prop_oneof![0_i64..4_000_000_000, 0_i64..3_000_000, 253_402_300_000_i64..253_402_300_600];
    (instant, 0_i64..200, any::<bool>(), form(), form()).prop_map(
        |(at, wait, is_past, one, other)| {
            let (until, from) = if is_past { (at, at + wait) } else { (at + wait, at) };
            Field(vec![shown(until, one).into_bytes(), shown(from, other).into_bytes()])
        },
    )
}

/// An instant in this form, as another library writes it.
fn shown(seconds: i64, form: u8) -> String {
    let time = std::time::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap());
    let fixed = httpdate::fmt_http_date(time);
    let words: Vec<&str> = fixed.split(' ').collect();
    let [name, day, month, year, time, _] = words[..] else { panic!("{fixed}") };
    let long = DAYS.iter().find(|day| day[..3] == name[..3]).unwrap();
    // The year of two digits that RFC 850 has.
    let is_near = ("1970".."2070").contains(&year);
    match form {
        1 if is_near => format!("{long}, {day}-{month}-{} {time} GMT", &year[2..]),
        2 => format!("{} {month} {:>2} {time} {year}", &name[..3], day.trim_start_matches('0')),
        _ => fixed,
    }
}

/// What a server may say of a wait.
fn told() -> impl Strategy<Value = Field> {
    prop_oneof![2 => fields(&retry_seeds(), &WORDS), 1 => dates()]
}

#[test]
fn short_long_and_missing_waits_are_drawn() {
    draws_each(&told(), 4, |field| reference(&field).map(|wait| wait.map(|wait| wait <= MOST)));
}

proptest! {
    /// No response makes a client panic, or wait longer than its longest wait or than the response
    /// asks for.
    #[test]
    fn a_wait_is_read_as_by_the_slow_reference(
        field in told(),
        (before, after) in blanks(),
        status in select(vec![429_u16, 429, 429, 503, 500, 301, 204]),
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        agrees(status, &field)?;
        agrees(status, &field.padded(before, after))?;
    }
}
