//! The header fields obey their grammars, with any names, numbers, keys and bytes.
//!
//! With a million cases, in some ten minutes:
//!
//! ```sh
//! PROPTEST_CASES=1000000 cargo test --release --all-features --test fields grammar
//! ```

use std::convert::Infallible;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use proptest::prelude::*;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::{Key, Limit, Quota, RateLimitLayer, Rule, Timestamp};
use tollgate_testing::{START, at_once};
use tower::{Layer, ServiceExt, service_fn};

/// The largest integer of structured fields.
const MAX: u64 = 999_999_999_999_999;

/// A non-negative integer as all dialects write it: digits, no sign, no zero in front, at most 15.
#[track_caller]
fn integer(text: &str) -> u64 {
    assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?}");
    assert!(text == "0" || !text.starts_with('0'), "{text:?}");
    let number = text.parse().unwrap();
    assert!(number <= MAX, "{text:?}");
    number
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().unwrap();
    assert!(lines.next().is_none(), "{name} is there once");
    Some(line)
}

/// Names and numbers of the members, and their partition keys.
type Members = Vec<(String, Vec<u64>, Option<Vec<u8>>)>;

/// A field of draft 11, as the parser of the `sfv` crate reads it.
fn draft_11(value: &str, keys: [&str; 2]) -> Members {
    let list = sfv::Parser::new(value).parse::<sfv::List>().unwrap();
    let member = |entry: &sfv::ListEntry| {
        let sfv::ListEntry::Item(item) = entry else { panic!("not an item: {value}") };
        let name = item.bare_item.as_string().unwrap().as_str().to_owned();
        let (mut numbers, mut partition) = (Vec::new(), None);
        for (key, parameter) in &item.params {
            match key.as_str() {
                "pk" => partition = Some(parameter.as_byte_sequence().unwrap().to_vec()),
                key => {
                    assert_eq!(key, keys[numbers.len()]);
                    let number = i64::from(parameter.as_integer().unwrap());
                    numbers.push(u64::try_from(number).unwrap());
                }
            }
        }
        assert_eq!(numbers.len(), 2, "{value}");
        (name, numbers, partition)
    };
    list.iter().map(member).collect()
}

/// `limit=10, remaining=5, reset=30`, and nothing else.
fn draft_7(value: &str) -> [u64; 3] {
    let members: Vec<_> = value.split(", ").collect();
    assert_eq!(members.len(), 3, "{value}");
    let keys = ["limit=", "remaining=", "reset="];
    let numbers = std::array::from_fn(|nth| integer(members[nth].strip_prefix(keys[nth]).unwrap()));
    let dictionary = sfv::Parser::new(value).parse::<sfv::Dictionary>().unwrap();
    assert_eq!(dictionary.len(), 3);
    numbers
}

/// `10;w=60, 50;w=3600`, and nothing else.
fn draft_7_policies(value: &str) -> Vec<(u64, u64)> {
    assert_eq!(
        sfv::Parser::new(value).parse::<sfv::List>().unwrap().len(),
        value.split(", ").count()
    );
    let policy = |member: &str| {
        let (quota, window) = member.split_once(";w=").unwrap();
        (integer(quota), integer(window))
    };
    value.split(", ").map(policy).collect()
}

/// The three numbers of a dialect that has a field for each; none if none of them is there.
fn three(headers: &HeaderMap, prefix: &str) -> Option<[u64; 3]> {
    let names = ["limit", "remaining", "reset"].map(|name| format!("{prefix}-{name}"));
    let values = names.map(|name| field(headers, &name).map(integer));
    if values == [None; 3] {
        return None;
    }
    Some(values.map(|value| value.expect("all three or none")))
}

#[derive(Clone, Debug)]
enum Partition {
    None,
    Keyed([u8; 16]),
    Own(Vec<u8>),
}

fn partitions() -> impl Strategy<Value = Partition> {
    prop_oneof![
        Just(Partition::None),
        any::<[u8; 16]>().prop_map(Partition::Keyed),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(Partition::Own),
    ]
}

fn dialects() -> impl Strategy<Value = Vec<Dialect>> {
    let all = [Dialect::Draft6, Dialect::XRateLimit];
    let drafts = prop_oneof![Just(Dialect::Draft11), Just(Dialect::Draft7), Just(Dialect::None)];
    (drafts, proptest::sample::subsequence(all.to_vec(), 0..=2)).prop_map(|(draft, mut more)| {
        more.push(draft);
        more
    })
}

/// Any limit that fits, with any name.
fn limits() -> impl Strategy<Value = Limit> {
    ("[ -~]{1,64}", tollgate_testing::quotas()).prop_map(|(name, quota): (String, Quota)| {
        Limit::try_new(name, quota).expect("a name and a quota that fit")
    })
}

proptest! {
    #[test]
    fn every_field_that_is_sent_is_read_back(
        limits in proptest::collection::vec((limits(), 0_u64..40), 1..4),
        key in proptest::collection::vec(any::<u8>(), 1..60),
        dialects in dialects(),
        partition in partitions(),
        as_date in any::<bool>(),
        advanced in prop_oneof![Just(0_u64), 0_u64..100_000_000, any::<u64>()],
    ) {
        let clock = ManualClock::new(START);
        let caller = Key::from(&key[..]);
        let store = tollgate::backend::Memory::new().max_keys(10).clock(clock.clone());
        let limiter = tollgate::RateLimiter::new(store);
        let mut rules = limits.iter().map(|(limit, cost)| {
            let key = caller.clone();
            Rule::new(limit).cost(*cost).key_with(move |_| key.clone())
        });
        let first: RateLimitLayer<Vec<Rule>> = limiter.layer(rules.next().unwrap()).into();
        let mut layer = rules.fold(first, RateLimitLayer::and);
        layer = layer.dialects(dialects.iter().copied());
        layer = match &partition {
            Partition::None => layer,
            Partition::Keyed(secret) => layer.partition_key(*secret),
            Partition::Own(own) => {
                let own = own.clone();
                layer.partition_key_with(move |_| own.clone())
            }
        };
        if as_date {
            layer = layer.retry_after_date();
        }
        let service = layer.layer(service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(()))
        }));
        for now in [START, START + Duration::from_micros(advanced), Timestamp::from_micros(i64::MAX)] {
            clock.set(now);
            let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
            let headers = response.headers();
            let refused = response.status() == 429 || response.status() == 413;
            let names: Vec<_> = limits.iter().map(|(limit, _)| limit.name()).collect();

            // For a cost that is too large, only the policy of that limit is sent.
            let state = dialects.iter().any(|one| *one != Dialect::None)
                && (!refused || headers.contains_key("retry-after"));
            if dialects.contains(&Dialect::Draft11) {
                let policies = draft_11(field(headers, "ratelimit-policy").unwrap(), ["q", "w"]);
                prop_assert!(policies.iter().all(|(_, numbers, _)| numbers.iter().all(|&n| n > 0)));
                if state {
                    let members = draft_11(field(headers, "ratelimit").unwrap(), ["r", "t"]);
                    for told in [&policies, &members] {
                        let told_names: Vec<_> = told.iter().map(|one| one.0.as_str()).collect();
                        prop_assert_eq!(&told_names, &names);
                        for (_, _, pk) in told {
                            match (&partition, pk) {
                                (Partition::None, None) => {}
                                (Partition::Own(own), None) => prop_assert!(own.is_empty()),
                                (Partition::Own(own), Some(pk)) => prop_assert_eq!(own, pk),
                                (Partition::Keyed(_), Some(pk)) => prop_assert_eq!(pk.len(), 12),
                                (partition, pk) => panic!("{partition:?} told as {pk:?}"),
                            }
                        }
                    }
                }
            }
            if dialects.contains(&Dialect::Draft7) {
                let policies = draft_7_policies(field(headers, "ratelimit-policy").unwrap());
                let mut quotas: Vec<_> = policies.iter().map(|one| one.0).collect();
                quotas.sort_unstable();
                quotas.dedup();
                prop_assert_eq!(quotas.len(), policies.len(), "each quota once");
                if state {
                    let [limit, _, reset] = draft_7(field(headers, "ratelimit").unwrap());
                    prop_assert!(quotas.contains(&limit) && reset > 0);
                    if dialects.contains(&Dialect::Draft6) {
                        let [limit, left, _] = draft_7(field(headers, "ratelimit").unwrap());
                        // Its reset is when the limit is whole again.
                        let told = three(headers, "ratelimit").unwrap();
                        prop_assert_eq!([told[0], told[1]], [limit, left]);
                        prop_assert!(told[2] > 0);
                    }
                }
            }
            let draft_6 = three(headers, "ratelimit");
            prop_assert_eq!(draft_6.is_some(), state && dialects.contains(&Dialect::Draft6));
            let x_ratelimit = three(headers, "x-ratelimit");
            prop_assert_eq!(x_ratelimit.is_some(), state && dialects.contains(&Dialect::XRateLimit));
            if let Some(([limit, remaining, reset], x)) = draft_6.zip(x_ratelimit) {
                prop_assert_eq!([limit, remaining], [x[0], x[1]]);
                let now = u64::try_from(now.as_micros()).unwrap().div_ceil(1_000_000);
                let end = now.saturating_add(reset);
                // Both are rounded up, the one from the decision on, the other from the epoch.
                prop_assert!(x[2] <= end && x[2] + 1 >= end.min(MAX), "{x:?} {end}");
            }
            let told = field(headers, "retry-after");
            match told {
                Some(date) if as_date => prop_assert!(httpdate::parse_http_date(date).is_ok()),
                Some(seconds) => prop_assert!(integer(seconds) >= 1),
                None => {
                    let fits = |one: &(Limit, u64)| one.1 <= one.0.quota().get_capacity();
                    // Two rules with the same name and quota take from one bucket.
                    let may_be = !refused || limits.len() > 1 || !limits.iter().all(fits);
                    prop_assert!(may_be, "a refusal without a retry time");
                }
            }
        }
    }
}
