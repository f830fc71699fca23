//! The lines of the log: which are written, how often, and what they say.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::response::IntoResponse;
use http::{Request, Response, StatusCode};
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Fallback, Memory,
};
use tollgate::clock::ManualClock;
use tollgate::key::{
    ClientIp, Extracted, Head, Key, KeyError, KeyExtractor, Networks, Proxies, extension, global,
    header,
};
use tollgate::{Limit, MINUTE, OnFailure, Quota, RateLimitLayer, RateLimiter, Rule};
use tollgate_testing::cases::times;
use tollgate_testing::log::logged;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

#[test]
fn a_store_that_fails_is_logged_once_until_it_has_recovered() {
    let store = Flaky::default();
    let down = Arc::clone(&store.down);
    let service = RateLimiter::new(store)
        .layer(Limit::new("l", Quota::token_bucket(100, MINUTE)))
        .layer(inner());
    let lines = at_paused_time(async || {
        for (is_down, seconds) in [
            (false, 0),
            (true, 1),
            (true, 1),
            // The store answers again, but too briefly to count as recovered.
            (false, 1),
            (true, 1),
            (false, 59),
            (false, 1),
            (false, 1),
            (true, 1),
            (true, 1),
        ] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            down.store(is_down, Ordering::Relaxed);
            let response = service.clone().oneshot(Request::new(())).await.unwrap();
            assert_eq!(response.status(), if is_down { 503 } else { 200 });
        }
    });
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line.contains("ERROR"), line.contains("backend recovered")))
        .collect();
    assert_eq!(told, [(true, false), (false, true), (true, false)], "{lines:#?}");
    assert!(lines[0].contains("it is down"), "{lines:#?}");
}

/// The line named the first limit alone: where that one admits, an operator took all for admitted.
/// So it says nothing of what becomes of requests, and the line at the end counts them.
#[test]
fn an_outage_has_one_line_whatever_becomes_of_requests() {
    let store = Flaky::default();
    store.down.store(true, Ordering::Relaxed);
    let limiter = RateLimiter::new(store);
    let lines = at_paused_time(async || {
        let open = limiter.clone().on_failure(OnFailure::Admit);
        for _ in 0..3 {
            assert!(open.limit(&TWO).await.is_ok());
            assert!(limiter.limit(&TWO).await.is_err());
        }
    });
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(line.contains("a fallback or `OnFailure` decides"), "{line}");
    assert!(!line.contains("admitted") && !line.contains("uncounted"), "{line}");
}

#[test]
fn the_log_tells_how_many_have_passed_uncounted() {
    let store = Flaky::default();
    let down = Arc::clone(&store.down);
    let open = TWO.clone().on_failure(OnFailure::Admit);
    let limiter = RateLimiter::new(store);
    let lines = at_paused_time(async || {
        down.store(true, Ordering::Relaxed);
        for _ in 0..7 {
            assert!(limiter.limit(&open).await.is_ok());
        }
        down.store(false, Ordering::Relaxed);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(limiter.limit(&open).await.is_ok());
    });
    let [outage, recovered] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(outage.contains("ERROR") && outage.contains("it is down"), "{outage}");
    assert!(recovered.contains("admitted=7 refused=0"), "{recovered}");
}

/// An operator has to know that limits count differently, and why.
#[test]
fn a_fallback_is_logged_once_with_the_cause() {
    let store = Flaky::default();
    let down = Arc::clone(&store.down);
    let limiter = RateLimiter::new(Fallback::new(store, Memory::new()));
    let lines = at_paused_time(async || {
        for nth in 0..100 {
            down.store(nth % 3 != 0, Ordering::Relaxed);
            drop(limiter.limit(&TWO).await);
        }
    });
    let [line] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(line.contains("ERROR") && line.contains("it is down"), "{line}");
    assert!(line.contains("a fallback or `OnFailure` decides"), "{line}");
}

/// The log did not say that the store is back, and each minute of an outage had a line.
#[test]
fn an_outage_and_its_end_are_a_line_each_with_what_became_of_requests() {
    let store = Flaky::default();
    let down = Arc::clone(&store.down);
    let limiter = RateLimiter::new(Fallback::new(store, Memory::new()));
    let [open, closed] = [("open", OnFailure::Admit), ("closed", OnFailure::Refuse)]
        .map(|(name, then)| Limit::new(name, Quota::token_bucket(9, MINUTE)).on_failure(then));
    let lines = at_paused_time(async || {
        for round in [1_u64, 2] {
            let two = || limiter.limit(&TWO).key(round).cost(2);
            down.store(true, Ordering::Relaxed);
            two().await.unwrap();
            for _ in 0..4 {
                tokio::time::advance(MINUTE).await;
                assert!(two().await.unwrap_err().is_refused());
                assert!(!limiter.limit(&open).await.unwrap().is_decided());
            }
            assert!(limiter.limit(&closed).reserve().await.unwrap_err().is_outage());
            assert!(two().reserve().await.unwrap_err().is_refused());
            down.store(false, Ordering::Relaxed);
            // Too short a time to be sure.
            limiter.limit(&open).await.unwrap();
            tokio::time::advance(MINUTE).await;
            limiter.limit(&open).await.unwrap();
            limiter.limit(&open).await.unwrap();
            down.store(true, Ordering::Relaxed);
            limiter.peek(&TWO).await.unwrap_err();
            limiter.peek(&TWO).await.unwrap_err();
            down.store(false, Ordering::Relaxed);
            tokio::time::advance(MINUTE).await;
            limiter.limit(&open).await.unwrap();
        }
    });
    assert_eq!(lines.len(), 8, "{lines:#?}");
    for outage in lines.chunks(2) {
        assert!(outage[0].contains("ERROR") && outage[0].contains("it is down"), "{outage:#?}");
        assert!(outage[0].contains("a fallback or `OnFailure` decides"), "{outage:#?}");
        assert!(outage[1].contains("INFO") && outage[1].contains("backend recovered"));
    }
    for (outage, number) in lines.chunks(2).zip(1..) {
        let number = format!(" outage={number} ");
        assert!(outage.iter().all(|line| line.contains(&number)), "{outage:#?}");
    }
    for (nth, counts) in [(1, "admitted=5 refused=6"), (3, "admitted=0 refused=0")] {
        assert!(lines[nth].contains(counts) && lines[nth + 4].contains(counts), "{lines:#?}");
    }
}

/// Each kind of failure had an end of its own, so the log said that the store is back while it was
/// down.
#[test]
fn failures_of_several_kinds_have_one_end() {
    let store = Flaky::default();
    let [down, is_full, is_misused] =
        [&store.down, &store.is_full, &store.is_misused].map(Arc::clone);
    let limiter = RateLimiter::new(store);
    let lines = at_paused_time(async || {
        let ask = || limiter.limit(&TWO);
        is_full.store(true, Ordering::Relaxed);
        assert!(ask().await.is_err());
        tokio::time::advance(MINUTE / 2).await;
        down.store(true, Ordering::Relaxed);
        assert!(ask().await.is_err());
        down.store(false, Ordering::Relaxed);
        is_full.store(false, Ordering::Relaxed);
        // A client can cause this, so it does not prolong the outage. It is refused meanwhile.
        is_misused.store(true, Ordering::Relaxed);
        assert!(ask().await.is_err());
        is_misused.store(false, Ordering::Relaxed);
        for round in [1_u64, 2, 3] {
            tokio::time::advance(MINUTE / 2).await;
            assert!(ask().key(round).await.is_ok());
        }
    });
    let told: Vec<_> = lines.iter().map(|line| line.contains("backend recovered")).collect();
    assert_eq!(told, [false, false, false, true], "{lines:#?}");
    assert!(lines[3].contains("admitted=0 refused=3"), "{lines:#?}");
}

/// A store that is full refuses and fails by turns: of 400 requests, 399 were logged.
#[test]
fn a_store_that_refuses_and_fails_by_turns_has_not_recovered() {
    let store = Flaky::default();
    let full = Arc::clone(&store.is_full);
    let service = RateLimiter::new(store)
        .layer(&TWO)
        .key(header("x-user"))
        .on_failure(OnFailure::Admit)
        .layer(inner());
    let ask = async |user: &str, is_full: bool| {
        full.store(is_full, Ordering::Relaxed);
        let request = Request::builder().header("x-user", user).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap().status().as_u16()
    };
    let lines = at_paused_time(async || {
        for status in [200, 200, 429] {
            assert_eq!(ask("empty", false).await, status);
        }
        for _ in 0..200 {
            assert_eq!(ask("new", true).await, 503);
            assert_eq!(ask("empty", false).await, 429);
        }
        // Refusals store nothing, so they are no sign that there is room again.
        tokio::time::advance(MINUTE).await;
        assert_eq!(ask("empty", false).await, 429);
        assert_eq!(ask("new", true).await, 503);
        tokio::time::advance(MINUTE).await;
        assert_eq!(ask("new", false).await, 200);
        assert_eq!(ask("new", true).await, 503);
    });
    assert_eq!(lines.len(), 3, "{lines:#?}");
    for (line, text) in [(0, "the backend is full"), (1, "recovered"), (2, "the backend is full")] {
        assert!(lines[line].contains(text), "{lines:#?}");
    }
    assert!(lines[0].contains("no room"), "{lines:#?}");
}

/// A client can repeat a call that the store can never decide. A line for each, and another for
/// each recovery, would fill the log.
#[test]
fn a_call_that_the_store_can_never_decide_is_logged_once_and_never_admitted() {
    let store = Flaky::default();
    let (is_misused, down) = (Arc::clone(&store.is_misused), Arc::clone(&store.down));
    let service = RateLimiter::new(store)
        .layer(Limit::new("l", Quota::token_bucket(100, MINUTE)))
        .on_failure(OnFailure::Admit)
        .layer(inner());
    let ask = |status: u16| {
        let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
        assert_eq!(response.status(), status);
    };
    let lines = logged(tracing::Level::INFO, || {
        for misuses in [true, true, false, true, false, true] {
            is_misused.store(misuses, Ordering::Relaxed);
            ask(if misuses { 503 } else { 200 });
        }
        is_misused.store(false, Ordering::Relaxed);
        // An outage has a line of its own.
        down.store(true, Ordering::Relaxed);
        ask(200);
    });
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("the backend can never decide a request"), "{lines:#?}");
    assert!(lines[0].contains("too long a name"), "{lines:#?}");
    assert!(lines[1].contains("it is down"), "{lines:#?}");
}

#[test]
fn a_key_that_the_client_left_out_is_no_misconfiguration() {
    let unauthorized = StatusCode::UNAUTHORIZED;
    let rule = Rule::new(&TWO).key(header("x-user")).missing_key(unauthorized);
    let service = limiter(&ManualClock::new(START)).layer(rule).layer(inner());
    let ask = || {
        at_once(service.clone().oneshot(Request::new(()))).unwrap();
    };
    let lines = logged(tracing::Level::DEBUG, ask);
    assert!(
        lines.len() == 1 && lines[0].contains("DEBUG") && lines[0].contains("status=401"),
        "{lines:#?}"
    );
}

#[test]
fn a_refusal_is_logged() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).key(global()).cost(2);
    let service = layer.layer(inner());
    let ask = || {
        at_once(service.clone().oneshot(Request::new(()))).unwrap();
    };
    assert!(logged(tracing::Level::DEBUG, ask).is_empty(), "admitted");
    let lines = logged(tracing::Level::DEBUG, ask);
    assert!(lines.len() == 1 && lines[0].contains("refused"), "{lines:#?}");
    assert!(
        lines[0].contains("limit=\"two\"") && lines[0].contains("retry_after=60s"),
        "{lines:#?}"
    );
}

#[test]
fn a_request_that_a_shadow_would_refuse_is_logged() {
    let limiter = limiter(&ManualClock::new(START));
    let shadow = Rule::new(&TWO).cost(2).shadow();
    let layer = limiter.layer(shadow.clone());
    let ask = |layer: &RateLimitLayer| {
        let response = at_once(layer.layer(inner()).oneshot(Request::new(()))).unwrap();
        assert_eq!(response.status(), 200);
    };
    assert!(logged(tracing::Level::DEBUG, || ask(&layer)).is_empty(), "admitted");
    let lines = logged(tracing::Level::DEBUG, || ask(&layer));
    assert!(lines.len() == 1 && lines[0].contains("would be refused"), "{lines:#?}");
    assert!(
        lines[0].contains("limit=\"two\"") && lines[0].contains("retry_after=60s"),
        "{lines:#?}"
    );
    let lines = logged(tracing::Level::DEBUG, || ask(&layer.cost(3)));
    assert!(lines.len() == 1 && lines[0].contains("would be too large"), "{lines:#?}");
    let keyless = limiter.layer(shadow.clone().key(header("x-user")));
    let lines = logged(tracing::Level::DEBUG, || ask(&keyless));
    assert!(lines.len() == 1 && lines[0].contains("would have no key"), "{lines:#?}");
    // An empty one is logged as a warning all the same, but the request goes on.
    let lines = logged(tracing::Level::WARN, || {
        let request = Request::builder().header("x-user", "").body(()).unwrap();
        assert_eq!(at_once(keyless.layer(inner()).oneshot(request)).unwrap().status(), 200);
    });
    assert!(lines.len() == 1 && lines[0].contains("WARN"), "{lines:#?}");
    assert!(lines[0].contains("pass without being charged"), "{lines:#?}");
    // A misconfiguration is logged as well.
    let mistaken = limiter.layer(shadow.key(ClientIp::peer()));
    let lines = logged(tracing::Level::INFO, || (0..3).for_each(|_| ask(&mistaken)));
    assert!(lines.len() == 1 && lines[0].contains("ERROR"), "{lines:#?}");
    assert!(lines[0].contains("into_make_service_with_connect_info"), "{lines:#?}");
}

#[test]
fn a_failure_that_a_handler_meets_is_logged_once() {
    let store = Flaky { down: Arc::new(true.into()), ..Flaky::default() };
    let limiter = RateLimiter::new(store);
    let lines = logged(tracing::Level::ERROR, || {
        for _ in 0..3 {
            let error = at_once(limiter.limit(&TWO)).unwrap_err();
            assert_eq!(error.into_response().status(), 503);
        }
        assert!(at_once(limiter.limit(&TWO).reserve()).unwrap_err().is_unavailable());
        assert!(at_once(limiter.peek(&TWO)).unwrap_err().is_unavailable());
        assert_eq!(
            at_once(limiter.layer(&TWO).layer(inner()).oneshot(Request::new(()))).unwrap().status(),
            503
        );
    });
    assert!(
        lines.len() == 1 && lines[0].contains("limit=\"two\"") && lines[0].contains("it is down"),
        "{lines:#?}"
    );
}

/// A fallback may decide about requests while an operator's look has no answer. The line of the look
/// said that requests are not admitted.
#[test]
fn a_call_that_decides_about_no_request_says_nothing_of_requests() {
    let store = Flaky { down: Arc::new(true.into()), ..Flaky::default() };
    let limiter = RateLimiter::new(store);
    let lines = logged(tracing::Level::ERROR, || {
        for _ in 0..3 {
            assert!(at_once(limiter.peek(&TWO)).unwrap_err().is_unavailable());
        }
        // It is the same outage.
        assert!(at_once(limiter.limit(&TWO)).unwrap_err().is_unavailable());
    });
    assert!(lines.len() == 1 && lines[0].contains("the backend is unavailable"), "{lines:#?}");
    assert!(!lines[0].contains("admitted") && !lines[0].contains("on_failure"), "{lines:#?}");
}

#[test]
fn a_misconfiguration_is_logged_once_with_the_fix() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).key(ClientIp::peer());
    let lines = logged(tracing::Level::ERROR, || {
        // However many routes the layer is put on.
        for service in [layer.layer(inner()), layer.layer(inner())] {
            for _ in 0..3 {
                let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
                assert_eq!(response.status(), 500);
            }
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    let hint = "into_make_service_with_connect_info::<SocketAddr>()";
    assert!(lines[0].contains(hint) && lines[0].contains("limit=\"two\""), "{lines:#?}");
}

#[test]
fn a_client_that_leaves_a_key_out_does_not_hide_a_misconfiguration() {
    let layer = limiter(&ManualClock::new(START)).layer(&TWO);
    let service = layer.key((header("x-user"), ClientIp::peer())).layer(inner());
    let lines = logged(tracing::Level::WARN, || {
        for user in [None, None, Some(""), Some("alice"), None, Some(""), Some("bob")] {
            let mut request = Request::new(());
            if let Some(user) = user {
                request.headers_mut().insert("x-user", user.parse().unwrap());
            }
            at_once(service.clone().oneshot(request)).unwrap();
        }
    });
    assert_eq!(lines.len(), 2, "{lines:#?}");
    // No request has an address. Of the two missing keys, only that one is certainly a
    // misconfiguration.
    assert!(lines[0].contains("ERROR") && lines[0].contains("ConnectInfo"), "{lines:#?}");
    assert!(
        lines[1].contains("WARN") && lines[1].contains("`x-user` header is empty"),
        "{lines:#?}"
    );

    let layer = limiter(&ManualClock::new(START)).layer(&TWO);
    let service = layer.key(header("x-user").or(ClientIp::peer())).layer(inner());
    let layer = limiter(&ManualClock::new(START)).layer(&TWO).key_with(|head| {
        let addressed = head.headers().contains_key("x-user");
        Err::<Key, _>(match addressed {
            true => KeyError::misconfigured("no request has an address"),
            false => KeyError::missing("no user"),
        })
    });
    let either = layer.layer(inner());
    let lines = logged(tracing::Level::WARN, || {
        at_once(service.oneshot(Request::new(()))).unwrap();
        for user in [false, true, false, true] {
            let mut request = Request::new(());
            if user {
                request.headers_mut().insert("x-user", "alice".parse().unwrap());
            }
            at_once(either.clone().oneshot(request)).unwrap();
        }
    });
    let told: Vec<_> = ["ConnectInfo", "no user", "no request has an address"]
        .map(|text| lines.iter().filter(|line| line.contains(text)).count())
        .into();
    assert_eq!(told, [1, 1, 1], "{lines:#?}");
}

#[test]
fn a_limit_without_a_key_is_logged_also_where_requests_go_on() {
    let rule = || Rule::new(&MANY);
    for rule in [rule().missing_key_exempt(), rule().missing_key_shared()] {
        let limiter = limiter(&ManualClock::new(START));
        let peer = limiter.layer(rule.clone().key(ClientIp::peer())).layer(inner());
        let user = limiter.layer(rule.key(header("x-user"))).layer(inner());
        let lines = logged(tracing::Level::DEBUG, || {
            for service in [&peer, &peer, &user] {
                let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
                assert_eq!(response.status(), 200);
            }
        });
        assert!(lines[0].contains("ERROR") && lines[0].contains("ConnectInfo"), "{lines:#?}");
        assert!(lines[1..].iter().all(|line| line.contains("DEBUG")), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("x-user")), "{lines:#?}");
    }
}

/// The second key replaced the first, and no line said that the first is always missing. With a
/// header field as the second key, each client chose its own bucket.
#[test]
fn a_misconfigured_key_is_logged_even_if_another_key_replaces_it() {
    let user = |n: u32| {
        let user = format!("user-{n}");
        Request::builder().header("x-user", user).body(()).unwrap()
    };
    for lines in [
        watched(ClientIp::peer().or(header("x-user")), 2_000, user),
        watched(ClientIp::peer().or(header("x-user")).or(global()), 2_000, user),
        watched((global(), ClientIp::peer().or(header("x-user"))), 2_000, user),
        watched(header("x-tenant").or(ClientIp::peer()).or(global()), 2_000, user),
    ] {
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let said = ["WARN", "limit=\"many\"", "`ConnectInfo` is missing", "once"];
        assert!(said.iter().all(|part| lines[0].contains(part)), "{lines:#?}");
    }
    // A key that the client may leave out is no misconfiguration.
    assert!(watched(header("x-tenant").or(header("x-user")), 2_000, user).is_empty());
    // Nor is a second key that is never needed, as all requests have the first.
    assert!(watched(header("x-user").or(ClientIp::peer()), 2_000, user).is_empty());
}

#[test]
fn an_empty_key_is_no_key_and_logged_once() {
    #[derive(Clone)]
    struct Tenant(&'static str);
    struct Nameless;

    impl KeyExtractor for Nameless {
        fn extract(&self, _: &Head<'_>) -> Result<Extracted, KeyError> {
            Ok("".into())
        }
    }

    let nameless = "the extractor returned an empty one";
    let rule = || Rule::new(&TWO);
    for (rule, message) in [
        (rule().key(header("x-user")), "the `x-user` header is empty"),
        (rule().key(extension(|tenant: &Tenant| tenant.0)), "Tenant` is empty"),
        (rule().key((global(), extension(|tenant: &Tenant| tenant.0))), "Tenant` is empty"),
        (rule().key_with(|_| ""), "the closure returned an empty one"),
        (rule().key_with(|_| Some(String::new())), "the closure returned an empty one"),
        (rule().key(Nameless), nameless),
        (rule().key((global(), Nameless)), nameless),
        (rule().key(header("x-absent").or(Nameless)), nameless),
        // A request without a key may pass; one with an empty key may not.
        (rule().key(header("x-user")).missing_key_exempt(), "header is empty"),
        (rule().key(header("x-user").or(global())), "header is empty"),
    ] {
        let service = limiter(&ManualClock::new(START)).layer(rule).layer(inner());
        let lines = logged(tracing::Level::WARN, || {
            for _ in 0..3 {
                let mut request = Request::builder().header("x-user", "").body(()).unwrap();
                request.extensions_mut().insert(Tenant(""));
                assert_eq!(at_once(service.clone().oneshot(request)).unwrap().status(), 400);
            }
        });
        assert!(lines.len() == 1 && lines[0].contains(message), "{message}: {lines:#?}");
    }
}

static MANY: Limit = Limit::new("many", Quota::token_bucket(1_000_000, MINUTE));

/// The lines that `requests` requests log, each made from its number.
fn watched(
    key: impl KeyExtractor,
    requests: u32,
    request: impl Fn(u32) -> Request<()>,
) -> Vec<String> {
    let layer = limiter(&ManualClock::new(START)).layer(&MANY).key(key);
    let services = [layer.layer(inner()), layer.layer(inner())];
    logged(tracing::Level::WARN, || {
        for n in 0..requests {
            let service = services[n as usize % 2].clone();
            let response = at_once(service.oneshot(request(n))).unwrap();
            assert_eq!(response.status(), 200);
        }
    })
}

fn from(peer: IpAddr) -> Request<()> {
    let mut request = Request::new(());
    request.extensions_mut().insert(SocketAddr::new(peer, 5123));
    request
}

#[test]
fn a_forwarding_field_that_no_proxy_is_trusted_to_write_is_logged_once() {
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.7"),
        ("forwarded", "for=203.0.113.7"),
        ("x-real-ip", "203.0.113.7"),
        ("cf-connecting-ip", "203.0.113.7"),
        ("true-client-ip", "203.0.113.7"),
        ("fly-client-ip", "203.0.113.7"),
    ] {
        let request = |n: u32| {
            let mut request = from(IpAddr::from([192, 0, 2, 1]));
            if n >= 5 {
                request.headers_mut().insert(name, value.parse().unwrap());
            }
            request
        };
        for lines in [
            watched(ClientIp::peer(), 1_100, request),
            watched((header("host").or(global()), ClientIp::peer()), 1_100, request),
            watched(header("x-user").or(ClientIp::peer()), 1_100, request),
            watched(ClientIp::peer().unless(|_| false), 1_100, request),
        ] {
            assert_eq!(lines.len(), 1, "{lines:#?}");
            let line = &lines[0];
            let said = ["WARN", "limit=\"many\"", &format!("`{name}`"), "x_forwarded_for", "once"];
            assert!(said.iter().all(|part| line.contains(part)), "{line}");
        }
        // Another field is read. The trusted proxy does not write this one, so clients can forge
        // it.
        let other = || ClientIp::header("x-other", Networks::new(["192.0.2.1"]));
        let lines = watched(other(), 1_100, request);
        let said = ["WARN", &format!("`{name}`"), "the field that is read is not", "once"];
        assert!(lines.len() == 1 && said.iter().all(|part| lines[0].contains(part)), "{lines:#?}");
        let from_outside = |n: u32| {
            let mut request = request(n);
            request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 2], 80)));
            request
        };
        assert!(watched(other(), 1_100, from_outside).is_empty());
        // It is there as well.
        for trusted in [Proxies::hops(1), Networks::new(["192.0.2.1"]).into()] {
            let both = |n: u32| {
                let mut request = request(n);
                request.headers_mut().insert("x-forwarded-for", "203.0.113.7".parse().unwrap());
                request
            };
            let trusting = ClientIp::x_forwarded_for(trusted);
            assert!(watched(trusting, 1_100, both).is_empty());
        }
        assert!(watched(global(), 1_100, request).is_empty());
    }
}

/// Each request had a bucket of its own, and nothing said so.
#[test]
fn a_field_of_proxies_as_the_key_is_logged_once() {
    let request = |n: u32| {
        let mut request = from(IpAddr::from([192, 0, 2, 1]));
        request.headers_mut().insert("x-forwarded-for", n.into());
        request
    };
    for lines in [
        watched(header("X-Forwarded-For"), 2_000, request),
        watched((header("x-forwarded-for"), global()), 2_000, request),
        watched(header("x-forwarded-for").or(global()), 2_000, request),
    ] {
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let said = ["WARN", "limit=\"many\"", "`x-forwarded-for`", "`ClientIp::header`", "once"];
        assert!(said.iter().all(|part| lines[0].contains(part)), "{lines:#?}");
    }
    assert!(watched(header("x-user").or(global()), 2_000, request).is_empty());
}

/// Each request had the address that its client made up, and nothing said so.
#[test]
fn a_network_of_all_addresses_as_the_proxies_is_logged_once() {
    let request = |n: u32| {
        let mut request = from(IpAddr::from([192, 0, 2, 1]));
        let forwarded = IpAddr::from(n.to_be_bytes()).to_string();
        request.headers_mut().insert("x-forwarded-for", forwarded.parse().unwrap());
        request
    };
    for all in [Networks::new(["0.0.0.0/0"]), Networks::new(["10.0.0.0/8", "::/0"])] {
        let lines = watched(ClientIp::x_forwarded_for(all), 2_000, request);
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let said = ["WARN", "limit=\"many\"", "contains each address", "once"];
        assert!(said.iter().all(|part| lines[0].contains(part)), "{lines:#?}");
    }
    let half = Networks::new(["128.0.0.0/1"]);
    assert!(watched(ClientIp::x_forwarded_for(half), 2_000, request).is_empty());
    // This set-up is right if the proxy overwrites the field and clients cannot bypass the proxy.
    let overwritten = ClientIp::header("x-forwarded-for", Networks::new(["0.0.0.0/0"]));
    assert!(watched(overwritten, 2_000, request).is_empty());
}

#[test]
fn one_private_address_for_all_is_logged_once() {
    let docker = IpAddr::from([172, 17, 0, 1]);
    for peer in [docker, "fd00::1".parse().unwrap(), "::ffff:10.0.0.1".parse().unwrap()] {
        let trusting = || ClientIp::x_forwarded_for(Networks::private());
        for lines in [
            watched(ClientIp::peer(), 3_000, |_| from(peer)),
            watched(trusting(), 3_000, |_| from(peer)),
            watched((ClientIp::peer(), header("host").or(global())), 3_000, |n| {
                let mut request = from(peer);
                request.headers_mut().insert("host", n.into());
                request
            }),
        ] {
            assert_eq!(lines.len(), 1, "{lines:#?}");
            let line = &lines[0];
            let key = format!("key={}", peer.to_canonical());
            assert!(line.contains("WARN") && line.contains(&key), "{line}");
            assert!(line.contains("came from one private address"), "{line}");
        }
    }
}

#[test]
fn one_address_for_all_is_not_logged_before_it_is_certain() {
    let docker = IpAddr::from([172, 17, 0, 1]);
    assert!(watched(ClientIp::peer(), 999, |_| from(docker)).is_empty(), "too few");
    assert_eq!(watched(ClientIp::peer(), 1_000, |_| from(docker)).len(), 1);
    let but_for = |odd: u32| move |n| from(if n == odd { [172, 17, 0, 2].into() } else { docker });
    for odd in [0, 1, 500, 999] {
        assert!(watched(ClientIp::peer(), 3_000, but_for(odd)).is_empty(), "{odd}");
    }
    // A public address that sends many requests is no proxy.
    let public = |_| from(IpAddr::from([203, 0, 113, 7]));
    assert!(watched(ClientIp::peer(), 3_000, public).is_empty());
    // Exempt requests are ignored: health checks come from one address.
    let health = |n: u32| {
        let mut request = from(docker);
        *request.uri_mut() = if n < 2_000 { "/health" } else { "/" }.parse().unwrap();
        request
    };
    let key = || ClientIp::peer().unless(|head| head.uri().path() == "/health");
    assert!(watched(key(), 2_999, health).is_empty());
    assert_eq!(watched(key(), 3_000, health).len(), 1);
}

/// Proxies that stand in other networks than the trusted ones: a load balancer has several addresses.
#[test]
fn proxies_that_are_not_trusted_are_told_however_many_they_are() {
    let by = |proxies: [[u8; 4]; 2]| {
        move |n: u32| {
            let mut request = from(IpAddr::from(proxies[usize::from(n % 2 == 1)]));
            let client = format!("198.51.100.{}", n % 250).parse().unwrap();
            request.headers_mut().insert("x-forwarded-for", client);
            request
        }
    };
    let (private, public) = ([[10, 0, 1, 7], [10, 0, 2, 9]], [[203, 0, 113, 7], [203, 0, 113, 9]]);
    let elsewhere = || ClientIp::x_forwarded_for(["172.31.0.0/16"]);
    for (key, proxies, requests, wanted) in [
        (elsewhere(), private, 1, "comes from 10.0.1.7, which is not among the trusted proxies"),
        (elsewhere(), public, 1_000, "none came from a trusted proxy"),
        (ClientIp::x_forwarded_for(0), public, 1, "no proxy is trusted"),
        (ClientIp::x_forwarded_for(Vec::<String>::new()), private, 1, "no proxy is trusted"),
    ] {
        let lines = watched(key.clone(), requests, by(proxies));
        assert!(lines.len() == 1 && lines[0].contains(wanted), "{lines:#?}");
        assert_eq!(watched(key.clone(), 3_000, by(proxies)).len(), 1);
        assert!(watched(key, requests - 1, by(proxies)).is_empty());
    }
    let right = || ClientIp::x_forwarded_for(vec!["10.0.0.0/16".to_owned()]);
    assert!(watched(right(), 3_000, by(private)).is_empty());
}

/// A third of these pairs said nothing in 1,100 requests: one address was the key of all clients.
#[test]
fn each_wrong_setting_that_makes_one_client_of_all_tells_itself() {
    use tollgate::key::Head;
    use tollgate_testing::proxies::CHAINS;
    let wrong_ways: [fn() -> ClientIp; 6] = [
        ClientIp::peer,
        || ClientIp::x_forwarded_for(1),
        || ClientIp::x_forwarded_for(2),
        || ClientIp::forwarded(1),
        || ClientIp::header("x-real-ip", 1),
        || ClientIp::header("x-client", 1),
    ];
    let address = |first: u8, n: u32| {
        let [.., high, low] = n.to_be_bytes();
        IpAddr::from([first, 0, high, low])
    };
    // In CI each pair makes 1,100 requests, and otherwise one in four.
    let played = times(4, 1);
    let (mut pairs, mut silent) = (0, Vec::new());
    for chain in CHAINS {
        for setting in CHAINS.map(|chain| chain.setting).into_iter().chain(wrong_ways) {
            let request = |n: u32| chain.request(address(203, n), address(198, n));
            let found = |n| setting().address(&Head::new(&request(n))).ok();
            let Some(first) = found(0) else { continue };
            if (1..100).all(|n| found(n) == Some(first)) {
                pairs += 1;
                if pairs % 4 < played && watched(setting(), 1_100, request).len() != 1 {
                    silent.push((chain.name, setting()));
                }
            }
        }
    }
    assert!(
        pairs > 50 && silent.is_empty(),
        "{} of {pairs} said nothing: {silent:#?}",
        silent.len()
    );
    // One client behind its proxy is not taken for all of them.
    let right = CHAINS[0];
    let one = |_| right.request(address(203, 1), address(198, 1));
    assert!(watched((right.setting)(), 1_100, one).is_empty());
}

/// Layers made from one layer shared the flag that its line was logged.
#[test]
fn layers_made_from_one_log_their_own_misconfigurations() {
    let base = limiter(&ManualClock::new(START)).layer(&TWO);
    let a = base.clone().key(header("x-user")).layer(inner());
    let b = base.key(ClientIp::peer()).layer(inner());
    let lines = logged(tracing::Level::WARN, || {
        at_once(a.oneshot(Request::new(()))).unwrap();
        at_once(b.oneshot(Request::new(()))).unwrap();
    });
    assert_eq!(lines.len(), 2, "{lines:#?}");
}

/// As [`logged`] from `INFO` on, where time passes only as the test says.
fn at_paused_time(work: impl AsyncFnOnce()) -> Vec<String> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    logged(tracing::Level::INFO, || runtime.block_on(work()))
}

pub(crate) fn inner()
-> impl tower::Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone
{
    tower::service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(()))))
}
#[derive(Debug, Default)]
struct Flaky {
    memory: Memory,
    down: Arc<AtomicBool>,
    is_misused: Arc<AtomicBool>,
    is_full: Arc<AtomicBool>,
}
impl Backend for Flaky {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        if self.down.load(Ordering::Relaxed) {
            return Answer::Ready(Err(BackendError::unavailable("flaky", "it is down")));
        }
        if self.is_full.load(Ordering::Relaxed) {
            return Answer::Ready(Err(BackendError::full("flaky", "no room")));
        }
        match self.is_misused.load(Ordering::Relaxed) {
            true => Answer::Ready(Err(BackendError::undecidable("flaky", "too long a name"))),
            false => self.memory.apply(charges),
        }
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.memory.adjust(adjustments)
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}

/// The guide to Redis says what each line means, so it has to quote the lines as they are.
#[test]
fn the_guide_quotes_the_log_as_it_is() {
    let guide = include_str!("../../crates/redis/docs/redis.md");
    let source = include_str!("../../src/limiter/failure_log.rs").replace("\\\n", "");
    let source = source.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, table) = guide.split_once("| line | what it is |").expect("the table of the lines");
    let rows = table.lines().skip(2).take_while(|row| row.starts_with('|'));
    let lines: Vec<_> = rows.filter_map(|row| row.split('"').nth(1)).collect();
    assert_eq!(lines.len(), 6, "{lines:?}");
    let missing: Vec<_> = lines.iter().filter(|line| !source.contains(**line)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
