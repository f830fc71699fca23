//! A chat over WebSocket that slows its clients down: a message waits until the limit has a token for
//! it. The socket is not read meanwhile, so no message is lost or refused.
//!
//! Run it with `cargo run --example websocket`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use axum::routing::any;
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tollgate::{Limit, Quota, RateLimiter, SECOND};

/// 20 messages a second, and three at once.
pub(crate) const MESSAGES: Limit =
    Limit::new("messages", Quota::token_bucket(20, SECOND).capacity(3));

pub(crate) fn app(limiter: RateLimiter) -> Router {
    Router::new().route("/chat", any(open)).with_state(limiter)
}

async fn open(State(limiter): State<RateLimiter>, socket: WebSocketUpgrade) -> Response {
    let user = "alice"; // in production, the user that your authentication established
    socket.max_message_size(64 * 1024).on_upgrade(move |socket| chat(socket, limiter, user))
}

async fn chat(socket: WebSocket, limiter: RateLimiter, user: &'static str) {
    let throttle = limiter.throttle(&MESSAGES).key(user);
    // Pings and the like cost nothing.
    let mut socket = throttle.try_stream(socket).cost_with(|message| match message {
        Message::Text(_) | Message::Binary(_) => 1,
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) => 0,
    });
    while let Some(message) = socket.next().await {
        let answer = match message {
            Ok(message @ (Message::Text(_) | Message::Binary(_))) => message, // the work runs here
            Ok(_) => continue,
            Err(error) if error.rate_limited().is_some() => {
                let (code, reason) = (close_code::AGAIN, "try again later".into());
                Message::Close(Some(CloseFrame { code, reason }))
            }
            Err(_) => return, // the client went away
        };
        if socket.get_mut().send(answer).await.is_err() {
            return;
        }
    }
}

/// Sends so many messages as fast as it can, and says when each was answered.
pub(crate) async fn talk(server: SocketAddr, messages: u8) -> std::io::Result<Vec<Duration>> {
    let mut client = TcpStream::connect(server).await?;
    let upgrade = "GET /chat HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
                   upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    client.write_all(upgrade.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let start = Instant::now();
    for number in 0..messages {
        // A binary message of one byte. A client has to mask it, and zeros are a mask.
        client.write_all(&[0x82, 0x81, 0, 0, 0, 0, number]).await?;
    }
    let mut answered = Vec::new();
    for number in 0..messages {
        let mut answer = [0; 3];
        client.read_exact(&mut answer).await?;
        if answer != [0x82, 1, number] {
            return Err(std::io::Error::other(format!("unexpected answer: {answer:?}")));
        }
        answered.push(start.elapsed());
    }
    Ok(answered)
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let app = app(RateLimiter::in_memory());
    tokio::spawn(async move { axum::serve(listener, app).await });
    for (number, at) in (1..).zip(talk(server, 15).await?) {
        println!("message {number:>2} was answered after {:>3} ms", at.as_millis());
    }
    Ok(())
}
