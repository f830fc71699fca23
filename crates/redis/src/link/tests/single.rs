//! A single server that goes away, hangs, or refuses calls.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::Value;
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::super::{Call, ConnectOptions, Link, Route, Servers};
use super::process::{Server, free_port, until};
use tollgate::backend::BackendError;

/// A script that counts how often it runs.
pub(super) const COUNT: &str = "return redis.call('INCR', KEYS[1])";
pub(super) const WITHIN: Duration = Duration::from_millis(50);

pub(super) fn link(url: &str) -> Link {
    Link::open(Servers::single(url, &ConnectOptions::default()).unwrap(), COUNT, WITHIN).unwrap()
}

/// Makes a call with a deadline that no test reaches.
pub(super) async fn call(link: &Link) -> Result<Value, BackendError> {
    link.call(Call::new(&["count"], b"", Instant::now() + Duration::from_secs(30))).await
}

/// Makes calls with a short deadline, which all fail, until one is told of this answer in time.
pub(super) async fn until_told(link: &Link, answer: &str) {
    until(answer, async || {
        let soon = Instant::now() + WITHIN;
        chain(&link.call(Call::new(&["count"], b"", soon)).await.unwrap_err()).contains(answer)
    })
    .await;
}

/// An error and its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[tokio::test]
async fn the_script_is_sent_again_with_its_text_when_the_server_has_lost_it() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let _: Value = server.ask(&["SCRIPT", "FLUSH"]).await.unwrap();
    assert_eq!(call(&link).await.unwrap(), Value::Int(2));
    assert_eq!(call(&link).await.unwrap(), Value::Int(3));
    let statistics: String = server.ask(&["INFO", "commandstats"]).await.unwrap();
    assert!(statistics.contains("cmdstat_eval:calls=2,"), "{statistics}");
}

// Regression: a call that reached its deadline just then failed with `NOSCRIPT`, which the caller
// cannot do anything about.
#[tokio::test]
async fn a_lost_script_at_the_deadline_is_reported_as_a_timeout() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let _: Value = server.ask(&["SCRIPT", "FLUSH"]).await.unwrap();
    let late = link.call(Call::new(&["count"], b"", Instant::now())).await.unwrap_err();
    assert_eq!(chain(&late), BackendError::timeout("redis", WITHIN).to_string());
    assert_eq!(call(&link).await.unwrap(), Value::Int(2));
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let mut server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    server.kill();
    let refused = chain(&call(&link).await.unwrap_err());
    assert!(refused.starts_with("redis backend could not decide: "), "{refused}");
    server.restart();
    until("the link has recovered", async || call(&link).await.is_ok()).await;
    assert_eq!(server.ask::<u32>(&["GET", "count"]).await.unwrap(), 1);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_idle_fails_no_call() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    // The server closes idle connections, and the link notices that without a call.
    let _: Value =
        server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
    let Route::Single(node) = &link.0.route else { panic!("one server") };
    node.loss(1).await;
    assert_eq!(call(&link).await.unwrap(), Value::Int(2));
    assert_eq!(server.ask::<u32>(&["GET", "count"]).await.unwrap(), 2);
}

#[tokio::test]
async fn a_refused_connection_is_reported_at_once() {
    let port = free_port();
    let link = link(&format!("redis://127.0.0.1:{port}"));
    let told = chain(&call(&link).await.unwrap_err());
    assert_eq!(
        told,
        format!(
            "redis backend could not decide: cannot connect to 127.0.0.1:{port}: Connection \
             refused (os error 111)"
        )
    );
    assert_eq!(chain(&link.ready().await.unwrap_err()), told);
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_one_are_reported() {
    let server = Server::start(&["--requirepass", "right"]);
    server.up().await;
    let port = server.port;
    let wrong = link(&format!("redis://:wrong@127.0.0.1:{port}"));
    let told = chain(&wrong.ready().await.unwrap_err());
    assert!(told.contains("WRONGPASS") && !told.contains(":wrong"), "{told}");
    let missing = link(&server.url());
    let told = chain(&missing.ready().await.unwrap_err());
    assert!(told.contains("NOAUTH"), "{told}");
    let right = link(&format!("redis://:right@127.0.0.1:{port}"));
    assert_eq!(call(&right).await.unwrap(), Value::Int(1));
    assert!(!format!("{right:?}").contains("right"));
}

/// A server that does not know `HELLO` quotes the command, which has the password in it.
#[tokio::test]
async fn a_password_that_a_server_quotes_is_not_shown() {
    let server = Server::start(&["--rename-command", "HELLO", ""]);
    server.up().await;
    let link = link(&format!("redis://alice:hush@127.0.0.1:{}", server.port));
    let error = link.ready().await.unwrap_err();
    let told = chain(&error);
    assert!(told.ends_with("answered `ERR unknown command 'HELLO'`"), "{told}");
    assert!(!told.contains("hush") && !format!("{error:?}").contains("hush"), "{error:?}");
}

#[tokio::test]
async fn a_call_to_a_replica_is_retried_until_the_deadline() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let unused = free_port().to_string();
    let _: Value = server.ask(&["REPLICAOF", "127.0.0.1", &unused]).await.unwrap();
    until_told(&link, "READONLY").await;
    let promoted = async {
        let _: Value = server.ask(&["REPLICAOF", "NO", "ONE"]).await.unwrap();
    };
    let (answer, ()) = tokio::join!(call(&link), promoted);
    assert_eq!(answer.unwrap(), Value::Int(2));
}

/// Regression: the answers behind it were taken for those of later calls, as long as the connection
/// lived.
#[tokio::test]
async fn an_answer_to_something_else_ends_the_connection() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    let late = Instant::now() + Duration::from_secs(30);
    let strange = Call::new(&["count"], b"", late).read_by(|answer, keys| {
        assert_eq!((answer, keys), (&Value::Int(1), 1));
        false
    });
    assert_eq!(
        chain(&link.call(strange).await.unwrap_err()),
        format!(
            "redis backend could not decide: 127.0.0.1:{} sent an answer that does not fit the call",
            server.port
        )
    );
    let Route::Single(node) = &link.0.route else { panic!("one server") };
    node.loss(1).await;
    assert_eq!(call(&link).await.unwrap(), Value::Int(2));
}

#[tokio::test]
async fn calls_with_other_errors_are_not_retried() {
    let server = Server::start(&[]);
    server.up().await;
    let _: Value = server.ask(&["SET", "count", "text"]).await.unwrap();
    let told = chain(&call(&link(&server.url())).await.unwrap_err());
    assert!(told.contains("answered `ERR value is not an integer"), "{told}");
}

#[tokio::test]
async fn a_call_to_a_busy_server_is_retried_until_the_deadline() {
    let server = Server::start(&["--lua-time-limit", "1"]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    // A script of another client does not end, so the server answers `BUSY`.
    let busy = async {
        let endless = server.ask::<Value>(&["EVAL", "while true do end", "0"]);
        assert!(endless.await.unwrap_err().to_string().contains("killed"));
    };
    let killed = async {
        until("the server is busy", async || {
            server.ask::<Value>(&["PING"]).await.is_err_and(|busy| busy.code() == Some("BUSY"))
        })
        .await;
        until_told(&link, "BUSY").await;
        let kill = async {
            let _: Value = server.ask(&["SCRIPT", "KILL"]).await.unwrap();
        };
        let (answer, ()) = tokio::join!(call(&link), kill);
        assert_eq!(answer.unwrap(), Value::Int(2));
    };
    tokio::join!(busy, killed);
}

#[tokio::test]
async fn the_last_link_closes_its_connection() {
    let server = Server::start(&[]);
    server.up().await;
    let link = link(&server.url());
    assert_eq!(call(&link).await.unwrap(), Value::Int(1));
    let clients = async || {
        let list: String = server.ask(&["CLIENT", "LIST"]).await.unwrap();
        list.lines().count()
    };
    let other = link.clone();
    drop(link);
    assert_eq!(call(&other).await.unwrap(), Value::Int(2));
    assert_eq!(clients().await, 2);
    drop(other);
    until("only the one that asks is left", async || clients().await == 1).await;
}

#[tokio::test]
async fn a_call_tries_once_to_connect_to_a_server_that_closes_each_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let knocks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&knocks);
    let hang_up = tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let link = link(&format!("redis://127.0.0.1:{port}"));
    for _ in 0..5 {
        let told = chain(&call(&link).await.unwrap_err());
        assert!(told.contains(&format!("cannot connect to 127.0.0.1:{port}")), "{told}");
    }
    // The link has made one attempt before the first call.
    let knocks = knocks.load(Ordering::Relaxed);
    assert!((1..=6).contains(&knocks), "{knocks}");
    hang_up.abort();
}

#[test]
fn without_a_runtime_there_is_no_link() {
    let servers = Servers::single("redis://127.0.0.1", &ConnectOptions::default()).unwrap();
    assert_eq!(
        chain(&Link::open(servers, COUNT, WITHIN).unwrap_err()),
        "redis backend could not decide: there is no tokio runtime here (connect inside \
         `#[tokio::main]`)"
    );
}
