//! Requests that wait: in order, each in its own future; answers that come out of order.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use http::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, advance, sleep, timeout};
use tollgate::{DAY, HOUR, SECOND};
use tollgate_client::pacing::{Pace, PacingLayer, ResponseFuture};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A request that fails, as its connection does.
#[derive(Debug, PartialEq)]
struct ConnectionError;

type Answer = Result<Response<()>, ConnectionError>;

/// What a server got, in order: the path, and where the answer goes.
type Inbox = Arc<Mutex<Vec<(String, oneshot::Sender<Answer>)>>>;

/// A server whose answers the test gives.
fn server() -> (
    Inbox,
    impl Service<Request<()>, Response = Response<()>, Error = ConnectionError, Future: Send> + Clone,
) {
    let inbox = Inbox::default();
    let received = Arc::clone(&inbox);
    let server = service_fn(move |request: Request<()>| {
        let (sender, answer) = oneshot::channel();
        received.lock().unwrap().push((request.uri().path().to_owned(), sender));
        async { answer.await.expect("an answer") }
    });
    (inbox, server)
}

fn request(path: &str) -> Request<()> {
    Request::get(format!("http://them.example{path}")).body(()).unwrap()
}

fn shows(remaining: u32, reset: u32) -> Answer {
    let response = Response::builder()
        .header("ratelimit", format!("\"api\";r={remaining};t={reset}"))
        .header("ratelimit-policy", "\"api\";q=8;w=80");
    Ok(response.body(()).unwrap())
}

fn poll<F: Future + ?Sized>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a call once, and tells whether it is answered.
fn step<F: Future>(call: &mut Pin<Box<F>>) -> bool {
    poll(&mut call.as_mut()).is_ready()
}

fn paths(inbox: &Inbox) -> Vec<String> {
    inbox.lock().unwrap().iter().map(|(path, _)| path.clone()).collect()
}

/// Answers the request for this path.
fn give(inbox: &Inbox, path: &str, answer: Answer) {
    let mut inbox = inbox.lock().unwrap();
    let at = inbox.iter().position(|(known, _)| known == path).expect("it was sent");
    inbox.remove(at).1.send(answer).unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_older_answer_with_more_left_raises_nothing() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(HOUR).layer(server);
    let send = |path| Box::pin(client.clone().oneshot(request(path)));
    let (mut first, mut older, mut newer, mut last) =
        (send("/1"), send("/2"), send("/3"), send("/4"));
    assert!(!step(&mut first));
    give(&inbox, "/1", shows(3, 30));
    assert!(step(&mut first));
    // Of eight, three are left: two are sent at once, and the last is spread over the rest.
    assert!(!step(&mut older) && !step(&mut newer) && !step(&mut last));
    assert_eq!(paths(&inbox), ["/2", "/3"]);
    give(&inbox, "/3", shows(1, 30));
    assert!(step(&mut newer));
    give(&inbox, "/2", shows(2, 30));
    assert!(step(&mut older));
    assert!(!step(&mut last));
    assert_eq!(paths(&inbox), [""; 0]);
    advance(15 * SECOND + Duration::from_millis(2)).await;
    assert!(!step(&mut last));
    assert_eq!(paths(&inbox), ["/4"]);
}

#[tokio::test(start_paused = true)]
async fn the_first_request_goes_alone_and_the_others_in_order() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(HOUR).layer(server);
    let paths_sent: Vec<_> = (0..32).map(|nth| format!("/{nth}")).collect();
    let mut calls: Vec<_> =
        paths_sent.iter().map(|path| Box::pin(client.clone().oneshot(request(path)))).collect();
    calls.iter_mut().for_each(|call| assert!(!step(call)));
    assert_eq!(paths(&inbox), ["/0"]);
    // An answer without fields: there is no limit that is known, so all others go.
    give(&inbox, "/0", Ok(Response::new(())));
    assert!(step(&mut calls.remove(0)));
    calls.iter_mut().for_each(|call| assert!(!step(call)));
    assert_eq!(paths(&inbox), paths_sent[1..]);
}

#[tokio::test(start_paused = true)]
async fn a_first_request_that_fails_or_is_slow_holds_the_others_for_a_second_at_most() {
    for is_dropped in [true, false] {
        let (inbox, server) = server();
        let client = PacingLayer::new().max_wait(HOUR).layer(server);
        let send = |path| Box::pin(client.clone().oneshot(request(path)));
        let (mut first, mut second, mut third) = (send("/1"), send("/2"), send("/3"));
        assert!(!step(&mut first));
        assert!(!step(&mut second));
        assert!(!step(&mut third));
        if is_dropped {
            drop(first);
        } else {
            give(&inbox, "/1", Err(ConnectionError));
            assert_eq!(first.await.unwrap_err(), ConnectionError);
        }
        assert!(!step(&mut second));
        assert!(!step(&mut third));
        assert_eq!(paths(&inbox).last().unwrap(), "/2", "the next one goes alone");
        advance(SECOND + Duration::from_millis(2)).await;
        assert!(!step(&mut third));
        assert_eq!(paths(&inbox).last().unwrap(), "/3");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_future_that_waits_frees_its_place() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(HOUR).layer(server);
    let send = |path| Box::pin(client.clone().oneshot(request(path)));
    let mut first = send("/1");
    assert!(!step(&mut first));
    give(&inbox, "/1", shows(0, 10));
    first.await.unwrap();
    let mut waiting: Vec<_> = ["/2", "/3", "/4"].map(send).into();
    waiting.iter_mut().for_each(|call| assert!(!step(call)));
    // The first in the line and one behind it.
    waiting.remove(0);
    waiting.remove(1);
    advance(10 * SECOND + Duration::from_millis(2)).await;
    assert!(!step(&mut waiting[0]));
    assert_eq!(paths(&inbox), ["/3"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_pauses_all_requests_to_its_host_and_to_no_other() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(HOUR).layer(server);
    let start = Instant::now();
    let send = |uri: &str| Box::pin(client.clone().oneshot(Request::get(uri).body(()).unwrap()));
    let mut refused = send("http://them.example/1");
    assert!(!step(&mut refused));
    let refusal = Response::builder().status(429).header("retry-after", "5").body(()).unwrap();
    give(&inbox, "/1", Ok(refusal));
    assert_eq!(refused.await.unwrap().status(), 429);
    let mut paused = send("http://them.example/2");
    let mut other = send("http://others.example/3");
    assert!(!step(&mut paused));
    assert!(!step(&mut other));
    assert_eq!(paths(&inbox), ["/3"]);
    let answers = tokio::spawn(async move {
        while paths(&inbox).len() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        give(&inbox, "/2", Ok(Response::new(())));
    });
    paused.await.unwrap();
    answers.await.unwrap();
    let late = start.elapsed().checked_sub(5 * SECOND).expect("not before");
    assert!(late < Duration::from_millis(5), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_for_too_long_goes_at_once() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(9 * SECOND).layer(server);
    let send = |path| Box::pin(client.clone().oneshot(request(path)));
    let mut first = send("/1");
    assert!(!step(&mut first));
    give(&inbox, "/1", shows(0, 10));
    first.await.unwrap();
    let mut second = send("/2");
    assert!(!step(&mut second));
    assert_eq!(paths(&inbox), ["/2"]);
}

#[tokio::test(start_paused = true)]
async fn headroom_is_left_to_others_and_requests_without_a_key_are_sent_at_once() {
    let (inbox, server) = server();
    let layer = PacingLayer::new().max_wait(HOUR).headroom(3).key_with(|head| {
        let path = head.uri().path();
        path.starts_with("/paced").then(|| path.to_owned())
    });
    let client = layer.layer(server);
    let send = |path| Box::pin(client.clone().oneshot(request(path)));
    let mut first = send("/paced");
    assert!(!step(&mut first));
    give(&inbox, "/paced", shows(3, 30));
    first.await.unwrap();
    let (mut second, mut free) = (send("/paced"), send("/free"));
    assert!(!step(&mut second));
    assert!(!step(&mut free));
    assert_eq!(paths(&inbox), ["/free"]);
    advance(30 * SECOND + Duration::from_millis(2)).await;
    assert!(!step(&mut second));
    assert_eq!(paths(&inbox), ["/free", "/paced"]);
}

/// A service with one slot, as tower's `ConcurrencyLimit` has: to be ready is to hold it.
struct OneSlot<S> {
    inner: S,
    slots: Arc<Semaphore>,
    acquiring: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
    held: Option<OwnedSemaphorePermit>,
}

impl<S> OneSlot<S> {
    fn new(inner: S) -> Self {
        Self { inner, slots: Arc::new(Semaphore::new(1)), acquiring: None, held: None }
    }
}

impl<S: Clone> Clone for OneSlot<S> {
    fn clone(&self) -> Self {
        let (inner, slots) = (self.inner.clone(), Arc::clone(&self.slots));
        Self { inner, slots, acquiring: None, held: None }
    }
}

impl<S> Service<Request<()>> for OneSlot<S>
where
    S: Service<Request<()>, Response = Response<()>, Future: Send + 'static>,
{
    type Response = Response<()>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<()>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if self.held.is_none() {
            let slots = Arc::clone(&self.slots);
            let acquire = || Box::pin(async { slots.acquire_owned().await.unwrap() }) as _;
            self.held = Some(ready!(self.acquiring.get_or_insert_with(acquire).as_mut().poll(cx)));
            self.acquiring = None;
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let slot = self.held.take().expect("it was made ready");
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            drop(slot);
            answer
        })
    }
}

/// The service that was made ready kept the only slot, while the clone that the request had to go
/// to waited for it: the request was never sent.
#[tokio::test(start_paused = true)]
async fn a_request_that_waits_holds_no_slot_of_the_inner_service() {
    let answers = Arc::new(Mutex::new(vec![shows(8, 0), shows(0, 10)]));
    let server = service_fn(move |_: Request<()>| {
        let answer = answers.lock().unwrap().pop().expect("two requests");
        std::future::ready(answer)
    });
    let mut client = PacingLayer::new().max_wait(HOUR).layer(OneSlot::new(server));
    let start = Instant::now();
    for _ in 0..2 {
        let call = client.ready().await.unwrap().call(request("/"));
        timeout(DAY, call).await.expect("it is sent").unwrap();
    }
    assert_eq!(start.elapsed().as_secs(), 10);
}

/// Futures in a `Buffered` stream are not polled while the loop over the stream does other work. If
/// that work sends a request, it must not wait for those futures.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_any_more_holds_up_no_other() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(HOUR).layer(server);
    let send = |path| Box::pin(client.clone().oneshot(request(path)));
    let mut first = send("/1");
    assert!(!step(&mut first));
    // Both wait for the first answer, and are not polled after that.
    let mut stalled = [send("/2"), send("/3")];
    stalled.iter_mut().for_each(|call| assert!(!step(call)));
    let (fourth, fifth) = (tokio::spawn(send("/4")), tokio::spawn(send("/5")));
    yield_now().await;
    give(&inbox, "/1", shows(3, 30));
    first.await.unwrap();
    let start = Instant::now();
    while paths(&inbox).len() < 2 {
        assert!(start.elapsed() < 2 * SECOND, "{:?} after {:?}", paths(&inbox), start.elapsed());
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(paths(&inbox), ["/4", "/5"], "in their order");
    // One token is left, and it is for the one that has waited for longest.
    give(&inbox, "/4", shows(2, 30));
    give(&inbox, "/5", shows(1, 30));
    fourth.await.unwrap().unwrap();
    fifth.await.unwrap().unwrap();
    let mut last = send("/6");
    assert!(!step(&mut last));
    assert!(!step(&mut stalled[0]));
    advance(16 * SECOND).await;
    assert!(!step(&mut last));
    assert_eq!(paths(&inbox), [""; 0], "it is not its turn");
    assert!(!step(&mut stalled[0]));
    assert_eq!(paths(&inbox), ["/2"]);
}

/// Their turns came, they waited for the slot, and then went into the pause one after the other.
#[tokio::test(start_paused = true)]
async fn a_refusal_stops_those_whose_turn_has_come_and_that_wait_for_the_inner_service() {
    let (inbox, server) = server();
    let client = PacingLayer::new().max_wait(HOUR).layer(OneSlot::new(server));
    let send = |path| tokio::spawn(client.clone().oneshot(request(path)));
    let first = send("/1");
    yield_now().await;
    give(&inbox, "/1", shows(0, 80));
    first.await.unwrap().unwrap();
    let mut others = Vec::new();
    for path in ["/2", "/3", "/4"] {
        others.push(send(path));
        yield_now().await;
    }
    // Their turns come every ten seconds.
    sleep(105 * SECOND).await;
    assert_eq!(paths(&inbox), ["/2"], "the others wait for the slot");
    let refusal = Response::builder().status(429).header("retry-after", "60");
    give(&inbox, "/2", Ok(refusal.body(()).unwrap()));
    sleep(59 * SECOND).await;
    assert_eq!(paths(&inbox), [""; 0], "nothing is sent in the pause");
    // Then they go in their order.
    sleep(2 * SECOND).await;
    assert_eq!(paths(&inbox), ["/3"]);
    give(&inbox, "/3", shows(8, 30));
    sleep(SECOND).await;
    assert_eq!(paths(&inbox), ["/4"]);
    give(&inbox, "/4", shows(7, 30));
    for other in others {
        other.await.unwrap().unwrap();
    }
}

/// A task that only its wakers keep alive, as in an executor that is gone.
struct OrphanTask(Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>);

impl Wake for OrphanTask {
    fn wake(self: Arc<Self>) {}
}

/// To drop the waker of such a task drops its future, and that leaves the line.
#[test]
fn a_task_that_only_the_line_keeps_alive_can_be_dropped_from_it() {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (inbox, server) = server();
            let client = PacingLayer::new().max_wait(HOUR).layer(server);
            let send = |path| Box::pin(client.clone().oneshot(request(path)));
            let mut first = send("/1");
            assert!(!step(&mut first));
            let orphan = send("/2");
            let orphan: Pin<Box<dyn Future<Output = ()> + Send>> =
                Box::pin(async { drop(orphan.await) });
            let task = Arc::new(OrphanTask(Mutex::new(Some(orphan))));
            let waker = Waker::from(Arc::clone(&task));
            let context = &mut Context::from_waker(&waker);
            let polled = task.0.lock().unwrap().as_mut().unwrap().as_mut().poll(context);
            assert!(polled.is_pending());
            drop((task, waker));
            let third = tokio::spawn(send("/3"));
            // The timer lets go of the task when it fires; then the third overtakes it.
            sleep(2 * SECOND).await;
            give(&inbox, "/1", shows(8, 30));
            first.await.unwrap();
            give(&inbox, "/3", shows(7, 30));
            third.await.unwrap().unwrap();
        });
        sender.send(()).unwrap();
    });
    // In real time: a deadlock is no test that fails.
    let patience = Duration::from_secs(20);
    receiver.recv_timeout(patience).expect("the task is dropped without a deadlock");
}

/// Types that users have to be able to name and to share.
#[tokio::test(start_paused = true)]
async fn layer_service_and_future_are_what_tower_expects() {
    fn shared<T: Clone + std::fmt::Debug + Send + Sync + 'static>(_: &T) {}
    fn sent<T: std::fmt::Debug + Send + Sync>(_: &T) {}
    type Inner = tower::util::BoxCloneSyncService<Request<()>, Response<()>, ConnectionError>;
    struct Named {
        layer: PacingLayer,
        service: Pace<Inner>,
        future: Pin<Box<ResponseFuture<Inner, ()>>>,
    }
    let (_inbox, server) = server();
    let layer = PacingLayer::new().max_wait(DAY).max_hosts(7).quota(2, SECOND);
    let mut service = layer.layer(Inner::new(server));
    shared(&layer);
    let future = Box::pin(service.ready().await.unwrap().call(request("/")));
    let mut waits = pin!(service.call(request("/")));
    assert!(poll(&mut waits).is_pending());
    assert_eq!(format!("{waits:?}"), "ResponseFuture(waiting)");
    let named = Named { layer, service, future };
    assert_eq!(format!("{:?}", named.future), "ResponseFuture(sent)");
    sent(&named.layer);
    let settings = "PacingSettings { max_wait: 86400s, headroom: 0, max_hosts: 7, quotas: [2 per 1s], \
                    reader: Reader { statuses: None }, .. }";
    assert!(format!("{:?}", named.layer).contains(settings), "{:?}", named.layer);
    drop(named.service.into_inner());
}
