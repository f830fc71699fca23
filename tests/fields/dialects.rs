//! What the header fields say in each dialect, about one limit and about several.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use sha2::Digest;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{Head, global, header};
use tollgate::{DAY, HOUR, Key, Limit, MINUTE, Quota, RateLimitLayer, Rule, SECOND, Timestamp};
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt, service_fn};

static API: Limit = Limit::new("api", Quota::token_bucket(10, MINUTE));

const ALL_FIELDS: [&str; 8] = [
    "ratelimit-policy",
    "ratelimit",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];

/// The header fields of the answer to a request of this cost, around a service that has told these.
fn answer_over<N>(
    layer: &RateLimitLayer<N>,
    cost: u64,
    inner: &[(&'static str, &str)],
) -> HeaderMap {
    let inner = service_fn(async |_: Request<()>| {
        let mut response = Response::new(Full::<Bytes>::default());
        for (name, value) in inner {
            response.headers_mut().append(*name, value.parse().unwrap());
        }
        Ok::<_, Infallible>(response)
    });
    let by = Request::builder().header("x-user", "alice").header("x-cost", cost).body(()).unwrap();
    let headers = at_once(layer.layer(inner).oneshot(by)).unwrap().headers().clone();
    for name in headers.keys() {
        assert_eq!(headers.get_all(name).iter().count(), 1, "{name} is there once");
    }
    headers
}

fn answer<N>(layer: &RateLimitLayer<N>, cost: u64) -> HeaderMap {
    answer_over(layer, cost, &[])
}

fn cost(head: &Head<'_>) -> u64 {
    head.headers()["x-cost"].to_str().unwrap().parse().unwrap()
}

/// All fields about limits that there are.
fn told(headers: &HeaderMap) -> Vec<(&str, &str)> {
    let field = |name: &&'static str| Some((*name, headers.get(*name)?.to_str().unwrap()));
    ALL_FIELDS.iter().filter_map(field).collect()
}

fn field<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn each_dialect_says_what_its_version_does() {
    for (dialect, admitted, refused) in [
        (
            Dialect::Draft11,
            vec![("ratelimit-policy", "\"api\";q=10;w=60"), ("ratelimit", "\"api\";r=9;t=54")],
            vec![("ratelimit-policy", "\"api\";q=10;w=60"), ("ratelimit", "\"api\";r=0;t=6")],
        ),
        (
            Dialect::Draft7,
            vec![("ratelimit-policy", "10;w=60"), ("ratelimit", "limit=10, remaining=9, reset=54")],
            vec![("ratelimit-policy", "10;w=60"), ("ratelimit", "limit=10, remaining=0, reset=6")],
        ),
        (
            Dialect::Draft6,
            vec![("ratelimit-limit", "10"), ("ratelimit-remaining", "9"), ("ratelimit-reset", "6")],
            vec![("ratelimit-limit", "10"), ("ratelimit-remaining", "0"), ("ratelimit-reset", "6")],
        ),
        (
            Dialect::XRateLimit,
            vec![
                ("x-ratelimit-limit", "10"),
                ("x-ratelimit-remaining", "9"),
                ("x-ratelimit-reset", "1700000130"),
            ],
            // 123.5 s and the wait of 5.9 s
            vec![
                ("x-ratelimit-limit", "10"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "1700000130"),
            ],
        ),
        (Dialect::None, vec![], vec![]),
    ] {
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_123_500_000));
        let layer = limiter(&clock).layer(&API).cost_with(cost).dialects(dialect);
        assert_eq!(told(&answer(&layer, 1)), admitted, "{dialect:?}");
        assert_eq!(answer(&layer, 9).get("retry-after"), None);
        clock.advance(Duration::from_millis(100));
        let refusal = answer(&layer, 1);
        assert_eq!(told(&refusal), refused, "{dialect:?}");
        assert_eq!(field(&refusal, "retry-after"), Some("6"));
    }
}

#[test]
fn several_dialects_are_spoken_at_once() {
    let layer = limiter(&ManualClock::new(START)).layer(&API).cost_with(cost);
    let layer = layer.dialects([Dialect::Draft11, Dialect::Draft6, Dialect::XRateLimit]);
    let headers = answer(&layer, 3);
    let names: Vec<_> = told(&headers).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ALL_FIELDS);
    assert_eq!(field(&headers, "ratelimit"), Some("\"api\";r=7;t=42"));
    assert_eq!(field(&headers, "x-ratelimit-remaining"), Some("7"));
    // The same with what the refusal has ready.
    let headers = answer(&layer, 9);
    assert_eq!(told(&headers).len(), ALL_FIELDS.len());
    assert_eq!(field(&headers, "retry-after"), Some("12"));
    assert_eq!(field(&headers, "ratelimit-reset"), Some("12"));

    let with = |dialects: &[Dialect]| {
        let layer = limiter(&ManualClock::new(START)).layer(&API);
        answer(&layer.dialects(dialects.iter().copied()), 1)
    };
    let (listed, one) = (with(&[Dialect::None, Dialect::Draft7]), with(&[Dialect::Draft7]));
    assert_eq!(told(&listed), told(&one));
}

#[test]
#[should_panic(expected = "draft 11 and draft 7 have the same names (choose one of the two)")]
fn drafts_that_contradict_each_other_are_a_panic() {
    let layer = limiter(&ManualClock::new(START)).layer(&API);
    let _ = layer.dialects([Dialect::Draft11, Dialect::Draft7]);
}

#[test]
fn a_refusal_of_a_cost_that_is_too_large_sends_the_policy_of_its_dialect() {
    for (dialect, wanted) in [
        (Dialect::Draft11, vec![("ratelimit-policy", "\"api\";q=10;w=60")]),
        (Dialect::Draft7, vec![("ratelimit-policy", "10;w=60")]),
        (Dialect::Draft6, vec![]),
    ] {
        let layer = limiter(&ManualClock::new(START)).layer(&API).cost(11).dialects(dialect);
        let headers = answer(&layer, 0);
        assert_eq!((told(&headers), headers.get("retry-after")), (wanted, None));
    }
}

/// `X-RateLimit-Reset` is never before the time of retry, whatever the fraction of the second.
#[test]
fn the_time_of_reset_is_rounded_up() {
    for (micros, wanted) in [
        (0, "106"),
        (1, "107"),
        (999_999, "107"),
        (-100_000_000, "6"),
        (-200_000_000, "0"),
        (i64::MAX - 200_000_000, "9223372036761"),
    ] {
        let clock =
            ManualClock::new(Timestamp::from_micros(100_000_000_i64.saturating_add(micros)));
        let layer = limiter(&clock).layer(&API).cost_with(cost).dialects(Dialect::XRateLimit);
        answer(&layer, 10);
        assert_eq!(field(&answer(&layer, 1), "x-ratelimit-reset"), Some(wanted), "{micros}");
    }
}

// Several limits where there is room for one.

/// What draft 7 says of a request that is held to all of these, at these costs.
fn nearest(limits: &[(Limit, u64)]) -> String {
    let limiter = limiter(&ManualClock::new(START));
    let mut rules = limits.iter().map(|(limit, cost)| Rule::new(limit).cost(*cost));
    let first: RateLimitLayer<Vec<Rule>> = limiter.layer(rules.next().unwrap()).into();
    let layer = rules.fold(first, RateLimitLayer::and).dialects([Dialect::Draft7, Dialect::Draft6]);
    let headers = answer(&layer, 0);
    let members = |name| field(&headers, name).unwrap();
    let (limit, remaining) = (members("ratelimit-limit"), members("ratelimit-remaining"));
    let all = format!("limit={limit}, remaining={remaining}, reset={}", members("ratelimit-reset"));
    assert_eq!(members("ratelimit"), all, "all dialects tell the same one");
    all
}

#[test]
fn the_most_constrained_limit_is_sent() {
    let limit = |name: &'static str, rate, period| {
        Limit::try_new(name, Quota::fixed_window(rate, period).start(START)).unwrap()
    };
    let (minute, hour) = (limit("minute", 10, MINUTE), limit("hour", 100, HOUR));
    // The limit with room for the fewest requests is sent, wherever it stands among the rules.
    let wanted = "limit=10, remaining=9, reset=60";
    assert_eq!(nearest(&[(minute.clone(), 1), (hour.clone(), 1)]), wanted);
    assert_eq!(nearest(&[(hour.clone(), 1), (minute.clone(), 1)]), wanted);
    // Room is counted in requests like this one, not in tokens: here one more of 49, not nine.
    assert_eq!(
        nearest(&[(minute.clone(), 1), (hour.clone(), 49)]),
        "limit=100, remaining=51, reset=3600"
    );
    // Of two limits with equal room, the one with the longer period is sent.
    let day = limit("day", 10, DAY);
    assert_eq!(
        nearest(&[(minute.clone(), 1), (day.clone(), 1)]),
        "limit=10, remaining=9, reset=86400"
    );
    assert_eq!(nearest(&[(day, 1), (minute, 1)]), "limit=10, remaining=9, reset=86400");
}

#[test]
fn a_limit_that_has_refused_is_more_constrained_than_one_with_less_left() {
    let limiter = limiter(&ManualClock::new(START));
    let tokens = Limit::new("tokens", Quota::token_bucket(100, MINUTE));
    let (tokens, api) = (Rule::new(tokens).cost(60), Rule::new(&API).cost(5));
    let layer = limiter.layer(tokens).and(api).dialects(Dialect::Draft7);
    assert_eq!(field(&answer(&layer, 0), "ratelimit"), Some("limit=100, remaining=40, reset=24"));
    let headers = answer(&layer, 0);
    assert_eq!(field(&headers, "ratelimit"), Some("limit=100, remaining=40, reset=12"));
    assert_eq!(field(&headers, "ratelimit-policy"), Some("100;w=60, 10;w=60"));
    // Both refuse: the longer wait is sent, which is that of `Retry-After`.
    let limiter = tollgate_testing::limiter(&ManualClock::new(START));
    let slow = Limit::new("slow", Quota::token_bucket(2, DAY));
    let (api, slow) = (Rule::new(&API).cost(10), Rule::new(slow).cost(2));
    let layer = limiter.layer(api).and(slow).dialects(Dialect::Draft6);
    answer(&layer, 0);
    let headers = answer(&layer, 0);
    assert_eq!(field(&headers, "ratelimit-reset"), Some("86400"));
    assert_eq!(field(&headers, "retry-after"), Some("86400"));
}

#[test]
fn draft_7_has_one_policy_for_each_quota() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter
        .layer(Limit::new("a", Quota::token_bucket(10, SECOND)))
        .and(Limit::new("b", Quota::token_bucket(50, MINUTE)))
        .and(Limit::new("c", Quota::token_bucket(10, DAY)))
        .dialects(Dialect::Draft7);
    assert_eq!(field(&answer(&layer, 1), "ratelimit-policy"), Some("10;w=1, 50;w=60"));
    // Numbers too large for a structured field are sent as the largest that it can hold.
    let window = |rate| Quota::fixed_window(rate, SECOND).max_reserved(0);
    let huge = |name, more| Limit::new(name, window((1_u64 << 52) + more));
    let layer =
        tollgate_testing::limiter(&ManualClock::new(START)).layer(huge("a", 0)).and(huge("b", 1));
    let headers = answer(&layer.dialects(Dialect::Draft7), 1);
    assert_eq!(field(&headers, "ratelimit-policy"), Some("999999999999999;w=1"));
}

// Layers within layers.

#[test]
fn an_outer_layer_replaces_only_fields_with_more_left() {
    let inner = Limit::new("inner", Quota::token_bucket(20, MINUTE));
    for (dialect, limit) in [
        (Dialect::Draft7, "ratelimit"),
        (Dialect::Draft6, "ratelimit-limit"),
        (Dialect::XRateLimit, "x-ratelimit-limit"),
    ] {
        let limiter = limiter(&ManualClock::new(START)).dialects(dialect);
        // Of the outer limit, 9 of 10 are left.
        for (cost, wanted) in [(8, "10"), (11, "20"), (17, "20")] {
            let spent = at_once(limiter.limit(&inner).cost(cost).into_future()).unwrap();
            drop(spent);
            let within = limiter
                .layer(&inner)
                .cost(0)
                .layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(()))));
            let outer = limiter.layer(&API).layer(within);
            let response = at_once(outer.oneshot(Request::new(()))).unwrap();
            let found = field(response.headers(), limit).unwrap();
            assert!(found == wanted || found.starts_with(&format!("limit={wanted},")), "{found}");
            at_once(limiter.reset(&inner).into_future()).unwrap();
            at_once(limiter.reset(&API).into_future()).unwrap();
        }
        // The fields of an inner refusal stay, even if the outer limit has less left.
        let layer = limiter.layer(&API).dialects(dialect);
        let refused = [(limit, "20"), ("retry-after", "3"), ("ratelimit-remaining", "12")];
        let refused = [&refused[..], &[("x-ratelimit-remaining", "12")]].concat();
        assert_eq!(field(&answer_over(&layer, 1, &refused), limit), Some("20"));
    }
}

#[test]
fn lists_of_both_layers_are_kept_in_draft_7() {
    let layer = limiter(&ManualClock::new(START)).layer(&API).dialects(Dialect::Draft7);
    let headers = answer_over(&layer, 1, &[("ratelimit-policy", "50;w=3600")]);
    assert_eq!(field(&headers, "ratelimit-policy"), Some("10;w=60, 50;w=3600"));
}

// Retry-After.

#[test]
fn retry_after_can_be_a_date_which_is_rounded_up() {
    for (now, wanted) in [
        // The wait is six seconds, 22:15:30 to the microsecond.
        (1_700_000_124_000_000, "Tue, 14 Nov 2023 22:15:30 GMT"),
        (1_700_000_124_000_001, "Tue, 14 Nov 2023 22:15:31 GMT"),
        (1_700_000_123_999_999, "Tue, 14 Nov 2023 22:15:30 GMT"),
        (0, "Thu, 01 Jan 1970 00:00:06 GMT"),
        (-86_400_000_000, "Thu, 01 Jan 1970 00:00:00 GMT"),
        (253_402_300_799_000_000, "Fri, 31 Dec 9999 23:59:59 GMT"),
        (i64::MAX - 100_000_000, "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        let clock = ManualClock::new(Timestamp::from_micros(now));
        let layer = limiter(&clock).layer(&API).cost_with(cost).retry_after_date();
        assert_eq!(answer(&layer, 10).get("retry-after"), None);
        let headers = answer(&layer, 1);
        assert_eq!(field(&headers, "retry-after"), Some(wanted), "{now}");
        assert_eq!(field(&headers, "ratelimit"), Some("\"api\";r=0;t=6"), "seconds stay seconds");
    }
}

/// From a table up to 300, and written beyond it.
#[test]
fn retry_after_is_whole_seconds_of_any_length() {
    for (period, wanted) in [
        (1_u64, "1"),
        (299, "299"),
        (300, "300"),
        (301, "301"),
        (86_400, "86400"),
        (2_592_000, "2592000"),
    ] {
        let quota = Quota::token_bucket(1, Duration::from_secs(period));
        let layer = limiter(&ManualClock::new(START)).layer(Limit::new("slow", quota));
        answer(&layer, 1);
        assert_eq!(field(&answer(&layer, 1), "retry-after"), Some(wanted));
    }
}

// Partition keys.

fn per_user() -> RateLimitLayer {
    limiter(&ManualClock::new(START)).layer(&API).key(header("x-user"))
}

/// `RateLimit-Policy` and `RateLimit` of alice's first request.
fn partitioned(layer: RateLimitLayer) -> (String, String) {
    let headers = answer(&layer, 1);
    let field = |name| field(&headers, name).unwrap().to_owned();
    (field("ratelimit-policy"), field("ratelimit"))
}

#[test]
fn a_custom_partition_key_is_sent_byte_for_byte() {
    let (policy, member) = partitioned(per_user().partition_key_with(|key| {
        assert_eq!(*key, Key::from("alice"));
        key.to_string().into_bytes()
    }));
    assert_eq!(policy, "\"api\";q=10;w=60;pk=:YWxpY2U=:");
    assert_eq!(member, "\"api\";r=9;t=54;pk=:YWxpY2U=:");

    let hash = |key: &Key| sha2::Sha256::digest(key.to_string()).as_slice()[..12].to_vec();
    let (policy, member) = partitioned(per_user().partition_key_with(hash));
    assert_eq!(policy, "\"api\";q=10;w=60;pk=:K9gGyX8OAK8aH8My:");
    assert_eq!(member, "\"api\";r=9;t=54;pk=:K9gGyX8OAK8aH8My:");

    let (policy, member) = partitioned(per_user().partition_key_with(|_| Vec::new()));
    assert_eq!((policy.as_str(), member.as_str()), ("\"api\";q=10;w=60", "\"api\";r=9;t=54"));
}

#[test]
fn a_partition_key_is_a_keyed_hash_of_the_key() {
    let of = |secret: u8, key: Key| {
        let layer = limiter(&ManualClock::new(START)).layer(&API);
        let layer = layer.key_with(move |_| key.clone());
        let headers = answer(&layer.partition_key([secret; 16]), 1);
        let policy = field(&headers, "ratelimit-policy").unwrap().to_owned();
        let partition = policy.split_once(";pk=:").unwrap().1.strip_suffix(':').unwrap().to_owned();
        assert!(field(&headers, "ratelimit").unwrap().ends_with(&format!(";pk=:{partition}:")));
        partition
    };
    let alice = of(7, Key::from("alice"));
    // Computed by another implementation of SipHash-2-4-128: the hash is stable across versions and
    // machines.
    assert_eq!(alice, "XuDCGshXSRfrLdaS");
    assert_eq!(alice, of(7, Key::from("alice")));
    assert_ne!(alice, of(8, Key::from("alice")));
    assert_ne!(alice, of(7, Key::from("bob")));

    // All layers of a process have one.
    let random = || partitioned(per_user().random_partition_key()).0;
    assert_eq!(random(), random());
    assert_ne!(random(), partitioned(per_user().partition_key([0; 16])).0);
    let shown = format!("{:?}", per_user().partition_key([7; 16]));
    assert!(!shown.contains("7, 7"), "the secret is left out: {shown}");
}

#[test]
fn a_dialect_without_partition_keys_sends_none() {
    let per_user = Limit::new("per-user", Quota::token_bucket(5, SECOND));
    let layer = limiter(&ManualClock::new(START))
        .layer(Rule::new(&API).key(global()))
        .and(Rule::new(per_user).key(header("x-user")))
        .partition_key_with(|_| vec![0xff]);
    let headers = answer(&layer, 1);
    assert_eq!(
        field(&headers, "ratelimit"),
        Some("\"api\";r=9;t=54, \"per-user\";r=4;t=1;pk=:/w==:")
    );
    let headers = answer(&layer.dialects(Dialect::Draft6), 1);
    assert!(!format!("{headers:?}").contains("/w=="), "only draft 11 has room for it");
}
