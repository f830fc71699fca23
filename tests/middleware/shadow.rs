//! Rules that apply to some requests only, and rules that decide but refuse nothing, or only some keys.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::time::sleep;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::middleware::{ActualCost, Portion};
use tollgate::{
    HOUR, Key, Limit, MINUTE, OnFailure, Quota, RateLimitLayer, RateLimiter, Rule, SECOND,
};
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, Recorder, ms, paused, send, settled, tokens};
use tollgate_testing::{START, at_once, is_admitted, limiter};
use tower::{Layer, Service, ServiceExt, service_fn};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, HOUR));
static FIVE: Limit = Limit::new("five", Quota::token_bucket(5, HOUR));
static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, HOUR));
static HOT: Limit = Limit::new("hot", Quota::token_bucket(100, HOUR).shards(10));
static PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(1, HOUR));

#[track_caller]
fn answer<N>(layer: &RateLimitLayer<N>, request: Request<()>) -> Response<()> {
    let inner = service_fn(|request: Request<()>| {
        let mut response = Response::new(());
        if let Some(status) = request.headers().get("status") {
            *response.status_mut() = status.to_str().unwrap().parse().unwrap();
        }
        response.extensions_mut().insert(ActualCost::new(4));
        std::future::ready(Ok::<_, Infallible>(response))
    });
    at_once(layer.layer(inner).oneshot(request)).unwrap().map(drop)
}

#[track_caller]
fn ask<N>(layer: &RateLimitLayer<N>) -> u16 {
    answer(layer, Request::new(())).status().as_u16()
}

#[track_caller]
fn ask_as<N>(layer: &RateLimitLayer<N>, user: &str) -> u16 {
    let request = Request::builder().header("x-user", user).body(()).unwrap();
    answer(layer, request).status().as_u16()
}

#[track_caller]
fn left(limiter: &RateLimiter, limit: &Limit) -> u64 {
    at_once(limiter.peek(limit)).unwrap().remaining()
}

// Some requests only.

#[test]
fn requests_of_other_methods_are_not_held_to_the_limit() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&TWO).only_methods([Method::POST, Method::PUT]));
    let ask = |method: Method| {
        let response = answer(&layer, Request::builder().method(method).body(()).unwrap());
        (response.status().as_u16(), response.headers().contains_key("ratelimit"))
    };
    assert_eq!(ask(Method::POST), (200, true));
    assert_eq!(ask(Method::GET), (200, false));
    assert_eq!(ask(Method::PUT), (200, true));
    assert_eq!(ask(Method::POST), (429, true));
    assert_eq!(ask(Method::GET), (200, false));
}

#[test]
fn all_conditions_have_to_be_met_and_no_key_is_asked_for_otherwise() {
    let limiter = limiter(&ManualClock::new(START));
    let rule = Rule::new(&TWO).key(header("x-user")).only_methods([Method::POST]);
    let layer = limiter.layer(rule.only_if(|head| head.uri().path().starts_with("/api")));
    for (method, path, status) in
        [("GET", "/api", 200), ("POST", "/", 200), ("GET", "/", 200), ("POST", "/api/x", 400)]
    {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        assert_eq!(answer(&layer, request).status(), status, "{method} {path}");
    }
}

#[test]
fn conditions_are_those_of_their_rule() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&TWO).only_methods([Method::POST])).and(&FIVE);
    for left in (0..5).rev() {
        let response = answer(&layer, Request::new(()));
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(told.starts_with(&format!("\"five\";r={left};")), "{told}");
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert_eq!(policy, "\"five\";q=5;w=3600");
    }
    assert_eq!(ask(&layer), 429);
    assert_eq!(left(&limiter, &TWO), 2);
}

#[test]
fn a_sample_is_a_share_of_requests_and_the_same_for_the_same_seed() {
    let sampled = |portion, seed| {
        let limiter = limiter(&ManualClock::new(START)).seed(seed);
        let many = Limit::new("many", Quota::token_bucket(100_000, HOUR));
        let layer = limiter.layer(Rule::new(&many).sample(portion));
        let picked: Vec<_> = (0..10_000)
            .map(|_| answer(&layer, Request::new(())).headers().contains_key("ratelimit"))
            .collect();
        let count = picked.iter().filter(|picked| **picked).count();
        assert_eq!(left(&limiter, &many), 100_000 - u64::try_from(count).unwrap());
        (picked, count)
    };
    let (picked, count) = sampled(Portion::percent(10), 1);
    assert!((900..1_100).contains(&count), "{count}");
    assert_eq!(sampled(Portion::percent(10), 1).0, picked);
    assert_ne!(sampled(Portion::percent(10), 2).0, picked);
    assert_eq!(sampled(Portion::NONE, 1).1, 0);
    assert_eq!(sampled(Portion::ALL, 1).1, 10_000);
    assert_eq!(sampled(Portion::percent(100), 1).1, 10_000);
    let (_, count) = sampled(Portion::one_in(3), 2);
    assert!((3_200..3_470).contains(&count), "{count}");
}

// In shadow.

#[test]
fn a_shadow_takes_and_refuses_nothing_and_clients_are_not_told() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&TWO).shadow());
    for left_over in [1, 0, 0, 0] {
        let response = answer(&layer, Request::new(()));
        assert_eq!(response.status(), 200);
        assert!(response.headers().is_empty(), "{:?}", response.headers());
        assert_eq!(left(&limiter, &TWO), left_over);
    }
}

#[test]
fn the_other_rules_take_from_all_or_none_whatever_the_shadow_decides() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&FIVE).and(Rule::new(&TWO).shadow()).and(Rule::new(&TEN).cost(3));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let response = answer(&layer, Request::new(()));
        let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
        assert_eq!(policy, "\"five\";q=5;w=3600, \"ten\";q=10;w=3600");
        let lefts = [&FIVE, &TWO, &TEN].map(|limit| left(&limiter, limit));
        seen.push((response.status().as_u16(), lefts));
    }
    // The third finds the shadow empty; the fourth is refused, and the shadow is not asked.
    let wanted = [(200, [4, 1, 7]), (200, [3, 0, 4]), (200, [2, 0, 1]), (429, [2, 0, 1])];
    assert_eq!(seen, wanted);
    at_once(limiter.reset(&TWO)).unwrap();
    assert_eq!(ask(&layer), 429);
    assert_eq!(left(&limiter, &TWO), 2, "a refused request takes nothing");
}

#[test]
fn each_shadow_is_charged_by_itself() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&TWO).shadow()).and(Rule::new(&FIVE).shadow());
    for _ in 0..4 {
        assert_eq!(ask(&layer), 200);
    }
    assert_eq!((left(&limiter, &TWO), left(&limiter, &FIVE)), (0, 1));
}

#[test]
fn a_request_that_would_be_rejected_passes_a_shadow() {
    let limiter = limiter(&ManualClock::new(START));
    let shadow = Rule::new(&TWO).shadow();
    let no_key = limiter.layer(shadow.clone().key(header("x-user")));
    let too_large = limiter.layer(shadow.clone().cost(3));
    let blind = RateLimiter::new(Down).layer(shadow);
    for layer in [no_key, too_large, blind] {
        assert_eq!(ask(&layer), 200);
        assert_eq!(ask(&layer.and(Rule::new(&FIVE).enforce(Portion::NONE))), 200);
    }
    assert_eq!(left(&limiter, &TWO), 2);
}

#[test]
fn a_shadow_gives_back_as_it_would_if_it_were_enforced() {
    let limiter = limiter(&ManualClock::new(START));
    let shadow = Rule::new(&TEN).shadow();
    let layer = limiter.layer(shadow.refund_if(|head| head.status().is_success()));
    let request = |status| Request::builder().header("status", status).body(()).unwrap();
    answer(&layer, request("200"));
    assert_eq!(left(&limiter, &TEN), 10);
    answer(&layer, request("500"));
    assert_eq!(left(&limiter, &TEN), 9);
    // It is settled as well: the handler says 4.
    at_once(limiter.reset(&TEN)).unwrap();
    answer(&layer.cost(7).settle(), request("500"));
    assert_eq!(left(&limiter, &TEN), 6);
    // A request that the shadow would refuse takes nothing from it, so it refunds nothing.
    let layer = limiter.layer(Rule::new(&TWO).shadow().refund_if(|_| true));
    assert!(is_admitted(limiter.limit(&TWO).cost(2)));
    assert_eq!(ask(&layer), 200);
    assert_eq!(left(&limiter, &TWO), 0);
}

/// A shadow that would have refused changed which of the other shadows were settled.
#[test]
fn which_shadows_are_settled_does_not_depend_on_what_others_would_refuse() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter
        .layer(&FIVE)
        .and(Rule::new(&TEN).shadow())
        .and(Rule::new(&TWO).cost(1).shadow())
        .settle();
    for nth in 1..=4 {
        // From the third request on, `two` would refuse.
        at_once(limiter.reset(&FIVE)).unwrap();
        assert_eq!(ask(&layer), 200);
        assert_eq!(left(&limiter, &TEN), 10 - nth, "it has no cost, and `two` has one");
    }
}

#[test]
fn a_limit_in_shards_can_be_a_shadow() {
    let limiter = limiter(&ManualClock::new(START)).seed(3);
    let layer = limiter.layer(Rule::new(&HOT).cost(10).shadow());
    for _ in 0..30 {
        assert_eq!(ask(&layer), 200);
    }
    assert!(left(&limiter, &HOT) < 20);
}

/// The refusal named the first rule, but its fields showed the snapshot of the other one.
#[test]
fn a_shadow_that_comes_first_is_not_named_in_place_of_the_other_rule() {
    let told = |layer: RateLimitLayer<Vec<Rule>>| {
        let inner = service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        });
        [0; 3].map(|_| {
            let response = at_once(layer.clone().layer(inner).oneshot(Request::new(()))).unwrap();
            let (head, body) = response.into_parts();
            let body = at_once(body.collect()).unwrap().to_bytes();
            (head.status, head.headers, String::from_utf8(body.into()).unwrap())
        })
    };
    let in_memory = || limiter(&ManualClock::new(START));
    for dialect in [Dialect::Draft11, Dialect::None] {
        let alone = told(in_memory().layer(&TWO).dialects(dialect).into());
        assert!(alone[2].2.contains("two"), "{alone:?}");
        let shadow = Rule::new(&FIVE).shadow();
        let before = in_memory().layer(shadow.clone()).and(&TWO);
        let after = in_memory().layer(&TWO).and(shadow);
        assert_eq!(told(before.dialects(dialect)), alone);
        assert_eq!(told(after.dialects(dialect)), alone);
    }
}

/// Random layers and requests: taking the shadow rules out changes no answer.
#[test]
fn shadow_rules_change_no_answer() {
    for seed in 0..200 {
        let mut dice = Dice(seed);
        let limits: Vec<_> = (0..3)
            .map(|nth| {
                let quota = Quota::token_bucket(1 + dice.below(8), HOUR);
                Limit::try_new(format!("limit {nth}"), quota).unwrap()
            })
            .collect();
        // Zero sets no cost; such a rule is settled only where no rule has one.
        let costs: Vec<_> = limits.iter().map(|_| dice.below(4)).collect();
        let settles = dice.below(2) == 0;
        let in_shadow: Vec<_> = limits.iter().map(|_| dice.below(2) == 0).collect();
        let layer = |with_shadows: bool| {
            let limiter = limiter(&ManualClock::new(START));
            let of_all = Limit::new("of all", Quota::token_bucket(100, HOUR));
            let mut layer: RateLimitLayer<Vec<Rule>> = limiter.layer(of_all).into();
            for ((limit, &cost), &in_shadow) in limits.iter().zip(&costs).zip(&in_shadow) {
                if in_shadow && !with_shadows {
                    continue;
                }
                let mut rule = Rule::new(limit);
                if cost > 0 {
                    rule = rule.cost(cost);
                }
                if in_shadow {
                    rule = rule.shadow();
                }
                layer = layer.and(rule);
            }
            if settles { layer.settle() } else { layer }
        };
        let (with, without) = (layer(true), layer(false));
        for _ in 0..12 {
            let [with, without] = [&with, &without].map(|layer| {
                let response = answer(layer, Request::new(()));
                (response.status(), response.headers().clone())
            });
            assert_eq!(with, without, "seed {seed}");
        }
    }
}

// A part of the keys.

/// Which of 2,000 users are refused their second request.
fn enforced(portion: Portion) -> HashSet<u32> {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&PER_USER).key(header("x-user")).enforce(portion));
    let user = |number: &u32| {
        let user = number.to_string();
        assert_eq!(ask_as(&layer, &user), 200);
        ask_as(&layer, &user) == 429
    };
    (0..2_000).filter(user).collect()
}

#[test]
fn all_nodes_enforce_a_limit_on_the_same_part_of_the_keys() {
    let [tenth, again, fifth] = [10, 10, 20].map(|percent| enforced(Portion::percent(percent)));
    assert!((170..230).contains(&tenth.len()), "{}", tenth.len());
    assert_eq!(tenth, again);
    assert!(tenth.is_subset(&fifth), "raising the percentage only adds keys");
    assert!((360..440).contains(&fifth.len()), "{}", fifth.len());
    assert!(enforced(Portion::NONE).is_empty());
    assert_eq!(enforced(Portion::ALL).len(), 2_000);
}

#[test]
fn the_sample_hash_of_a_key_never_changes() {
    let key = Key::from("alice");
    let id = BucketId::new("per-user", &key);
    // Other nodes and other versions must compute the same hash.
    assert_eq!(id.sample_hash(), 423_166_155_377_861_985);
    assert_eq!(id.shard(7).sample_hash(), id.sample_hash());
    assert_ne!(BucketId::new("per-users", &key).sample_hash(), id.sample_hash());
}

/// 50 of 50 requests with two fields ran under a limit that is enforced on 99 % of the keys: by
/// sending an invalid key, a client could put itself among the other 1 %.
#[test]
fn requests_without_a_usable_key_are_answered_where_the_limit_is_enforced_on_some() {
    let limiter = limiter(&ManualClock::new(START));
    let rule = || Rule::new(&PER_USER).key(header("x-user"));
    let unauthorized = || rule().missing_key(StatusCode::UNAUTHORIZED);
    let exempt = || rule().missing_key_exempt();
    let twice = || Request::builder().header("x-user", "mallory").header("x-user", "mallory");
    for (portion, missing, unauthorised, invalid) in [
        (Portion::NONE, 200, 200, 200),
        (Portion::one_in(1_000_000), 400, 401, 400),
        (Portion::percent(99), 400, 401, 400),
        (Portion::ALL, 400, 401, 400),
    ] {
        for (rule, missing) in [(rule(), missing), (unauthorized(), unauthorised), (exempt(), 200)]
        {
            let layer = limiter.layer(rule.enforce(portion));
            for _ in 0..50 {
                assert_eq!(ask(&layer), missing, "{portion}");
                let nonsense = answer(&layer, twice().body(()).unwrap()).status();
                assert_eq!(nonsense, invalid, "{portion}");
                assert_eq!(ask_as(&layer, ""), invalid, "{portion}");
            }
        }
    }
}

/// The bucket that requests without a key share is in the sample or not, like the bucket of any
/// key.
#[test]
fn requests_that_share_a_bucket_are_refused_where_the_limit_is_enforced_on_it() {
    for (portion, wanted) in [
        (Portion::NONE, [200; 3]),
        (Portion::percent(99), [200, 429, 429]),
        (Portion::ALL, [200, 429, 429]),
    ] {
        let rule = Rule::new(&PER_USER).key(header("x-user")).missing_key_shared();
        let layer = limiter(&ManualClock::new(START)).layer(rule.enforce(portion));
        assert_eq!([(); 3].map(|()| ask(&layer)), wanted, "{portion}");
    }
}

#[test]
fn portions_are_at_most_all() {
    assert_eq!(Portion::try_percent(101), None);
    assert_eq!(Portion::try_percent(100), Some(Portion::percent(100)));
    assert!(std::panic::catch_unwind(|| Portion::percent(101)).is_err());
    assert!(std::panic::catch_unwind(|| Portion::one_in(0)).is_err());
}

// Stores that answer later, and queues.

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_later_is_asked_about_shadows_before_the_request_runs() {
    let (late, limiter, past) = Late::new();
    let layer = limiter.layer(&FIVE).and(Rule::new(&TWO).shadow().refund_if(|_| true));
    let recorder = Recorder::new();
    let service = layer.layer(recorder.clone());
    let held = late.close();
    let answer = send(&service, Request::new(1)).await;
    settled().await;
    assert_eq!((tokens(&past, &FIVE), tokens(&past, &TWO)), (4.0, 2.0));
    assert!(recorder.ran().is_empty());
    late.open();
    held.let_go();
    assert_eq!(answer.await.unwrap().status(), 200);
    settled().await;
    assert_eq!((tokens(&past, &FIVE), tokens(&past, &TWO)), (4.0, 2.0), "the shadow is refunded");
    // The same in a layer with only the shadow.
    let service = limiter.layer(Rule::new(&TWO).shadow()).layer(recorder.clone());
    for _ in 0..3 {
        assert_eq!(send(&service, Request::new(1)).await.await.unwrap().status(), 200);
    }
    assert_eq!(tokens(&past, &TWO), 0.0);
    assert_eq!(recorder.ran().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_in_the_queue_does_not_wait_for_the_shadow() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(1));
    static STRICT: Limit = Limit::new("strict", Quota::token_bucket(1, MINUTE));
    let limiter = paused();
    let layer = limiter.layer(&SPACED).queue(SECOND).and(Rule::new(&STRICT).shadow());
    let recorder = Recorder::new();
    let service = layer.layer(recorder.clone());
    let mut answers = Vec::new();
    for request in 0..3 {
        answers.push(send(&service, Request::new(request)).await);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    let waits: Vec<_> = recorder.ran().iter().map(|(_, at)| at.as_millis() / 100).collect();
    assert_eq!(waits, [0, 1, 2]);
    assert!(tokens(&limiter, &STRICT) < 0.1, "the shadow has refused the others");
}

/// So a request that does not get its turn costs the shadow nothing.
#[tokio::test(start_paused = true)]
async fn a_request_in_the_queue_is_charged_to_the_shadow_at_its_turn() {
    static SPACED: Limit =
        Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(1).max_reserved(9));
    for is_late in [false, true] {
        let (_store, limiter, near) = Late::new();
        let limiter = if is_late { limiter } else { near.clone() };
        let layer = limiter.layer(&SPACED).queue(MINUTE).and(Rule::new(&TEN).shadow());
        let service = layer.layer(Recorder::new());
        let left = || tokens(&near, &TEN).round();
        let mut waiting = Vec::new();
        for request in 0..4 {
            waiting.push(send(&service, Request::new(request)).await);
        }
        assert_eq!(left(), 9.0, "the others wait");
        waiting.pop().unwrap().abort();
        sleep(SECOND + ms(10)).await;
        assert_eq!(left(), 8.0, "the second has had its turn");
        limiter.drain(Duration::ZERO);
        settled().await;
        assert_eq!(left(), 8.0);
        let status = |answer: Response<_>| answer.status().as_u16();
        let mut answers = Vec::new();
        for answer in waiting {
            answers.push(status(answer.await.unwrap()));
        }
        assert_eq!(answers, [200, 200, 503]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_in_the_queue_runs_at_its_instant_however_late_the_shadow_is_answered() {
    static SPACED: Limit =
        Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(1).max_reserved(9));
    let (store, limiter, near) = Late::new();
    let layer = limiter.layer(&SPACED).queue(MINUTE).and(Rule::new(&TEN).shadow());
    let recorder = Recorder::new();
    let service = layer.layer(recorder.clone());
    let first = send(&service, Request::new(0)).await;
    let second = send(&service, Request::new(1)).await;
    let held = store.close();
    for answer in [first, second] {
        assert_eq!(answer.await.unwrap().status(), 200);
    }
    assert_eq!(recorder.ran().last().unwrap().1.as_millis() / 100, 10);
    held.let_go();
    settled().await;
    assert_eq!(tokens(&near, &TEN).round(), 8.0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_get_ready_costs_the_shadow_nothing() {
    static SPACED: Limit =
        Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(1).max_reserved(9));

    #[derive(Clone)]
    struct Broken;

    impl Service<Request<()>> for Broken {
        type Response = Response<()>;
        type Error = &'static str;
        type Future = std::future::Pending<Result<Response<()>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Err("broken"))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::pending()
        }
    }

    let limiter = paused();
    let layer = limiter.layer(&SPACED).queue(MINUTE).and(Rule::new(&TEN).shadow());
    limiter.limit(&SPACED).await.unwrap();
    let mut service = layer.layer(Broken);
    service.call(Request::new(())).await.unwrap_err();
    assert_eq!((tokens(&limiter, &TEN), tokens(&limiter, &SPACED)), (10.0, 1.0));
}

#[test]
fn a_chosen_limit_is_asked_once_in_shadow() {
    let limiter = limiter(&ManualClock::new(START));
    let chosen = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&chosen);
    let layer = limiter.layer(Rule::new(&TWO).shadow().limit_with(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        &FIVE
    }));
    assert_eq!(ask(&layer), 200);
    assert_eq!((chosen.load(Ordering::Relaxed), left(&limiter, &FIVE)), (1, 4));
}

/// Shadows admit nothing, so they pass nothing uncounted.
#[test]
fn in_an_outage_a_request_with_shadows_is_counted_once() {
    let limiter = RateLimiter::new(Down).on_failure(OnFailure::Admit);
    let shadows = Rule::new(&TWO).shadow();
    let layer = limiter.layer(&TEN).and(shadows).and(Rule::new(&FIVE).shadow());
    assert_eq!((ask(&layer), limiter.passed_uncounted()), (200, 1));
    let shadow = limiter.layer(Rule::new(&TWO).shadow());
    assert_eq!((ask(&shadow), limiter.passed_uncounted()), (200, 1));
}

/// A store that cannot answer.
#[derive(Debug)]
struct Down;

impl Backend for Down {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        Answer::Ready(Err(BackendError::unavailable("test", "it is down")))
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        Memory::new().adjust(adjustments)
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Answer::Ready(Ok(()))
    }
}
