//! The clients of a service: one connection for each request, closed by those that leave.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use http::{Request, StatusCode};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use crate::history::{History, Number};
use crate::scenario::{Job, Scenario};
use crate::server::{self, ACTUAL, COST, NUMBER};

/// The longest scenario takes 20 seconds if settled tokens help no waiter.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// Runs a scenario, and returns what happened at the service.
pub async fn run(scenario: &Scenario) -> History {
    let (log, address, server) = server::start(scenario).await;
    let mut connections = Vec::new();
    for _ in &scenario.requests {
        connections.push(connect(address).await);
    }
    let start = log.start();
    let jobs = scenario.requests.iter().copied().enumerate();
    let request = |((number, job), connection)| tokio::spawn(ask(number, job, connection, start));
    let clients: Vec<_> = jobs.zip(connections).map(request).collect();

    let all = async {
        for departure in &scenario.leaving {
            sleep_until(start + departure.at).await;
            let waiting = log.history().waiting();
            for leaver in departure.leavers(waiting) {
                // It drops the connection, which closes it.
                clients[leaver].abort();
                log.history().left.push(leaver);
            }
        }
        for (number, client) in clients.into_iter().enumerate() {
            match client.await {
                Ok(answered) => log.history().answered.push((number, answered)),
                Err(error) => assert!(error.is_cancelled(), "a client failed: {error}"),
            }
        }
    };
    timeout(TIME_LIMIT, all).await.expect("every scenario ends within the time limit");
    server.abort();
    log.finish()
}

type Client = (SendRequest<Body>, Connection<TokioIo<TcpStream>, Body>);

async fn connect(address: SocketAddr) -> Client {
    let stream = TcpStream::connect(address).await.expect("the service listens");
    stream.set_nodelay(true).expect("a connected socket has this option");
    handshake(TokioIo::new(stream)).await.expect("HTTP/1.1 has no handshake that could fail")
}

/// Sends a request when it is due, reads the response, and returns how long both have taken.
async fn ask(
    number: Number,
    job: Job,
    (mut sender, connection): Client,
    start: Instant,
) -> Duration {
    let comes = start + job.comes;
    sleep_until(comes).await;
    let request = Request::get("/chat").header("host", "localhost");
    let request = request.header(NUMBER, number).header(COST, job.cost).header(ACTUAL, job.actual);
    let request = request.body(Body::empty()).expect("numbers are header values");
    let sent = Instant::now();
    let exchange = async move {
        let response = sender.send_request(request).await.expect("the service answers");
        assert_eq!(response.status(), StatusCode::OK, "no request waits too long");
        let body = Body::new(response.into_body());
        to_bytes(body, 1_000).await.expect("a short body");
        sent.elapsed()
    };
    // The connection ends once its sender is dropped.
    let (answered, closed) = tokio::join!(exchange, connection);
    closed.expect("a connection on this machine");
    answered
}
