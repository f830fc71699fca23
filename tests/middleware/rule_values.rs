//! A rule as a value: what it can be made of, and the limit that it chooses. Each plan of the layer
//! answers the same for it.

use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::{Head, header};
use tollgate::middleware::{ActualCost, Queue};
use tollgate::{
    HOUR, Limit, MINUTE, OnRefusal, Quota, RateLimitExt, RateLimitLayer, RateLimiter, Rule, SECOND,
};
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{ms, paused, settled, tokens};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service, ServiceExt, service_fn};

type Rules = RateLimitLayer<Vec<Rule>>;

static FREE: Limit = Limit::new("plan", Quota::token_bucket(2, MINUTE));
static PRO: Limit = Limit::new("plan", Quota::token_bucket(20, MINUTE));
static OTHER: Limit = Limit::new("other", Quota::token_bucket(7, MINUTE));

fn request(fields: &[(&str, &str)]) -> Request<()> {
    let request = fields
        .iter()
        .fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap()
}

/// Sends a request to a handler that says what it has cost, where the request does.
async fn ask<N>(layer: &RateLimitLayer<N>, fields: &[(&str, &str)]) -> Reply {
    let inner = service_fn(async |request: Request<()>| {
        let mut response = Response::new(Full::<Bytes>::from("hello"));
        if let Some(actual) = request.headers().get("x-actual") {
            let actual = actual.to_str().unwrap().parse().unwrap();
            response.extensions_mut().insert(ActualCost::new(actual));
        }
        if let Some(status) = request.headers().get("x-status") {
            *response.status_mut() = status.to_str().unwrap().parse().unwrap();
        }
        Ok::<_, Infallible>(response)
    });
    Reply::read(layer.layer(inner).oneshot(request(fields)).await.unwrap()).await
}

#[track_caller]
fn status<N>(layer: &RateLimitLayer<N>, fields: &[(&str, &str)]) -> u16 {
    at_once(ask(layer, fields)).status.as_u16()
}

// What a rule is made of.

#[test]
fn a_rule_is_made_of_a_limit_of_a_reference_and_of_a_shared_one() {
    let shared = Arc::new(FREE.clone());
    let rules: [Rule; 5] = [
        FREE.clone().into(),
        (&FREE).into(),
        (&shared).into(),
        Rule::new(&FREE),
        Rule::new(&*shared),
    ];
    for rule in rules {
        let limiter = limiter(&ManualClock::new(START));
        let layer = limiter.layer(rule);
        assert_eq!([0; 3].map(|_| status(&layer, &[])), [200, 200, 429]);
    }
    // So does a layer take them, as its first rule and as another.
    for nth in 0..3 {
        let limiter = limiter(&ManualClock::new(START));
        let layer = match nth {
            0 => limiter.layer(FREE.clone()).and(OTHER.clone()),
            1 => limiter.layer(&FREE).and(&OTHER),
            _ => limiter.layer(&shared).and(&Arc::new(OTHER.clone())),
        };
        let reply = at_once(ask(&layer, &[]));
        let told = "\"plan\";r=1;t=30, \"other\";r=6;t=52";
        assert_eq!(reply.field("ratelimit"), Some(told), "{nth}");
    }
}

#[test]
fn a_rule_is_the_same_in_each_layer_that_takes_it() {
    let limiter = limiter(&ManualClock::new(START));
    let rule = Rule::new(&FREE).key(header("x-user"));
    let (one, other) = (limiter.layer(rule.clone()), limiter.layer(&OTHER).and(rule));
    let ann = [("x-user", "ann")];
    assert_eq!([status(&one, &ann), status(&other, &ann), status(&one, &ann)], [200, 200, 429]);
}

#[test]
fn key_and_cost_of_a_layer_are_those_of_its_only_rule() {
    let clock = ManualClock::new(START);
    let by_user =
        |head: &Head<'_>| head.headers().get("x-user").map(|user| user.as_bytes().to_owned());
    let by_user = move |head: &Head<'_>| by_user(head).map(|user| String::from_utf8(user).unwrap());
    let cost = |head: &Head<'_>| u64::from(head.headers().contains_key("x-twice")) + 1;
    let in_memory = || limiter(&clock);
    for (short, long) in [
        (in_memory().layer(&FREE).key(header("x-user")), Rule::new(&FREE).key(header("x-user"))),
        (in_memory().layer(&FREE).key_with(by_user), Rule::new(&FREE).key_with(by_user)),
        (in_memory().layer(&FREE).cost(2), Rule::new(&FREE).cost(2)),
        (in_memory().layer(&FREE).cost_with(cost), Rule::new(&FREE).cost_with(cost)),
    ] {
        let long = in_memory().layer(long);
        for fields in [
            &[][..],
            &[("x-user", "ann")],
            &[("x-user", "ann"), ("x-twice", "")],
            &[("x-user", "bob"), ("x-twice", "")],
            &[("x-user", "bob")],
        ] {
            assert_eq!(told(at_once(ask(&short, fields))), told(at_once(ask(&long, fields))));
        }
    }
}

#[test]
fn routes_take_layers_of_one_rule_and_of_several() {
    let limiter = limiter(&ManualClock::new(START));
    let one = limiter.layer(&OTHER).cost(4);
    let several = limiter.layer(&FREE).and(&PRO);
    let app: Router = Router::new()
        .route("/one", get(async || "hello").rate_limit(one.clone()))
        .route("/several", post(async || "hello").rate_limit(several))
        .merge(Router::new().route("/router", get(async || "hello")).rate_limit(one));
    let ask = |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        at_once(app.clone().oneshot(request)).unwrap().status().as_u16()
    };
    assert_eq!([ask(Method::GET, "/one"), ask(Method::GET, "/router")], [200, 429]);
    // Both limits are named `plan`, so the request pays twice from one bucket.
    assert_eq!([ask(Method::POST, "/several"), ask(Method::POST, "/several")], [200, 429]);
}

// The limit that a rule chooses.

#[test]
fn a_request_without_a_chosen_limit_is_not_limited() {
    let limiter = limiter(&ManualClock::new(START));
    let choose = |head: &Head<'_>| match head.headers().get("x-plan")?.as_bytes() {
        b"pro" => Some(&PRO),
        _ => Some(&FREE),
    };
    let rule = Rule::new(&FREE).limit_with(choose).cost(2);
    for layer in
        [Rules::from(limiter.layer(rule.clone())), limiter.layer(rule.clone().shadow()).and(rule)]
    {
        at_once(limiter.reset(&FREE)).unwrap();
        for _ in 0..50 {
            let reply = at_once(ask(&layer, &[]));
            assert_eq!(reply.status, StatusCode::OK);
            assert!(
                reply.field("ratelimit").is_none() && reply.field("ratelimit-policy").is_none()
            );
        }
        assert_eq!(at_once(limiter.peek(&FREE)).unwrap().remaining(), 2);
        let reply = at_once(ask(&layer, &[("x-plan", "free")]));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"plan\";q=2;w=60"));
        assert_eq!(status(&layer, &[("x-plan", "free")]), 429);
        assert_eq!(status(&layer, &[]), 200);
    }
}

/// The key is required even if no limit is chosen: otherwise a client could avoid its limit by
/// leaving the key out.
#[test]
fn a_request_without_a_chosen_limit_needs_its_key() {
    let limiter = limiter(&ManualClock::new(START));
    let rule = Rule::new(&FREE).key(header("x-user")).limit_with(|_| None::<Limit>);
    let layer = limiter.layer(rule);
    assert_eq!((status(&layer, &[]), status(&layer, &[("x-user", "ann")])), (400, 200));
}

#[test]
fn the_other_rules_apply_to_a_request_without_a_chosen_limit() {
    let limiter = limiter(&ManualClock::new(START));
    let none = Rule::new(&FREE).limit_with(|_| None::<&Limit>);
    for layer in [
        limiter.layer(none.clone()).and(Rule::new(&OTHER).cost(7)),
        limiter.layer(Rule::new(&OTHER).cost(7)).and(none),
    ] {
        at_once(limiter.reset(&OTHER)).unwrap();
        let reply = at_once(ask(&layer, &[]));
        assert_eq!(reply.field("ratelimit"), Some("\"other\";r=0;t=9"));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"other\";q=7;w=60"));
        assert_eq!(status(&layer, &[]), 429);
    }
    assert_eq!(at_once(limiter.peek(&FREE)).unwrap().remaining(), 2);
}

#[test]
fn a_limit_may_be_chosen_in_any_form() {
    let shared = Arc::new(PRO.clone());
    let optional = Some(Arc::clone(&shared));
    static LATER: LazyLock<Arc<Limit>> = LazyLock::new(|| Arc::new(PRO.clone()));
    let rules = [
        Rule::new(&FREE).limit_with(|_| PRO.clone()),
        Rule::new(&FREE).limit_with(|_| &PRO),
        Rule::new(&FREE).limit_with(move |_| Arc::clone(&shared)),
        Rule::new(&FREE).limit_with(|_| Some(PRO.clone())),
        Rule::new(&FREE).limit_with(|_| Some(&PRO)),
        Rule::new(&FREE).limit_with(move |_| optional.clone()),
        Rule::new(&FREE).limit_with(|_| &*LATER),
        Rule::new(&FREE).limit_with(|_| Some(&*LATER)),
    ];
    for rule in rules {
        let layer = limiter(&ManualClock::new(START)).layer(rule);
        let reply = at_once(ask(&layer, &[]));
        assert_eq!(reply.field("ratelimit"), Some("\"plan\";r=19;t=57"));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"plan\";q=20;w=60"));
    }
}

// One rule, whichever way the layer carries it out.

/// The response, in an order that does not depend on the map of header fields.
fn told(reply: Reply) -> (StatusCode, Vec<String>, String) {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        let value = value.to_str().unwrap();
        // A date comes from the clock of the machine, so the second may change between two answers.
        let is_date = name == "retry-after" && value.ends_with(" GMT");
        format!("{name}: {}", if is_date { "a date" } else { value })
    };
    let mut fields: Vec<_> = reply.headers.iter().map(field).collect();
    fields.sort();
    (reply.status, fields, reply.body)
}

/// The layers that carry out the same rule: alone, which needs no list; with an option that changes
/// nothing; and beside a rule that applies to no request, before it or after it.
fn ways(mut limiter: impl FnMut() -> RateLimiter, rule: &Rule) -> Vec<Rules> {
    let never = || Rule::new(&OTHER).only_if(|_| false);
    vec![
        limiter().layer(rule.clone()).into(),
        limiter().layer(rule.clone().only_if(|_| true)).into(),
        limiter().layer(rule.clone()).and(never()),
        limiter().layer(never()).and(rule.clone()),
    ]
}

fn random_rule(dice: &mut Dice) -> Rule {
    let quota = [
        Quota::token_bucket(6, MINUTE),
        Quota::token_bucket(30, MINUTE).capacity(5),
        Quota::token_bucket(2, SECOND).capacity(0),
        Quota::fixed_window(5, MINUTE),
        Quota::fixed_window(3, MINUTE).capacity(7),
        Quota::token_bucket(40, MINUTE).shards(4),
    ];
    let mut rule = Rule::new(Limit::new("plan", quota[dice.nth(&quota)]));
    if dice.below(3) > 0 {
        rule = rule.key(header("x-user"));
        rule = match dice.below(4) {
            0 => rule.missing_key(StatusCode::INTERNAL_SERVER_ERROR),
            1 => rule.missing_key(StatusCode::SERVICE_UNAVAILABLE),
            2 => rule.missing_key_exempt(),
            _ => rule.missing_key_shared(),
        };
    }
    if dice.below(2) == 0 {
        rule = rule.cost_with(|head| {
            head.headers().get("x-cost").map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
        });
    }
    if dice.below(3) == 0 {
        rule = rule.limit_with(|head| match head.headers().get("x-plan")?.as_bytes() {
            b"pro" => Some(&PRO),
            _ => Some(&FREE),
        });
    }
    rule
}

/// What concerns the layer, at random, the same for each way.
fn random_settings(dice: &mut Dice) -> impl Fn(Rules) -> Rules {
    let dialects: [&[Dialect]; 6] = [
        &[Dialect::Draft11],
        &[Dialect::Draft7],
        &[Dialect::Draft6],
        &[Dialect::None],
        &[Dialect::Draft11, Dialect::XRateLimit],
        &[Dialect::Draft7, Dialect::XRateLimit],
    ];
    // Draft 11 alone has a way of its own.
    let dialects = dialects[if dice.below(2) == 0 { 0 } else { dice.nth(&dialects) }];
    let form = dice.below(4);
    let as_date = dice.below(4) == 0;
    let (settles, partitions, queues) =
        (dice.below(3) == 0, dice.below(4) == 0, dice.below(4) == 0);
    move |layer| {
        let mut layer = layer.dialects(dialects.iter().copied());
        if as_date {
            layer = layer.retry_after_date();
        }
        layer = layer.on_refusal(match form {
            0 => OnRefusal::plain_text(),
            1 => OnRefusal::handler(|refused| {
                let path = refused.head().map(|head| head.uri().path().to_owned());
                let names = refused.snapshots().iter().map(|one| one.limit().name());
                let (names, after) = (names.collect::<Vec<_>>(), refused.retry_after());
                let too_large = refused.error().is_some();
                let body = format!("{path:?} {names:?} {after:?} {too_large}");
                Response::builder().status(refused.status()).body(body).unwrap()
            }),
            _ => OnRefusal::problem_details(),
        });
        if settles {
            layer = layer.settle();
        }
        if partitions {
            layer = layer.partition_key([7; 16]);
        }
        if queues {
            // The queue is full, so a request that is short of tokens is refused at once.
            layer = layer.queue(Queue::new(HOUR).max_waiters(0));
        }
        layer
    }
}

/// A memory store that answers later.
#[derive(Debug)]
struct Later(Memory);

fn later<T: Send + 'static>(answer: Answer<T>) -> Answer<T> {
    Answer::pending(async move {
        tokio::task::yield_now().await;
        answer.wait().await
    })
}

impl Backend for Later {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        later(self.0.apply(charges))
    }
    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        later(self.0.adjust(adjustments))
    }
    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        later(self.0.reset(ids))
    }
}

#[tokio::test]
async fn a_rule_answers_the_same_alone_and_beside_others_and_however_late_the_store() {
    let mut seen = [0_u64; 4];
    let seeds = times(100, 50);
    for seed in 0..seeds {
        let mut dice = Dice(seed);
        let (rule, settings) = (random_rule(&mut dice), random_settings(&mut dice));
        let clock = ManualClock::new(START);
        let memory = || Memory::new().clock(clock.clone());
        let mut layers = ways(|| RateLimiter::new(memory()).seed(seed), &rule);
        layers.extend(ways(|| RateLimiter::new(Later(memory())).seed(seed), &rule));
        let layers: Vec<_> = layers.into_iter().map(settings).collect();
        for nth in 0..30 {
            let (cost, actual) = (dice.below(9).to_string(), dice.below(9).to_string());
            let mut fields = vec![("x-cost", cost.as_str())];
            let user = ["ann", "bob", ""][dice.nth(&[0; 3])];
            if dice.below(6) > 0 && (!user.is_empty() || dice.below(4) == 0) {
                fields.push(("x-user", user));
            }
            if dice.below(3) > 0 {
                fields.push(("x-plan", ["free", "pro"][dice.nth(&[0; 2])]));
            }
            if dice.below(2) == 0 {
                fields.push(("x-actual", &actual));
            }
            let first = told(ask(&layers[0], &fields).await);
            for (way, layer) in layers.iter().enumerate().skip(1) {
                let other = told(ask(layer, &fields).await);
                assert_eq!(other, first, "way {way}, seed {seed}, request {nth}: {fields:?}");
            }
            seen[match first.0.as_u16() {
                200 => 0,
                429 => 1,
                503 => 2,
                _ => 3,
            }] += 1;
            settled().await;
            clock.advance(dice.time(SECOND * 20));
        }
    }
    assert!(seen.iter().all(|&count| count > seeds), "every kind of answer is seen: {seen:?}");
}

/// Each plan of the layer also takes and refunds the same tokens.
#[test]
fn a_rule_takes_and_gives_back_the_same_alone_and_beside_others() {
    let limits = [&FREE, &PRO, &OTHER];
    for limit in limits {
        let clock = ManualClock::new(START);
        let rule = Rule::new(limit).cost(2);
        let refunding = rule.clone().refund_if(|response| response.is_success());
        let resetting = rule.clone().reset_if(|response| response.is_client_error());
        for rule in [rule, refunding, resetting] {
            let limiters: Vec<_> = (0..4).map(|_| limiter(&clock)).collect();
            let mut next = limiters.iter().cloned();
            let layers = ways(|| next.next().unwrap(), &rule);
            for status in ["500", "200", "404", "500", "500", "200"] {
                let lefts: Vec<_> = layers
                    .iter()
                    .zip(&limiters)
                    .map(|(layer, limiter)| {
                        let reply = at_once(ask(layer, &[("x-status", status)]));
                        (reply.status, at_once(limiter.peek(limit)).unwrap().remaining())
                    })
                    .collect();
                assert!(lefts.iter().all(|one| *one == lefts[0]), "{status}: {lefts:?}");
            }
        }
    }
}

// Queues.

static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));

/// axum puts the layer around each route by itself: the waiters of all of them are counted together.
#[tokio::test(start_paused = true)]
async fn all_services_of_a_layer_have_one_queue() {
    let limiter = paused();
    let queue = Queue::new(HOUR).max_waiters(3);
    let one = || limiter.layer(&SPACED).queue(queue);
    let several = || limiter.layer(&SPACED).and(Rule::new(&PRO).cost(0)).queue(queue);
    for layer in [one().into(), several(), limiter.layer(&SPACED).queue(queue).and(&PRO)] {
        let app: Router = Router::new()
            .route("/a", get(async || "a").post(async || "a").rate_limit(layer.clone()))
            .route("/b", get(async || "b").rate_limit(layer.clone()))
            .merge(Router::new().route("/c", get(async || "c")).route_layer(layer.clone()))
            .fallback_service(layer.layer(service_fn(async |_: Request<Body>| {
                Ok::<_, Infallible>(Response::new(Body::from("d")))
            })));
        let ask = |method: Method, path: &str| {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
            let mut app = app.clone();
            let call = Service::call(&mut app, request);
            tokio::spawn(async move { call.await.unwrap().status().as_u16() })
        };
        let mut waiting = Vec::new();
        for (method, path) in [(Method::GET, "/a"), (Method::POST, "/a"), (Method::GET, "/b")] {
            waiting.push(ask(method, path));
            settled().await;
        }
        // The queue is full for all of them, however they were made.
        for path in ["/a", "/b", "/c", "/d"] {
            assert_eq!(ask(Method::GET, path).await.unwrap(), 503, "{path}");
        }
        assert_eq!(tokens(&limiter, &SPACED), -3.0);
        for answer in waiting {
            assert_eq!(answer.await.unwrap(), 200);
        }
        assert_eq!(ask(Method::GET, "/d").await.unwrap(), 200);
        tokio::time::advance(ms(100)).await;
    }
}
