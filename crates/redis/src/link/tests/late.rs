//! A process that is late itself, in virtual time.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ::redis::{ProtocolVersion, RedisConnectionInfo, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::time::{Instant, advance, sleep};

use super::super::address::Address;
use super::super::call::{Connection, Fault};
use super::super::dial::Dial;
use super::super::node_state::NodeState;
use super::super::server::Server as Place;
use super::super::wire::Wire;
use super::single::WITHIN;

const SECOND: Duration = Duration::from_secs(1);

/// In a flood over a cluster, the task that writes calls had its turn seconds later. Connections were given
/// up for it, and 923 of 9,244 requests passed uncounted.
#[tokio::test(start_paused = true)]
async fn only_a_server_that_is_silent_for_a_second_loses_its_connection() {
    let (own, mut theirs) = duplex(1 << 16);
    // It greets, and answers two commands.
    tokio::spawn(async move {
        let mut asked = [0; 1024];
        for answer in ["%0\r\n+OK\r\n+OK\r\n", "+PONG\r\n", "+PONG\r\n"] {
            assert!(theirs.read(&mut asked).await.unwrap() > 0);
            sleep(Duration::from_millis(10)).await;
            theirs.write_all(answer.as_bytes()).await.unwrap();
        }
        while theirs.read(&mut asked).await.unwrap() > 0 {}
    });
    let login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    let wire = Wire::open(own, &login).await.unwrap();
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 6379, tls: None };
    let dial = Dial::Server(Arc::new(Place::new(address, login)));
    let connection = Connection::new(wire, Arc::new(NodeState::new(dial, WITHIN)), 1);
    let command = ::redis::cmd("PING");
    for late in [3 * SECOND, Duration::ZERO] {
        let mut answer = pin!(connection.run(&command, 0));
        // It waits for the task that writes it.
        assert!(poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_pending())).await);
        advance(late).await;
        assert_eq!(answer.await.unwrap(), Value::SimpleString("PONG".to_owned()));
    }
    let begun = Instant::now();
    let told = connection.run(&command, 0).await.unwrap_err();
    assert!(matches!(told, Fault::Unknown(error) if error.is_timeout()));
    assert!((SECOND..2 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}
