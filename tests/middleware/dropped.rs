//! Requests that are metered while they run, and settled once, however they end: by a response, by a
//! failure, or by a client that goes away.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::Request as AxumRequest;
use axum::middleware::{Next, from_fn};
use axum::routing::post;
use http::{Extensions, Method, Request, Response, StatusCode};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};
use tollgate::clock::ManualClock;
use tollgate::key::header;
use tollgate::middleware::{ActualCost, Admission, Meter};
use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimitLayer, RateLimiter, Rule, SECOND};
use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{Late, ms, paused, settled, tokens};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, Service, ServiceExt, service_fn};

static CALLS: Limit = Limit::new("calls", Quota::token_bucket(10, MINUTE));
static TOKENS: Limit = Limit::new("tokens", Quota::token_bucket(1_000, MINUTE));
static OTHER: Limit = Limit::new("other", Quota::token_bucket(1_000, MINUTE));

#[track_caller]
fn left(limiter: &RateLimiter, limit: &Limit) -> u64 {
    at_once(limiter.peek(limit)).unwrap().remaining()
}

fn here() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

type Answer = Result<Response<()>, &'static str>;

type Call = Pin<Box<dyn Future<Output = Result<(), &'static str>> + Send>>;

/// A request to a handler that runs until it is told how to end.
struct Running {
    call: Call,
    extensions: Extensions,
    answer: oneshot::Sender<Answer>,
}

impl Running {
    /// Sends a request through a layer, or through several.
    #[track_caller]
    fn start<L>(layer: &L) -> Self
    where
        L: Layer<Handler>,
        L::Service: Service<Request<()>, Response: Send, Error = &'static str>,
        <L::Service as Service<Request<()>>>::Future: Send + 'static,
    {
        let started = Arc::new(Mutex::new(None));
        let mut service = layer.layer(Handler(Arc::clone(&started)));
        let call = service.call(Request::new(()));
        let mut call: Call = Box::pin(async move { call.await.map(drop) });
        assert!(poll(&mut call).is_none(), "it runs");
        let (extensions, answer) = started.lock().unwrap().take().expect("the handler runs");
        Self { call, extensions, answer }
    }

    /// Takes the meter, as the handler does.
    #[track_caller]
    fn meter(&self) -> Meter {
        Meter::from_extensions(&self.extensions).expect("the layer settles")
    }

    fn responds(self) {
        self.ends(Ok(Response::new(()))).unwrap();
    }

    #[track_caller]
    fn ends(mut self, answer: Answer) -> Result<(), &'static str> {
        drop(self.extensions);
        self.answer.send(answer).unwrap();
        poll(&mut self.call).expect("the handler has ended")
    }

    /// Its client goes away.
    fn disconnects(self) {
        drop(self.call);
        // What the handler has been told of the request outlives it, which changes nothing.
        drop(self.extensions);
    }
}

fn poll<F: Future + ?Sized>(call: &mut Pin<Box<F>>) -> Option<F::Output> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// The innermost service.
#[derive(Clone)]
struct Handler(Arc<Mutex<Option<Started>>>);

/// What the handler was told of its request, and how it is told to end.
type Started = (Extensions, oneshot::Sender<Answer>);

impl Service<Request<()>> for Handler {
    type Response = Response<()>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let (answer, ends) = oneshot::channel();
        *self.0.lock().unwrap() = Some((request.into_parts().0.extensions, answer));
        Box::pin(async { ends.await.expect("the test says how it ends") })
    }
}

// What was counted.

#[test]
fn a_request_that_disconnects_costs_what_was_counted() {
    for (counts, wanted) in [(&[][..], 0), (&[30], 30), (&[30, 0, 12], 42), (&[600, 150], 750)] {
        let limiter = here();
        let running = Running::start(&limiter.layer(&TOKENS).cost(100).settle());
        let meter = running.meter();
        counts.iter().for_each(|tokens| meter.add(*tokens));
        assert_eq!(left(&limiter, &TOKENS), 900, "it still runs");
        drop(meter);
        assert_eq!(left(&limiter, &TOKENS), 900, "another part of the handler may take it again");
        running.disconnects();
        assert_eq!(left(&limiter, &TOKENS), 1_000 - wanted);
    }
}

#[test]
fn a_request_that_gets_its_response_costs_what_was_counted() {
    let limiter = here();
    let running = Running::start(&limiter.layer(&TOKENS).cost(100).settle());
    running.meter().add(30);
    running.meter().clone().add(12);
    running.responds();
    assert_eq!(left(&limiter, &TOKENS), 958);
}

/// A failed service did the work that it had counted. Without a meter, the work that it did is not
/// known.
#[test]
fn a_request_to_a_service_that_fails_costs_what_was_counted() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle().refund_dropped();
    let running = Running::start(&layer);
    running.meter().add(30);
    assert_eq!(running.ends(Err("gone")), Err("gone"));
    assert_eq!(left(&limiter, &TOKENS), 970);
    assert_eq!(Running::start(&layer).ends(Err("gone")), Err("gone"));
    assert_eq!(left(&limiter, &TOKENS), 870, "the estimate stays");
}

#[test]
fn a_meter_that_is_not_taken_leaves_the_estimate() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle();
    Running::start(&layer).disconnects();
    assert_eq!(left(&limiter, &TOKENS), 900);
    Running::start(&layer).responds();
    assert_eq!(left(&limiter, &TOKENS), 800);
}

#[test]
fn a_meter_counts_for_as_long_as_it_is_kept() {
    let end: [fn(Running); 2] = [Running::responds, Running::disconnects];
    for (name, ends) in ["a response", "none"].into_iter().zip(end) {
        let limiter = here();
        let running = Running::start(&limiter.layer(&TOKENS).cost(100).settle());
        let (stream, task) = (running.meter(), running.meter());
        stream.add(10);
        ends(running);
        stream.add(20);
        drop(stream);
        assert_eq!(left(&limiter, &TOKENS), 900, "{name}");
        task.add(40);
        drop(task);
        assert_eq!(left(&limiter, &TOKENS), 930, "{name}");
    }
}

#[test]
fn the_sum_does_not_overflow() {
    let limiter = here();
    let running = Running::start(&limiter.layer(&TOKENS).cost(100).settle());
    running.meter().add(u64::MAX);
    running.meter().add(u64::MAX);
    running.disconnects();
    assert!(at_once(limiter.peek(&TOKENS)).unwrap().tokens().to_f64() < -1e6);
}

#[test]
fn an_explicit_cost_takes_precedence_over_the_meter() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle();
    let end: [fn(Running); 2] = [Running::responds, Running::disconnects];
    for (so_far, ends) in (1..).zip(end) {
        let running = Running::start(&layer);
        let (meter, late) = (running.meter(), running.meter());
        meter.add(7);
        meter.settle(30);
        late.add(500);
        late.settle(400);
        ends(running);
        assert_eq!(left(&limiter, &TOKENS), 1_000 - 30 * so_far);
    }
    // A cost in the response, known or metered, is an explicit cost as well.
    let answer = |cost: ActualCost| {
        let mut response = Response::new(());
        response.extensions_mut().insert(cost);
        Ok(response)
    };
    let running = Running::start(&layer);
    running.meter().add(7);
    running.ends(answer(ActualCost::new(40))).unwrap();
    assert_eq!(left(&limiter, &TOKENS), 900);
    let running = Running::start(&layer);
    running.meter().add(7);
    let (cost, meter) = ActualCost::metered();
    running.ends(answer(cost)).unwrap();
    assert_eq!(left(&limiter, &TOKENS), 800, "the stream has not ended");
    meter.add(20);
    meter.clone().add(30);
    drop(meter);
    assert_eq!(left(&limiter, &TOKENS), 850);
}

#[test]
fn a_meter_of_a_request_that_is_over_is_none() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle();
    let running = Running::start(&layer);
    let extensions = running.extensions.clone();
    running.responds();
    assert!(Meter::from_extensions(&extensions).is_none());
    assert_eq!(left(&limiter, &TOKENS), 900);
    let unsettled = Running::start(&limiter.layer(&TOKENS).expose());
    assert!(Meter::from_extensions(&unsettled.extensions).is_none());
}

/// A request that a service sends again, as one that it keeps, has the extensions of the first.
#[test]
fn a_request_that_is_sent_again_gets_a_meter_of_its_own() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle();
    let seen = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&seen);
    let service = layer.layer(service_fn(move |request: Request<()>| {
        *keep.lock().unwrap() = Some(request.extensions().clone());
        Meter::from_extensions(request.extensions()).unwrap().add(30);
        std::future::ready(Ok::<_, &str>(Response::new(())))
    }));
    for round in 1..=3 {
        let mut request = Request::new(());
        *request.extensions_mut() = seen.lock().unwrap().take().unwrap_or_default();
        at_once(service.clone().oneshot(request)).unwrap();
        assert_eq!(left(&limiter, &TOKENS), 1_000 - 30 * round);
    }
}

// Rules, layers and shadows.

#[test]
fn only_limits_with_a_cost_are_metered() {
    let limiter = here();
    let layer = limiter.layer(Rule::new(&TOKENS).cost(100)).and(&CALLS).settle();
    let running = Running::start(&layer);
    running.meter().add(30);
    running.disconnects();
    assert_eq!((left(&limiter, &TOKENS), left(&limiter, &CALLS)), (970, 9));
}

#[test]
fn shadows_are_metered_as_well() {
    let limiter = here();
    let shadow = Rule::new(&OTHER).cost(200).shadow();
    let layer = limiter.layer(Rule::new(&TOKENS).cost(100)).and(shadow).settle();
    let running = Running::start(&layer);
    running.meter().add(30);
    running.disconnects();
    assert_eq!((left(&limiter, &TOKENS), left(&limiter, &OTHER)), (970, 970));
}

#[test]
fn nested_layers_are_settled_by_one_meter() {
    let end: [fn(Running); 2] = [Running::responds, Running::disconnects];
    for ends in end {
        let limiter = here();
        let inner = limiter.layer(&TOKENS).cost(100).settle();
        let between = limiter.layer(&CALLS);
        let outer = limiter.layer(&OTHER).cost(50).settle();
        let layers = tower::layer::layer_fn(move |handler: Handler| {
            outer.layer(between.layer(inner.layer(handler)))
        });
        let running = Running::start(&layers);
        let kept = running.meter();
        running.meter().add(30);
        ends(running);
        assert_eq!((left(&limiter, &TOKENS), left(&limiter, &OTHER)), (900, 950));
        kept.add(5);
        drop(kept);
        let lefts = [&TOKENS, &OTHER, &CALLS].map(|limit| left(&limiter, limit));
        assert_eq!(lefts, [965, 965, 9]);
    }
}

/// The outer layer has not got its response yet when the client goes.
#[test]
fn a_request_that_disconnects_between_two_layers_is_settled_by_both() {
    let limiter = here();
    let inner = limiter.layer(&TOKENS).cost(100).settle();
    let outer = limiter.layer(&OTHER).cost(50).settle();
    let layers = tower::layer::layer_fn(move |handler: Handler| {
        let inner = inner.layer(handler);
        outer.layer(service_fn(move |request: Request<()>| {
            let mut inner = inner.clone();
            async move {
                let response = inner.call(request).await?;
                pending::<()>().await;
                Ok::<_, &str>(response)
            }
        }))
    });
    let mut running = Running::start(&layers);
    running.meter().add(30);
    running.answer.send(Ok(Response::new(()))).unwrap();
    assert!(poll(&mut running.call).is_none());
    drop(running.call);
    assert_eq!((left(&limiter, &TOKENS), left(&limiter, &OTHER)), (970, 970));
}

#[test]
fn refunds_and_resets_take_precedence_over_the_meter() {
    let refunding = Rule::new(&TOKENS).cost(100).refund_if(|head| head.is_success());
    let resetting = Rule::new(&TOKENS).cost(100).reset_if(|head| head.is_success());
    for rule in [refunding, resetting] {
        let limiter = here();
        let layer = limiter.layer(rule).settle();
        let running = Running::start(&layer);
        running.meter().add(30);
        running.responds();
        assert_eq!(left(&limiter, &TOKENS), 1_000);
        // There is no response that could say so.
        let running = Running::start(&layer);
        running.meter().add(30);
        running.disconnects();
        assert_eq!(left(&limiter, &TOKENS), 970);
    }
}

#[test]
fn requests_without_a_limit_have_a_meter() {
    let limiter = here();
    let exempt = Rule::new(&TOKENS).key(header("x-absent")).missing_key_exempt();
    let running = Running::start(&limiter.layer(exempt).settle().refund_dropped());
    running.meter().add(30);
    running.disconnects();
    assert_eq!(left(&limiter, &TOKENS), 1_000);
}

// Refunds of dropped requests.

#[test]
fn a_dropped_request_costs_nothing_if_the_layer_refunds_it() {
    let limiter = here();
    let shadow = Rule::new(&OTHER).cost(200).shadow();
    let rules = || limiter.layer(Rule::new(&TOKENS).cost(100)).and(&CALLS).and(shadow.clone());
    let lefts = || [&TOKENS, &CALLS, &OTHER].map(|limit| left(&limiter, limit));
    for layer in [rules().refund_dropped(), rules().settle().refund_dropped()] {
        let running = Running::start(&layer);
        assert_eq!(lefts(), [900, 9, 800]);
        running.disconnects();
        assert_eq!(lefts(), [1_000, 10, 1_000]);
    }
    // The count of the meter does not matter, even if a task still counts.
    let running = Running::start(&rules().settle().refund_dropped());
    let kept = running.meter();
    kept.add(30);
    running.disconnects();
    assert_eq!(lefts(), [1_000, 10, 1_000]);
    drop(kept);
    assert_eq!(lefts(), [1_000, 10, 1_000]);
}

#[test]
fn a_request_with_a_response_was_not_dropped() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle().refund_dropped();
    Running::start(&layer).responds();
    assert_eq!(left(&limiter, &TOKENS), 900);
    // The client goes away in the middle of the stream.
    let running = Running::start(&layer);
    let stream = running.meter();
    stream.add(30);
    running.responds();
    drop(stream);
    assert_eq!(left(&limiter, &TOKENS), 870);
}

/// The bucket does not get tokens back that it has refilled in the meantime.
#[test]
fn the_refund_of_a_late_disconnect_is_reduced_by_the_refill() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let running = Running::start(&limiter.layer(&TOKENS).cost(900).refund_dropped());
    clock.advance(MINUTE);
    at_once(limiter.limit(&TOKENS).cost(400)).unwrap();
    assert_eq!(left(&limiter, &TOKENS), 600);
    running.disconnects();
    assert_eq!(left(&limiter, &TOKENS), 600);
}

#[test]
fn a_permit_settled_by_the_handler_is_neither_metered_nor_refunded() {
    for is_refunding in [false, true] {
        let limiter = here();
        let layer = limiter.layer(&TOKENS).cost(100).settle().expose();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let admission = |running: &Running| running.extensions.get::<Admission>().cloned().unwrap();
        let running = Running::start(&layer);
        running.meter().add(30);
        at_once(admission(&running).settle(60)).unwrap();
        running.disconnects();
        assert_eq!(left(&limiter, &TOKENS), 940);
        // The holder of the permit settles it.
        let running = Running::start(&layer);
        running.meter().add(30);
        let permit = admission(&running).permit().unwrap();
        running.disconnects();
        assert_eq!(left(&limiter, &TOKENS), 840);
        at_once(permit.settle(10)).unwrap();
        assert_eq!(left(&limiter, &TOKENS), 930);
    }
}

#[test]
fn extra_charges_of_a_handler_are_metered_with_the_rest() {
    let limiter = here();
    let running = Running::start(&limiter.layer(&TOKENS).cost(100).settle().expose());
    let admission = running.extensions.get::<Admission>().cloned().unwrap();
    at_once(admission.charge(300)).unwrap();
    running.meter().add(250);
    running.disconnects();
    // Also where a task still holds what the handler was shown.
    assert_eq!(left(&limiter, &TOKENS), 750);
    drop(admission);
}

/// Without a cost there is nothing that the layer would settle.
#[test]
fn a_task_may_settle_after_the_response_without_a_meter() {
    let limiter = here();
    let running = Running::start(&limiter.layer(&TOKENS).cost(100).settle().expose());
    let admission = running.extensions.get::<Admission>().cloned().unwrap();
    running.responds();
    at_once(admission.settle(70)).unwrap();
    assert_eq!(left(&limiter, &TOKENS), 930);
}

// Panics.

/// Whether a layer outside catches it, or it ends the task.
#[test]
fn a_service_that_panics_has_failed() {
    let limiter = here();
    let layer = limiter.layer(&TOKENS).cost(100).settle().refund_dropped();
    let panicking = |counted: Option<u64>, is_caught: bool| {
        let mut service = layer.layer(service_fn(move |request: Request<()>| async move {
            if let Some(counted) = counted {
                Meter::from_extensions(request.extensions()).unwrap().add(counted);
            }
            if request.method() == Method::GET {
                panic!("it panics");
            }
            Ok::<_, &str>(Response::new(()))
        }));
        // No `async` block around it, which would drop it while it panics.
        let mut call = Box::pin(service.call(Request::new(())));
        let caught = match is_caught {
            // The future is dropped later.
            true => catch_unwind(AssertUnwindSafe(|| poll(&mut call))),
            false => catch_unwind(AssertUnwindSafe(move || poll(&mut { call }))),
        };
        assert!(caught.is_err());
    };
    for (round, is_caught) in (1..).zip([true, false]) {
        panicking(Some(30), is_caught);
        panicking(None, is_caught);
        assert_eq!(left(&limiter, &TOKENS), 1_000 - 130 * round);
    }
    let mut service = layer.layer(service_fn(|_: Request<()>| -> std::future::Ready<Answer> {
        panic!("before there is a future")
    }));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(service.call(Request::new(()))))).is_err());
    assert_eq!(left(&limiter, &TOKENS), 640);
}

/// Its request has run, whether it has waited or not.
#[tokio::test(start_paused = true)]
async fn a_service_that_panics_when_it_is_called_keeps_what_its_request_took() {
    static SPACED: Limit =
        Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(10).max_reserved(100));
    let limiter = paused();
    let layer = limiter.layer(&SPACED).cost(10).settle().refund_dropped().queue(20 * SECOND);
    let service = layer.layer(service_fn(|request: Request<()>| -> std::future::Ready<Answer> {
        Meter::from_extensions(request.extensions()).unwrap().add(6);
        panic!("before there is a future")
    }));
    for left in [4.0, 4.0] {
        let panicked = tokio::spawn(service.clone().oneshot(Request::new(()))).await.unwrap_err();
        assert!(panicked.is_panic());
        assert_eq!(tokens(&limiter, &SPACED).round(), left);
    }
}

// Queues, timeouts, stores that answer later.

#[tokio::test(start_paused = true)]
async fn a_dropped_request_gives_its_slot_up_before_its_turn_and_is_settled_after_it() {
    static SPACED: Limit =
        Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(10).max_reserved(100));
    for (is_refunding, wanted) in [(false, [2.0, 4.0]), (true, [10.0, 10.0])] {
        let limiter = paused();
        let layer = limiter.layer(&SPACED).cost(10).settle().queue(20 * SECOND);
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let (runs, mut started) = mpsc::unbounded_channel();
        let service = layer.layer(service_fn(move |request: Request<u8>| {
            let meter = Meter::from_extensions(request.extensions()).unwrap();
            meter.add(8);
            runs.send(request.into_body()).unwrap();
            async move {
                let _counts = meter;
                pending::<Answer>().await
            }
        }));
        let mut calls: Vec<_> =
            (0..3).map(|name| Box::pin(service.clone().oneshot(Request::new(name)))).collect();
        calls.iter_mut().for_each(ask);
        assert_eq!((started.recv().await, tokens(&limiter, &SPACED)), (Some(0), -20.0));
        let last = calls.remove(2);
        // It waits, and has nothing but its place.
        drop(calls.remove(1));
        assert_eq!(tokens(&limiter, &SPACED), -10.0);
        // It runs after it has waited.
        let last = tokio::spawn(last);
        assert_eq!((started.recv().await, tokens(&limiter, &SPACED).round()), (Some(2), 0.0));
        last.abort();
        settled().await;
        let after_last = tokens(&limiter, &SPACED).round();
        // It has not waited.
        drop(calls);
        assert_eq!([after_last, tokens(&limiter, &SPACED).round()], wanted);
    }
}

/// Polls a request for the first time.
#[track_caller]
fn ask<F: Future>(call: &mut Pin<Box<F>>) {
    let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it runs or waits");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_outside_of_the_layer_drops_the_request() {
    for (is_refunding, wanted) in [(false, 970.0), (true, 1_000.0)] {
        let limiter = paused();
        let layer = limiter.layer(&TOKENS).cost(100).settle();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let service = layer.layer(service_fn(async |request: Request<()>| {
            let meter = Meter::from_extensions(request.extensions()).unwrap();
            meter.add(30);
            tokio::time::sleep(MINUTE).await;
            meter.add(500);
            Ok::<_, &str>(Response::new(()))
        }));
        let timed = tokio::time::timeout(ms(1), service.oneshot(Request::new(()))).await;
        assert!(timed.is_err());
        assert_eq!(tokens(&limiter, &TOKENS).floor(), wanted);
    }
}

/// Counts 30, and never ends.
async fn counts_30(request: Request<()>) -> Answer {
    let meter = Meter::from_extensions(request.extensions()).unwrap();
    meter.add(30);
    pending().await
}

#[tokio::test(start_paused = true)]
async fn a_later_store_gets_the_settlement_of_a_dropped_request() {
    for (is_refunding, wanted) in [(false, 970.0), (true, 1_000.0)] {
        let (late, limiter, past) = Late::new();
        let layer = limiter.layer(&TOKENS).cost(100).settle();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let mut call = Box::pin(layer.layer(service_fn(counts_30)).oneshot(Request::new(())));
        for _ in 0..10 {
            ask(&mut call);
            tokio::task::yield_now().await;
        }
        let held = late.close();
        drop(call);
        settled().await;
        assert_eq!(tokens(&past, &TOKENS), 900.0, "the store has not got the settlement yet");
        held.let_go();
        settled().await;
        assert_eq!(tokens(&past, &TOKENS), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_before_the_store_has_answered_is_refunded() {
    for (is_refunding, wanted) in [(false, 900.0), (true, 1_000.0)] {
        let (late, limiter, past) = Late::new();
        let layer = limiter.layer(&TOKENS).cost(100).settle();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let held = late.close();
        let mut call = Box::pin(layer.layer(service_fn(counts_30)).oneshot(Request::new(())));
        ask(&mut call);
        drop(call);
        held.let_go();
        late.open();
        settled().await;
        assert_eq!(tokens(&past, &TOKENS), wanted);
    }
}

/// It was part of no ledger, so neither a refund nor a settlement gave it back.
#[tokio::test(start_paused = true)]
async fn a_charge_of_a_handler_that_is_dropped_before_its_answer_comes_back() {
    for (is_refunding, wanted) in [(false, 900.0), (true, 1_000.0)] {
        let (late, limiter, past) = Late::new();
        let layer = limiter.layer(&TOKENS).cost(100).settle().expose();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let (gate, mut held) = mpsc::unbounded_channel();
        let service = layer.layer(service_fn(move |request: Request<()>| {
            let admission = request.extensions().get::<Admission>().unwrap().clone();
            gate.send(late.close()).unwrap();
            async move {
                admission.charge(500).await.unwrap();
                pending::<Answer>().await
            }
        }));
        let mut call = Box::pin(service.oneshot(Request::new(())));
        ask(&mut call);
        let held = held.recv().await.unwrap();
        assert_eq!(tokens(&past, &TOKENS), 400.0, "the store has taken it");
        drop(call);
        held.let_go();
        settled().await;
        // What was taken up front is given back through the same gate.
        settled().await;
        assert_eq!(tokens(&past, &TOKENS), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_its_shadow_is_decided_is_refunded() {
    for (is_refunding, wanted) in [(false, [900.0, 800.0]), (true, [1_000.0, 1_000.0])] {
        let (late, limiter, past) = Late::new();
        let shadow = Rule::new(&OTHER).cost(200).shadow();
        let layer = limiter.layer(Rule::new(&TOKENS).cost(100)).and(shadow);
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let mut call = Box::pin(layer.layer(service_fn(counts_30)).call(Request::new(())));
        let held = late.close();
        ask(&mut call);
        let lefts = || [&TOKENS, &OTHER].map(|limit| tokens(&past, limit));
        assert_eq!(lefts(), [900.0, 800.0]);
        drop(call);
        held.let_go();
        late.open();
        settled().await;
        assert_eq!(lefts(), wanted);
    }
}

/// A request that has waited runs before the store has decided about its shadow.
#[tokio::test(start_paused = true)]
async fn a_shadow_that_is_decided_after_its_request_was_dropped_is_refunded() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(10, SECOND).capacity(0));
    let (late, limiter, past) = Late::new();
    let shadow = Rule::new(&OTHER).cost(200).shadow();
    let layer = limiter.layer(&SPACED).and(shadow).queue(SECOND).settle().refund_dropped();
    let mut call = Box::pin(layer.layer(service_fn(counts_30)).oneshot(Request::new(())));
    ask(&mut call);
    let held = late.close();
    tokio::time::advance(ms(101)).await;
    ask(&mut call);
    assert_eq!(tokens(&past, &OTHER), 800.0);
    drop(call);
    settled().await;
    held.let_go();
    late.open();
    settled().await;
    assert_eq!(tokens(&past, &OTHER), 1_000.0);
}

/// Outside of a runtime, no task can wait for the store.
#[test]
fn dropped_outside_of_a_runtime_a_request_keeps_its_estimate_in_a_store_that_answers_later() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (past, call) = runtime.block_on(async {
        let (_late, limiter, past) = Late::new();
        let layer = limiter.layer(&TOKENS).cost(100).settle().refund_dropped();
        let mut call = Box::pin(layer.layer(service_fn(counts_30)).oneshot(Request::new(())));
        for _ in 0..10 {
            ask(&mut call);
            tokio::task::yield_now().await;
        }
        (past, call)
    });
    drop(call);
    let left = runtime.block_on(async {
        settled().await;
        tokens(&past, &TOKENS)
    });
    assert_eq!(left, 900.0);
}

// Once, and not twice.

#[test]
fn requests_that_disconnect_at_the_same_time_are_settled_once() {
    for is_refunding in [false, true] {
        let limiter = here();
        let layer = limiter.layer(&TOKENS).cost(100).settle().expose();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        for round in 0..times(1_000, 250) {
            let running = Running::start(&layer);
            let (one, other) = (running.meter(), running.meter());
            let admission = running.extensions.get::<Admission>().cloned().unwrap();
            let (is_answered, is_settled) = (round % 2 == 0, round % 4 > 1);
            let all = Barrier::new(4);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    all.wait();
                    one.add(3);
                    drop(one);
                });
                scope.spawn(|| {
                    all.wait();
                    other.add(4);
                    drop(other);
                });
                scope.spawn(|| {
                    all.wait();
                    if is_settled {
                        at_once(admission.settle(60)).unwrap();
                    }
                });
                all.wait();
                if is_answered { running.responds() } else { running.disconnects() }
            });
            let by_layer = if is_refunding && !is_answered { 1_000 } else { 993 };
            let left = left(&limiter, &TOKENS);
            let is_right = left == by_layer || is_settled && left == 940;
            assert!(is_right, "{left} are left in round {round}");
            at_once(limiter.reset(&TOKENS)).unwrap();
        }
    }
}

/// Meters that are taken, count, settle and are dropped in any order, before and after the end.
#[test]
fn a_metered_request_is_settled_once_in_any_order() {
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let (limiter, is_refunding) = (here(), dice.below(2) == 0);
        let layer = limiter.layer(&TOKENS).cost(100).settle();
        let layer = if is_refunding { layer.refund_dropped() } else { layer };
        let mut running = Some(Running::start(&layer));
        let (mut meters, mut counted, mut said) = (Vec::new(), None, None);
        let mut is_free = false;
        while running.is_some() || !meters.is_empty() {
            let which = dice.below(8);
            let taken = |meters: &mut Vec<Meter>, dice: &mut Dice| {
                let some = usize::try_from(dice.below(meters.len() as u64)).unwrap();
                meters.swap_remove(some)
            };
            match (which, running.take()) {
                (0, Some(ending)) => ending.responds(),
                (1, Some(ending)) => assert!(ending.ends(Err("gone")).is_err()),
                (2, Some(ending)) => {
                    ending.disconnects();
                    is_free = is_refunding;
                }
                (3, Some(still)) => {
                    meters.push(still.meter());
                    counted.get_or_insert(0);
                    running = Some(still);
                }
                (step, still) if !meters.is_empty() => {
                    let meter = taken(&mut meters, &mut dice);
                    let tokens = dice.below(200);
                    match step {
                        4 => {
                            meter.settle(tokens);
                            said.get_or_insert(tokens);
                        }
                        5 => drop(meter),
                        6 => meters.extend([meter.clone(), meter]),
                        _ => {
                            meter.add(tokens);
                            counted = counted.map(|all: u64| all + tokens);
                            meters.push(meter);
                        }
                    }
                    running = still;
                }
                (_, still) => running = still,
            }
            let left = left(&limiter, &TOKENS);
            let cost = if is_free { 0 } else { said.or(counted).unwrap_or(100) };
            let is_over = running.is_none() && (meters.is_empty() || said.is_some() || is_free);
            let wanted = if is_over { 1_000_u64.checked_sub(cost) } else { Some(900) };
            // More than all is a debt, of which there are no whole tokens left.
            assert_eq!(left, wanted.unwrap_or(0), "seed {seed}");
        }
    }
}

// In axum.

fn app<H, T>(layer: impl Into<RateLimitLayer<Vec<Rule>>>, handler: H) -> Router
where
    H: axum::handler::Handler<T, ()>,
    T: 'static,
{
    Router::new().route("/", post(handler).rate_limit(layer))
}

async fn send(app: Router) -> Reply {
    Reply::read(app.oneshot(Request::post("/").body(Body::empty()).unwrap()).await.unwrap()).await
}

#[tokio::test]
async fn without_settle_the_extractor_says_what_is_missing() {
    let limiter = here();
    let unsettled = app(limiter.layer(&TOKENS).expose(), async |_: Meter| "counted");
    let reply = send(unsettled).await;
    assert_eq!(reply.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(!reply.body.contains("settle"), "the client is told nothing: {}", reply.body);
    let maybe = async |meter: Option<Meter>| meter.is_some().to_string();
    for (layer, seen) in
        [(limiter.layer(&TOKENS), "false"), (limiter.layer(&TOKENS).settle(), "true")]
    {
        assert_eq!(send(app(layer, maybe)).await.body, seen);
    }
}

#[tokio::test]
async fn layers_around_a_handler_can_count_as_well() {
    let limiter = here();
    let handler = async |meter: Meter| {
        meter.add(20);
        "counted"
    };
    let counting = async |meter: Meter, request: AxumRequest, next: Next| {
        meter.add(10);
        drop(meter);
        let response = next.run(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        response
    };
    let layer = limiter.layer(&TOKENS).cost(100).settle();
    let inner = Router::new().route("/", post(handler)).layer(from_fn(counting));
    assert_eq!(send(inner.layer(layer)).await.body, "counted");
    assert_eq!(left(&limiter, &TOKENS), 970);
}
