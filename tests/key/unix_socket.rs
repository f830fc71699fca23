//! A server on a Unix socket, as behind nginx on the same machine: the peer has no address.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tollgate::key::ClientIp;
use tollgate::{Limit, MINUTE, Quota, RateLimiter};

static ONE: Limit = Limit::new("one", Quota::token_bucket(1, MINUTE));

/// The statuses of requests with these header fields.
async fn statuses(key: ClientIp, fields: &[&str]) -> Vec<String> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = format!("tollgate-{}-{count}.sock", std::process::id());
    let path = std::env::temp_dir().join(path);
    let listener = UnixListener::bind(&path).unwrap();
    let layer = RateLimiter::in_memory().layer(&ONE).key(key);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut statuses = Vec::new();
    for field in fields {
        let mut connection = UnixStream::connect(&path).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{field}\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.unwrap();
        statuses.push(answer.split(' ').nth(1).unwrap().to_owned());
    }
    server.abort();
    std::fs::remove_file(&path).unwrap();
    statuses
}

#[tokio::test]
async fn the_proxy_on_a_unix_socket_is_trusted_as_one_hop() {
    let by_list = ["x-forwarded-for: 203.0.113.7", "x-forwarded-for: 9.9.9.9, 203.0.113.8"];
    let again = "x-forwarded-for: 1.1.1.1, 203.0.113.7";
    let fields = [by_list[0], by_list[1], again];
    assert_eq!(statuses(ClientIp::x_forwarded_for(1), &fields).await, ["200", "200", "429"]);
    let by_header = ["x-real-ip: 203.0.113.7", "x-real-ip: 203.0.113.8", "x-real-ip: 203.0.113.7"];
    assert_eq!(statuses(ClientIp::header("x-real-ip", 1), &by_header).await, ["200", "200", "429"]);
    // Nobody has an address.
    assert_eq!(statuses(ClientIp::peer(), &fields).await, ["500"; 3]);
    assert_eq!(statuses(ClientIp::x_forwarded_for(["10.0.0.0/8"]), &fields).await, ["500"; 3]);
}
