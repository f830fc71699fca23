//! Layers whose limits get other numbers while they serve.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::middleware::{ActualCost, Queue};
use tollgate::{HOUR, Limit, MINUTE, OnRefusal, Quota, RateLimitLayer, RateLimiter, Rule, SECOND};
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;
use tollgate_testing::queue::{ms, paused};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, at_once, limiter};
use tower::{Layer, ServiceExt, service_fn};

type Rules = RateLimitLayer<Vec<Rule>>;

type Limits = [Limit; 3];

/// Sends a request of a user to a handler that says what it has cost, and whether it failed.
async fn ask(layer: &Rules, user: u64, cost: u64, status: u16) -> Reply {
    let inner = service_fn(async |request: Request<()>| {
        let number = |name| request.headers()[name].to_str().unwrap().parse::<u16>().unwrap();
        let mut response = Response::new(Full::<Bytes>::from("hello"));
        response.extensions_mut().insert(ActualCost::new(number("x-cost").into()));
        *response.status_mut() = StatusCode::from_u16(number("x-status")).unwrap();
        Ok::<_, Infallible>(response)
    });
    let request = Request::builder().header("x-user", user).header("x-cost", cost);
    let request = request.header("x-status", status).body(()).unwrap();
    Reply::read(layer.layer(inner).oneshot(request).await.unwrap()).await
}

/// The numbers of the field `x-cost`.
fn cost(head: &tollgate::Head<'_>) -> u64 {
    head.headers()["x-cost"].to_str().unwrap().parse().unwrap()
}

fn user() -> impl tollgate::KeyExtractor {
    header("x-user")
}

/// Each kind of layer that decides, or words its answers, in another way.
const LAYERS: [fn(&RateLimiter, &Limits) -> Rules; 12] = [
    |limiter, [a, ..]| limiter.layer(a).key(user()).into(),
    |limiter, [a, ..]| limiter.layer(a).key(user()).cost_with(cost).into(),
    |limiter, [a, ..]| limiter.layer(a).dialects([Dialect::Draft7, Dialect::XRateLimit]).into(),
    |limiter, [a, ..]| limiter.layer(a).dialects(Dialect::Draft6).cost(2).into(),
    |limiter, [a, ..]| limiter.layer(a).on_refusal(OnRefusal::plain_text()).into(),
    |limiter, [a, ..]| {
        let words = OnRefusal::handler(|refused| {
            Response::new(format!("{:?} {:?}", refused.snapshots(), refused.retry_after()))
        });
        limiter.layer(a).cost_with(cost).on_refusal(words).into()
    },
    |limiter, [a, b, _]| limiter.layer(Rule::new(a).key(user())).and(Rule::new(b)),
    |limiter, [a, b, c]| limiter.layer(Rule::new(a).shadow()).and(b).and(Rule::new(c).cost(2)),
    |limiter, [a, b, c]| {
        let plans = [b, c].map(|plan| Arc::new(plan.clone()));
        let choose = move |head: &tollgate::Head<'_>| match cost(head) {
            0 => None,
            cost => Some(Arc::clone(&plans[usize::from(cost > 2)])),
        };
        limiter.layer(Rule::new(a).limit_with(choose).key(user())).into()
    },
    |limiter, [a, b, _]| {
        let refunds = Rule::new(a).refund_if(|response| response.status() == 404);
        limiter.layer(refunds).and(Rule::new(b).reset_if(|response| response.status() == 201))
    },
    |limiter, [a, b, _]| limiter.layer(Rule::new(a).cost(3)).and(b).settle(),
    |limiter, [a, ..]| limiter.layer(a).queue(Duration::ZERO).into(),
];

/// Of one name and capacity above zero, so that no layer refuses everything.
fn draw_quota(dice: &mut Dice) -> Quota {
    let (rate, capacity) = (1 + dice.below(9), 1 + dice.below(9));
    let period = [SECOND, MINUTE / 8, HOUR][dice.nth(&[0; 3])];
    let quota = match dice.below(2) {
        0 => Quota::token_bucket(rate, period),
        _ => Quota::fixed_window(rate, period),
    };
    let quota = quota.capacity(capacity);
    if dice.below(5) == 0 { quota.shards(2) } else { quota }
}

/// One layer is made once, and its limits get other numbers. It answers to the letter like one that
/// is made again each time, of limits with these numbers.
#[test]
fn a_layer_answers_as_one_that_was_made_with_the_numbers_in_force() {
    for seed in seeds(60) {
        for (nth, make) in LAYERS.iter().enumerate() {
            let dice = &mut Dice(seed);
            let clock = ManualClock::new(START);
            let of: Limits =
                ["a", "b", "c"].map(|name| Limit::try_new(name, draw_quota(dice)).unwrap());
            let mut current = of.clone();
            let (replaced, direct) = (limiter(&clock).seed(seed), limiter(&clock).seed(seed));
            let (layer, mut other) = (make(&replaced, &of), make(&direct, &of));
            for step in 0..40 {
                clock.advance(dice.time(Duration::from_secs(2)));
                if dice.below(3) == 0 {
                    let (nth, quota) = (dice.nth(&of), draw_quota(dice));
                    replaced.replace(&of[nth], quota).unwrap();
                    current[nth] = Limit::try_new(of[nth].name(), quota).unwrap();
                    other = make(&direct, &current);
                }
                let (user, cost) = (dice.below(2), dice.below(5));
                let status = [200, 404, 201][dice.nth(&[0; 3])];
                let replies = [&layer, &other].map(|layer| {
                    let Reply { status, headers, body } = at_once(ask(layer, user, cost, status));
                    // In any order.
                    let mut headers: Vec<_> =
                        headers.iter().map(|field| format!("{field:?}")).collect();
                    headers.sort();
                    (status, headers, body)
                });
                assert_eq!(replies[0], replies[1], "layer {nth}, seed {seed}, step {step}");
            }
        }
    }
}

/// A layer prepares its answers for the first numbers of a limit. Later ones are answered as well.
#[test]
fn a_layer_shows_any_number_of_changes() {
    static API: Limit = Limit::new("api", Quota::token_bucket(1, MINUTE));
    let limiter = limiter(&ManualClock::new(START));
    let layer = limiter.layer(&API).key(user()).into();
    for (user, rate) in (2..40).chain(2..40).enumerate() {
        limiter.replace(&API, Quota::token_bucket(rate, MINUTE)).unwrap();
        let reply = at_once(ask(&layer, user as u64, 1, 200));
        let (field, policy) = (reply.field("ratelimit"), reply.field("ratelimit-policy"));
        let left = rate - 1;
        let told = format!("\"api\";r={left};t={}", (left * 60).div_ceil(rate).max(60 / rate));
        assert!(
            field.is_some_and(|field| field.starts_with(&format!("\"api\";r={left};"))),
            "{told}"
        );
        assert_eq!(policy, Some(&*format!("\"api\";q={rate};w=60")));
    }
}

/// A request that waits keeps the instant that it was told; the next ones wait by the new numbers.
#[tokio::test(start_paused = true)]
async fn waiting_requests_run_as_they_were_told_and_later_ones_by_the_new_numbers() {
    static SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND).capacity(0));
    let limiter = paused();
    let layer = limiter.layer(&SPACED).queue(Queue::new(MINUTE)).into();
    let begun = tokio::time::Instant::now();
    let sent = async || {
        let reply = ask(&layer, 1, 1, 200).await;
        assert_eq!(reply.status, StatusCode::OK);
        begun.elapsed().as_millis()
    };
    let changed = async {
        tokio::time::sleep(ms(10)).await;
        limiter.replace(&SPACED, Quota::token_bucket(10, SECOND).capacity(0)).unwrap();
        sent().await
    };
    let (first, second, third) = tokio::join!(sent(), sent(), changed);
    assert!(first <= 1_001 && second <= 2_001, "{first} and {second}: as told, or earlier");
    assert!(third >= second, "in order: {second}, {third}");
    let fourth = sent().await;
    assert!(fourth - third <= 101, "{third} and {fourth}: ten a second");
}
