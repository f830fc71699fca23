use http::{Request, Response};
use reqwest::{Body, Client, Error};
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

async fn ask(url: &str, times: u32) -> Result<(), Error> {
    let client = Client::new();
    let service = service_fn(move |request: Request<String>| {
        let client = client.clone();
        async move {
            let response = client.execute(request.try_into()?).await?;
            Ok::<Response<Body>, Error>(response.into())
        }
    });
    let mut client = RetryLayer::new().layer(PacingLayer::new().layer(service));
    for _ in 0..times {
        let request = Request::get(url).body(String::new()).unwrap();
        let response = client.ready().await?.call(request).await?;
        assert_eq!(response.status(), 200);
    }
    Ok(())
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_of_reqwest_sends_through_both_layers() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/", axum::routing::get(async || "hello"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        ask(&url, 3).await.unwrap();
    }
}
