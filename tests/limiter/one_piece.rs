//! The limiter decides on its own store in one step, and on any other store step by step. Both ways
//! give the same answers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use proptest::prelude::*;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::middleware::ActualCost;
use tollgate::{HOUR, Limit, MINUTE, Permit, Quota, RateLimiter, Reservation, SECOND};
use tollgate_testing::queue::{Late, settled};
use tollgate_testing::{START, at_once};
use tower::{Layer, ServiceExt};

static LIMITS: [Limit; 7] = [
    Limit::new("bucket", Quota::token_bucket(3, SECOND)),
    Limit::new("window", Quota::fixed_window(4, MINUTE)),
    Limit::new("patient", Quota::token_bucket(2, SECOND).max_reserved(5)),
    Limit::new("nothing-saved", Quota::token_bucket(7, HOUR).capacity(0)),
    Limit::new("no-debt", Quota::fixed_window(2, SECOND).max_reserved(0)),
    Limit::new("late", Quota::token_bucket(5, SECOND).initial(1)),
    Limit::new("shards", Quota::token_bucket(9, SECOND).shards(3)),
];

#[derive(Clone, Copy, Debug)]
enum Wish {
    Take,
    Peek,
    Reserve(Option<Duration>),
    /// A list of two limits, of which the other always has tokens.
    Both,
    /// A list of three, the first two of which may be the same.
    Three(usize),
}

#[derive(Clone, Copy, Debug)]
enum After {
    Drop,
    Own,
    Settle(u64),
    SettleOwned(u64),
    Refund,
    Keep,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    limit: usize,
    key: Option<u64>,
    cost: Option<u64>,
    wish: Wish,
    after: After,
    pause: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wishes = prop_oneof![
        4 => Just(Wish::Take),
        1 => Just(Wish::Peek),
        1 => Just(Wish::Reserve(None)),
        1 => (0_u64..3_000).prop_map(|millis| Wish::Reserve(Some(Duration::from_millis(millis)))),
        1 => Just(Wish::Both),
        2 => (0..LIMITS.len()).prop_map(Wish::Three),
    ];
    let afters = prop_oneof![
        2 => Just(After::Drop),
        1 => Just(After::Own),
        1 => (0_u64..9).prop_map(After::Settle),
        1 => prop_oneof![0_u64..9, Just(u64::MAX)].prop_map(After::SettleOwned),
        1 => Just(After::Refund),
        1 => Just(After::Keep),
    ];
    let costs = prop_oneof![6 => 0_u64..6, 1 => Just(u64::MAX)];
    let pauses = prop_oneof![Just(0_u64), 0_u64..900_000, 0_u64..70_000_000];
    let step = (
        0..LIMITS.len(),
        prop::option::of(0_u64..2),
        prop::option::of(costs),
        wishes,
        afters,
        pauses,
    );
    let step = step.prop_map(|(limit, key, cost, wish, after, pause)| Step {
        limit,
        key,
        cost,
        wish,
        after,
        pause,
    });
    prop::collection::vec(step, 1..60)
}

/// Always has a token.
static OPEN: Limit = Limit::new("open", Quota::token_bucket(1_000_000, HOUR));

/// All that a caller can see of a step.
fn outcome(limiter: &RateLimiter, step: &Step) -> String {
    let limit = &LIMITS[step.limit];
    let told = match step.wish {
        Wish::Peek => {
            let mut call = limiter.peek(limit);
            if let Some(key) = step.key {
                call = call.key(key);
            }
            if let Some(cost) = step.cost {
                call = call.cost(cost);
            }
            at_once(call).map(|seen| format!("{seen:?}"))
        }
        Wish::Take | Wish::Reserve(_) | Wish::Both | Wish::Three(_) => {
            let mut call = limiter.limit(limit);
            if let Some(key) = step.key {
                call = call.key(key);
            }
            if let Some(cost) = step.cost {
                call = call.cost(cost);
            }
            match step.wish {
                Wish::Reserve(None) => at_once(call.reserve()).map(|own| reserved(own, step.after)),
                Wish::Reserve(Some(most)) => {
                    at_once(call.reserve_within(most)).map(|own| reserved(own, step.after))
                }
                Wish::Both => at_once(call.and(&OPEN)).map(|permit| admitted(permit, step.after)),
                Wish::Three(other) => {
                    let call = call.and(&LIMITS[other]).key(0_u64).and(&OPEN);
                    at_once(call).map(|permit| admitted(permit, step.after))
                }
                _ => at_once(call).map(|permit| admitted(permit, step.after)),
            }
        }
    };
    told.unwrap_or_else(|error| {
        format!("{error} {error:?} {:?} {:?}", error.retry_after(), error.snapshots())
    })
}

fn reserved(own: Reservation, after: After) -> String {
    let told = format!("{:?} {:?} {:?}", own.at(), own.wait(), own.snapshot());
    match after {
        // Given up.
        After::Drop => told,
        after => told + &admitted(own.keep(), after),
    }
}

fn admitted(permit: Permit<'_>, after: After) -> String {
    let told = format!("{permit:?} {} {:?}", permit.remaining(), permit.snapshot());
    match after {
        After::Drop | After::Keep => told,
        After::Own => format!("{told} {:?}", permit.into_owned()),
        After::Settle(cost) => format!("{told} {:?}", at_once(permit.settle(cost))),
        After::SettleOwned(cost) => {
            format!("{told} {:?}", at_once(permit.into_owned().settle(cost)))
        }
        After::Refund => format!("{told} {:?}", at_once(permit.refund())),
    }
}

/// A store that the limiter does not know to be in this process.
#[derive(Debug)]
struct Foreign(Memory);

impl Backend for Foreign {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        self.0.apply(charges)
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        self.0.adjust(adjustments)
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.0.reset(ids)
    }
}

/// A limiter on the store that it knows, and one on a store that it knows nothing of.
fn both(clock: &ManualClock) -> [RateLimiter; 2] {
    let memory = || Memory::new().clock(clock.clone());
    // With one seed, both draw the same shards.
    [RateLimiter::new(memory()), RateLimiter::new(Foreign(memory()))].map(|limiter| limiter.seed(1))
}

/// A call that was answered does not ask again.
#[track_caller]
fn assert_answered<C: Future + Unpin + std::fmt::Debug>(call: &mut C) {
    assert!(poll_once(call).is_none());
    assert!(format!("{call:?}").contains(r#"progress: "answered""#), "{call:?}");
}

fn poll_once<C: Future + Unpin>(call: &mut C) -> Option<C::Output> {
    match Pin::new(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// What the call asked for before stays taken, and its answer is ignored.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_changed_after_a_poll_asks_again() {
    let (late, limiter, past) = Late::new();
    let left = |key: &str| at_once(past.peek(&LIMITS[0]).key(key)).unwrap().remaining();
    let gate = late.close();

    let mut call = limiter.limit(&LIMITS[0]).key("a").cost(2);
    assert!(poll_once(&mut call).is_none());
    assert_eq!((left("a"), left("b")), (1, 3));
    let mut call = call.key("b");
    assert!(format!("{call:?}").contains("not asked yet"), "{call:?}");
    assert!(poll_once(&mut call).is_none());
    assert_eq!((left("a"), left("b")), (1, 1));
    let mut call = call.cost(1).and(&LIMITS[1]);
    assert!(poll_once(&mut call).is_none());
    assert_eq!((left("a"), left("b")), (1, 0));

    let mut peek = limiter.peek(&LIMITS[0]).key("a");
    assert!(poll_once(&mut peek).is_none());
    let peek = peek.key("b").cost(2);

    gate.let_go();
    let permit = call.await.unwrap();
    let told: Vec<_> = permit.snapshots().map(|one| (one.cost(), one.remaining())).collect();
    assert_eq!(told, [(1, 0), (1, 3)]);
    let seen = peek.await.unwrap();
    assert_eq!((seen.cost(), seen.remaining(), seen.fits()), (2, 0, false));

    // A reserve call that is changed gives up what it had reserved before.
    let gate = late.close();
    let mut reserve = limiter.limit(&LIMITS[2]).key("a").cost(2).reserve();
    assert!(poll_once(&mut reserve).is_none());
    let reserve = reserve.jitter(Duration::ZERO);
    gate.let_go();
    settled().await;
    assert_eq!(at_once(past.peek(&LIMITS[2]).key("a")).unwrap().remaining(), 2);
    assert_eq!(reserve.await.unwrap().wait(), Duration::ZERO);
}

#[test]
fn a_call_takes_nothing_before_it_is_polled_nor_after_it_was_answered() {
    for limiter in both(&ManualClock::new(START)) {
        let [take, look, owe] = [&LIMITS[0], &LIMITS[1], &LIMITS[2]];
        let left = |limit| at_once(limiter.peek(limit)).unwrap().tokens().to_string();
        let before = LIMITS.each_ref().map(left);
        drop((limiter.limit(take), limiter.limit(take).and(look), limiter.peek(take)));
        drop((limiter.limit(owe).cost(3).reserve(), limiter.reset(take)));
        drop((limiter.penalize(take, 2), limiter.block(take, HOUR)));
        assert_eq!(LIMITS.each_ref().map(left), before);

        let mut takes = [2, 2, 9].map(|cost| limiter.limit(take).cost(cost));
        let mut peek = limiter.peek(look);
        let mut reserve = limiter.limit(owe).cost(3).reserve();
        let answers = takes.each_mut().map(at_once);
        let [Ok(_), Err(refused), Err(too_large)] = &answers else { panic!("{answers:?}") };
        assert!(refused.is_refused() && too_large.is_too_large());
        let seen = at_once(&mut peek).unwrap();
        let owed = at_once(&mut reserve).unwrap();
        assert!(seen.fits() && owed.wait() > Duration::ZERO);
        let after = LIMITS.each_ref().map(left);
        assert_eq!(after[..3], ["1", "4", "-1"]);
        takes.iter_mut().for_each(assert_answered);
        assert_answered(&mut peek);
        assert_answered(&mut reserve);
        assert_eq!(LIMITS.each_ref().map(left), after);
    }
}

proptest! {
    #[test]
    fn a_limiter_decides_the_same_by_its_own_store_and_by_any_other(steps in steps()) {
        let clock = ManualClock::new(START);
        let [own, other] = both(&clock);
        for step in &steps {
            clock.advance(Duration::from_micros(step.pause));
            prop_assert_eq!(outcome(&own, step), outcome(&other, step), "{:?}", step);
            for limit in &LIMITS {
                let [own, other] = [&own, &other]
                    .map(|limiter| format!("{:?}", at_once(limiter.peek(limit).key(0_u64))));
                prop_assert_eq!(own, other);
            }
        }
    }

    #[test]
    fn a_layer_decides_the_same_by_its_own_store_and_by_any_other(
        requests in prop::collection::vec((0_u64..2, 0_u64..6, 0_u64..900_000, 0_u64..6), 1..40),
        limit in 0..LIMITS.len(),
        is_told: bool,
        settles: bool,
    ) {
        let clock = ManualClock::new(START);
        let services = both(&clock).map(|limiter| {
            let mut layer = limiter.layer(&LIMITS[limit]).key(header("x-user"));
            layer = layer.cost_with(|head| {
                let cost = head.headers()["x-cost"].to_str().ok();
                cost.and_then(|cost| cost.parse().ok()).unwrap_or(1)
            });
            if !is_told {
                layer = layer.dialects(Dialect::None);
            }
            if settles {
                layer = layer.settle();
            }
            layer.layer(tower::service_fn(async |request: Request<u64>| {
                let mut response = Response::new(());
                response.extensions_mut().insert(ActualCost::new(*request.body()));
                Ok::<_, Infallible>(response)
            }))
        });
        for (user, cost, pause, actual) in requests {
            clock.advance(Duration::from_micros(pause));
            let [own, other] = services.each_ref().map(|service| {
                let request = Request::builder().header("x-user", user).header("x-cost", cost);
                let response = at_once(service.clone().oneshot(request.body(actual).unwrap()));
                let (parts, body) = response.unwrap().into_parts();
                let _ = body;
                format!("{:?} {:?}", parts.status, parts.headers)
            });
            prop_assert_eq!(own, other);
        }
    }
}
