use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::TokioExecutor;
use std::time::Duration;
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tower::{Layer, Service, ServiceExt};

async fn ask(url: &str, times: u32) -> Result<(), Error> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    // Without `quota`, if you do not know what they allow.
    let pacing = PacingLayer::new().quota(100, Duration::from_secs(1));
    let mut client = RetryLayer::new().layer(pacing.layer(client));
    for _ in 0..times {
        let request = Request::get(url).body(Full::default()).unwrap();
        let response = client.ready().await?.call(request).await?;
        assert_eq!(response.status(), 200);
    }
    Ok(())
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_of_hyper_sends_through_both_layers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/", axum::routing::get(async || "hello"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        ask(&url, 3).await.unwrap();
    }
}
