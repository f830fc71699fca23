//! The errors of calls that Redis does not answer: they say what went wrong, and with which server.

use std::time::Duration;

use tollgate::{MINUTE, RateLimited, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Mode, Proxy, Server};
use tollgate_testing::traffic::{COUNTED, chain, wait_until};

/// A limiter that has not asked for anything yet.
fn limiter(url: String, deadline: Duration) -> RateLimiter {
    RateLimiter::new(Redis::at(url).deadline(deadline).connect_lazily().unwrap())
}

async fn ask(limiter: &RateLimiter) -> Result<(), RateLimited> {
    limiter.limit(&COUNTED).await.map(drop)
}

#[tokio::test]
async fn no_server_is_there() {
    let server = Server::start();
    let port = server.port();
    server.kill();
    let text = format!("redis backend could not decide: cannot connect to 127.0.0.1:{port}: ");
    let error = Redis::connect(server.url()).await.unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with(&text) && said.contains("Connection refused"), "{said}");
    assert!(!error.is_timeout());

    let error = ask(&limiter(server.url(), MINUTE)).await.unwrap_err();
    let said = chain(&error);
    let text = format!("limit `counted` could not be decided < {text}");
    assert!(said.starts_with(&text) && said.contains("Connection refused"), "{said}");
    assert!(error.is_unavailable() && !error.is_timeout());
}

#[tokio::test]
async fn a_server_dies_with_a_call_under_way() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    let limiter = limiter(proxy.url(), MINUTE);
    ask(&limiter).await.unwrap();
    proxy.set(Mode::LoseAnswers);
    let asked = || server.info("commandstats", "cmdstat_evalsha");
    let before = asked();
    let of_task = limiter.clone();
    let call = tokio::spawn(async move { ask(&of_task).await });
    wait_until("it is asked", async || asked() != before).await;
    proxy.set(Mode::Refuse);
    let error = call.await.unwrap().unwrap_err();
    let text = format!("lost the connection to 127.0.0.1:{}", proxy.port());
    assert!(chain(&error).contains(&text), "{}", chain(&error));
    assert!(!error.is_timeout());
}

#[tokio::test]
async fn an_answer_breaks_off() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    let limiter = limiter(proxy.url(), MINUTE);
    ask(&limiter).await.unwrap();
    proxy.set(Mode::Cut);
    let error = ask(&limiter).await.unwrap_err();
    let text = format!("lost the connection to 127.0.0.1:{}", proxy.port());
    assert!(chain(&error).contains(&text), "{}", chain(&error));
}

#[tokio::test]
async fn a_server_is_full() {
    let server = Server::start();
    let limiter = limiter(server.url(), MINUTE);
    ask(&limiter).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    let error = ask(&limiter).await.unwrap_err();
    let text = format!("127.0.0.1:{} answered `OOM ", server.port());
    assert!(chain(&error).contains(&text), "{}", chain(&error));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    ask(&limiter).await.unwrap();
}

/// No call over TLS used to be decided at all.
#[cfg(feature = "tls")]
#[tokio::test]
async fn a_server_is_trusted_by_its_certificate() {
    let server = Server::tls();
    let trusting = || Redis::at(server.url()).root_certificate(server.ca_pem());
    let limiter = RateLimiter::new(trusting().deadline(MINUTE).connect().await.unwrap());
    ask(&limiter).await.unwrap();
    let told = Redis::connect(server.url()).await.unwrap_err().to_string();
    assert!(told.contains("invalid peer certificate"), "{told}");
}
