//! The example `fleet`, whose processes decide by themselves when Redis is late. One test waits for
//! the circuit to close, which it tries within two seconds.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../examples/fleet.rs"]
mod example;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tollgate_testing::redis::{Mode, Proxy, Server};
use tollgate_testing::web::{get, serve};

/// How often each of two processes lets a client in before it refuses, one after the other.
async fn let_in(url: Option<&str>) -> [u32; 2] {
    let mut let_in = [0, 0];
    for count in &mut let_in {
        let process = serve(example::Node::new(url).unwrap().app()).await;
        let mut late = 0;
        loop {
            match get(process, "/").await.status.as_u16() {
                200 => *count += 1,
                429 => break,
                // On a machine that is slow, this process itself is late once in a while.
                503 if late < 3 => late += 1,
                status => panic!("{status}"),
            }
        }
    }
    let_in
}

#[tokio::test]
async fn fleet_shares_its_limits_in_redis_and_nowhere_else() {
    let server = Server::start();
    let url = server.url();
    let [first, second] = let_in(Some(&url)).await;
    // On a machine that is slow, Redis may not decide in time: the process then decides itself.
    assert!((7..=15).contains(&first) && second <= 5, "{first} and {second}");
    assert_eq!(let_in(None).await, [10, 10]);
}

/// What the documentation of the example lets its reader type.
#[tokio::test]
async fn fleet_loses_a_redis_and_finds_it_again() {
    let server = Server::start();
    let proxy = Proxy::before(server.port());
    let node = |url: String| example::Node::new(Some(&url)).unwrap().app();
    let first = serve(node(server.url())).await;
    let second = serve(node(proxy.url())).await;
    assert_eq!(get(first, "/").await.status, 200);
    until_admitted(second, "/login").await;

    proxy.set(Mode::Refuse);
    let mut admitted = 0;
    loop {
        let reply = get(second, "/").await;
        match reply.status.as_u16() {
            200 => admitted += 1,
            status => {
                assert_eq!((status, reply.field("retry-after").is_some()), (429, true));
                break;
            }
        }
    }
    assert_eq!(admitted, 5, "half of the limit");
    loop {
        let login = get(second, "/login").await;
        let told = login.field("retry-after").is_some();
        assert_eq!((login.status.as_u16(), told), (503, true));
        if get(second, "/store").await.body.starts_with("circuit open: true") {
            break;
        }
    }
    let store = get(second, "/store").await.body;
    assert!(store.ends_with("admitted here 5, refused here 1\n"), "{store}");
    assert_eq!(get(first, "/").await.status, 200);

    proxy.set(Mode::Pass);
    until_admitted(second, "/login").await;
    // Nothing is left of its half, but Redis has admitted 2 of 10 so far.
    until_admitted(second, "/").await;
}

/// Asks until Redis decides, which a machine that is slow does not see in time at once.
async fn until_admitted(server: SocketAddr, path: &str) {
    let begun = Instant::now();
    while get(server, path).await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{path} is not admitted");
    }
}
