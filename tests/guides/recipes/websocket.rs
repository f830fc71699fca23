use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::{Router, response::Response, routing::any};
use tollgate::key::header;
use tollgate::{Limit, MINUTE, Quota, RateLimitExt, RateLimiter, SECOND};

const CONNECTIONS: Limit = Limit::new("connections", Quota::token_bucket(10, MINUTE));
const MESSAGES: Limit = Limit::new("messages", Quota::token_bucket(5, SECOND).capacity(20));

async fn open(State(limiter): State<RateLimiter>, socket: WebSocketUpgrade) -> Response {
    let user = "alice"; // in production, the user that your authentication established
    socket.max_message_size(64 * 1024).on_upgrade(move |socket| serve(socket, limiter, user))
}

async fn serve(mut socket: WebSocket, limiter: RateLimiter, user: &'static str) {
    while let Some(Ok(message)) = socket.recv().await {
        let answer = match limiter.limit(&MESSAGES).key(user).await {
            Ok(_permit) => message, // the work runs here
            Err(refused) if refused.is_refused() => {
                let after = refused.retry_after().unwrap_or_default();
                Message::text(format!("try again in {} ms", after.as_millis() + 1))
            }
            Err(_) => {
                let (code, reason) = (close_code::AGAIN, "try again later".into());
                Message::Close(Some(CloseFrame { code, reason }))
            }
        };
        if socket.send(answer).await.is_err() {
            return;
        }
    }
}

fn app(limiter: RateLimiter) -> Router {
    let opened = limiter.layer(&CONNECTIONS).key(header("x-user"));
    Router::new().route("/chat", any(open).rate_limit(opened)).with_state(limiter)
}

mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn messages_above_the_limit_are_told_when_to_come_again() -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let mut client = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
        tokio::spawn(async move { axum::serve(listener, app(RateLimiter::in_memory())).await });
        let upgrade = "GET /chat HTTP/1.1\r\nhost: a\r\nx-user: alice\r\nconnection: upgrade\r\n\
        upgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        client.write_all(upgrade.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await?);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        for nth in 0.. {
            client.write_all(b"\x81\x82\0\0\0\0hi").await?; // a text, masked by zeros
            let [_, length] = [client.read_u8().await?, client.read_u8().await?];
            let mut answer = vec![0; length.into()];
            client.read_exact(&mut answer).await?;
            if answer != b"hi" {
                assert!(nth >= 20 && answer.starts_with(b"try again in "));
                break;
            }
            assert!(nth < 1_000, "no message was refused");
        }
        Ok(())
    }
}
