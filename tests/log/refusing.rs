//! Limits that refuse everything: by mistake, which the log tells once, and on purpose.

use http::{Request, Response};
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::observe::trace;
use tollgate::{Limit, MINUTE, Quota, RateLimiter, Rule, SECOND};
use tower::{Layer, Service, ServiceExt};
use tracing::Level;

use crate::lines::inner;
use tollgate_testing::log::logged;
use tollgate_testing::{START, at_once, limiter};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, MINUTE).capacity(0));
/// A shard holds a tenth of a token.
static TENTHS: Limit = Limit::new("tenths", Quota::token_bucket(10, SECOND).shards(100));
static PAUSED: Limit = Limit::new("two", Quota::none());

const ALL: &str = "every request is refused (logged once)";
const LARGE: &str = "a request costs more than its limit can ever grant (logged once)";
const OF_TENTHS: &str = "cost of 1 can never fit limit `tenths` (a request takes from at most two of \
                         its 100 shards of 0.1 tokens, 0.2 together";

fn fixed() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

#[track_caller]
fn is_one(lines: &[String], parts: &[&str]) {
    let [line] = lines else { panic!("one line is expected: {lines:#?}") };
    assert!(line.contains("WARN"), "{line}");
    parts.iter().for_each(|part| assert!(line.contains(part), "{part}: {line}"));
}

/// The status of this many requests, which all get the same.
#[track_caller]
fn ask<S>(service: &S, times: usize) -> u16
where
    S: Service<Request<()>, Response: Into<StatusOf>, Error: std::fmt::Debug> + Clone,
{
    let status = || {
        let response = at_once(service.clone().oneshot(Request::new(()))).unwrap();
        response.into().0
    };
    let statuses: Vec<_> = (0..times).map(|_| status()).collect();
    assert!(statuses.windows(2).all(|two| two[0] == two[1]), "{statuses:?}");
    statuses[0]
}

/// The status of a response, whatever its body is.
struct StatusOf(u16);

impl<B> From<Response<B>> for StatusOf {
    fn from(response: Response<B>) -> Self {
        Self(response.status().as_u16())
    }
}

// Where numbers and cost meet before the first request.

#[test]
fn a_layer_that_can_admit_nothing_is_told_when_it_is_first_used() {
    type MakesLayer = fn(&RateLimiter) -> tollgate::RateLimitLayer;
    let cases: [(MakesLayer, &[&str]); 5] = [
        (|limiter| limiter.layer(&SPACED), &["limit=\"spaced\"", "use `queue` on the layer"]),
        (|limiter| limiter.layer(&TENTHS), &["limit=\"tenths\"", OF_TENTHS]),
        (|limiter| limiter.layer(&TENTHS).cost(3), &["cost of 3 can never fit limit `tenths`"]),
        (|limiter| limiter.layer(Rule::new(&TWO).cost(3)), &["limit=\"two\"", "cost of 3 can"]),
        // A queue does not help where a cost would wait for too long.
        (|limiter| limiter.layer(&TWO).cost(50).queue(SECOND), &["for at most 1s: ask for less"]),
    ];
    for (layer, parts) in cases {
        let limiter = fixed();
        let mut service = None;
        is_one(&logged(Level::WARN, || service = Some(layer(&limiter).layer(inner()))), parts);
        is_one(&logged(Level::WARN, || drop(layer(&fixed()).layer(inner()))), &[ALL]);
        // Its requests, and more of its kind, are not told again.
        let service = service.unwrap();
        let lines = logged(Level::WARN, || {
            assert_eq!(ask(&service, 3), 413);
            assert_eq!(ask(&layer(&limiter).layer(inner()), 2), 413);
        });
        assert_eq!(lines, [""; 0]);
    }
}

#[test]
fn layers_that_admit_something_or_depend_on_the_request_are_not_told() {
    let limiter = fixed();
    let lines = logged(Level::WARN, || {
        drop(limiter.layer(&SPACED).queue(MINUTE).layer(inner()));
        drop(limiter.layer(&TWO).cost(2).layer(inner()));
        drop(limiter.layer(&TWO).cost(3).queue(MINUTE).layer(inner()));
        drop(limiter.layer(&TWO).cost_with(|_| 3).layer(inner()));
        drop(limiter.layer(Rule::new(&TENTHS).limit_with(|_| &TWO)).layer(inner()));
        drop(limiter.layer(Rule::new(&TENTHS).shadow()).layer(inner()));
        drop(limiter.layer(&TENTHS).enabled(false).layer(inner()));
    });
    assert_eq!(lines, [""; 0]);
}

#[test]
fn numbers_that_refuse_everything_are_told_when_they_are_put_in_force() {
    let limiter = fixed();
    let service = limiter.layer(&TWO).cost(2).layer(inner());
    let replace =
        |quota: Quota| logged(Level::WARN, || assert!(limiter.replace(&TWO, quota).is_ok()));
    let one = Quota::token_bucket(1, MINUTE);
    is_one(&replace(one), &[ALL, "limit=\"two\"", "cost of 2 can never fit limit `two`"]);
    let lines = logged(Level::WARN, || assert_eq!(ask(&service, 3), 413));
    assert_eq!(lines, [""; 0]);
    // Numbers that fit end it, so the next mistake is told as well.
    assert_eq!(replace(Quota::token_bucket(3, MINUTE)), [""; 0]);
    is_one(&replace(one), &[ALL]);
    // With a layer that waits, and for calls that reserve, no capacity is no mistake.
    let limiter = fixed();
    let queued = limiter.layer(&TWO).queue(MINUTE).layer(inner());
    let of_calls = Limit::new("calls", Quota::token_bucket(2, MINUTE));
    let lines = logged(Level::WARN, || {
        limiter.replace(&TWO, Quota::token_bucket(1, MINUTE).capacity(0)).unwrap();
        limiter.replace(&of_calls, Quota::token_bucket(1, MINUTE).capacity(0)).unwrap();
    });
    assert_eq!(lines, [""; 0]);
    drop(queued);
    // That of calls is a mistake if it saves up what it can never grant.
    let lines = logged(Level::WARN, || {
        limiter.replace(&of_calls, *TENTHS.quota()).unwrap();
        drop(at_once(limiter.limit(&of_calls)).unwrap_err());
    });
    is_one(&lines, &[ALL, "limit=\"calls\"", "0.2 together"]);
}

/// A router that is made after the numbers were replaced goes by these.
#[test]
fn a_layer_is_judged_by_the_numbers_in_force() {
    let limiter = fixed();
    limiter.replace(&TWO, Quota::token_bucket(1, MINUTE)).unwrap();
    limiter.replace(&TENTHS, Quota::token_bucket(10, SECOND)).unwrap();
    let lines = logged(Level::WARN, || {
        drop(limiter.layer(&TENTHS).layer(inner()));
        drop(limiter.layer(&TWO).cost(2).layer(inner()));
    });
    is_one(&lines, &[ALL, "limit=\"two\"", "it holds at most 1"]);
}

// Where they meet later.

#[test]
fn a_call_that_can_never_fit_is_told_once_for_its_limit() {
    for limiter in [fixed(), fixed().observe(trace())] {
        let lines = logged(Level::WARN, || {
            for _ in 0..3 {
                assert!(at_once(limiter.limit(&SPACED)).unwrap_err().is_too_large());
                assert!(at_once(limiter.limit(&TENTHS).key(7)).unwrap_err().is_too_large());
                assert!(at_once(limiter.limit(&TWO).cost(3)).unwrap_err().is_too_large());
            }
        });
        let [spaced, tenths, two] = &*lines else { panic!("{lines:#?}") };
        is_one(std::slice::from_ref(spaced), &[ALL, "limit=\"spaced\"", "`reserve` on the call"]);
        is_one(std::slice::from_ref(tenths), &[ALL, OF_TENTHS]);
        is_one(std::slice::from_ref(two), &[LARGE, "cost of 3 can never fit limit `two`"]);
    }
}

#[test]
fn each_kind_of_call_is_told() {
    type Call = fn(&RateLimiter);
    let calls: [Call; 4] = [
        |limiter| drop(at_once(limiter.limit(&TWO).cost(3)).unwrap_err()),
        |limiter| drop(at_once(limiter.limit(&TWO).and(&TWO).cost(2)).unwrap_err()),
        |limiter| drop(at_once(limiter.limit(&TWO).cost(30).reserve_within(SECOND)).unwrap_err()),
        |limiter| drop(at_once(limiter.limit(&TWO).cost(3).jitter(SECOND)).unwrap_err()),
    ];
    for call in calls {
        let limiter = fixed();
        is_one(&logged(Level::WARN, || (0..3).for_each(|_| call(&limiter))), &[LARGE]);
    }
    // A look is no request.
    let limiter = fixed();
    let lines = logged(Level::WARN, || drop(at_once(limiter.peek(&TWO).cost(3)).unwrap()));
    assert_eq!(lines, [""; 0]);
}

/// A limiter is made for each transaction of a database, and none of them is the first.
#[test]
fn limiters_of_other_stores_that_are_made_of_one_tell_once() {
    let limiter = fixed();
    let lines = logged(Level::WARN, || {
        for _ in 0..3 {
            let of_transaction = limiter.with_backend(Memory::new());
            assert!(at_once(of_transaction.limit(&TWO).cost(3)).is_err());
        }
        assert!(at_once(limiter.limit(&TWO).cost(3)).is_err());
    });
    is_one(&lines, &[LARGE]);
}

/// A client that asks for too much must not hide a mistake that concerns all clients.
#[test]
fn a_cost_function_is_told_once_and_hides_no_mistake_in_the_numbers() {
    let limiter = fixed();
    let service = limiter.layer(&TWO).cost_with(|_| 3).layer(inner());
    is_one(&logged(Level::WARN, || assert_eq!(ask(&service, 3), 413)), &[LARGE, "cost of 3"]);
    limiter.replace(&TWO, Quota::token_bucket(10, SECOND).shards(100)).unwrap();
    is_one(&logged(Level::WARN, || assert_eq!(ask(&service, 3), 413)), &[ALL, "0.2 together"]);
}

// On purpose.

#[test]
fn a_quota_that_grants_nothing_is_no_warning() {
    let limiter = fixed().observe(trace());
    let lines = logged(Level::WARN, || {
        let service = limiter.layer(&PAUSED).layer(inner());
        assert_eq!(ask(&service, 3), 429);
        assert_eq!(ask(&limiter.layer(&PAUSED).cost(5).queue(MINUTE).layer(inner()), 3), 429);
        for _ in 0..3 {
            drop(at_once(limiter.limit(&PAUSED)).unwrap_err());
            drop(at_once(limiter.limit(&PAUSED).cost(9).reserve()).unwrap_err());
            drop(at_once(limiter.penalize(&PAUSED, 3)).unwrap_err());
        }
        let two = limiter.layer(&TWO).cost(2).layer(inner());
        assert_eq!(ask(&two, 1), 200);
        limiter.replace(&TWO, Quota::none()).unwrap();
        assert_eq!(ask(&two, 3), 429);
    });
    // One name with two numbers, in two layers, is another thing.
    let lines: Vec<_> = lines.iter().filter(|line| !line.contains("other numbers")).collect();
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_refusal_for_good_is_logged_at_debug_as_any_other() {
    let limiter = fixed();
    let (service, shadow) =
        (limiter.layer(&PAUSED).layer(inner()), limiter.layer(Rule::new(&PAUSED).shadow()));
    let lines = logged(Level::DEBUG, || {
        assert_eq!(ask(&service, 1), 429);
        assert_eq!(ask(&shadow.layer(inner()), 1), 200);
        let traced = limiter.clone().observe(trace());
        drop(at_once(traced.limit(&PAUSED)).unwrap_err());
    });
    let told: Vec<_> = lines.iter().map(|line| line.split("DEBUG ").nth(1).unwrap()).collect();
    let why = "error=refused by limit `two` (it grants nothing: 0 per day)";
    let of_layer = format!("tollgate::middleware::log: refused limit=\"two\" {why}");
    let of_shadow = format!("tollgate::middleware::log: would be refused limit=\"two\" {why}");
    let of_call = "tollgate::observe::trace: call refused limit=\"two\"".to_owned();
    assert_eq!(told, [of_layer, of_shadow, of_call]);
}
