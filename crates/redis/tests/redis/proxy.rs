//! The proxy with which other tests drop, cut and delay traffic to servers works as documented.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tollgate_testing::redis::{Client, Mode, Proxy, Reply, Server, until};

const PATIENCE: Duration = Duration::from_secs(30);

fn pong() -> Reply {
    Reply::Text(b"PONG".to_vec())
}

/// A server, a proxy before it, and a client that was answered by way of it.
fn by_proxy() -> (Server, Proxy, Client) {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    assert_eq!(proxy.url(), format!("redis://127.0.0.1:{}", proxy.port()));
    let mut client = Client::tcp(proxy.port(), PATIENCE).unwrap();
    assert_eq!(client.call(&["PING"]).unwrap(), pong());
    assert_eq!((proxy.connections(), proxy.open()), (1, 1));
    (server, proxy, client)
}

/// Asserts that no answer came until the connection was closed by a change of the mode.
fn unanswered_until_passed(proxy: &Proxy, clients: &mut [Client]) {
    proxy.set(Mode::Pass);
    for client in clients {
        client.receive().unwrap_err();
    }
    until("lost connections are closed", || proxy.open() == 0);
    let mut client = Client::tcp(proxy.port(), PATIENCE).unwrap();
    assert_eq!(client.call(&["PING"]).unwrap(), pong());
}

/// It waits for 20 ms in vain.
#[test]
fn a_silent_proxy_passes_nothing() {
    let (server, proxy, old) = by_proxy();
    proxy.set(Mode::Silent);
    let soon = Duration::from_millis(20);
    let mut clients = [old, Client::tcp(proxy.port(), soon).unwrap()];
    for client in &mut clients {
        client.send(&["SET", "key", "value"]).unwrap();
    }
    let error = clients[1].receive().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error:?}");
    unanswered_until_passed(&proxy, &mut clients);
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn a_proxy_loses_answers_to_requests_that_arrive() {
    let (server, proxy, mut client) = by_proxy();
    proxy.set(Mode::LoseAnswers);
    client.send(&["SET", "key", "value"]).unwrap();
    until("the request arrives", || server.command(&["DBSIZE"]) == Reply::Int(1));
    // The answer may still be on its way to the proxy.
    until("the answer is lost", || proxy.lossy() == 1);
    unanswered_until_passed(&proxy, &mut [client]);
}

#[test]
fn a_proxy_cuts_answers() {
    let (server, proxy, mut client) = by_proxy();
    proxy.set(Mode::Cut);
    let error = client.call(&["SET", "key", "value"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(1));
    until("the connection is closed", || proxy.open() == 0);
}

/// It waits for the delay, which is 50 ms at most.
#[test]
fn a_proxy_delays_answers_in_their_order() {
    let (_server, proxy, mut client) = by_proxy();
    let (min, max) = (Duration::from_millis(5), Duration::from_millis(50));
    proxy.set(Mode::Delay(min, max));
    let begun = Instant::now();
    for nth in 0..10 {
        client.send(&["ECHO", &nth.to_string()]).unwrap();
    }
    for nth in 0..10 {
        assert_eq!(client.receive().unwrap().int(), nth);
    }
    assert!(begun.elapsed() >= min);
}

#[test]
fn a_proxy_refuses_new_and_old_connections() {
    let (_server, proxy, mut client) = by_proxy();
    proxy.set(Mode::Refuse);
    client.call(&["PING"]).unwrap_err();
    let call = |mut client: Client| client.call(&["PING"]);
    Client::tcp(proxy.port(), PATIENCE).and_then(call).unwrap_err();
    until("both were accepted and are closed", || (proxy.connections(), proxy.open()) == (2, 0));
    proxy.set(Mode::Pass);
    let again = Client::tcp(proxy.port(), PATIENCE).and_then(call).unwrap();
    assert_eq!(again, pong());
    drop(proxy);
    client.call(&["PING"]).unwrap_err();
}
