//! Servers that never finish the handshake of TLS: the tests wait for attempts that are given up
//! after a second.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Impostor, Server, endlessly, pass};
use tollgate_testing::traffic::{DEADLINE, wait_until};

const UPLOADS: Limit = Limit::new("uploads", Quota::token_bucket(3, HOUR));

/// What a server does that never finishes the handshake, behind the client's greeting.
type Stall = Arc<dyn Fn(&mut TcpStream) -> io::Result<()> + Send + Sync>;

/// Reads until the client has enough.
fn silence(client: &mut TcpStream) -> io::Result<()> {
    while client.read(&mut [0; 4_096])? > 0 {}
    Ok(())
}

/// A server that stalls: every call is answered by its deadline, and no connections pile up. When
/// the server recovers, the store decides.
async fn stalls(what: &str, stall: Stall, answered: impl Fn()) {
    let server = Server::tls();
    let port = server.port();
    let is_sound = Arc::new(AtomicBool::new(false));
    let of_thread = Arc::clone(&is_sound);
    let impostor = Impostor::accepting(move |client| match of_thread.load(Ordering::Acquire) {
        true => pass(client, port),
        false => stall(client),
    });
    let url = format!("rediss://localhost:{}", impostor.port());
    let redis = Redis::at(url).root_certificate(server.ca_pem()).deadline(DEADLINE);
    let limiter = RateLimiter::new(redis.connect_lazily().unwrap());
    // Long enough for an attempt to be given up, and for another one.
    let mut calls = 0;
    while calls < 30 || impostor.connections() < 2 {
        let error = limiter.limit(&UPLOADS).key("alice").await.map(drop).unwrap_err();
        assert!(error.is_unavailable(), "{what}: {error:?}");
        // What was given up a moment ago may still be on its way out.
        let is_bounded =
            async || impostor.open() <= 2 && Handle::current().metrics().num_alive_tasks() <= 8;
        wait_until("few connections and tasks", is_bounded).await;
        answered();
        calls += 1;
    }
    is_sound.store(true, Ordering::Release);
    let admitted = async || limiter.limit(&UPLOADS).key("alice").await.is_ok();
    wait_until(what, admitted).await;
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    stalls("silence", Arc::new(silence), || ()).await;
}

#[tokio::test]
async fn a_server_that_closes_at_once_is_asked_again() {
    stalls("the end", Arc::new(|_: &mut TcpStream| Ok(())), || ()).await;
}

#[tokio::test]
async fn garbage_in_place_of_a_handshake_is_given_up() {
    let words: [&[u8]; 4] = [
        b"+PONG\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0xff; 1_024],
        // An alert, as of a server that knows no common version.
        &[21, 3, 3, 0, 2, 2, 70],
    ];
    for garbage in words {
        let stall = move |client: &mut TcpStream| {
            client.write_all(garbage)?;
            silence(client)
        };
        stalls(&format!("{garbage:?}"), Arc::new(stall), || ()).await;
    }
}

#[tokio::test]
async fn a_handshake_without_an_end_is_given_up() {
    // A record of 16 KB that begins a message of 16 MB; and many records of the same message.
    let begun: &[u8] = &[22, 3, 3, 0x40, 0, 2, 0xff, 0xff, 0xff];
    let stall = move |client: &mut TcpStream| {
        client.write_all(begun)?;
        let record = [&[22, 3, 3, 0x40, 0][..], &[0; 16_384]].concat();
        client.write_all(&[0; 16_380])?;
        endlessly(client, &record)
    };
    stalls("a long message", Arc::new(stall), || ()).await;
    let warnings = |client: &mut TcpStream| endlessly(client, &[21, 3, 3, 0, 2, 1, 100]);
    stalls("warnings", Arc::new(warnings), || ()).await;
}

#[tokio::test]
async fn a_handshake_that_trickles_is_given_up() {
    let (tick, ticks) = channel();
    let ticks = Arc::new(Mutex::new(ticks));
    let stall = move |client: &mut TcpStream| {
        // One byte for each call that is answered: a record of a known length arrives slowly.
        let record = [22, 3, 3, 0x40, 0].into_iter().chain(std::iter::repeat(0));
        let ticks = ticks.lock().unwrap();
        for (byte, ()) in record.zip(ticks.iter()) {
            client.write_all(&[byte])?;
        }
        Ok(())
    };
    stalls("a trickle", Arc::new(stall), move || tick.send(()).unwrap()).await;
}
