//! Rules that block a key after some refusals.
//!
//! Time is the runtime's and stands still, so instants are exact whatever the machine does.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::{Router, routing::get};
use http::{Method, Request, Response};
use tokio::time::sleep;
use tollgate::backend::{
    Adjustment, Answer, Applied, Backend, BackendError, BucketId, Charge, Memory,
};
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::key::header;
use tollgate::middleware::Queue;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimitLayer, RateLimiter, Rule, SECOND};
use tollgate_testing::queue::{Late, ms, paused, send, settled};
use tollgate_testing::shared::Shared;
use tollgate_testing::{START, limiter, web};
use tower::{Layer, ServiceExt, service_fn};

/// One a second, and one saved up.
static ONE: Limit = Limit::new("one", Quota::token_bucket(1, SECOND));

/// Three refusals within ten seconds block for a minute.
fn blocks() -> Rule {
    Rule::new(&ONE).key(header("x-user")).block_after(3, 10 * SECOND, MINUTE)
}

fn by(user: &str) -> Request<u64> {
    Request::builder().header("x-user", user).body(0).unwrap()
}

/// The status of the response, and the seconds of its `Retry-After`.
async fn ask<N>(layer: &RateLimitLayer<N>, user: &str) -> (u16, Option<u64>) {
    let service =
        layer.layer(service_fn(async |_: Request<u64>| Ok::<_, Infallible>(Response::new(()))));
    let response = service.oneshot(by(user)).await.unwrap();
    let after = response.headers().get("retry-after");
    (response.status().as_u16(), after.map(|after| after.to_str().unwrap().parse().unwrap()))
}

const RAN: (u16, Option<u64>) = (200, None);

fn refused(after: u64) -> (u16, Option<u64>) {
    (429, Some(after))
}

/// The end of the block of a key, from now on.
async fn blocked_for(limiter: &RateLimiter, limit: &Limit, user: &str) -> Option<Duration> {
    let snapshot = limiter.peek(limit).key(user).await.unwrap();
    Some(snapshot.blocked_until()?.since(snapshot.at()))
}

fn stores() -> [RateLimiter; 2] {
    [paused(), Shared::new().limiter()]
}

#[tokio::test(start_paused = true)]
async fn the_last_refusal_of_the_count_blocks_the_key() {
    for limiter in stores() {
        let layer = limiter.layer(blocks());
        assert_eq!(ask(&layer, "ann").await, RAN);
        for _ in 0..2 {
            assert_eq!(ask(&layer, "ann").await, refused(1));
        }
        assert_eq!(blocked_for(&limiter, &ONE, "ann").await, None);
        // After the block, the bucket is empty: the next token is there a second later.
        assert_eq!(ask(&layer, "ann").await, refused(61));
        assert_eq!(blocked_for(&limiter, &ONE, "ann").await, Some(MINUTE));
        assert_eq!(ask(&layer, "bob").await, RAN, "each key is counted by itself");
        sleep(20 * SECOND).await;
        assert_eq!(ask(&layer, "ann").await, refused(41));
        sleep(41 * SECOND).await;
        assert_eq!(ask(&layer, "ann").await, RAN);
    }
}

/// Failures alone take tokens, so the sixth is refused, and one refusal is enough.
#[tokio::test(start_paused = true)]
async fn five_failed_log_ins_lock_the_account_for_an_hour() {
    const TEN_MINUTES: Duration = Duration::from_secs(600);
    static FAILURES: Limit = Limit::new("failed", Quota::token_bucket(5, TEN_MINUTES));
    for limiter in stores() {
        let layer = limiter.layer(&FAILURES).key(header("x-user"));
        let layer = layer.refund_if(|response| response.status() != 401);
        let layer = layer.block_after(1, TEN_MINUTES, HOUR);
        let service = layer.layer(service_fn(async |request: Request<u64>| {
            let status = u16::try_from(request.into_body()).unwrap();
            Ok::<_, Infallible>(Response::builder().status(status).body(()).unwrap())
        }));
        let log_in = async |status: u64| {
            let response = service.clone().oneshot(by("ann").map(|_| status)).await.unwrap();
            let after = response.headers().get("retry-after");
            (response.status().as_u16(), after.map(|after| after.to_str().unwrap().to_owned()))
        };
        for status in [200, 401, 401, 200, 401, 401, 401] {
            assert_eq!(log_in(status).await.0, u16::try_from(status).unwrap());
        }
        // The right password does not help either: the next token is there two minutes after the block.
        for _ in 0..3 {
            assert_eq!(log_in(200).await, (429, Some("3720".to_owned())));
        }
        sleep(MINUTE * 62).await;
        assert_eq!(log_in(200).await.0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_that_are_further_apart_block_nothing() {
    for limiter in stores() {
        let layer = limiter.layer(blocks());
        for _ in 0..5 {
            // The window begins with the first refusal.
            assert_eq!(ask(&layer, "ann").await, RAN);
            assert_eq!(ask(&layer, "ann").await, refused(1));
            sleep(9 * SECOND).await;
            assert_eq!(ask(&layer, "ann").await, RAN);
            assert_eq!(ask(&layer, "ann").await, refused(1));
            sleep(SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_during_a_block_do_not_count() {
    for limiter in stores() {
        let layer = limiter.layer(blocks());
        assert_eq!(ask(&layer, "ann").await, RAN);
        for after in [1, 1, 61] {
            assert_eq!(ask(&layer, "ann").await, refused(after));
        }
        for second in 0..60 {
            for _ in 0..5 {
                assert_eq!(ask(&layer, "ann").await, refused(61 - second));
            }
            sleep(SECOND).await;
        }
        // Then all begins anew.
        for after in [1, 1, 61] {
            assert_eq!(ask(&layer, "ann").await, refused(after));
        }
    }
}

/// In the window in which the block ends, a fixed window is closed, and looks like one in debt.
#[tokio::test(start_paused = true)]
async fn the_block_of_a_fixed_window_ends_for_a_client_that_keeps_asking() {
    static WINDOW: Limit = Limit::new("window", Quota::fixed_window(2, MINUTE).from_first_use());
    for limiter in stores() {
        let layer = limiter.layer(&WINDOW).key(header("x-user"));
        let layer = layer.block_after(3, 10 * SECOND, 10 * SECOND);
        for told in [RAN, RAN, refused(60), refused(60), refused(60)] {
            assert_eq!(ask(&layer, "ann").await, told);
        }
        for second in 0..60 {
            assert_eq!(ask(&layer, "ann").await, refused(60 - second));
            sleep(SECOND).await;
        }
        // The next window has one token less.
        assert_eq!(ask(&layer, "ann").await, RAN);
        assert_eq!(ask(&layer, "ann").await, refused(60));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_lifts_the_block() {
    for limiter in stores() {
        let layer = limiter.layer(blocks());
        for told in [RAN, refused(1), refused(1), refused(61)] {
            assert_eq!(ask(&layer, "ann").await, told);
        }
        limiter.reset(&ONE).key("ann").await.unwrap();
        for told in [RAN, refused(1), refused(1), refused(61)] {
            assert_eq!(ask(&layer, "ann").await, told);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_begins_the_count_again() {
    let served: Rule = blocks().reset_if(|_| true);
    for limiter in stores() {
        let layer = limiter.layer(blocks());
        for _ in 0..3 {
            for told in [RAN, refused(1), refused(1)] {
                assert_eq!(ask(&layer, "ann").await, told);
            }
            limiter.reset(&ONE).key("ann").await.unwrap();
        }
        // A response that resets the bucket does the same, by a limit that is chosen as well.
        for served in [served.clone(), served.clone().limit_with(|_| &ONE)] {
            let served = limiter.layer(served);
            for _ in 0..3 {
                for told in [RAN, refused(1), refused(1)] {
                    assert_eq!(ask(&layer, "bob").await, told);
                }
                sleep(SECOND).await;
                assert_eq!(ask(&served, "bob").await, RAN);
            }
            limiter.reset(&ONE).key("bob").await.unwrap();
        }
    }
}

/// As in a transaction of the database that has the buckets: the count outlived the reset.
#[tokio::test(start_paused = true)]
async fn a_reset_by_a_limiter_that_was_made_of_the_layer_s_begins_the_count_again() {
    let store = Shared::new();
    let limiter = store.limiter();
    let layer = limiter.layer(blocks());
    let in_transaction = limiter.with_backend(store);
    for _ in 0..3 {
        for told in [RAN, refused(1), refused(1)] {
            assert_eq!(ask(&layer, "ann").await, told);
        }
        in_transaction.reset(&ONE).key("ann").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn processes_on_a_store_count_together() {
    let store = Shared::new();
    let layers = [store.limiter(), store.limiter()].map(|limiter| limiter.layer(blocks()));
    for (nth, told) in [RAN, refused(1), refused(1), refused(61)].into_iter().enumerate() {
        assert_eq!(ask(&layers[nth % 2], "ann").await, told);
    }
    assert_eq!(ask(&layers[0], "ann").await, refused(61));
}

#[tokio::test(start_paused = true)]
async fn all_shards_are_blocked() {
    static HOT: Limit = Limit::new("hot", Quota::token_bucket(4, SECOND).shards(4));
    for limiter in stores() {
        let layer = limiter.seed(1).layer(&HOT).key(header("x-user"));
        let layer = layer.block_after(3, 10 * SECOND, MINUTE);
        let mut refusals = 0;
        while refusals < 3 {
            refusals += u32::from(ask(&layer, "ann").await.0 == 429);
        }
        for _ in 0..20 {
            assert_eq!(ask(&layer, "ann").await.0, 429);
        }
        sleep(MINUTE - ms(1)).await;
        assert_eq!(ask(&layer, "ann").await.0, 429);
        sleep(2 * SECOND).await;
        assert_eq!(ask(&layer, "ann").await, RAN);
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_rules_only_those_that_refuse_count() {
    static OTHER: Limit = Limit::new("other", Quota::token_bucket(1, HOUR));
    for limiter in stores() {
        let other = Rule::new(&OTHER).key(header("x-user"));
        let layer = limiter.layer(blocks()).and(other);
        assert_eq!(ask(&layer, "ann").await, RAN);
        sleep(SECOND).await;
        for _ in 0..5 {
            assert_eq!(ask(&layer, "ann").await, refused(3_599));
        }
        assert_eq!(blocked_for(&limiter, &ONE, "ann").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_blocks_nothing() {
    for limiter in stores() {
        let layer = limiter.layer(blocks().shadow());
        for _ in 0..10 {
            assert_eq!(ask(&layer, "ann").await, RAN);
        }
        assert_eq!(blocked_for(&limiter, &ONE, "ann").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_queue_refuses_does_not_count_and_what_has_waited_in_vain_does() {
    for limiter in stores() {
        let once = Rule::new(&ONE).key(header("x-user")).block_after(1, 10 * SECOND, MINUTE);
        let full = limiter.layer(once.clone()).queue(Queue::new(HOUR).max_waiters(0));
        assert_eq!(ask(&full, "ann").await, RAN);
        assert_eq!(ask(&full, "ann").await, (503, Some(1)));
        assert_eq!(blocked_for(&limiter, &ONE, "ann").await, None);

        let stays = limiter.layer(once).queue(Queue::new(SECOND + ms(500)).stay());
        let told = tokio::join!(ask(&stays, "ann"), ask(&stays, "ann"));
        // The first waits for a second. The second gives up half a second later, and is blocked.
        assert_eq!(told, (RAN, refused(61)));
        assert_eq!(blocked_for(&limiter, &ONE, "ann").await, Some(MINUTE));
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_chosen_counts_by_its_own_name() {
    static PRO: Limit = Limit::new("pro", Quota::token_bucket(1, SECOND));
    for limiter in stores() {
        let rule = blocks().limit_with(|head| match head.headers()["x-user"] == "ann" {
            true => &ONE,
            false => &PRO,
        });
        let layer = limiter.layer(rule);
        for user in ["ann", "bob"] {
            for told in [RAN, refused(1), refused(1), refused(61)] {
                assert_eq!(ask(&layer, user).await, told);
            }
        }
        assert_eq!(blocked_for(&limiter, &PRO, "bob").await, Some(MINUTE));
    }
}

/// Else a client could go on by hanging up in time.
#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_is_counted() {
    let (store, limiter, memory) = Late::new();
    let layer = limiter.layer(blocks());
    assert_eq!(ask(&layer, "ann").await, RAN);
    let service =
        layer.layer(service_fn(async |_: Request<u64>| Ok::<_, Infallible>(Response::new(()))));
    for _ in 0..3 {
        let request = store.close();
        let call = send(&service, by("ann")).await;
        settled().await;
        let count = store.close();
        request.let_go();
        settled().await;
        assert!(!call.is_finished());
        call.abort();
        store.open();
        count.let_go();
        settled().await;
    }
    assert_eq!(blocked_for(&memory, &ONE, "ann").await, Some(MINUTE));
}

/// A store that fails for some operations.
#[derive(Debug)]
struct Fails {
    memory: Memory,
    counts: AtomicBool,
    blocks: AtomicBool,
}

impl Backend for Fails {
    fn apply(&self, charges: &[Charge<'_>]) -> Answer<Applied> {
        let is_count = charges.iter().any(|charge| charge.id().limit() == "one/refused");
        match is_count && self.counts.load(Ordering::Relaxed) {
            true => Answer::Ready(Err(BackendError::unavailable("store", "away"))),
            false => self.memory.apply(charges),
        }
    }

    fn adjust(&self, adjustments: &[Adjustment<'_>]) -> Answer<Applied> {
        match self.blocks.load(Ordering::Relaxed) {
            true => Answer::Ready(Err(BackendError::unavailable("store", "away"))),
            false => self.memory.adjust(adjustments),
        }
    }

    fn reset(&self, ids: &[BucketId<'_>]) -> Answer<()> {
        self.memory.reset(ids)
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_fails_nothing_is_blocked() {
    let memory = Memory::new().clock(TokioClock::new());
    let (counts, blocks) = (AtomicBool::new(true), AtomicBool::new(true));
    let store = Arc::new(Fails { memory, counts, blocks });
    let limiter = RateLimiter::new(Arc::clone(&store));
    let layer = limiter.layer(self::blocks());
    assert_eq!(ask(&layer, "ann").await, RAN);
    for _ in 0..5 {
        assert_eq!(ask(&layer, "ann").await, refused(1));
    }
    // The count works and the block fails: the next refusal tries again.
    store.counts.store(false, Ordering::Relaxed);
    for _ in 0..5 {
        assert_eq!(ask(&layer, "ann").await, refused(1));
    }
    store.blocks.store(false, Ordering::Relaxed);
    assert_eq!(ask(&layer, "ann").await, refused(61));
}

#[tokio::test(start_paused = true)]
async fn blocks_that_follow_on_each_other_are_twice_as_long_up_to_the_longest() {
    for limiter in stores() {
        let layer = limiter.layer(&ONE).key(header("x-user"));
        let layer = layer.block_after(2, 10 * SECOND, MINUTE).block_up_to(10 * MINUTE);
        for minutes in [1, 2, 4, 8, 10, 10] {
            assert_eq!(ask(&layer, "ann").await, RAN);
            assert_eq!(ask(&layer, "ann").await, refused(1));
            assert_eq!(ask(&layer, "ann").await, refused(60 * minutes + 1));
            assert_eq!(ask(&layer, "bob").await, RAN);
            // A reset lifts the block, and does not forget it.
            if minutes == 4 {
                limiter.reset(&ONE).key("ann").await.unwrap();
                sleep(SECOND).await;
            } else {
                sleep(MINUTE * u32::try_from(minutes).unwrap() + SECOND).await;
            }
        }
        // The longest block comes again unless the key behaves for four times as long.
        sleep(25 * MINUTE).await;
        for minutes in [8, 10] {
            for told in [RAN, refused(1), refused(60 * minutes + 1)] {
                assert_eq!(ask(&layer, "ann").await, told);
            }
            sleep(11 * MINUTE).await;
        }
        sleep(200 * MINUTE).await;
        for told in [RAN, refused(1), refused(61)] {
            assert_eq!(ask(&layer, "ann").await, told);
        }
    }
}

/// A burst would reach the longest block at once.
#[tokio::test(start_paused = true)]
async fn requests_that_are_refused_at_once_are_one_block() {
    let (store, limiter, memory) = Late::new();
    let layer = limiter.layer(blocks().block_up_to(HOUR));
    assert_eq!(ask(&layer, "ann").await, RAN);
    for minutes in [1, 2] {
        let held = store.close();
        let service =
            layer.layer(service_fn(async |_: Request<u64>| Ok::<_, Infallible>(Response::new(()))));
        let mut calls = Vec::new();
        for _ in 0..20 {
            calls.push(send(&service, by("ann")).await);
        }
        settled().await;
        store.open();
        held.let_go();
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(blocked_for(&memory, &ONE, "ann").await, Some(MINUTE * minutes));
        sleep(MINUTE * minutes).await;
    }
}

#[test]
fn a_block_grows_only_from_a_shorter_one() {
    let message = |make: fn() -> Rule| {
        let panic = std::panic::catch_unwind(|| drop(make())).unwrap_err();
        panic.downcast_ref::<&str>().unwrap().to_string()
    };
    assert_eq!(
        message(|| Rule::new(&ONE).block_up_to(HOUR)),
        "`block_up_to` needs a `block_after` before it, with the time of the first block"
    );
    assert_eq!(
        message(|| blocks().block_up_to(MINUTE)),
        "`block_up_to` needs a time that is longer than that of `block_after`"
    );
    // However far apart the two are.
    drop(Rule::new(&ONE).block_after(1, SECOND, ms(1)).block_up_to(HOUR * 24 * 365));
}

#[test]
fn zeros_are_mistakes() {
    let none = Duration::ZERO;
    for (refusals, within, time) in [(0, SECOND, SECOND), (3, none, SECOND), (3, SECOND, none)] {
        let panic = std::panic::catch_unwind(|| {
            drop(Rule::new(&ONE).block_after(refusals, within, time));
        });
        let message = *panic.unwrap_err().downcast_ref::<&str>().unwrap();
        assert_eq!(message, "`block_after` needs a number of refusals and two times above zero");
    }
}

#[tokio::test]
async fn a_client_reads_when_its_block_ends_and_gets_in_then_or_after_a_reset() {
    let clock = ManualClock::new(START);
    let limiter = limiter(&clock);
    let layer = limiter.layer(blocks());
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let server = web::serve(app).await;
    let ask = async |user| {
        let reply = web::send(server, Method::GET, "/", &[("x-user", user)]).await;
        (reply.status.as_u16(), reply.field("retry-after").map(|after| after.parse().unwrap()))
    };
    for user in ["ann", "bob"] {
        for answer in [RAN, refused(1), refused(1), refused(61), refused(61)] {
            assert_eq!(ask(user).await, answer, "{user}");
        }
    }
    limiter.reset(&ONE).key("bob").await.unwrap();
    assert_eq!(ask("bob").await, RAN);
    clock.advance(61 * SECOND);
    assert_eq!(ask("ann").await, RAN);
}
