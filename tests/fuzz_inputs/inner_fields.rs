//! The fields of an inner layer or of an upstream server are merged with ours, whatever they hold.

use std::convert::Infallible;

use http::{HeaderMap, Request, Response};
use proptest::prelude::*;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt, service_fn};

use tollgate_testing::fuzz::bytes::{draws_each, fields};
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

fn list_seeds() -> Vec<Seed> {
    seeds(include_str!("../data/fuzz/inner_lists.txt"))
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

/// The value of a member, and all of it, by the parser of another library.
type Member = (String, String);

/// The members of the lines that are lists of texts and numbers.
fn members(inner: &Field) -> Vec<Member> {
    let lines = inner.0.iter().filter_map(|line| std::str::from_utf8(line.trim_ascii()).ok());
    lines.filter_map(members_of_line).flatten().collect()
}

fn members_of_line(line: &str) -> Option<Vec<Member>> {
    let list: sfv::List = sfv::Parser::new(line).parse().ok()?;
    let member = |entry: &sfv::ListEntry| match entry {
        sfv::ListEntry::Item(item) => match &item.bare_item {
            sfv::BareItem::String(name) => {
                Some((format!("\"{}\"", name.as_str()), format!("{item:?}")))
            }
            sfv::BareItem::Integer(_) | sfv::BareItem::Decimal(_) => {
                Some((format!("{:?}", item.bare_item), format!("{item:?}")))
            }
            _ => None,
        },
        sfv::ListEntry::InnerList(_) => None,
    };
    list.iter().map(member).collect()
}

/// The members that follow ours: each name once.
fn following(inner: &Field) -> Vec<Member> {
    let mut following: Vec<Member> = Vec::new();
    for (value, text) in members(inner) {
        let is_known = value == "\"api\"" || following.iter().any(|(known, _)| *known == value);
        if value.starts_with('"') && !is_known {
            following.push((value, text));
        }
    }
    following
}

fn joined(inner: &Field) -> (HeaderMap, Vec<Member>) {
    let mut headers = HeaderMap::new();
    inner.put("ratelimit", &mut headers);
    let found = merged(Dialect::Draft11, &headers);
    let all = members(&lines(&found, "ratelimit"));
    (found, all)
}

#[test]
fn seeds_of_inner_lists_are_joined_as_recorded() {
    for Seed { field, wanted } in list_seeds() {
        let (_, all) = joined(&field);
        assert_eq!((all.len() - 1).to_string(), wanted, "{field:?}");
        assert_eq!(all[1..], following(&field), "{field:?}");
    }
}

#[test]
fn lists_that_follow_and_that_are_dropped_are_drawn() {
    draws_each(&fields(&list_seeds(), &WORDS), 2, |field| !following(&field).is_empty());
}

proptest! {
    /// A list of draft 11 is one line that parses: ours, then each member of the lines that are lists.
    #[test]
    fn ours_come_before_the_lists_that_are_there(inner in fields(&list_seeds(), &WORDS)) {
        let (found, all) = joined(&inner);
        prop_assert_eq!(found.get_all("ratelimit").iter().count(), 1);
        prop_assert_eq!(&all[0].0, "\"api\"");
        prop_assert_eq!(&all[1..], &following(&inner)[..]);
    }

    /// Fields with room for one limit are ours, except in a refusal.
    #[test]
    fn ours_replace_fields_for_one_limit(
        inner in fields(&list_seeds(), &WORDS),
        has_refused in any::<bool>(),
    ) {
        for (dialect, name, ours) in [
            (Dialect::Draft6, "ratelimit-remaining", "9"),
            (Dialect::XRateLimit, "x-ratelimit-remaining", "9"),
            (Dialect::Draft7, "ratelimit", "limit=10, remaining=9, reset=54"),
        ] {
            let mut headers = HeaderMap::new();
            inner.put(name, &mut headers);
            if has_refused {
                headers.insert("retry-after", "5".parse().unwrap());
            }
            let stays = has_refused && !inner.0.is_empty();
            let wanted = if stays { lines(&headers, name) } else { Field::written(ours) };
            prop_assert_eq!(lines(&merged(dialect, &headers), name), wanted);
        }
    }
}
