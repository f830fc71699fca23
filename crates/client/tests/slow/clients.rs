//! Clients of hyper, reqwest and `reqwest-middleware`, which wait in real time for a server to admit
//! them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::State;
use axum::http::{Extensions, Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use reqwest::Body;
use reqwest_middleware::{ClientBuilder, Middleware, Next};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

const WINDOW: Duration = Duration::from_millis(300);
const QUOTA: usize = 5;

/// A server of five requests in a window, which refuses the very first one for another reason.
#[derive(Debug, Default)]
struct Server {
    window: Option<Instant>,
    used: usize,
    got: usize,
    refused: usize,
}

async fn answer(State(server): State<Arc<Mutex<Server>>>) -> impl IntoResponse {
    let mut server = server.lock().unwrap();
    let now = Instant::now();
    server.got += 1;
    if server.got == 1 {
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after-ms", "50".to_owned())])
            .into_response();
    }
    let window = *server.window.get_or_insert(now);
    if now >= window + WINDOW {
        (server.window, server.used) = (Some(now), 0);
    }
    let reset = server.window.unwrap() + WINDOW - now;
    let is_refused = server.used == QUOTA;
    if is_refused {
        server.refused += 1;
    } else {
        server.used += 1;
    }
    let status = if is_refused { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
    let fields = [
        ("x-ratelimit-limit", QUOTA.to_string()),
        ("x-ratelimit-remaining", (QUOTA - server.used).to_string()),
        ("x-ratelimit-reset-after", format!("{:.6}", reset.as_secs_f64())),
    ];
    (status, fields).into_response()
}

/// Sends 20 requests one after the other, and checks that each is answered and none is refused but
/// the first.
async fn ask<S, B>(client: impl FnOnce(PacingLayer) -> S)
where
    S: Service<Request<String>, Response = Response<B>>,
    S::Error: std::fmt::Debug,
{
    let server = Arc::new(Mutex::new(Server::default()));
    let app = Router::new().route("/", get(answer)).with_state(Arc::clone(&server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut client = client(PacingLayer::new());
    let start = Instant::now();
    for _ in 0..20 {
        let request = Request::get(&url).body(String::new()).unwrap();
        let response = client.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    let server = server.lock().unwrap();
    assert_eq!((server.got, server.refused), (21, 0));
    assert!(start.elapsed() >= 3 * WINDOW);
}

#[tokio::test]
async fn a_client_of_hyper_is_refused_by_no_server_that_shows_its_limit() {
    let client = Client::builder(TokioExecutor::new()).build_http::<String>();
    ask(|pacing| RetryLayer::new().layer(pacing.layer(client))).await;
}

/// A client of reqwest as a service.
fn reqwest()
-> impl Service<Request<String>, Response = Response<Body>, Error = BoxError, Future: Send> + Clone
{
    let client = reqwest::Client::new();
    service_fn(move |request: Request<String>| {
        let client = client.clone();
        async move { Ok(client.execute(request.try_into()?).await?.into()) }
    })
}

#[tokio::test]
async fn a_client_of_reqwest_is_refused_by_no_server_that_shows_its_limit() {
    ask(|pacing| RetryLayer::new().layer(pacing.layer(reqwest()))).await;
}

/// The middleware of docs/clients.md, for requests without a body.
struct Polite(RetryLayer, PacingLayer);

#[async_trait]
impl Middleware for Polite {
    async fn handle(
        &self,
        request: reqwest::Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let extensions = extensions.clone();
        let send = service_fn(move |request: Request<String>| {
            let (next, mut extensions) = (next.clone(), extensions.clone());
            async move {
                let response = next.run(request.try_into()?, &mut extensions).await?;
                Ok::<Response<Body>, reqwest_middleware::Error>(response.into())
            }
        });
        let request: Request<Body> = request.try_into()?;
        let client = self.0.layer(self.1.layer(send));
        Ok(client.oneshot(request.map(|_| String::new())).await?.into())
    }
}

#[tokio::test]
async fn a_client_with_reqwest_middleware_is_refused_by_no_server_that_shows_its_limit() {
    ask(|pacing| {
        let polite = Polite(RetryLayer::new(), pacing);
        let client = ClientBuilder::new(reqwest::Client::new()).with(polite).build();
        service_fn(move |request: Request<String>| {
            let client = client.clone();
            async move {
                let response = client.execute(request.try_into()?).await?;
                Ok::<Response<Body>, BoxError>(response.into())
            }
        })
    })
    .await;
}
