//! What handlers see of the limits that admitted their requests, and how they charge, settle and
//! reset them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use http::{Request, StatusCode};
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::middleware::{ActualCost, Admission};
use tollgate::{
    HOUR, Limit, MINUTE, OnFailure, Quota, RateLimitExt, RateLimitLayer, RateLimited, RateLimiter,
    Rule, SECOND, Snapshot,
};
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, paused, settled, tokens};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, is_admitted, limiter};
use tower::ServiceExt;

static CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
static TOKENS: Limit = Limit::new("tokens", Quota::token_bucket(1_000, MINUTE));
static HOT: Limit = Limit::new("hot", Quota::token_bucket(1_000, MINUTE).shards(10));
static TWO: Limit = Limit::new("two", Quota::token_bucket(2, HOUR));

type Work = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A route under this layer, with a handler that does this work.
fn app<W>(
    layer: impl Into<RateLimitLayer<Vec<Rule>>>,
    work: impl Fn(Admission) -> W + Clone + Send + Sync + 'static,
) -> Router
where
    W: Future<Output = Response> + Send + 'static,
{
    let handler = async move |admission: Admission| work(admission).await;
    Router::new().route("/", post(handler).rate_limit(layer))
}

fn request() -> Request<Body> {
    Request::post("/").header("x-user", "ann").body(Body::empty()).unwrap()
}

async fn ask(app: &Router) -> Reply {
    Reply::read(app.clone().oneshot(request()).await.unwrap()).await
}

#[track_caller]
fn left(limiter: &RateLimiter, limit: &Limit) -> u64 {
    at_once(limiter.peek(limit)).unwrap().remaining()
}

/// A response by which a layer settles.
fn costing(tokens: u64) -> Response {
    Extension(ActualCost::new(tokens)).into_response()
}

// Seeing.

#[tokio::test]
async fn a_handler_sees_the_snapshots_of_limits_and_shadows() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter
        .layer(&CALLS)
        .and(Rule::new(&TOKENS).cost(998))
        .and(Rule::new(&TWO).shadow())
        .expose();
    let app = app(layer, async |admission: Admission| {
        let list = |snapshots: Vec<Snapshot>| {
            let one = |one: &Snapshot| {
                let fits = if one.fits() { "fits" } else { "does not fit" };
                format!("{} {} {fits}", one.limit().name(), one.remaining())
            };
            snapshots.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let (all, shadows) = (list(admission.snapshots()), list(admission.shadows()));
        let least = (admission.remaining(), admission.only(&CALLS).remaining());
        assert_eq!(admission.only(&TWO).remaining(), None, "a shadow holds no request up");
        let full = admission.full_at().unwrap().since(START).as_millis();
        format!("{all}; {shadows}; {least:?}; {full}").into_response()
    });
    assert!(is_admitted(limiter.limit(&TWO).cost(2)));
    assert_eq!(
        ask(&app).await.body,
        "calls 9 fits, tokens 2 fits; two 0 does not fit; (Some(2), Some(9)); 59880"
    );
}

#[tokio::test]
async fn without_expose_the_extractor_says_what_is_missing() {
    let limiter = limiter(&ManualClock::new(START));
    let hidden = app(limiter.layer(&CALLS), async |_: Admission| "seen".into_response());
    let reply = ask(&hidden).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!reply.body.contains("expose"), "the client is told nothing: {}", reply.body);
    let maybe = async |admission: Option<Admission>| admission.is_some().to_string();
    for (layer, seen) in
        [(limiter.layer(&CALLS), "false"), (limiter.layer(&CALLS).expose(), "true")]
    {
        let app = Router::new().route("/", post(maybe).rate_limit(layer));
        assert_eq!(ask(&app).await.body, seen);
    }
}

#[tokio::test]
async fn a_handler_sees_limits_that_are_not_advertised() {
    let limiter = limiter(&ManualClock::new(START));
    let app =
        app(limiter.layer(&CALLS).dialects(Dialect::None).expose(), async |seen: Admission| {
            format!("{:?}", seen.remaining()).into_response()
        });
    let reply = ask(&app).await;
    assert_eq!((reply.body.as_str(), reply.field("ratelimit")), ("Some(9)", None));
}

#[tokio::test]
async fn requests_without_a_limit_have_an_empty_admission() {
    let calls = || Rule::new(&CALLS);
    let exempt = calls().key(header("x-absent")).missing_key_exempt();
    let exempt = limiter(&ManualClock::new(START)).layer(exempt);
    let skipped = limiter(&ManualClock::new(START)).layer(calls().only_if(|_| false));
    let blind = RateLimiter::new(Down).layer(calls()).on_failure(OnFailure::Admit);
    for layer in [exempt, skipped, blind] {
        let app = app(layer.expose(), async |admission: Admission| {
            assert_eq!((admission.remaining(), admission.snapshots().len()), (None, 0));
            assert_eq!((admission.full_at(), admission.shadows().len()), (None, 0));
            assert!(admission.permit().is_none());
            admission.charge(7).await.unwrap();
            admission.settle(7).await.unwrap();
            admission.refund().await.unwrap();
            admission.reset().await.unwrap();
            "done".into_response()
        });
        assert_eq!(ask(&app).await.body, "done");
    }
}

#[tokio::test]
async fn nested_layers_are_seen_together_the_outermost_first() {
    let limiter = limiter(&ManualClock::new(START));
    let inner = app(limiter.layer(&TOKENS).cost(10).expose(), async |admission: Admission| {
        let names: Vec<_> =
            admission.snapshots().iter().map(|one| one.limit().name().to_owned()).collect();
        assert_eq!(names, ["calls", "tokens"]);
        admission.only(&CALLS).refund().await.unwrap();
        admission.permit().unwrap().settle(25).await.unwrap();
        "done".into_response()
    });
    let app = inner.layer(limiter.layer(&TWO)).layer(limiter.layer(&CALLS).expose());
    assert_eq!(ask(&app).await.body, "done");
    let lefts = [&CALLS, &TOKENS, &TWO].map(|limit| left(&limiter, limit));
    assert_eq!(lefts, [10, 975, 1]);
}

// Charging more.

#[tokio::test]
async fn a_handler_charges_more_and_is_refused_when_tokens_are_short() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&CALLS).and(Rule::new(&TOKENS).cost(100)).expose();
    let app = app(layer, async |admission: Admission| {
        let more = async || -> Result<String, RateLimited> {
            admission.charge(300).await?;
            assert_eq!(admission.only(&TOKENS).remaining(), Some(600));
            admission.charge(601).await?;
            Ok("done".into())
        };
        more().await.into_response()
    });
    let reply = ask(&app).await;
    assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert!(reply.body.contains("\"violated-policies\":[\"tokens\"]"), "{}", reply.body);
    // The limit that only counts requests was not charged, and the refusal took nothing.
    assert_eq!((left(&limiter, &CALLS), left(&limiter, &TOKENS)), (9, 600));
}

/// The outer layer kept what it had taken, for work that did not run.
#[tokio::test]
async fn charging_more_over_two_layers_takes_from_both_or_from_none() {
    let limiter = limiter(&ManualClock::new(START)).seed(5);
    for limit in [&TOKENS, &HOT] {
        let inner = limiter.layer(&CALLS).key(header("x-user")).expose();
        let handler = async |admission: Admission| {
            let error = admission.charge(10).await.unwrap_err();
            assert!(error.is_refused(), "{error}");
            admission.charge(3).await.unwrap();
            "done".into_response()
        };
        let app = Router::new().route("/", post(handler).rate_limit(inner));
        let app = app.layer(limiter.layer(limit).expose());
        assert_eq!(ask(&app).await.body, "done");
        let tokens = at_once(limiter.peek(limit)).unwrap().tokens().to_string();
        assert_eq!(tokens, "996");
        let calls = at_once(limiter.peek(&CALLS).key("ann")).unwrap().remaining();
        assert_eq!(calls, 6);
        at_once(limiter.reset(&CALLS).key("ann")).unwrap();
    }
}

#[tokio::test]
async fn charging_more_than_the_limit_can_ever_grant_is_an_error() {
    let limiter = limiter(&ManualClock::new(START));
    let app = app(limiter.layer(&CALLS).expose(), async |admission: Admission| {
        let error = admission.charge(11).await.unwrap_err();
        assert!(error.is_too_large());
        "done".into_response()
    });
    assert_eq!(ask(&app).await.body, "done");
    assert_eq!(left(&limiter, &CALLS), 9);
}

#[tokio::test]
async fn charging_more_than_a_bucket_can_grant_its_rules_together_is_an_error() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&CALLS).and(&CALLS).expose();
    let app = app(layer, async |admission: Admission| {
        // Six for each of two rules, of a bucket that holds ten.
        let error = admission.charge(6).await.unwrap_err();
        assert!(error.is_too_large() && error.retry_after().is_none(), "{error}");
        admission.charge(4).await.unwrap();
        "done".into_response()
    });
    assert_eq!(ask(&app).await.body, "done");
    assert_eq!(left(&limiter, &CALLS), 0);
}

#[tokio::test]
async fn the_layer_settles_the_sum_of_what_was_charged() {
    for limit in [&TOKENS, &HOT] {
        let limiter = limiter(&ManualClock::new(START)).seed(5);
        let layer = limiter.layer(limit).cost(30).settle().expose();
        let app = app(layer, async |admission: Admission| {
            admission.charge(20).await.unwrap();
            admission.charge(25).await.unwrap();
            costing(60)
        });
        for round in 1..=8 {
            assert_eq!(ask(&app).await.status, StatusCode::OK);
            let tokens = at_once(limiter.peek(limit)).unwrap().tokens().to_string();
            assert_eq!(tokens, (1_000 - 60 * round).to_string());
        }
    }
}

#[tokio::test]
async fn shards_get_back_what_was_charged_more() {
    let limiter = limiter(&ManualClock::new(START)).seed(9);
    let layer = limiter.layer(Rule::new(&HOT).cost(130).refund_if(|_| true)).expose();
    let app = app(layer, async |admission: Admission| {
        admission.charge(60).await.unwrap();
        "done".into_response()
    });
    for _ in 0..50 {
        assert_eq!(ask(&app).await.status, StatusCode::OK);
        assert_eq!(at_once(limiter.peek(&HOT)).unwrap().tokens().to_string(), "1000");
    }
}

// Settling, once.

#[tokio::test]
async fn the_layer_does_not_settle_after_the_handler() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(Rule::new(&TOKENS).cost(100).refund_if(|_| true)).settle().expose();
    let settles = app(layer.clone(), async |admission: Admission| {
        admission.settle(40).await.unwrap();
        admission.settle(1).await.unwrap();
        admission.refund().await.unwrap();
        assert!(admission.permit().is_none());
        costing(1)
    });
    ask(&settles).await;
    assert_eq!(left(&limiter, &TOKENS), 960);
    // The holder of the permit settles it, or does not.
    let keeps = app(layer.clone(), async |admission: Admission| {
        drop(admission.permit().unwrap());
        costing(1)
    });
    ask(&keeps).await;
    assert_eq!(left(&limiter, &TOKENS), 860);
    let refunds = app(layer, async |admission: Admission| {
        admission.refund().await.unwrap();
        costing(1)
    });
    ask(&refunds).await;
    assert_eq!(left(&limiter, &TOKENS), 860);
}

#[tokio::test]
async fn a_task_of_the_handler_does_not_settle_after_the_layer() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&TOKENS).cost(100).settle().expose();
    let (send, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let app = app(layer, move |admission: Admission| {
        send.send(admission).unwrap();
        async { costing(30) }
    });
    ask(&app).await;
    assert_eq!(left(&limiter, &TOKENS), 970);
    let admission = kept.recv().await.unwrap();
    admission.settle(0).await.unwrap();
    admission.refund().await.unwrap();
    assert_eq!(left(&limiter, &TOKENS), 970);
}

#[tokio::test]
async fn a_meter_does_not_settle_extra_charges() {
    let limiter = limiter(&ManualClock::new(START));
    let (send, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let app = app(limiter.layer(&TOKENS).cost(100).settle().expose(), move |admission| {
        let (cost, meter) = ActualCost::metered();
        send.send((admission, meter)).unwrap();
        async { Extension(cost).into_response() }
    });
    ask(&app).await;
    let (admission, meter) = kept.recv().await.unwrap();
    admission.charge(50).await.unwrap();
    meter.settle(70);
    assert_eq!(left(&limiter, &TOKENS), 1_000 - 50 - 70);
}

#[tokio::test]
async fn a_task_may_settle_after_the_response_if_the_layer_does_not() {
    let limiter = limiter(&ManualClock::new(START));
    let (send, mut kept) = tokio::sync::mpsc::unbounded_channel();
    let app = app(limiter.layer(&TOKENS).cost(100).expose(), move |admission: Admission| {
        send.send(admission).unwrap();
        async { "streaming".into_response() }
    });
    ask(&app).await;
    assert_eq!(left(&limiter, &TOKENS), 900);
    kept.recv().await.unwrap().settle(70).await.unwrap();
    assert_eq!(left(&limiter, &TOKENS), 930);
}

#[test]
fn a_layer_and_a_task_that_settle_at_the_same_time_settle_once() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&TOKENS).cost(100).settle().expose();
    let seen = Arc::new(Mutex::new(None));
    let show = Arc::clone(&seen);
    let app = app(layer, move |admission: Admission| {
        *show.lock().unwrap() = Some(admission);
        let mut polls = 0;
        async move {
            // So that there is a time between the handler and its response.
            poll_fn(|_| {
                polls += 1;
                if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            costing(30)
        }
    });
    for round in 0..times(2_000, 500) {
        let mut call = pin!(app.clone().oneshot(request()));
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        let admission = seen.lock().unwrap().take().unwrap();
        let both = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                at_once(admission.settle(60)).unwrap();
            });
            both.wait();
            assert!(call.as_mut().poll(&mut context).is_ready());
        });
        match left(&limiter, &TOKENS) {
            970 | 940 => {}
            left => panic!("{left} are left in round {round}"),
        }
        at_once(limiter.reset(&TOKENS)).unwrap();
    }
}

#[tokio::test]
async fn a_handler_resets_one_limit() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter
        .layer(Rule::new(&CALLS).key(header("x-user")).refund_if(|_| true))
        .and(Rule::new(&HOT).cost(150))
        .and(&TWO)
        .expose();
    let app = app(layer, async |admission: Admission| {
        admission.only(&CALLS).reset().await.unwrap();
        admission.only(&HOT).reset().await.unwrap();
        "done".into_response()
    });
    assert!(is_admitted(limiter.limit(&CALLS).key("ann").cost(5)));
    ask(&app).await;
    let calls = at_once(limiter.peek(&CALLS).key("ann")).unwrap().remaining();
    assert_eq!((calls, left(&limiter, &HOT), left(&limiter, &TWO)), (10, 1_000, 1));
}

/// Otherwise a shadow would report refusals for as long as its bucket is empty.
#[tokio::test]
async fn a_handler_resets_a_shadow_that_would_have_refused() {
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&CALLS).and(Rule::new(&TWO).shadow()).expose();
    let app = app(layer, async |admission: Admission| {
        assert!(!admission.shadows()[0].fits());
        admission.reset().await.unwrap();
        "done".into_response()
    });
    assert!(is_admitted(limiter.limit(&TWO).cost(2)));
    assert_eq!(ask(&app).await.body, "done");
    assert_eq!((left(&limiter, &CALLS), left(&limiter, &TWO)), (10, 2));
}

/// A handler charges, settles and drops in any order: all that it took is settled exactly once.
#[tokio::test]
async fn a_handler_settles_nothing_twice_in_any_order() {
    for seed in 0..300 {
        let limiter = limiter(&ManualClock::new(START));
        let layer = limiter.layer(&TOKENS).cost(100).settle().expose();
        let mut dice = Dice(seed);
        let steps: Arc<[(u64, u64)]> =
            (0..1 + dice.below(6)).map(|_| (dice.below(5), dice.below(200))).collect();
        let actual = dice.below(200);

        let (mut taken, mut open) = (100, Some(100));
        for &(step, amount) in steps.iter() {
            match (step, open) {
                (0, _) if taken + amount <= 1_000 => {
                    taken += amount;
                    open = open.map(|paid| paid + amount);
                }
                (1, Some(paid)) | (2, Some(paid)) => {
                    taken = taken - paid + amount;
                    open = None;
                }
                (3, Some(paid)) => {
                    taken -= paid;
                    open = None;
                }
                (4, _) => (taken, open) = (0, None),
                _ => {}
            }
        }
        let wanted = open.map_or(taken, |paid| taken - paid + actual);

        let app = app(layer, move |admission: Admission| -> Work {
            let steps = Arc::clone(&steps);
            Box::pin(async move {
                for &(step, amount) in steps.iter() {
                    match step {
                        0 => drop(admission.charge(amount).await),
                        1 => admission.clone().settle(amount).await.unwrap(),
                        2 => {
                            if let Some(permit) = admission.permit() {
                                permit.settle(amount).await.unwrap();
                            }
                        }
                        3 => admission.refund().await.unwrap(),
                        _ => admission.reset().await.unwrap(),
                    }
                }
                costing(actual)
            })
        });
        assert_eq!(ask(&app).await.status, StatusCode::OK);
        let tokens = at_once(limiter.peek(&TOKENS)).unwrap().tokens().to_string();
        assert_eq!(tokens, (1_000 - i64::try_from(wanted).unwrap()).to_string(), "seed {seed}");
    }
}

// Stores that answer later, and queues.

#[tokio::test(start_paused = true)]
async fn a_later_store_still_gets_the_settlement_of_a_handler_that_has_gone() {
    let (late, limiter, past) = Late::new();
    let gate = late.clone();
    let app = app(limiter.layer(&TOKENS).cost(100).expose(), move |admission: Admission| {
        let late = gate.clone();
        async move {
            assert_eq!(admission.remaining(), Some(900));
            admission.charge(50).await.unwrap();
            let held = late.close();
            // Given up as soon as the store was asked.
            tokio::select! {
                biased;
                _ = admission.settle(20) => unreachable!("the store is held"),
                () = tokio::task::yield_now() => {}
            }
            late.open();
            held.let_go();
            "done".into_response()
        }
    });
    assert_eq!(ask(&app).await.body, "done");
    settled().await;
    assert_eq!(tokens(&past, &TOKENS), 980.0);
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_the_limit_that_its_request_waited_for() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let limiter = paused();
    let layer = limiter.layer(&SPACED).queue(SECOND).expose();
    let app = app(layer, async |admission: Admission| {
        let snapshot = admission.snapshots().remove(0);
        assert_eq!((snapshot.fits(), snapshot.remaining()), (false, 0));
        assert_eq!(snapshot.wait(), Some(SECOND / 10), "it was reserved");
        admission.refund().await.unwrap();
        "done".into_response()
    });
    assert_eq!(ask(&app).await.body, "done");
    assert_eq!(tokens(&limiter, &SPACED), 0.0);
}

/// A store that cannot answer.
#[derive(Debug)]
struct Down;

impl Backend for Down {
    fn apply(&self, _: &[Charge<'_>]) -> Answer<Applied> {
        Answer::Ready(Err(BackendError::unavailable("test", "it is down")))
    }

    fn adjust(&self, _: &[Adjustment<'_>]) -> Answer<Applied> {
        Answer::Ready(Err(BackendError::unavailable("test", "it is down")))
    }

    fn reset(&self, _: &[BucketId<'_>]) -> Answer<()> {
        Answer::Ready(Err(BackendError::unavailable("test", "it is down")))
    }
}
