//! Calls compile wherever futures do, and they work there.
//!
//! Each test writes a call in one of the places in which programs have futures, and asserts the answer.
//! Most of the promise is that this file compiles.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::mem::needs_drop;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::post;
use futures_util::future::{BoxFuture, join_all, try_join_all};
use futures_util::stream::{self, FuturesUnordered};
use futures_util::{FutureExt, Stream, StreamExt, TryFutureExt, TryStreamExt};
use http::{Request, StatusCode};
use tokio::sync::RwLock;
use tokio::time::Instant;
use tollgate::backend::{Adjustment, Answer, Applied, Backend, BucketId, Charge, Memory};
use tollgate::clock::{ManualClock, TokioClock};
use tollgate::limiter::{ChangeCall, LimitCall, PeekCall, Settle};
use tollgate::{
    HOUR, Limit, MINUTE, Permit, Quota, RateLimited, RateLimiter, Reservation, SECOND, Snapshot,
};
use tollgate_testing::web::Reply;
use tollgate_testing::{START, limiter, remaining};
use tower::ServiceExt;

/// Three requests, and no more while the clock of a test stands still.
const THREE: Limit = Limit::new("three", Quota::token_bucket(3, HOUR));
static ONE: Limit = Limit::new("one", Quota::token_bucket(1, HOUR));
/// One at a time, a second apart.
const SPACED: Limit = Limit::new("spaced", Quota::token_bucket(1, SECOND));

/// Compiles for what can be moved to any thread and polled in place.
const fn is_send_unpin<T: Send + Unpin>() {}
const fn is_send_sync<T: Send + Sync>() {}
const fn is_static<T: 'static>() {}
const fn is_error<T: Error + Clone + Send + Sync + 'static>() {}

/// What [`tokio::spawn`] wants.
fn spawnable<F: Future<Output: Send> + Send + 'static>(future: F) -> F {
    future
}

fn standing_still() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

/// How many were admitted; anything but a refusal is a mistake of the test.
#[track_caller]
fn admitted<'l>(answers: impl IntoIterator<Item = Result<Permit<'l>, RateLimited>>) -> usize {
    let is_admitted = |answer: Result<Permit<'l>, RateLimited>| match answer {
        Ok(_permit) => true,
        Err(error) if error.is_refused() => false,
        Err(error) => panic!("a decision is expected, and not {error:?}"),
    };
    answers.into_iter().map(is_admitted).filter(|&is_admitted| is_admitted).count()
}

/// A store that answers its second poll, as one behind a network does.
#[derive(Debug)]
struct Later(Memory);

fn later<T: Send + 'static>(answer: Answer<T>) -> Answer<T> {
    Answer::pending(async {
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

fn answers_later() -> RateLimiter {
    RateLimiter::new(Later(Memory::new().clock(ManualClock::new(START))))
}

const _: () = {
    is_send_unpin::<LimitCall<'_>>();
    is_send_unpin::<LimitCall<'_, Duration>>();
    is_send_unpin::<PeekCall<'_>>();
    is_send_unpin::<ChangeCall<'_, ()>>();
    is_send_unpin::<ChangeCall<'_, Snapshot>>();
    is_send_unpin::<Settle>();
    is_send_unpin::<Reservation>();
    is_send_sync::<RateLimiter>();
    is_send_sync::<Limit>();
    is_send_sync::<Permit<'_>>();
    is_send_sync::<Snapshot>();
    is_send_sync::<RateLimited>();
    is_static::<Settle>();
    is_static::<Reservation>();
    is_static::<Snapshot>();
    is_error::<RateLimited>();
    // A limit in a `const` can be borrowed as `'static` only while it has nothing to drop.
    assert!(!needs_drop::<Limit>());
    assert!(size_of::<RateLimited>() == size_of::<usize>());
    assert!(size_of::<Reservation>() == size_of::<usize>());
    assert!(size_of::<RateLimiter>() == size_of::<usize>());
    assert!(size_of::<Result<Permit<'_>, RateLimited>>() == size_of::<Permit<'_>>());
};

/// The future has no name, and can be stored, spawned and polled in place.
#[tokio::test]
async fn ready_can_be_moved() {
    fn moves<F: Future + Unpin>(future: F) -> F {
        future
    }

    let reservation = standing_still().limit(&SPACED).reserve().await.unwrap();
    assert_eq!(moves(spawnable(reservation.ready())).await.remaining(), 0);
}

#[tokio::test]
async fn join_and_try_join_take_calls() {
    let limiter = standing_still();
    let (permit, rows) = tokio::join!(limiter.limit(&THREE).key("a"), async { 7 });
    assert_eq!((permit.unwrap().remaining(), rows), (2, 7));

    let both = tokio::try_join!(limiter.limit(&THREE).key("a"), limiter.limit(&ONE));
    let (three, one) = both.unwrap();
    assert_eq!((three.remaining(), one.remaining()), (1, 0));
    let refused = tokio::try_join!(limiter.limit(&ONE), limiter.peek(&THREE)).unwrap_err();
    assert_eq!(refused.limit().name(), "one");
}

#[tokio::test]
async fn select_takes_calls_and_references_to_calls() {
    let limiter = standing_still();
    let left = tokio::select! {
        biased;
        permit = limiter.limit(&THREE) => permit.unwrap().remaining(),
        () = std::future::ready(()) => unreachable!("the memory store answers at once"),
    };
    assert_eq!(left, 2);

    // Polled again after the other branch has won, a call asks no second time.
    let limiter = answers_later();
    let mut call = limiter.limit(&THREE).key("a");
    let mut others = 0;
    let permit = loop {
        tokio::select! {
            biased;
            permit = &mut call => break permit.unwrap(),
            () = std::future::ready(()) => others += 1,
        }
    };
    assert_eq!((permit.remaining(), others), (2, 1));
    assert_eq!(limiter.peek(&THREE).key("a").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn join_all_takes_calls_over_keys_and_over_limits() {
    let limiter = standing_still();
    let users = ["a", "b", "a", "a", "a"].map(str::to_owned);
    let calls = users.iter().map(|user| limiter.limit(&THREE).key(user));
    assert_eq!(admitted(join_all(calls).await), 4);

    let limits = Vec::from([THREE, ONE.clone(), THREE]);
    let calls = limits.iter().map(|limit| limiter.limit(limit).key("c"));
    assert_eq!(admitted(join_all(calls).await), 3);
    let calls = limits.iter().map(|limit| limiter.limit(limit).key("c"));
    assert_eq!(try_join_all(calls).await.unwrap_err().limit().name(), "one");
}

#[tokio::test]
async fn calls_are_collected_and_complete_in_any_order() {
    for limiter in [standing_still(), answers_later()] {
        let mut calls = FuturesUnordered::new();
        for user in ["a", "b", "a", "a", "a"] {
            calls.push(limiter.limit(&THREE).key(user));
        }
        assert_eq!(calls.by_ref().filter_map(async |answer| answer.ok()).count().await, 4);
        let collected: FuturesUnordered<_> = (0..3).map(|_| limiter.limit(&ONE)).collect();
        assert_eq!(admitted(collected.collect::<Vec<_>>().await), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_around_a_call_takes_its_answer_or_gives_it_up() {
    let limiter = standing_still();
    let permit = tokio::time::timeout(SECOND, limiter.limit(&ONE)).await.unwrap().unwrap();
    assert_eq!(permit.remaining(), 0);
    let refused = tokio::time::timeout(SECOND, limiter.limit(&ONE)).await.unwrap().unwrap_err();
    assert_eq!(refused.retry_after(), Some(HOUR));

    let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    let first = limiter.limit(&SPACED).reserve().await.unwrap();
    let second = limiter.limit(&SPACED).reserve().await.unwrap();
    assert_eq!((first.wait(), second.wait()), (Duration::ZERO, SECOND));
    tokio::time::timeout(SECOND / 2, second.ready()).await.unwrap_err();
    // Its slot is free again.
    assert_eq!(limiter.limit(&SPACED).reserve().await.unwrap().wait(), SECOND / 2);
}

#[tokio::test]
async fn a_task_owns_its_limiter_and_its_limits() {
    let limiter = standing_still();
    let limits = vec![THREE, ONE.clone()];
    let handle = limiter.clone();
    let task = tokio::spawn(async move {
        let mut left = Vec::new();
        for limit in &limits {
            left.push(handle.limit(limit).key("a").await?.remaining());
        }
        let refused = handle.limit(&limits[0]).key("a").and(&limits[1]).key("a").await.unwrap_err();
        left.push(refused.snapshots().len() as u64);
        Ok::<_, RateLimited>(left)
    });
    assert_eq!(task.await.unwrap().unwrap(), [2, 0, 1]);
    assert_eq!(remaining(&limiter, &THREE, 7), 3);
    assert_eq!(limiter.peek(&THREE).key("a").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn calls_are_boxed_and_stored() {
    struct Pending<'l> {
        call: LimitCall<'l>,
        boxed: BoxFuture<'l, Result<Permit<'l>, RateLimited>>,
        dynamic: Pin<Box<dyn Future<Output = Result<Snapshot, RateLimited>> + Send + 'l>>,
    }

    impl Pending<'_> {
        async fn all(self) -> Result<[u64; 3], RateLimited> {
            let (call, boxed) = (self.call.await?.remaining(), self.boxed.await?.remaining());
            Ok([call, boxed, self.dynamic.await?.remaining()])
        }
    }

    fn first<'l>(limiter: &'l RateLimiter, limit: &'l Limit) -> LimitCall<'l> {
        limiter.limit(limit).key("a")
    }

    let limiter = standing_still();
    let pending = Pending {
        call: first(&limiter, &THREE),
        boxed: limiter.limit(&THREE).key("a").boxed(),
        dynamic: Box::pin(limiter.peek(&THREE).key("a")),
    };
    assert_eq!(pending.all().await.unwrap(), [2, 1, 1]);
    // Two kinds of calls in one list, by what they answer.
    let calls: Vec<BoxFuture<'_, bool>> = vec![
        limiter.limit(&ONE).map(|answer| answer.is_ok()).boxed(),
        limiter.peek(&ONE).map_ok(|snapshot| snapshot.fits()).unwrap_or_else(|_| true).boxed(),
        Box::pin(async { limiter.reset(&ONE).await.is_ok() }),
    ];
    assert_eq!(join_all(calls).await, [true, false, true]);
}

#[async_trait::async_trait]
trait Boxed: Send + Sync {
    async fn pass(&self, user: &str) -> Result<u64, RateLimited>;
}

trait Plain {
    async fn pass(&self, user: &str) -> Result<u64, RateLimited>;
    fn look(&self, user: &str) -> impl Future<Output = Result<Snapshot, RateLimited>> + Send;
}

struct Gate {
    limiter: RateLimiter,
    limit: Limit,
}

#[async_trait::async_trait]
impl Boxed for Gate {
    async fn pass(&self, user: &str) -> Result<u64, RateLimited> {
        Ok(self.limiter.limit(&self.limit).key(user).await?.remaining())
    }
}

impl Plain for Gate {
    async fn pass(&self, user: &str) -> Result<u64, RateLimited> {
        self.limiter.limit(&self.limit).key(user).map_ok(|permit| permit.remaining()).await
    }

    fn look(&self, user: &str) -> impl Future<Output = Result<Snapshot, RateLimited>> + Send {
        self.limiter.peek(&self.limit).key(user)
    }
}

#[tokio::test]
async fn traits_have_calls_in_their_methods() {
    let gate = Arc::new(Gate { limiter: standing_still(), limit: THREE });
    let boxed: Arc<dyn Boxed> = gate.clone();
    let task = tokio::spawn(async move { boxed.pass("a").await });
    assert_eq!(task.await.unwrap().unwrap(), 2);
    assert_eq!(Plain::pass(&*gate, "a").await.unwrap(), 1);
    assert_eq!(gate.look("a").await.unwrap().remaining(), 1);
}

/// Asks until it is admitted, at most so many times.
async fn retry<F, Fut, T>(attempts: usize, ask: F) -> Result<T, RateLimited>
where
    F: Fn(usize) -> Fut,
    Fut: Future<Output = Result<T, RateLimited>>,
{
    let mut attempt = 0;
    loop {
        attempt += 1;
        match ask(attempt).await {
            Err(error) if attempt == attempts || !error.is_refused() => return Err(error),
            Err(_) => {}
            Ok(done) => return Ok(done),
        }
    }
}

async fn twice(ask: impl AsyncFn(&str) -> Result<u64, RateLimited>) -> Result<u64, RateLimited> {
    ask("a").await?;
    ask("a").await
}

#[tokio::test]
async fn generic_functions_take_closures_that_make_calls() {
    let limiter = standing_still();
    let all = limiter.limit(&THREE).cost(3).await.unwrap();
    drop(all);
    let users = [None, Some("a"), Some("b")];
    let ask = |attempt: usize| match users[attempt - 1] {
        Some(user) => limiter.limit(&THREE).key(user),
        None => limiter.limit(&THREE),
    };
    assert_eq!(retry(3, ask).await.unwrap().remaining(), 2);
    let refused = retry(2, |_| limiter.limit(&THREE)).await.unwrap_err();
    assert_eq!(refused.retry_after(), Some(HOUR / 3));

    let ask = async |user: &str| Ok(limiter.limit(&THREE).key(user).await?.remaining());
    assert_eq!(twice(ask).await.unwrap(), 0);

    // In a task, the closure owns what it asks.
    let handle = limiter.clone();
    let task = spawnable(retry(1, move |_| {
        let limiter = handle.clone();
        async move { Ok(limiter.limit(&THREE).key("c").await?.into_owned()) }
    }));
    assert_eq!(tokio::spawn(task).await.unwrap().unwrap().remaining(), 2);
}

#[tokio::test]
async fn limit_takes_whatever_derefs_to_a_limit() {
    let limiter = standing_still();
    let (shared, boxed, owned) = (Arc::new(THREE), Box::new(THREE), THREE.clone());
    let named: HashMap<String, Limit> = HashMap::from([("plan".to_owned(), THREE)]);
    let guarded = RwLock::new(named.clone());
    let locked = Mutex::new(THREE);
    let lazy: LazyLock<Limit> = LazyLock::new(|| THREE);

    let mut left = vec![
        limiter.limit(&shared).key(1).await.unwrap().remaining(),
        limiter.limit(&boxed).key(2).await.unwrap().remaining(),
        limiter.limit(&owned).key(3).await.unwrap().remaining(),
        limiter.limit(&named["plan"]).key(4).await.unwrap().remaining(),
        limiter.limit(&lazy).key(5).await.unwrap().remaining(),
        limiter.limit(&THREE).key(6).await.unwrap().remaining(),
        limiter.limit(&Limit::new("three", *THREE.quota())).key(7).await.unwrap().remaining(),
    ];
    {
        let guard = guarded.read().await;
        let plan = guard.get("plan").unwrap();
        left.push(limiter.limit(plan).key(8).await.unwrap().remaining());
    }
    let owned = {
        let guard = locked.lock().unwrap();
        let mut call = limiter.limit(&guard).key(9);
        let answer = Pin::new(&mut call).poll(&mut Context::from_waker(std::task::Waker::noop()));
        let Poll::Ready(permit) = answer else { panic!("the memory store answers at once") };
        permit.unwrap().into_owned()
    };
    left.push(owned.remaining());
    assert_eq!(left, [2; 9]);
    assert_eq!(limiter.limit(&ONE).await.unwrap().remaining(), 0);

    // All values of a map, in one request.
    let mut limits = named.values().chain([&ONE]);
    let mut call = limiter.limit(limits.next().unwrap()).key("b");
    for limit in limits {
        call = call.and(limit).key("b");
    }
    assert_eq!(call.await.unwrap().snapshots().map(|one| one.remaining()).sum::<u64>(), 2);
}

/// A stream by hand, which polls its calls in place.
struct InTurn<'l>(VecDeque<LimitCall<'l>>);

impl<'l> Stream for InTurn<'l> {
    type Item = Result<Permit<'l>, RateLimited>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(call) = self.0.front_mut() else { return Poll::Ready(None) };
        let answer = std::task::ready!(Pin::new(call).poll(cx));
        self.0.pop_front();
        Poll::Ready(Some(answer))
    }
}

#[tokio::test]
async fn streams_make_calls() {
    for limiter in [standing_still(), answers_later()] {
        let calls = (0..5).map(|_| limiter.limit(&THREE).key("a")).collect();
        assert_eq!(admitted(InTurn(calls).collect::<Vec<_>>().await), 3);

        // Until the first refusal; it owns what it asks, so a body or a task can have it.
        let words = stream::unfold((limiter.clone(), 0), |(limiter, word)| async move {
            let left = limiter.limit(&THREE).key("b").await.ok()?.remaining();
            Some(((word, left), (limiter, word + 1)))
        });
        let task = tokio::spawn(words.collect::<Vec<_>>());
        assert_eq!(task.await.unwrap(), [(0, 2), (1, 1), (2, 0)]);

        // Calls that are made before are polled some at a time, in a task as well.
        let task = tokio::spawn(async move {
            let calls: Vec<_> = (0..5).map(|_| limiter.limit(&THREE).key("c")).collect();
            let answers = stream::iter(calls).buffer_unordered(2);
            answers.try_fold(0, async |count, _permit| Ok(count + 1)).await.map_err(|_| "refused")
        });
        assert_eq!(task.await.unwrap(), Err("refused"));
    }
}

#[derive(Clone)]
struct App {
    limiter: RateLimiter,
    plans: Arc<HashMap<String, Limit>>,
    always: Arc<Vec<Limit>>,
}

/// All that a handler does with a limiter; routed, so its future is `Send` and `'static`.
async fn handler(
    State(App { limiter, plans, always }): State<App>,
    Path(user): Path<String>,
) -> Result<String, RateLimited> {
    let Some(plan) = plans.get(&user) else {
        let fits = limiter.peek(&SPACED).key(&user).await?.fits();
        return Ok(format!("unknown, {fits}"));
    };
    let mut call = limiter.limit(plan).key(&user);
    for limit in always.iter() {
        call = call.and(limit);
    }
    let permit = call.await?;
    let turn = limiter.limit(&SPACED).reserve_within(5 * SECOND).await?;
    let waited = turn.wait();
    let turn = turn.ready().await;
    assert!(limiter.peek(plan).key(&user).await?.remaining() < 3);
    if user == "mallory" {
        limiter.penalize(plan, 10).key(&user).await?;
        limiter.block(plan, MINUTE).key(&user).await?;
    }
    if user == "root" {
        limiter.reset(plan).key(&user).await?;
    }
    let told = format!("{} left, {waited:?}", permit.snapshot().remaining());
    tokio::spawn(turn.settle(1));
    tokio::spawn(permit.into_owned().refund()).await.unwrap()?;
    Ok(told)
}

#[tokio::test(start_paused = true)]
async fn a_routed_handler_makes_every_call() {
    let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    let plans = ["alice", "mallory", "root"].map(|user| (user.to_owned(), THREE));
    let app = App {
        limiter: limiter.clone(),
        plans: Arc::new(HashMap::from(plans)),
        always: Arc::new(vec![ONE.clone()]),
    };
    let app: Router = Router::new().route("/{user}", post(handler)).with_state(app);
    let ask = async |user: &str| {
        let request = Request::post(format!("/{user}")).body(Body::empty()).unwrap();
        Reply::read(app.clone().oneshot(request).await.unwrap()).await
    };

    let start = Instant::now();
    let replies = [ask("alice").await, ask("mallory").await, ask("root").await, ask("bob").await];
    let told: Vec<_> = replies.iter().map(|reply| (reply.status, reply.body.as_str())).collect();
    let ok = StatusCode::OK;
    assert_eq!(
        told,
        [(ok, "2 left, 0ns"), (ok, "2 left, 1s"), (ok, "2 left, 1s"), (ok, "unknown, true")]
    );
    assert_eq!(start.elapsed(), 2 * SECOND);

    let refused = ask("mallory").await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(limiter.peek(&THREE).key("mallory").await.unwrap().wait() > Some(HOUR));
    assert_eq!(limiter.peek(&THREE).key("root").await.unwrap().remaining(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_made_awaited_and_settled_in_tasks() {
    let limiter = RateLimiter::new(Memory::new().clock(TokioClock::new()));
    let start = Instant::now();
    let turns: FuturesUnordered<_> = (0..3)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let permit = limiter.limit(&SPACED).reserve_within(5 * SECOND).await?.ready().await;
                Ok::<_, RateLimited>((start.elapsed(), permit))
            })
        })
        .collect();
    let turns: Vec<_> = turns.map(|turn| turn.unwrap().unwrap()).collect().await;
    let waits: Vec<_> = turns.iter().map(|(wait, _)| *wait).collect();
    assert_eq!(waits, [Duration::ZERO, SECOND, 2 * SECOND]);
    assert_eq!(limiter.peek(&SPACED).await.unwrap().remaining(), 0);

    // The future of a settlement is a task as it is.
    let settling = turns.into_iter().map(|(_, permit)| tokio::spawn(permit.refund()));
    for settled in join_all(settling).await {
        assert_eq!(settled.unwrap().unwrap().remaining(), 1);
    }

    // A call asks when it is polled, and not when it is made.
    let too_late = limiter.limit(&SPACED).reserve_within(Duration::ZERO);
    assert_eq!(limiter.limit(&SPACED).await.unwrap().remaining(), 0);
    assert!(too_late.await.unwrap_err().is_refused());
}

#[tokio::test]
async fn a_permit_from_statics_is_static() {
    static LIMITER: LazyLock<RateLimiter> = LazyLock::new(standing_still);
    let by_static: Permit<'static> = LIMITER.limit(&ONE).await.unwrap();
    let by_const: Permit<'static> = LIMITER.limit(&THREE).await.unwrap();
    let leaked: &'static RateLimiter = Box::leak(Box::new(standing_still()));
    let by_leaked: Permit<'static> = leaked.limit(&THREE).await.unwrap();
    let task = tokio::spawn(async move {
        let settled = [by_static.refund(), by_const.settle(2), by_leaked.settle(0)];
        join_all(settled).await.into_iter().map(|snapshot| snapshot.unwrap().remaining()).collect()
    });
    let left: Vec<_> = task.await.unwrap();
    assert_eq!(left, [1, 1, 3]);
    // The calls themselves are as well.
    let call = tokio::spawn(LIMITER.limit(&THREE).key("a"));
    assert_eq!(call.await.unwrap().unwrap().remaining(), 2);
}

#[tokio::test]
async fn an_error_goes_wherever_errors_go() {
    async fn boxed(limiter: &RateLimiter) -> Result<u64, Box<dyn Error + Send + Sync>> {
        Ok(limiter.limit(&ONE).await?.remaining())
    }
    let limiter = standing_still();
    assert_eq!(boxed(&limiter).await.unwrap(), 0);
    let error = boxed(&limiter).await.unwrap_err();
    let found = RateLimited::find(&*error).unwrap().clone();
    assert!(std::thread::spawn(move || found.is_refused()).join().unwrap());
}
