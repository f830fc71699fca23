//! What is said about URLs that cannot be used, without their secrets.

use std::error::Error;

use std::time::Duration;

use super::super::retry_action::RetryAction;
use super::super::{ConnectOptions, Servers};
use crate::backend::redis::RedisBuilder;
use crate::backend::{HashTag, Redis};

#[track_caller]
fn wrong(url: &str) -> String {
    let error = Servers::single(url, &ConnectOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "redis backend is misconfigured");
    error.source().unwrap().to_string()
}

#[test]
fn a_url_that_cannot_be_used_is_shown_without_its_secrets() {
    let way_out = "is not the URL of a server (redis://user:password@host:port/db, rediss:// for \
                   TLS, unix:///path for a socket)";
    for (url, shown) in [
        ("localhost:6379", "localhost:6379"),
        ("http://localhost", "http://localhost"),
        ("redis://user:secret@host:port", "redis://..@host:.."),
        ("redis://:secret@word@host:99999", "redis://..@host:99999"),
        ("redis://:secret", "redis://:.."),
        ("redis://host/text", "redis://host/text"),
        ("unix://?pass=secret", "unix://.."),
        ("", ""),
    ] {
        assert_eq!(wrong(url), format!("`{shown}` {way_out}"));
    }
}

#[tokio::test]
async fn what_is_set_wrong_is_told_with_the_way_out() {
    let at = || Redis::at("redis://127.0.0.1");
    let none: [&str; 0] = [];
    let told = |builder: RedisBuilder| {
        let error = builder.connect_lazily().unwrap_err();
        assert_eq!(error.to_string(), "redis backend is misconfigured");
        error.source().unwrap().to_string()
    };
    let no_url = "no URL was given (at least one is needed, like redis://host:6379)";
    assert_eq!(told(Redis::cluster(none)), no_url);
    assert_eq!(told(Redis::sentinel(none, "shop")), no_url);
    assert_eq!(
        told(Redis::cluster(["redis://127.0.0.1/3"])),
        "a cluster has no database 3 (leave it out of the URL)"
    );
    assert_eq!(
        told(at().deadline(Duration::ZERO)),
        "a deadline of 0 leaves no time to decide (it must be more, 50 ms unless set)"
    );
    for wrong in [at().prefix("a b"), at().hash_tag(HashTag::Fixed("{}".into()))] {
        assert!(told(wrong).contains("letters"));
    }
}

#[cfg(not(feature = "redis-tls"))]
#[test]
fn tls_needs_its_feature() {
    assert_eq!(
        wrong("rediss://user:secret@host"),
        "`rediss://..@host` asks for TLS, which needs the feature `redis-tls` of tollgate"
    );
}

#[cfg(feature = "redis-tls")]
#[tokio::test]
async fn certificates_need_tls() {
    for (url, pem) in [("redis://:secret@host", ""), ("rediss://:secret@host", "no certificate")] {
        let builder = Redis::at(url).client_certificate(pem, pem);
        let error = builder.connect_lazily().unwrap_err();
        assert_eq!(
            error.source().unwrap().to_string(),
            "the certificates cannot be used for host:6379 (they are PEM, for a rediss:// URL)"
        );
    }
}

/// The client used to panic at the first connection, as no cryptography was chosen.
#[cfg(feature = "redis-tls")]
#[tokio::test]
async fn a_connection_by_tls_needs_nothing_else() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let greeted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut record = [0; 1];
        while stream.try_read(&mut record).is_err() {
            stream.readable().await.unwrap();
        }
        record
    });
    let redis = Redis::at(format!("rediss://127.0.0.1:{port}")).connect_lazily().unwrap();
    // A handshake begins.
    assert_eq!(greeted.await.unwrap(), [22]);
    drop(redis);
}

#[test]
fn a_builder_shows_no_secrets() {
    let builder = Redis::sentinel(["redis://user:hush@host"], "shop")
        .sentinel_login("user", "hush")
        .hash_keys("hush hush hush hush hush hush hush");
    let shown = format!("{builder:?}");
    assert!(shown.contains("shop") && !shown.contains("hush"), "{shown}");
    let servers = Servers::single("redis://user:hush@host", &ConnectOptions::default()).unwrap();
    assert!(!format!("{servers:?}").contains("hush"));
}

#[test]
fn what_was_certainly_not_carried_out_is_asked_again() {
    let node = || "127.0.0.1:7001".to_owned();
    for (reply, action) in [
        ("NOSCRIPT No matching script. Please use EVAL.", RetryAction::SendText),
        ("LOADING Redis is loading the dataset in memory", RetryAction::Wait),
        ("TRYAGAIN Multiple keys request during rehashing of slot", RetryAction::Wait),
        ("CLUSTERDOWN The cluster is down", RetryAction::Wait),
        ("MASTERDOWN Link with MASTER is down", RetryAction::Wait),
        ("BUSY Redis is busy running a script", RetryAction::Wait),
        ("READONLY You can't write against a read only replica.", RetryAction::Reconnect),
        // As Redis 6.2 says it.
        (
            "ERR Error running script (call to f_1): @user_script:9: -READONLY You can't write against a read only replica.",
            RetryAction::Reconnect,
        ),
        ("MOVED 1234 127.0.0.1:7001", RetryAction::Moved(node())),
        ("ASK 1234 127.0.0.1:7001", RetryAction::Ask(node())),
        ("MOVED", RetryAction::Fail),
        ("OOM command not allowed when used memory > 'maxmemory'.", RetryAction::Fail),
        ("NOPERM this user has no permissions", RetryAction::Fail),
        ("ERR user_script:1: Script attempted to access", RetryAction::Fail),
        ("UNKNOWN words", RetryAction::Fail),
    ] {
        let value = ::redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        assert_eq!(RetryAction::new(&value.extract_error().unwrap_err()), action, "{reply}");
    }
}
