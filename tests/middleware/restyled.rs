//! Layers that put their own response in the place of an error that a handler returns: what they
//! replace, and what they leave.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, Method, StatusCode, Version};
use tollgate::clock::ManualClock;
use tollgate::fields::{Dialect, ExactWait};
use tollgate::{Limit, MINUTE, OnRefusal, Quota, RateLimited, RateLimiter, SECOND};
use tollgate_testing::web::{get as ask, send_over, serve};
use tollgate_testing::{START, limiter};
use tower::{Layer, ServiceExt};

static NONE: Limit = Limit::new("none", Quota::token_bucket(2, MINUTE).initial(0));
static EIGHTH: Limit = Limit::new("eighth", Quota::token_bucket(8, SECOND).initial(0));
static TEN: Limit = Limit::new("ten", Quota::token_bucket(10, MINUTE));
static SIX: Limit = Limit::new("six", Quota::token_bucket(6, MINUTE));

/// A handler that a limit refuses.
async fn refused(State(limiter): State<RateLimiter>) -> Result<&'static str, RateLimited> {
    limiter.limit(&NONE).await?;
    Ok("admitted")
}

fn app(limiter: &RateLimiter) -> Router {
    Router::new().route("/", get(refused)).with_state(limiter.clone())
}

fn standing_still() -> RateLimiter {
    limiter(&ManualClock::new(START))
}

/// The layer took the fields out that a layer within it had written.
#[tokio::test]
async fn the_fields_of_layers_in_between_stay() {
    let limiter = standing_still();
    for (dialect, told) in [
        (Dialect::Draft11, "\"six\";r=5;t=50, \"ten\";r=9;t=54, \"none\";r=0;t=30"),
        (Dialect::Draft7, "limit=2, remaining=0, reset=30"),
    ] {
        let limiter = limiter.clone().dialects(dialect);
        let styled =
            limiter.layer(&SIX).key_with(move |_| told).on_refusal(OnRefusal::plain_text());
        let inner = limiter.layer(&TEN).key_with(move |_| told);
        let reply = ask(serve(app(&limiter).layer(inner).layer(styled)).await, "/").await;
        assert_eq!((reply.status.as_u16(), reply.field("retry-after")), (429, Some("30")));
        assert_eq!(reply.field("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(reply.field("ratelimit"), Some(told));
        let policies = reply.field("ratelimit-policy").unwrap();
        assert_eq!(policies.split(", ").count(), 3, "{policies}");
    }
}

/// The text of the layer came with the fields of the body that it had replaced, so clients tried to
/// decode it.
#[tokio::test]
async fn fields_that_describe_the_replaced_body_go_with_it() {
    let limiter = standing_still();
    let encode = from_fn(async |request: Request, next: Next| {
        let (mut head, body) = next.run(request).await.into_parts();
        let mut bytes = to_bytes(body, 10_000).await.unwrap().to_vec();
        bytes.reverse();
        for (name, value) in
            [("content-encoding", "x-reverse"), ("etag", "\"1\""), ("x-trace", "abc")]
        {
            head.headers.insert(name, HeaderValue::from_static(value));
        }
        head.headers.insert("content-length", bytes.len().into());
        Response::from_parts(head, Body::from(bytes))
    });
    let styled = limiter.layer(&TEN).on_refusal(OnRefusal::plain_text());
    let reply = ask(serve(app(&limiter).layer(encode).layer(styled)).await, "/").await;
    assert_eq!(reply.body, "Too Many Requests: refused by `none`, try again in 30 seconds\n");
    assert_eq!((reply.field("content-encoding"), reply.field("etag")), (None, None));
    assert_eq!(reply.field("content-length"), Some(reply.body.len().to_string().as_str()));
    assert_eq!(reply.field("x-trace"), Some("abc"));
}

/// Of several lines of one field, the last one alone was sent; and a cookie that a middleware had
/// set was lost with that of the first response.
#[tokio::test]
async fn lines_of_the_response_are_replaced_one_by_one() {
    let style = |cookies: &'static [&'static str]| {
        OnRefusal::handler(move |refused| {
            let mut response = http::Response::new("sorry");
            *response.status_mut() = refused.status();
            for cookie in cookies {
                response.headers_mut().append("set-cookie", HeaderValue::from_static(cookie));
            }
            response
        })
    };
    let session = from_fn(async |request: Request, next: Next| {
        let mut response = next.run(request).await;
        response.headers_mut().append("set-cookie", HeaderValue::from_static("session=1"));
        response.headers_mut().insert("cache-control", HeaderValue::from_static("private"));
        response
    });
    let limiter = standing_still().on_refusal(style(&["first=1", "second=2"]));
    let styled = limiter.layer(&TEN).on_refusal(style(&["third=3", "fourth=4"]));
    let reply = ask(serve(app(&limiter).layer(session).layer(styled)).await, "/").await;
    let cookies: Vec<_> = reply.headers.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["session=1", "third=3", "fourth=4"]);
    assert_eq!(reply.field("cache-control"), Some("private"));
}

/// A handler that words the error itself had its response overwritten.
#[tokio::test]
async fn a_response_that_was_changed_is_left_as_it_is() {
    let limiter = standing_still();
    let routes = Router::new()
        .route(
            "/status",
            get(async |State(limiter): State<RateLimiter>| {
                let refused = limiter.limit(&NONE).await.map(drop);
                refused.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, error))
            }),
        )
        .route(
            "/text",
            get(async |State(limiter): State<RateLimiter>| {
                let error = limiter.limit(&NONE).await.unwrap_err();
                let mut response = error.into_response();
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert("content-type", json);
                response.map(|_| Body::from("{}"))
            }),
        )
        .with_state(limiter.clone());
    let styled = limiter.layer(&TEN).on_refusal(OnRefusal::plain_text());
    let server = serve(routes.layer(styled)).await;
    let status = ask(server, "/status").await;
    assert_eq!(status.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status.field("content-type"), Some("application/problem+json"));
    assert_eq!(status.field("ratelimit"), Some("\"ten\";r=9;t=54, \"none\";r=0;t=30"));
    let text = ask(server, "/text").await;
    assert_eq!((text.status.as_u16(), text.body.as_str()), (429, "{}"));
    assert_eq!(text.field("content-type"), Some("application/json"));
}

/// Over HTTP/2, the server sent a body in response to HEAD, which is a protocol error.
#[tokio::test]
async fn a_response_to_head_gets_no_body() {
    let limiter = standing_still();
    for with_fields in [true, false] {
        let mut styled = limiter.layer(&TEN).on_refusal(OnRefusal::plain_text());
        if !with_fields {
            styled = styled.dialects([]);
        }
        // The layer is outside of the router, which removes the bodies of such responses.
        let service =
            ServiceExt::<Request>::map_response(styled.layer(app(&limiter)), |response| {
                response.map(Body::new)
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let service = axum::ServiceExt::<Request>::into_make_service(service);
        tokio::spawn(async move { axum::serve(listener, service).await });
        for version in [Version::HTTP_11, Version::HTTP_2] {
            let [got, head] = [Method::GET, Method::HEAD]
                .map(|method| send_over(version, server, method, "/", &[]));
            let (got, head) = (got.await, head.await);
            assert_eq!((head.status.as_u16(), head.body.as_str()), (429, ""));
            assert_eq!(head.field("content-length"), Some(got.body.len().to_string().as_str()));
            assert_eq!(head.field("content-type"), Some("text/plain; charset=utf-8"));
            assert_eq!(head.field("retry-after"), got.field("retry-after"));
        }
    }
}

/// A `RetryLayer` in the same process came back up to a second late.
#[tokio::test]
async fn a_refusal_of_a_handler_has_the_exact_wait() {
    let limiter = standing_still();
    let routes = |limiter: &RateLimiter| {
        let handler =
            async |State(limiter): State<RateLimiter>| limiter.limit(&EIGHTH).await.map(drop);
        Router::new().route("/", get(handler)).with_state(limiter.clone())
    };
    let exact = async |app: Router| {
        let response = app.oneshot(Request::new(Body::empty())).await.unwrap();
        assert!(response.headers().contains_key("retry-after"));
        response.extensions().get().map(ExactWait::wait)
    };
    let app = routes(&limiter);
    assert_eq!(exact(app.clone()).await, Some(SECOND / 8));
    let plain = limiter.layer(&TEN).on_refusal(OnRefusal::plain_text());
    assert_eq!(exact(app.clone().layer(plain)).await, Some(SECOND / 8));
    // A style that names a time of its own means that time.
    let own = OnRefusal::handler(|_| {
        http::Response::builder().status(429).header("retry-after", "9").body("").unwrap()
    });
    assert_eq!(exact(app.layer(limiter.layer(&TEN).on_refusal(own.clone()))).await, None);
    assert_eq!(exact(routes(&limiter.on_refusal(own))).await, None);
}
