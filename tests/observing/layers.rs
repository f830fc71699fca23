//! Requests through layers, and what their rules tell.

use tollgate_testing::journal::Journal;

use std::convert::Infallible;

use axum::Router;
use axum::routing::get;
use http::{Request, Response, StatusCode};
use tollgate::clock::ManualClock;
use tollgate::key::{Extracted, from_fn, header};
use tollgate::middleware::{Admission, Portion};
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitExt, RateLimited, RateLimiter, Rule};
use tollgate_testing::START;
use tollgate_testing::web::{send, serve};
use tollgate_testing::{at_once, limiter};
use tower::{Layer, Service, ServiceExt};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));
static HOURLY: Limit = Limit::new("hourly", Quota::token_bucket(100, HOUR));

fn observed() -> (Journal, RateLimiter) {
    Journal::of(&limiter(&ManualClock::new(START)))
}

fn inner()
-> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    tower::service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(()))))
}

fn by(user: &str) -> Request<()> {
    Request::builder().header("x-user", user).body(()).unwrap()
}

fn anonymous() -> Request<()> {
    Request::new(())
}

#[track_caller]
fn status<S, R>(service: &S, request: Request<()>) -> u16
where
    S: Service<Request<()>, Response = Response<R>, Error = Infallible> + Clone,
{
    let Ok(response) = at_once(service.clone().oneshot(request));
    response.status().as_u16()
}

/// A block was not told, so an operator did not learn of it.
#[test]
fn a_block_is_told_once_and_before_its_refusal_is_answered() {
    let (journal, limiter) = observed();
    let rule = Rule::new(&TWO).key(header("x-user")).cost(2).block_after(2, MINUTE, HOUR);
    let service = limiter.layer(rule).layer(inner());
    for told in [200, 429] {
        assert_eq!(status(&service, by("alice")), told);
    }
    assert_eq!(journal.take(), ["layer two admitted 2 *", "layer two refused 2 after 60s *"]);
    assert_eq!(status(&service, by("alice")), 429);
    assert_eq!(journal.take(), ["layer two refused 2 after 60s *", "two blocked for 3600s"]);
    assert_eq!(status(&service, by("alice")), 429);
    assert_eq!(journal.take().len(), 1, "it is blocked already");
}

/// The rule that most layers have takes the shortest way through the code, unless it is observed.
#[test]
fn a_layer_of_one_rule_tells_each_request_once() {
    let (journal, limiter) = observed();
    let service = limiter.layer(&TWO).key(header("x-user")).cost(2).layer(inner());
    assert_eq!(status(&service, by("alice")), 200);
    assert_eq!(journal.take(), ["layer two admitted 2 *"]);
    assert_eq!(status(&service, by("alice")), 429);
    assert_eq!(journal.take(), ["layer two refused 2 after 60s *"]);
    let large = limiter.layer(&TWO).cost(3).layer(inner());
    assert_eq!(status(&large, anonymous()), 413);
    assert_eq!(journal.take(), ["layer two too_large 3 *"]);
}

#[test]
fn a_layer_of_several_rules_tells_each_of_them() {
    let (journal, limiter) = observed();
    let rules =
        limiter.layer(Rule::new(&HOURLY).key(header("x-user"))).and(Rule::new(&TWO).cost(2));
    let service = rules.layer(inner());
    assert_eq!(status(&service, by("alice")), 200);
    assert_eq!(journal.take(), ["layer hourly admitted 1 *", "layer two admitted 2"]);
    assert_eq!(status(&service, by("bob")), 429);
    assert_eq!(journal.take(), ["layer hourly not_taken 1", "layer two refused 2 after 60s *"]);
}

#[test]
fn a_rule_that_does_not_apply_is_not_told() {
    let (journal, limiter) = observed();
    let rule = Rule::new(&TWO).only_if(|head| head.uri().path() == "/limited");
    let service = limiter.layer(rule).and(Rule::new(&HOURLY).sample(Portion::NONE)).layer(inner());
    assert_eq!(status(&service, anonymous()), 200);
    assert_eq!(journal.take(), [""; 0]);
    assert_eq!(status(&service, Request::get("/limited").body(()).unwrap()), 200);
    assert_eq!(journal.take(), ["layer two admitted 1 *"]);
}

#[test]
fn a_request_without_a_key_is_told_as_such() {
    let (journal, limiter) = observed();
    let keyed = || Rule::new(&TWO).key(header("x-user"));
    let told = |rule: Rule, request: Request<()>| {
        let answer = status(&limiter.layer(rule).layer(inner()), request);
        (answer, journal.take())
    };
    let no_key = |source: &str| vec![format!("{source} two no_key 0 *")];
    assert_eq!(told(keyed(), anonymous()), (400, no_key("layer")));
    assert_eq!(told(keyed(), by("")), (400, no_key("layer")));
    let unauthorized = keyed().missing_key(StatusCode::UNAUTHORIZED);
    assert_eq!(told(unauthorized, anonymous()), (401, no_key("layer")));
    assert_eq!(told(keyed().shadow(), anonymous()), (200, no_key("shadow")));
    let shared = keyed().missing_key_shared();
    assert_eq!(told(shared, anonymous()), (200, vec!["layer two admitted 1 *".to_owned()]));
}

#[test]
fn a_request_that_is_exempt_is_told_as_such() {
    let (journal, limiter) = observed();
    let exempt = |source: &str| vec![format!("{source} two exempt 0 *")];
    let rules = [
        Rule::new(&TWO).key(header("x-user")).missing_key_exempt(),
        Rule::new(&TWO).key(from_fn(|_| Extracted::Exempt)),
        Rule::new(&TWO).limit_with(|_| None::<Limit>),
    ];
    for rule in rules {
        let shadow = rule.clone().shadow();
        assert_eq!(status(&limiter.layer(rule).layer(inner()), anonymous()), 200);
        assert_eq!(journal.take(), exempt("layer"));
        assert_eq!(status(&limiter.layer(shadow).layer(inner()), anonymous()), 200);
        assert_eq!(journal.take(), exempt("shadow"));
    }
}

/// Of a request that lacks the key of its second rule, the first one is not asked.
#[test]
fn what_is_not_asked_is_not_told() {
    let (journal, limiter) = observed();
    let rules = limiter.layer(&HOURLY).and(Rule::new(&TWO).key(header("x-user")));
    assert_eq!(status(&rules.layer(inner()), anonymous()), 400);
    assert_eq!(journal.take(), ["layer two no_key 0 *"]);
    // Nor is a shadow, if the request is rejected.
    let rules = limiter.layer(Rule::new(&TWO).cost(3)).and(Rule::new(&HOURLY).shadow());
    assert_eq!(status(&rules.layer(inner()), anonymous()), 413);
    assert_eq!(journal.take(), ["layer two too_large 3 *"]);
    assert_eq!(at_once(limiter.peek(&HOURLY)).unwrap().remaining(), 100);
}

#[test]
fn a_shadow_is_told_as_a_decision_of_its_own() {
    let (journal, limiter) = observed();
    let rules = limiter.layer(&HOURLY).and(Rule::new(&TWO).cost(2).shadow());
    let service = rules.layer(inner());
    assert_eq!(status(&service, anonymous()), 200);
    assert_eq!(journal.take(), ["layer hourly admitted 1 *", "shadow two admitted 2 *"]);
    assert_eq!(status(&service, anonymous()), 200);
    assert_eq!(journal.take(), ["layer hourly admitted 1 *", "shadow two refused 2 after 60s *"]);
    let large = limiter.layer(Rule::new(&TWO).cost(3).shadow()).layer(inner());
    assert_eq!(status(&large, anonymous()), 200);
    assert_eq!(journal.take(), ["shadow two too_large 3 *"]);
}

#[test]
fn nested_layers_tell_their_own_decisions_and_nothing_twice() {
    let (journal, limiter) = observed();
    let inside = limiter.layer(&TWO).cost(2).layer(inner());
    let service = limiter.layer(&HOURLY).layer(inside);
    assert_eq!(status(&service, anonymous()), 200);
    assert_eq!(journal.take(), ["layer hourly admitted 1 *", "layer two admitted 2 *"]);
    assert_eq!(status(&service, anonymous()), 429);
    assert_eq!(journal.take(), ["layer hourly admitted 1 *", "layer two refused 2 after 60s *"]);
}

#[test]
fn a_layer_of_a_limiter_that_is_switched_off_tells_nothing() {
    let (journal, limiter) = observed();
    let service = limiter.enabled(false).layer(&TWO).cost(3).layer(inner());
    assert_eq!(status(&service, anonymous()), 200);
    assert_eq!(journal.take(), [""; 0]);
}

/// Over real connections, with a handler that takes more and one that refunds.
#[tokio::test]
async fn what_a_handler_charges_is_told_as_its_own() {
    let (journal, limiter) = observed();
    let more = async |admission: Admission| -> Result<&str, RateLimited> {
        admission.charge(1).await?;
        Ok("more")
    };
    let refund = async |admission: Admission| -> Result<&str, RateLimited> {
        admission.refund().await?;
        Ok("nothing")
    };
    let layer = limiter.layer(&TWO).expose();
    let app = Router::new()
        .route("/more", get(more).rate_limit(layer.clone()))
        .route("/nothing", get(refund).rate_limit(layer));
    let server = serve(app).await;
    let ask = async |path: &str| send(server, http::Method::GET, path, &[]).await.status.as_u16();
    assert_eq!(ask("/nothing").await, 200);
    assert_eq!(journal.take(), ["layer two admitted 1 *"]);
    assert_eq!(ask("/more").await, 200);
    assert_eq!(journal.take(), ["layer two admitted 1 *", "handler two admitted 1 *"]);
    assert_eq!(ask("/more").await, 429);
    assert_eq!(journal.take(), ["layer two refused 1 after 30s *"]);
}

/// Whatever the layer does besides, it tells the same.
#[test]
fn layers_of_all_kinds_tell_a_request_once() {
    let (journal, limiter) = observed();
    let plain = || limiter.layer(&HOURLY);
    let layers = [
        plain(),
        plain().dialects(tollgate::fields::Dialect::None),
        plain().expose(),
        plain().settle(),
        plain().refund_dropped(),
        plain().jitter(MINUTE),
        limiter.layer(Rule::new(&HOURLY).refund_if(|response| response.status() == 404)),
        limiter.layer(Rule::new(&HOURLY).only_if(|_| true)),
        limiter.layer(Rule::new(&HOURLY).limit_with(|_| HOURLY.clone())),
        plain().queue(MINUTE),
    ];
    for layer in layers {
        assert_eq!(status(&layer.layer(inner()), anonymous()), 200);
        assert_eq!(journal.take(), ["layer hourly admitted 1 *"]);
    }
}
