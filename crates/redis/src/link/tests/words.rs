//! The errors of URLs that cannot be used, which show no secrets.

use std::time::Duration;

use super::super::failure::Failure;
use super::super::retry_action::RetryAction;
use super::super::{ConnectOptions, Servers};
#[cfg(feature = "tls")]
use super::single::chain;
use crate::RedisBuilder;
use crate::{HashTag, Redis};

#[track_caller]
fn wrong(url: &str) -> String {
    let error = Servers::single(url, &ConnectOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("redis backend is misconfigured: "), "{error}");
    error.cause().unwrap().to_string()
}

/// Regression: the error quoted the URL without its password as it was parsed, but a password may
/// stand in other parts as well.
#[test]
fn an_unusable_url_is_explained_and_never_quoted() {
    let way_out = "(write redis://user:password@host:port/db, rediss:// for TLS or unix:///path for a \
                   socket, and in a password %40 for `@`, %2F for `/` and so on)";
    let no_host = "its host or its port is missing or invalid";
    let no_login = "its host or its port is missing or invalid (is there an `@` before the host?)";
    let no_database = "its database is not a number";
    let behind = "there is an `@` or a `#` after its host";
    for (url, problem) in [
        ("", "it has no `://`"),
        ("localhost:6379", "it has no `://`"),
        ("redis:user:secret@host", "it has no `://`"),
        ("http://localhost", "its scheme is not that of a server"),
        ("redis+user:secret://host", "its scheme is not that of a server"),
        ("redis://user:secret127.0.0.1:6379", no_login),
        ("redis://user:secret@host:port", no_host),
        ("redis://:secret@word@host:99999", no_host),
        ("redis://:secret", no_login),
        ("redis://user:secret/word@host", no_login),
        ("redis://user:12/word@host", behind),
        ("redis://user:12?word@host", behind),
        ("redis://user:12#word@host", behind),
        ("redis://host/text", no_database),
        ("redis://host/?protocol=secret", "its `protocol` is neither `resp2` nor `resp3`"),
        ("redis:///3", "it has no host"),
        ("redis://0.0.0.0", "0.0.0.0 and [::] are not addresses to connect to"),
        ("redis://[::]:6379", "0.0.0.0 and [::] are not addresses to connect to"),
        ("redis://%ff:secret@host", "it is not the URL of a server"),
        ("unix://?pass=secret", "it is not the URL of a server"),
        ("unix:///socket?pass=secret&db=secret", no_database),
        (
            "unix:///socket?pass=secret&protocol=secret",
            "its `protocol` is neither `resp2` nor `resp3`",
        ),
    ] {
        assert_eq!(
            wrong(url),
            format!("the URL of the server cannot be used: {problem} {way_out}")
        );
    }
    let seeds = ["redis://host", "redis://:secret@:6379"].map(str::to_owned);
    let error = Servers::cluster(&seeds, &ConnectOptions::default()).unwrap_err();
    let told = error.cause().unwrap().to_string();
    assert!(
        told.starts_with("URL 2 of 2 cannot be used: its host or its port is missing or invalid ("),
        "{told}"
    );
}

#[test]
fn urls_of_all_forms_can_be_used() {
    for (url, name) in [
        ("redis://127.0.0.1", "127.0.0.1:6379"),
        (" valkey://user:p%40ss@host:7000/3\n", "host:7000"),
        ("REDIS://user:p@ss@host/", "host:6379"),
        ("redis://host?protocol=resp2", "host:6379"),
        ("redis://[::1]:7000", "::1:7000"),
        ("unix:///run/redis@1.sock?user=u&pass=p@ss&db=3", "/run/redis@1.sock"),
    ] {
        let servers = Servers::single(url, &ConnectOptions::default()).unwrap();
        assert!(format!("{servers:?}").contains(&format!("Server({name:?})")), "{servers:?}");
    }
}

#[tokio::test]
async fn a_wrong_setting_is_reported_with_the_way_out() {
    let at = || Redis::at("redis://127.0.0.1");
    let none: [&str; 0] = [];
    let told = |builder: RedisBuilder| {
        let error = builder.connect_lazily().unwrap_err();
        assert!(error.to_string().starts_with("redis backend is misconfigured: "), "{error}");
        error.cause().unwrap().to_string()
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
        "a deadline of 0 leaves no time to decide (use more than 0; the default is 50 ms)"
    );
    for wrong in [at().prefix("a b"), at().hash_tag(HashTag::Fixed("{}".into()))] {
        assert!(told(wrong).contains("letters"));
    }
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_needs_its_feature() {
    assert_eq!(
        wrong("rediss://user:secret@host"),
        "the URL of the server cannot be used: it asks for TLS, which needs the feature `tls` of \
         `tollgate-redis` (write redis://user:password@host:port/db, rediss:// for TLS or \
         unix:///path for a socket, and in a password %40 for `@`, %2F for `/` and so on)"
    );
}

/// Regression: the error quoted a whole private key if its line breaks were lost.
#[cfg(feature = "tls")]
#[tokio::test]
async fn unusable_certificates_are_explained_and_never_quoted() {
    const KEY: &str = "-----BEGIN PRIVATE KEY----- c2VjcmV0 -----END PRIVATE KEY-----";
    let plain = || Redis::at("redis://:secret@host");
    let tls = || Redis::at("rediss://:secret@host");
    for (builder, problem) in [
        (plain().client_certificate("", ""), "its URL does not ask for TLS"),
        (plain().root_certificate(""), "its URL does not ask for TLS"),
        (tls().client_certificate("none", "none"), "there is no client certificate in the PEM"),
        (tls().client_certificate(KEY, KEY), "the client certificate is not PEM"),
        (tls().root_certificate(KEY), "the root certificate is not PEM"),
        (tls().root_certificate("none"), "there is no root certificate in the PEM"),
    ] {
        assert!(!format!("{builder:?}").contains("c2VjcmV0"));
        let error = builder.connect_lazily().unwrap_err();
        assert_eq!(
            chain(&error),
            format!(
                "redis backend is misconfigured: the certificates cannot be used for host:6379 \
                 (they are PEM, for a rediss:// URL): {problem}"
            )
        );
        let shown = format!("{error:?}");
        assert!(!shown.contains("c2VjcmV0") && !shown.contains("99, 50, 86"), "{shown}");
    }
}

/// Regression: the client library panicked at the first connection, because no cryptography
/// provider was installed.
#[cfg(feature = "tls")]
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

/// Only what no client can bring about is an outage, for which a layer may admit requests.
#[test]
fn a_reply_without_a_known_code_is_no_outage() {
    let old =
        |told: &str| format!("ERR Error running script (call to f_1): @user_script:9: -{told}");
    let outages = [
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script",
        "MASTERDOWN Link with MASTER is down",
        "READONLY You can't write against a read only replica.",
        "NOREPLICAS Not enough good replicas to write.",
        "CLUSTERDOWN The cluster is down",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "ERR max number of clients reached",
    ];
    let full = [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
    ];
    let mistakes = [
        "NOAUTH Authentication required.",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "NOPERM this user has no permissions",
        "ERR unknown command 'EVALSHA', with args beginning with: '-LOADING now'",
        "ERR @user_script:9: -loading",
        "ERR unknown command `EVALSHA`, with args beginning with: `@user_script:9: -LOADING now`",
        "UNKNOWN words",
    ];
    let rows = outages.map(|reply| (reply.to_owned(), Failure::Outage)).into_iter();
    let rows = rows.chain(full.map(|reply| (reply.to_owned(), Failure::Full)));
    let rows = rows.chain(mistakes.map(|reply| (reply.to_owned(), Failure::Misconfigured)));
    // As Redis 6.2 says it.
    let rows = rows.chain([
        (old("OOM command not allowed when used memory > 'maxmemory'."), Failure::Full),
        (old("NOREPLICAS Not enough good replicas to write."), Failure::Outage),
        (old("WRONGTYPE Operation against a key"), Failure::Misconfigured),
        ("CROSSSLOT Keys in request don't hash to the same slot".to_owned(), Failure::Undecidable),
    ]);
    for (reply, failure) in rows {
        let value = ::redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        assert_eq!(Failure::new(&value.extract_error().unwrap_err()), failure, "{reply}");
    }
}
