//! What an operator reads in the log about Redis.

use std::convert::Infallible;
use std::future::ready;

use http::{Request, Response};
use tollgate::key::header;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::log::logged;
use tollgate_testing::redis::Server;
use tower::{Layer, Service, ServiceExt, service_fn};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

fn inner()
-> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(()))))
}

/// The same with a real server: of 400 requests, 399 were logged.
#[test]
fn a_redis_server_that_is_full_is_logged_once() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lines = logged(tracing::Level::INFO, || {
        runtime.block_on(async {
            let redis = Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap();
            let layer = RateLimiter::new(redis).layer(&TWO).key(header("x-user"));
            let service = layer.layer(inner());
            let ask = async |user: String| {
                let request = Request::builder().header("x-user", user).body(()).unwrap();
                service.clone().oneshot(request).await.unwrap().status().as_u16()
            };
            for status in [200, 200, 429] {
                assert_eq!(ask("empty".to_owned()).await, status);
            }
            server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
            for nth in 0..200 {
                assert_eq!(ask("empty".to_owned()).await, 429);
                assert_eq!(ask(format!("new-{nth}")).await, 503);
            }
        });
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("the backend is full") && lines[0].contains("OOM"), "{lines:#?}");
}

/// The log contained the key of a client, but keys must not be logged.
#[test]
fn a_value_in_redis_that_is_no_bucket_is_logged_without_its_key() {
    let server = Server::start();
    server.command(&["SET", "tollgate:two:alice@example.com", "no bucket"]).ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lines = logged(tracing::Level::DEBUG, || {
        runtime.block_on(async {
            let redis = Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap();
            let service = RateLimiter::new(redis).layer(&TWO).key(header("x-user")).layer(inner());
            let alice = Request::builder().header("x-user", "alice@example.com").body(()).unwrap();
            assert_eq!(service.oneshot(alice).await.unwrap().status(), 503);
        });
    });
    let told = "a key of limit `two` holds a value that is not a bucket (find it by its value, \
                which is not 48 bytes long or has the numbers of no quota, and reset it; or use \
                another prefix)";
    assert!(lines.len() == 1 && lines[0].contains(told), "{lines:#?}");
    assert!(!lines[0].contains("alice"), "{lines:#?}");
}
