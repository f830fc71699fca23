//! Whose fault it is that a request cannot run: a client that leaves something out is told so, and
//! only a mistake of the server is an error of the server.

use axum::Router;
use axum::routing::get;
use http::{Method, StatusCode};
use tollgate::key::{
    ClientIp, KeyError, KeyExtractor, api_key, bearer, cookie, extension, from_fn, header,
    matched_path,
};
use tollgate::routes::RateLimitExt;
use tollgate::{Limit, MINUTE, Quota, RateLimited, RateLimiter, Rule};
use tollgate_testing::web::{Reply, get as fetch, send, serve};

static TWO: Limit = Limit::new("two", Quota::token_bucket(2, MINUTE));

#[derive(Clone)]
struct Session;

/// What a plain GET gets from a server whose only limit has this key.
async fn reply_by(rule: Rule) -> Reply {
    let layer = RateLimiter::in_memory().layer(rule);
    let app = Router::new().route("/", get(async || "hello")).layer(layer);
    fetch(serve(app).await, "/").await
}

async fn status_by(key: impl KeyExtractor) -> u16 {
    reply_by(Rule::new(&TWO).key(key)).await.status.as_u16()
}

/// A plain `curl` against the first page's sample got 500, and clients could make as many errors of
/// the server as they liked.
#[tokio::test]
async fn a_key_that_the_client_has_to_send_is_missed_by_400_or_401() {
    assert_eq!(status_by(header("x-user")).await, 400);
    assert_eq!(status_by(cookie("id")).await, 400);
    assert_eq!(status_by(api_key("x-api-key")).await, 401);
    assert_eq!(status_by(bearer()).await, 401);
    assert_eq!(status_by(header("x-user").or(bearer())).await, 401);
    assert_eq!(status_by((header("x-user"), ClientIp::peer())).await, 400);
    assert_eq!(status_by(from_fn(|head| head.uri().query().map(str::to_owned))).await, 400);
}

#[tokio::test]
async fn what_the_server_should_have_added_is_missed_by_500() {
    assert_eq!(status_by(extension(|_: &Session| "s1")).await, 500);
    let no_address = from_fn(|_| Err::<String, _>(KeyError::misconfigured("no database")));
    assert_eq!(status_by(no_address).await, 500);
}

/// Clients could make errors of the server by paths that do not exist.
#[tokio::test]
async fn a_path_without_a_route_is_404_for_a_limit_by_route() {
    let layer = RateLimiter::in_memory().layer(&TWO).key(matched_path());
    let server = serve(Router::new().route("/", get(async || "hello")).layer(layer)).await;
    assert_eq!(fetch(server, "/").await.status, 200);
    assert_eq!(fetch(server, "/nowhere").await.status, 404);
}

/// A 401 has to name a scheme (RFC 9110, section 15.5.2).
#[tokio::test]
async fn a_401_says_which_credentials_are_missing() {
    let challenge = async |rule| {
        let reply = reply_by(rule).await;
        (reply.status.as_u16(), reply.field("www-authenticate").map(str::to_owned))
    };
    let by = |key: Box<dyn KeyExtractor>| Rule::new(&TWO).key(key);
    let bearer = || by(Box::new(bearer()));
    assert_eq!(challenge(bearer()).await, (401, Some("Bearer".to_owned())));
    let api_key = by(Box::new(api_key("x-api-key")));
    assert_eq!(challenge(api_key).await, (401, Some("ApiKey".to_owned())));
    let forbidden = bearer().missing_key(StatusCode::FORBIDDEN);
    assert_eq!(challenge(forbidden).await, (403, None));
    let unauthorized = StatusCode::UNAUTHORIZED;
    let chosen = by(Box::new(header("x-user"))).missing_key(unauthorized);
    assert_eq!(challenge(chosen).await, (401, None));
}

#[tokio::test]
async fn an_extractor_of_your_own_says_whose_fault_it_is() {
    let not_found = || KeyError::missing("no tenant").with_status(StatusCode::NOT_FOUND);
    assert_eq!(status_by(from_fn(move |_| Err::<String, _>(not_found()))).await, 404);
    let wrong = || KeyError::invalid("no tenant").with_status(StatusCode::FORBIDDEN);
    assert_eq!(status_by(from_fn(move |_| Err::<String, _>(wrong()))).await, 403);
}

/// Clients that retry a 429 without `Retry-After` did so by their own back-off, and never got through.
#[tokio::test]
async fn a_cost_above_the_capacity_is_not_a_429() {
    let costly = |layer: tollgate::RateLimitLayer| layer.cost(3);
    let server = async |layer| {
        serve(Router::new().route("/", get(async || "hello").rate_limit(costly(layer)))).await
    };
    let limiter = RateLimiter::in_memory();
    let reply = fetch(server(limiter.layer(&TWO)).await, "/").await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(reply.field("retry-after"), None);
    assert!(reply.body.contains("\"status\":413"), "{}", reply.body);
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let chosen = limiter.layer(&TWO).too_large(unprocessable);
    assert_eq!(fetch(server(chosen).await, "/").await.status, unprocessable);
    let of_the_limiter = limiter.clone().too_large(unprocessable).layer(&TWO);
    assert_eq!(fetch(server(of_the_limiter).await, "/").await.status, unprocessable);
}

#[tokio::test]
async fn a_handler_answers_a_cost_above_the_capacity_alike() {
    let server = async |limiter: RateLimiter| {
        let handler = move || async move {
            limiter.limit(&TWO).cost(3).await?;
            Ok::<_, RateLimited>("hello")
        };
        serve(Router::new().route("/", get(handler))).await
    };
    let limiter = RateLimiter::in_memory();
    let too_large = send(server(limiter.clone()).await, Method::GET, "/", &[]).await;
    assert_eq!((too_large.status.as_u16(), too_large.field("retry-after")), (413, None));
    let limiter = limiter.too_large(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(fetch(server(limiter).await, "/").await.status, 422);
}
