use bytes::Bytes;
use http::Extensions;
use reqwest::{Body, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tower::{Layer, ServiceExt, service_fn};

struct Polite(RetryLayer, PacingLayer);

#[async_trait::async_trait]
impl Middleware for Polite {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let extensions = extensions.clone();
        let send = service_fn(move |request: http::Request<Body>| {
            let (next, mut extensions) = (next.clone(), extensions.clone());
            async move {
                let response = next.run(request.try_into()?, &mut extensions).await?;
                Ok::<http::Response<Body>, reqwest_middleware::Error>(response.into())
            }
        });
        let paced = self.1.layer(send);
        let bytes = match request.body() {
            None => Some(Bytes::new()),
            Some(body) => body.as_bytes().map(Bytes::copy_from_slice),
        };
        let request: http::Request<Body> = request.try_into()?;
        let response = match bytes {
            None => paced.oneshot(request).await?,
            Some(bytes) => {
                let whole = |request: http::Request<Bytes>| request.map(Body::from);
                let client = self.0.layer(paced.map_request(whole));
                client.oneshot(request.map(|_| bytes)).await?
            }
        };
        Ok(response.into())
    }
}

fn client() -> ClientWithMiddleware {
    let polite = Polite(RetryLayer::new(), PacingLayer::new());
    ClientBuilder::new(reqwest::Client::new()).with(polite).build()
}

mod tests {
    use super::*;

    #[tokio::test]
    async fn the_middleware_sends_bodies_as_they_are() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().route("/", axum::routing::post(async |body: String| body));
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = client();
        for _ in 0..3 {
            let response = client.post(&url).body("hello").send().await.unwrap();
            assert_eq!(response.text().await.unwrap(), "hello");
        }
    }
}
