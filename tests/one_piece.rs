//! The limiter decides by its own store in one piece, and by any other step by step: nobody can tell
//! which.

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use http::{Request, Response};
use proptest::prelude::*;
use support::{START, at_once, store};
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::limiter::Permit;
use tollgate::middleware::ActualCost;
use tollgate::{Decision, HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND};
use tower::{Layer, ServiceExt};

static LIMITS: [Limit; 6] = [
    Limit::new("bucket", Quota::token_bucket(3, SECOND)),
    Limit::new("window", Quota::fixed_window(4, MINUTE)),
    Limit::new("patient", Quota::token_bucket(2, SECOND).max_reserved(5)),
    Limit::new("nothing-saved", Quota::token_bucket(7, HOUR).capacity(0)),
    Limit::new("no-debt", Quota::fixed_window(2, SECOND).max_reserved(0)),
    Limit::new("late", Quota::token_bucket(5, SECOND).initial(1)),
];

#[derive(Clone, Copy, Debug)]
enum Wish {
    Take,
    Look,
    Reserve(Option<Duration>),
    /// By the only limit of several.
    All,
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
        1 => Just(Wish::Look),
        1 => Just(Wish::Reserve(None)),
        1 => (0_u64..3_000).prop_map(|millis| Wish::Reserve(Some(Duration::from_millis(millis)))),
        1 => Just(Wish::All),
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

/// All that can be seen of a step.
fn told(limiter: &RateLimiter, step: &Step) -> String {
    let limit = &LIMITS[step.limit];
    let decision = match step.wish {
        Wish::Look => {
            let mut call = limiter.check(limit);
            call = step.key.map_or(call.clone(), |key| call.key(key));
            at_once(step.cost.map_or(call.clone(), |cost| call.cost(cost)))
        }
        Wish::All => {
            let mut call = limiter.all().limit(limit);
            call = step.key.map_or(call.clone(), |key| call.key(key));
            at_once(step.cost.map_or(call.clone(), |cost| call.cost(cost)))
        }
        Wish::Take | Wish::Reserve(_) => {
            let mut call = limiter.limit(limit);
            call = step.key.map_or(call.clone(), |key| call.key(key));
            call = step.cost.map_or(call.clone(), |cost| call.cost(cost));
            at_once(match step.wish {
                Wish::Reserve(None) => call.reserve(),
                Wish::Reserve(Some(most)) => call.reserve_within(most),
                _ => call,
            })
        }
    };
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => return format!("{error} {error:?}"),
    };
    match decision {
        Decision::Admitted(permit) => admitted(permit, step.after),
        Decision::Refused(refusal) => {
            let owned = refusal.clone().into_owned();
            format!("{refusal:?} {:?} {owned:?}", refusal.retry_after())
        }
        Decision::Reserved(reservation) => {
            let told = format!("{:?} {:?}", reservation.at(), reservation.standing());
            match step.after {
                // Given up.
                After::Drop => told,
                after => told + &admitted(reservation.keep(), after),
            }
        }
        other => format!("{other:?}"),
    }
}

fn admitted(permit: Permit<'_>, after: After) -> String {
    let told = format!("{permit:?} {} {:?}", permit.remaining(), permit.standing());
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

/// The store as the limiter knows it, and one that it knows nothing of.
fn both(clock: &ManualClock) -> [RateLimiter; 2] {
    let in_one_piece = RateLimiter::new(Memory::new().clock(clock.clone()));
    let (_, step_by_step) = store(Memory::new(), clock);
    [in_one_piece, step_by_step]
}

#[test]
fn a_call_takes_nothing_before_it_is_polled_nor_after_it_was_answered() {
    for limiter in both(&ManualClock::new(START)) {
        let [take, look, owe] = [&LIMITS[0], &LIMITS[1], &LIMITS[2]];
        let left = |limit| at_once(limiter.value(limit)).unwrap().tokens().to_string();
        let before = LIMITS.each_ref().map(left);
        drop((limiter.limit(take), limiter.limit(take).into_future()));
        assert_eq!(LIMITS.each_ref().map(left), before);

        let mut calls = [
            limiter.limit(take).cost(2).into_future(),
            limiter.limit(take).cost(2).into_future(),
            limiter.limit(take).cost(9).into_future(),
            limiter.check(look).into_future(),
            limiter.limit(owe).cost(3).reserve().into_future(),
        ];
        let answers = calls.each_mut().map(at_once);
        let after = LIMITS.each_ref().map(left);
        assert_eq!(after[..3], ["1", "4", "-1"]);
        for call in &mut calls {
            let again = Pin::new(&mut *call).poll(&mut Context::from_waker(Waker::noop()));
            assert!(again.is_pending() && format!("{call:?}").contains("asked: true"));
        }
        assert_eq!(LIMITS.each_ref().map(left), after);
        let told = answers.each_ref().map(|answer| answer.as_ref().map(Decision::is_admitted).ok());
        assert_eq!(told, [Some(true), Some(false), None, Some(true), Some(false)]);
    }
}

proptest! {
    #[test]
    fn a_limiter_decides_the_same_by_its_own_store_and_by_any_other(steps in steps()) {
        let clock = ManualClock::new(START);
        let [own, other] = both(&clock);
        for step in &steps {
            clock.advance(Duration::from_micros(step.pause));
            prop_assert_eq!(told(&own, step), told(&other, step), "{:?}", step);
            for limit in &LIMITS {
                let [own, other] = [&own, &other]
                    .map(|limiter| format!("{:?}", at_once(limiter.value(limit).key(0_u64))));
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
                head.headers()["x-cost"].to_str().ok().and_then(|cost| cost.parse().ok()).unwrap_or(1)
            });
            if !is_told {
                layer = layer.dialects(Dialect::None);
            }
            if settles {
                layer = layer.settle();
            }
            layer.layer(tower::service_fn(async |request: Request<u64>| {
                let mut response = Response::new(());
                response.extensions_mut().insert(ActualCost::of(*request.body()));
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
