//! Layers of a configuration do what the file says.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use tollgate::backend::Memory;
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::middleware::{ActualCost, Admission};
use tollgate::{RateLimitLayer, RateLimiter, SECOND};
use tollgate_config::ConfiguredLimit;
use tollgate_testing::broken::Broken;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt, service_fn};

use crate::text::{FORMATS, config};

/// A request, of which a test says what it needs.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    peer: [u8; 4],
    /// The status that the handler answers.
    answer: u16,
}

pub(crate) const ASK: Ask =
    Ask { method: Method::GET, path: "/", headers: Vec::new(), peer: [192, 0, 2, 1], answer: 200 };

impl Ask {
    fn with(&self, name: &'static str, value: &'static str) -> Self {
        let mut ask = self.clone();
        ask.headers.push((name, value));
        ask
    }

    pub(crate) async fn through(&self, layer: &RateLimitLayer) -> (StatusCode, HeaderMap) {
        let mut request = Request::builder().method(&self.method).uri(self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        request.extensions_mut().insert(SocketAddr::from((self.peer, 5123)));
        let status = self.answer;
        let inner = service_fn(move |request: Request<()>| {
            let mut response = Response::new("hello".to_owned());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            if request.extensions().get::<Admission>().is_some() {
                response.headers_mut().insert("x-admission", "yes".parse().unwrap());
            }
            response.extensions_mut().insert(ActualCost::new(2));
            ready(Ok::<_, Infallible>(response))
        });
        let (head, _) = layer.layer(inner).oneshot(request).await.unwrap().into_parts();
        (head.status, head.headers)
    }
}

pub(crate) fn in_memory() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

/// The one limit of a configuration, called `api`, with these fields.
pub(crate) fn api(fields: &str) -> ConfiguredLimit {
    let text = format!("{{limits: {{api: {{{fields}}}}}, client_address: {{}}}}");
    config(&text, "toml").limit("api").unwrap()
}

fn layer(fields: &str) -> RateLimitLayer {
    api(fields).layer(&in_memory()).unwrap()
}

/// The statuses of these requests, one after the other.
async fn statuses(layer: &RateLimitLayer, asks: &[Ask]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for ask in asks {
        statuses.push(ask.through(layer).await.0.as_u16());
    }
    statuses
}

// The key.

#[tokio::test]
async fn keys_are_those_that_the_text_names() {
    let [one, other] = [ASK, Ask { peer: [192, 0, 2, 2], ..ASK }];
    let (alice, bob) = (ASK.with("x-user", "alice"), ASK.with("x-user", "bob"));
    for (key, asks, wanted) in [
        ("\"client address\"", vec![one.clone(), other.clone(), one.clone()], [200, 200, 429]),
        ("\"none\"", vec![one.clone(), other.clone(), one.clone()], [200, 429, 429]),
        ("\"header X-User\"", vec![alice.clone(), bob.clone(), alice.clone()], [200, 200, 429]),
        (
            "\"header x-user\"",
            vec![one.clone(), alice.clone(), ASK.with("x-user", "Alice")],
            [400, 200, 200],
        ),
        (
            "\"header x-user, ignore case\"",
            vec![alice.clone(), ASK.with("x-user", "ALICE"), bob.clone()],
            [200, 429, 200],
        ),
        (
            "\"header x-user, max length 4\"",
            vec![alice.clone(), bob.clone(), bob.clone()],
            [400, 200, 429],
        ),
        (
            "\"bearer token\"",
            vec![
                ASK.with("authorization", "Bearer a"),
                ASK.with("authorization", "Bearer b"),
                ASK.with("authorization", "bearer a"),
            ],
            [200, 200, 429],
        ),
        (
            "\"bearer token, max length 8\"",
            vec![
                ASK.with("authorization", "Bearer a"),
                ASK.with("authorization", "Bearer ab"),
                one.clone(),
            ],
            [200, 400, 401],
        ),
        (
            "\"api key x-api-key\"",
            vec![
                ASK.with("x-api-key", "a"),
                ASK.with("x-api-key", "b"),
                ASK.with("x-api-key", "a"),
            ],
            [200, 200, 429],
        ),
        (
            "\"api key x-api-key, max length 1\"",
            vec![
                ASK.with("x-api-key", "a"),
                ASK.with("x-api-key", "ab"),
                ASK.with("x-api-key", "a"),
            ],
            [200, 400, 429],
        ),
        (
            "\"cookie sid\"",
            vec![
                ASK.with("cookie", "sid=a"),
                ASK.with("cookie", "x=b; sid=b"),
                ASK.with("cookie", "sid=a"),
            ],
            [200, 200, 429],
        ),
        ("\"matched path\"", vec![one.clone(), one.clone(), one.clone()], [404, 404, 404]),
        (
            "\"header x-user or client address\"",
            vec![alice.clone(), one.clone(), one.clone()],
            [200, 200, 429],
        ),
        (
            "[\"header x-user\", \"client address\"]",
            vec![alice.clone(), Ask { peer: [192, 0, 2, 2], ..alice.clone() }, alice.clone()],
            [200, 200, 429],
        ),
        ("[\"header x-user\"]", vec![alice.clone(), bob.clone(), bob.clone()], [200, 200, 429]),
    ] {
        for format in FORMATS {
            let template = format!("{{limits: {{api: {{quota: \"1 per hour\", key: {key}}}}}}}");
            let api = config(&template, format).limit("api").unwrap();
            let layer = api.layer(&in_memory()).unwrap();
            assert_eq!(statuses(&layer, &asks).await, wanted, "{key}");
        }
    }
}

#[tokio::test]
async fn a_key_combines_up_to_four_parts() {
    let names = ["a", "b", "c", "d"];
    for count in 1..=4 {
        let parts: Vec<_> =
            names[..count].iter().map(|name| format!("\"header {name}\"")).collect();
        let layer = layer(&format!("quota: \"1 per hour\", key: [{}]", parts.join(", ")));
        let all = names.iter().fold(ASK, |ask, name| ask.with(name, "x"));
        // Another value of the last part is another key.
        let mut other = all.clone();
        other.headers[count - 1].1 = "y";
        assert_eq!(
            statuses(&layer, &[all.clone(), other.clone(), all, other]).await,
            [200, 200, 429, 429]
        );
    }
}

#[tokio::test]
async fn the_address_of_clients_is_found_as_the_file_says() {
    let forwarded = |name, value| Ask { peer: [10, 0, 0, 1], ..ASK.with(name, value) };
    for (fields, first, second, wanted) in [
        // Without a word about proxies, the peer counts, whatever a field says.
        (
            "",
            ASK.with("x-forwarded-for", "198.51.100.1"),
            ASK.with("x-forwarded-for", "198.51.100.2"),
            [200, 429],
        ),
        ("from: \"connection\"", ASK, ASK, [200, 429]),
        (
            "from: \"x-forwarded-for\", trusted_proxies: [\"10.0.0.0/8\"]",
            forwarded("x-forwarded-for", "198.51.100.1"),
            forwarded("x-forwarded-for", "198.51.100.2"),
            [200, 200],
        ),
        (
            "from: \"x-forwarded-for\", trusted_proxies: \"private\"",
            forwarded("x-forwarded-for", "198.51.100.1"),
            forwarded("x-forwarded-for", "198.51.100.1"),
            [200, 429],
        ),
        (
            "from: \"x-forwarded-for\", trusted_hops: 1",
            forwarded("x-forwarded-for", "198.51.100.1"),
            forwarded("x-forwarded-for", "198.51.100.2"),
            [200, 200],
        ),
        (
            "from: \"forwarded\", trusted_hops: 1",
            forwarded("forwarded", "for=198.51.100.1"),
            forwarded("forwarded", "for=198.51.100.2"),
            [200, 200],
        ),
        (
            "from: \"header cf-connecting-ip\", trusted_proxies: \"10.0.0.0/8\"",
            forwarded("cf-connecting-ip", "198.51.100.1"),
            forwarded("cf-connecting-ip", "198.51.100.2"),
            [200, 200],
        ),
        (
            "from: \"x-forwarded-for\", trusted_hops: 1, ipv6_prefix: 48",
            forwarded("x-forwarded-for", "2001:db8:0:1::1"),
            forwarded("x-forwarded-for", "2001:db8:0:2::1"),
            [200, 429],
        ),
        (
            "from: \"x-forwarded-for\", trusted_hops: 1, ipv6_prefix: 64",
            forwarded("x-forwarded-for", "2001:db8:0:1::1"),
            forwarded("x-forwarded-for", "2001:db8:0:2::1"),
            [200, 200],
        ),
    ] {
        // The table stands behind the limits that it concerns.
        let config = config(
            &format!(
                "{{limits: {{api: {{quota: \"1 per hour\", key: \"client address\"}}}}, \
                 client_address: {{{fields}}}}}"
            ),
            "json",
        );
        let layer = config.limit("api").unwrap().layer(&in_memory()).unwrap();
        assert_eq!(statuses(&layer, &[first, second]).await, wanted, "{fields}");
    }
}

// Cost and conditions.

#[tokio::test]
async fn a_cost_of_the_file_is_what_each_request_takes() {
    let layer = layer("quota: \"10 per hour\", key: \"none\", cost: 5");
    assert_eq!(statuses(&layer, &[ASK, ASK, ASK]).await, [200, 200, 429]);
}

#[tokio::test]
async fn conditions_let_other_requests_pass() {
    let quota = "quota: \"1 per hour\", key: \"none\"";
    let method = |method| Ask { method, ..ASK };
    let path = |path| Ask { path, ..ASK };
    let peer = |peer| Ask { peer, ..ASK };
    for (fields, asks, wanted) in [
        (
            "methods: [\"POST\", \"PUT\"]",
            [ASK, method(Method::POST), ASK, method(Method::PUT)],
            [200, 200, 200, 429],
        ),
        (
            "methods: \"GET\"",
            [method(Method::POST), ASK, method(Method::HEAD), method(Method::POST)],
            [200, 200, 429, 200],
        ),
        (
            "exempt_paths: [\"/health\", \"/ready\"]",
            [path("/health"), ASK, path("/ready?x=1"), path("/health/x")],
            [200, 200, 200, 429],
        ),
        (
            "exempt_paths: \"/health\"",
            [ASK, path("/he%61lth"), path("//health"), path("/health")],
            [200, 429, 429, 200],
        ),
        (
            "exempt_networks: [\"10.0.0.0/8\", \"192.0.2.7\"]",
            [peer([10, 1, 2, 3]), ASK, peer([192, 0, 2, 7]), ASK],
            [200, 200, 200, 429],
        ),
        (
            "exempt_networks: \"private\"",
            [peer([192, 168, 0, 1]), ASK, ASK, peer([127, 0, 0, 1])],
            [200, 200, 429, 200],
        ),
        ("enabled: false", [ASK, ASK, ASK, ASK], [200, 200, 200, 200]),
        ("enabled: true", [ASK, ASK, ASK, ASK], [200, 429, 429, 429]),
        ("shadow: true", [ASK, ASK, ASK, ASK], [200, 200, 200, 200]),
        ("shadow: false", [ASK, ASK, ASK, ASK], [200, 429, 429, 429]),
        ("enforce: \"0%\"", [ASK, ASK, ASK, ASK], [200, 200, 200, 200]),
        ("enforce: \"100%\"", [ASK, ASK, ASK, ASK], [200, 429, 429, 429]),
        ("sample: \"0%\"", [ASK, ASK, ASK, ASK], [200, 200, 200, 200]),
        ("sample: \"1 in 1\"", [ASK, ASK, ASK, ASK], [200, 429, 429, 429]),
    ] {
        let layer = layer(&format!("{quota}, {fields}"));
        assert_eq!(statuses(&layer, &asks).await, wanted, "{fields}");
    }
    // What a shadow would refuse is counted all the same.
    let limiter = in_memory();
    let api = api(&format!("{quota}, shadow: true"));
    let layer = api.layer(&limiter).unwrap();
    assert_eq!(statuses(&layer, &[ASK]).await, [200]);
    assert_eq!(at_once(limiter.peek(&api)).unwrap().remaining(), 0);
}

#[tokio::test]
async fn portions_hold_a_part_of_the_keys_or_of_the_requests() {
    let refused = async |fields: &str| {
        let limiter = in_memory().seed(7);
        let layer = api(&format!("quota: \"1 per hour, max_reserved 0\", {fields}"))
            .layer(&limiter)
            .unwrap();
        let mut refused = 0;
        for number in 0..2_000 {
            let peer = [10, 0, (number / 2 / 200) as u8, (number / 2 % 200) as u8];
            let (status, _) = Ask { peer, ..ASK }.through(&layer).await;
            refused += usize::from(status == 429);
        }
        refused
    };
    // Each of 1,000 addresses asks twice, and its second request would be refused.
    let enforced = refused("key: \"client address\", enforce: \"10%\"").await;
    assert!((60..140).contains(&enforced), "{enforced}");
    // A quarter of the requests shares one token.
    let sampled = refused("key: \"none\", sample: \"1 in 4\"").await;
    assert!((400..600).contains(&sampled), "{sampled}");
}

#[tokio::test]
async fn a_missing_key_is_answered_as_the_file_says() {
    let alice = ASK.with("x-user", "alice");
    for (missing, wanted) in [
        ("\"exempt\"", [200, 200, 200, 429]),
        ("\"shared\"", [200, 429, 200, 429]),
        ("401", [401, 401, 200, 429]),
    ] {
        let layer = layer(&format!(
            "quota: \"1 per hour\", key: \"header x-user\", missing_key: {missing}"
        ));
        assert_eq!(statuses(&layer, &[ASK, ASK, alice.clone(), alice.clone()]).await, wanted);
    }
}

#[tokio::test]
async fn responses_return_tokens_as_the_file_says() {
    let answer = |answer| Ask { answer, ..ASK };
    for (fields, answers, wanted) in [
        ("refund_if: [401, \"5xx\"]", [401, 503, 200, 401], [401, 503, 200, 429]),
        ("refund_if: \"success\"", [200, 204, 404, 200], [200, 204, 404, 429]),
        ("refund_if: \"4xx\"", [499, 400, 399, 400], [499, 400, 399, 429]),
        ("refund_unless: 401", [200, 404, 401, 200], [200, 404, 401, 429]),
        ("refund_unless: [\"1xx\", \"2xx\"]", [301, 404, 200, 301], [301, 404, 200, 429]),
        ("reset_if: \"3xx\"", [301, 302, 200, 301], [301, 302, 200, 429]),
    ] {
        let layer = layer(&format!("quota: \"1 per hour\", key: \"none\", {fields}"));
        assert_eq!(statuses(&layer, &answers.map(answer)).await, wanted, "{fields}");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_block_as_the_file_says() {
    let api = api("quota: \"1 per second\", key: \"client address\",
         block_after: {refusals: 2, within: \"1m\", time: \"1h\", longest: \"90m\"}");
    let layer = api.layer(&RateLimiter::new(Memory::new().clock(TokioClock::new()))).unwrap();
    for seconds in ["3601", "5401"] {
        assert_eq!(statuses(&layer, &[ASK, ASK]).await, [200, 429]);
        let (status, headers) = ASK.through(&layer).await;
        assert_eq!((status.as_u16(), headers["retry-after"].to_str().unwrap()), (429, seconds));
        tokio::time::advance(SECOND * 3_601).await;
    }
}

// The layer.

#[tokio::test]
async fn fields_and_refusals_are_spoken_as_the_file_says() {
    let spoken = async |fields: &str| {
        let layer = layer(&format!("quota: \"1 per hour\", key: \"client address\", {fields}"));
        assert_eq!(ASK.through(&layer).await.0, 200);
        ASK.through(&layer).await
    };
    let (status, headers) = spoken("dialects: [\"draft-6\", \"x-ratelimit\"]").await;
    assert_eq!(status, 429);
    assert!(headers.contains_key("ratelimit-reset") && headers.contains_key("x-ratelimit-reset"));
    let (_, headers) = spoken("dialects: \"draft-7\"").await;
    assert_eq!(headers["ratelimit-policy"], "1;w=3600");
    let (_, headers) = spoken("dialects: \"draft-11\", partition_key: \"random\"").await;
    assert!(headers["ratelimit"].to_str().unwrap().contains(";pk=:"), "{headers:?}");
    let (_, headers) = spoken("dialects: \"none\", retry_after: \"date\"").await;
    assert!(!headers.contains_key("ratelimit"));
    assert!(headers["retry-after"].to_str().unwrap().ends_with(" GMT"), "{headers:?}");
    let (_, headers) = spoken("on_refusal: \"plain text\", retry_after: \"seconds\"").await;
    assert!(headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(headers["retry-after"], "3600");
    let (_, headers) = spoken("on_refusal: \"problem details\"").await;
    assert_eq!(headers["content-type"], "application/problem+json");
    let (_, headers) = spoken("jitter: \"1 day\"").await;
    let after: u64 = headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(after > 3_600, "{after}");
}

#[tokio::test]
async fn settings_for_all_limits_are_in_each_layer_unless_it_says_otherwise() {
    for format in FORMATS {
        let config = config(
            "{dialects: \"draft-6\", on_refusal: \"plain text\", limits: {\
             one: {quota: \"1 per hour\", key: \"none\"},\
             other: {quota: \"1 per hour\", key: \"none\", dialects: \"x-ratelimit\", \
             on_refusal: \"problem details\"}}}",
            format,
        );
        let [one, other] = config.limits(["one", "other"]).unwrap();
        let limiter = in_memory();
        let [one, other] = [one, other].map(|limit| limit.layer(&limiter).unwrap());
        for (layer, field, media) in [
            (&one, "ratelimit-reset", "text/plain"),
            (&other, "x-ratelimit-reset", "application/problem+json"),
        ] {
            ASK.through(layer).await;
            let (status, headers) = ASK.through(layer).await;
            assert_eq!((status.as_u16(), headers.contains_key(field)), (429, true));
            assert!(headers["content-type"].to_str().unwrap().starts_with(media));
        }
        // A layer that is made of a rule has them if the limiter has.
        let rule = config.limit("one").unwrap().rule().unwrap();
        let plain = limiter.layer(rule.clone());
        assert!(ASK.through(&plain).await.1.contains_key("ratelimit"));
        let configured = config.configure(limiter.clone()).layer(rule);
        assert!(ASK.through(&configured).await.1.contains_key("ratelimit-reset"));
    }
}

#[tokio::test]
async fn a_configuration_switches_all_its_limits_off() {
    let config =
        config("{enabled: false, limits: {api: {quota: \"1 per hour\", key: \"none\"}}}", "toml");
    let api = config.limit("api").unwrap();
    let limiter = in_memory();
    let layer = api.layer(&limiter).unwrap();
    assert_eq!(statuses(&layer, &[ASK, ASK]).await, [200, 200]);
    let limiter = config.configure(limiter);
    assert!(!at_once(limiter.limit(&api).cost(100)).unwrap().is_decided());
}

#[tokio::test(start_paused = true)]
async fn requests_wait_in_the_queue_of_the_file() {
    let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    let queue = "{max_wait: \"90s\", max_waiters: 2, max_waiters_per_key: 1, on_full: 429}";
    let api = api(&format!("quota: \"1 per minute\", key: \"client address\", queue: {queue}"));
    let layer = api.layer(&limiter).unwrap();
    let start = tokio::time::Instant::now();
    let ask = async || (ASK.through(&layer).await.0.as_u16(), start.elapsed().as_secs());
    let (first, second, third) = tokio::join!(ask(), ask(), ask());
    // The third finds another waiter of its address.
    assert_eq!([first, second, third], [(200, 0), (200, 60), (429, 0)]);
    // The short form bounds the wait alone.
    let short = self::api("quota: \"1 per minute\", key: \"client address\", queue: \"1h\"");
    let layer = short.layer(&RateLimiter::new(Memory::new().clock(TokioClock::new()))).unwrap();
    let start = tokio::time::Instant::now();
    let ask = async || (ASK.through(&layer).await.0.as_u16(), start.elapsed().as_secs());
    assert_eq!(tokio::join!(ask(), ask(), ask()), ((200, 0), (200, 60), (200, 120)));
}

#[tokio::test(start_paused = true)]
async fn requests_stay_in_line_as_the_file_says() {
    let cases = [
        ("", "", 0),
        ("settle: true, ", "", 30),
        ("", ", stay: true", 30),
        ("settle: true, ", ", stay: false", 0),
    ];
    for (settle, stay, after) in cases {
        let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
        let queue = format!("{{max_wait: \"30s\"{stay}}}");
        let api = api(&format!("quota: \"1 per minute\", key: \"none\", {settle}queue: {queue}"));
        let layer = api.layer(&limiter).unwrap();
        let start = tokio::time::Instant::now();
        let ask = async || (ASK.through(&layer).await.0.as_u16(), start.elapsed().as_secs());
        assert_eq!(tokio::join!(ask(), ask()), ((200, 0), (429, after)), "{settle}{stay}");
    }
}

#[tokio::test]
async fn a_layer_settles_exposes_and_refunds_as_the_file_says() {
    let limiter = in_memory();
    let api = api("quota: \"10 per hour\", key: \"none\", cost: 5, settle: true, expose: true");
    let layer = api.layer(&limiter).unwrap();
    let (_, headers) = ASK.through(&layer).await;
    assert_eq!(headers["x-admission"], "yes");
    assert_eq!(at_once(limiter.peek(&api)).unwrap().remaining(), 8);

    let dropped = self::api("quota: \"10 per hour\", key: \"none\", refund_dropped: true");
    let limiter = in_memory();
    let layer = dropped.layer(&limiter).unwrap();
    let service = layer.layer(service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<String>, Infallible>>()
    }));
    let mut call = Box::pin(service.oneshot(Request::new(())));
    assert!(futures_util::poll!(&mut call).is_pending());
    assert_eq!(at_once(limiter.peek(&dropped)).unwrap().remaining(), 9);
    drop(call);
    assert_eq!(at_once(limiter.peek(&dropped)).unwrap().remaining(), 10);
}

#[tokio::test]
async fn an_outage_is_answered_as_the_limit_says_or_else_as_the_file_does() {
    let config = config(
        "{on_failure: \"admit\", limits: {\
         search: {quota: \"1 per hour\", key: \"none\"},\
         login: {quota: \"1 per hour\", key: \"none\", on_failure: \"refuse\"}}}",
        "yaml",
    );
    let [search, login] = config.limits(["search", "login"]).unwrap();
    let limiter = RateLimiter::new(Broken { later: false });
    for (limit, status) in [(&search, 200), (&login, 503)] {
        let layer = limit.layer(&limiter).unwrap();
        assert_eq!(statuses(&layer, &[ASK]).await, [status]);
        // In a call, by a limiter that has the defaults of the file.
        let configured = config.configure(limiter.clone());
        assert_eq!(configured.limit(limit).await.is_ok(), status == 200);
    }
    assert!(limiter.limit(&search).await.is_err());
}
