//! The fields of an inner layer or of an upstream server are merged with ours, whatever they hold.

use std::convert::Infallible;

use http::{HeaderMap, Request, Response};
use proptest::prelude::*;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt, service_fn};

use tollgate_testing::fuzz::bytes::{blanks, draws_each, fields};
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

const WORDS: [&str; 26] = [
    "limit=10",
    ", remaining=10",
    "remaining=",
    "remaining=3",
    ", ",
    ",",
    ";",
    "reset=30",
    "10",
    "9",
    "0",
    "-",
    "\"a\"",
    "x=\"a, b\"",
    "\"api\";r=10;t=30",
    ";q=10;w=60",
    ";pk=:YQ==:",
    "(",
    ")",
    "?1",
    "1.5",
    "\\n10",
    "\\nremaining=10",
    "\\n\"b\";r=1;t=1",
    "\\n",
    "\\(15*9)",
];

fn remaining_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/inner_remaining.txt"))
}

fn draft_7_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/inner_draft_7.txt"))
}

/// The header fields of a response in which `inner` stood before ours were added: 9 of 10 are left.
fn merged(dialect: Dialect, inner: &HeaderMap) -> HeaderMap {
    static API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));
    thread_local! {
        static CLOCK: ManualClock = ManualClock::new(START);
        static LIMITER: RateLimiter = CLOCK.with(limiter);
    }
    // The bucket is full again.
    CLOCK.with(|clock| clock.advance(MINUTE));
    let service = service_fn(|_: Request<()>| {
        let mut response = Response::new(());
        *response.headers_mut() = inner.clone();
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let layer = LIMITER.with(|limiter| limiter.layer(&API)).dialects(dialect);
    at_once(layer.layer(service).oneshot(Request::new(()))).unwrap().headers().clone()
}

fn lines(headers: &HeaderMap, name: &str) -> Field {
    Field(headers.get_all(name).iter().map(|line| line.as_bytes().to_vec()).collect())
}

// A second reading, of fields that are one line.

/// A whole number that 64 bits can hold.
fn number(text: &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for byte in text {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!text.is_empty()).then_some(number)
}

fn only_line(field: &Field) -> Option<&[u8]> {
    match &field.0[..] {
        [line] => Some(line.trim_ascii()),
        _ => None,
    }
}

fn draft_7_remaining(line: &[u8]) -> Option<u64> {
    let mut remaining = None;
    for member in line.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        let key_len = member.iter().take_while(|byte| !b"=;".contains(byte)).count();
        if &member[..key_len] == b"remaining" {
            remaining = member[key_len..].strip_prefix(b"=").and_then(number);
        }
    }
    remaining.filter(|_| !line.contains(&b'"'))
}

/// Whether ours replace what is there: nothing, or a larger number of a layer that has not refused.
fn replaces(inner: &Field, remaining: fn(&[u8]) -> Option<u64>, has_refused: bool) -> bool {
    let read = only_line(inner).and_then(remaining);
    inner.0.is_empty() || !has_refused && read.is_some_and(|left| left > 9)
}

/// The names of the fields of a dialect, the one that is read first, and what ours are.
const DRAFT_6: [(&str, &str); 3] =
    [("ratelimit-remaining", "9"), ("ratelimit-limit", "10"), ("ratelimit-reset", "54")];
const X_RATELIMIT: [(&str, &str); 2] =
    [("x-ratelimit-remaining", "9"), ("x-ratelimit-limit", "10")];
const DRAFT_7: [(&str, &str); 1] = [("ratelimit", "limit=10, remaining=9, reset=54")];

fn agrees(
    dialect: Dialect,
    names: &[(&str, &str)],
    inner: &Field,
    remaining: fn(&[u8]) -> Option<u64>,
    has_refused: bool,
) -> Result<(), TestCaseError> {
    let mut headers = inner.request(names[0].0).headers().clone();
    if has_refused {
        headers.insert("retry-after", "5".parse().unwrap());
    }
    let found = merged(dialect, &headers);
    let is_replaced = replaces(inner, remaining, has_refused);
    for &(name, ours) in names {
        let wanted = if is_replaced { Field::written(ours) } else { lines(&headers, name) };
        prop_assert_eq!(lines(&found, name), wanted, "{} {:?}", name, dialect);
    }
    Ok(())
}

#[test]
fn seeds_of_inner_fields_are_merged_as_recorded() {
    for Seed { field, wanted } in remaining_seeds() {
        assert_eq!(replaces(&field, number, false), wanted == "ours", "{field:?}");
        agrees(Dialect::Draft6, &DRAFT_6, &field, number, false).unwrap();
        agrees(Dialect::XRateLimit, &X_RATELIMIT, &field, number, false).unwrap();
    }
    for Seed { field, wanted } in draft_7_seeds() {
        assert_eq!(replaces(&field, draft_7_remaining, false), wanted == "ours", "{field:?}");
        agrees(Dialect::Draft7, &DRAFT_7, &field, draft_7_remaining, false).unwrap();
    }
}

#[test]
fn inner_fields_that_stay_and_that_are_replaced_are_drawn() {
    draws_each(&fields(&remaining_seeds(), &WORDS), 2, |field| replaces(&field, number, false));
    draws_each(&fields(&draft_7_seeds(), &WORDS), 2, |field| {
        replaces(&field, draft_7_remaining, false)
    });
}

proptest! {
    /// The fields of a refusal stay, and so do fields that cannot be read, and fields with no more
    /// left than ours.
    #[test]
    fn ours_replace_only_fields_with_more_left(
        numbers in fields(&remaining_seeds(), &WORDS),
        draft_7 in fields(&draft_7_seeds(), &WORDS),
        (before, after) in blanks(),
        has_refused in any::<bool>(),
    ) {
        agrees(Dialect::Draft6, &DRAFT_6, &numbers, number, has_refused)?;
        agrees(Dialect::XRateLimit, &X_RATELIMIT, &numbers.padded(before, after), number, has_refused)?;
        agrees(Dialect::Draft7, &DRAFT_7, &draft_7, draft_7_remaining, has_refused)?;
        agrees(Dialect::Draft7, &DRAFT_7, &draft_7.padded(before, after), draft_7_remaining, false)?;
        // Where the parser of another library reads a dictionary, it reads the same number.
        let text = only_line(&draft_7).and_then(|line| std::str::from_utf8(line).ok());
        if let Some(dictionary) = text.and_then(|text| sfv::Parser::new(text).parse::<sfv::Dictionary>().ok())
            && replaces(&draft_7, draft_7_remaining, false)
        {
            let Some(sfv::ListEntry::Item(item)) = dictionary.get("remaining") else {
                panic!("no number in {draft_7:?}");
            };
            prop_assert!(i64::from(item.bare_item.as_integer().unwrap()) > 9);
        }
    }

    /// A list of draft 11 is one line, with our member in front of what was there. If all that was there
    /// are lists, it is one.
    #[test]
    fn ours_come_before_the_lists_that_are_there(
        members in fields(&draft_7_seeds(), &WORDS),
        policies in fields(&remaining_seeds(), &WORDS),
    ) {
        let mut headers = HeaderMap::new();
        members.put("ratelimit", &mut headers);
        policies.put("ratelimit-policy", &mut headers);
        let found = merged(Dialect::Draft11, &headers);
        for (name, ours, inner) in [
            ("ratelimit", "\"api\";r=9;t=54", &members),
            ("ratelimit-policy", "\"api\";q=10;w=60", &policies),
        ] {
            let there = inner.0.iter().filter(|line| !line.trim_ascii().is_empty());
            let there: Vec<&[u8]> = there.map(Vec::as_slice).collect();
            let wanted = [&[ours.as_bytes()], &there[..]].concat().join(&b", "[..]);
            prop_assert_eq!(lines(&found, name), Field(vec![wanted.clone()]));
            let list = |text: &[u8]| {
                let text = std::str::from_utf8(text).ok()?;
                Some(sfv::Parser::new(text).parse::<sfv::List>().ok()?.len())
            };
            if let Some(lens) = there.iter().map(|line| list(line)).collect::<Option<Vec<_>>>() {
                prop_assert_eq!(list(&wanted), Some(1 + lens.iter().sum::<usize>()));
            }
        }
    }
}
