//! What Redis can never decide: a layer that admits during outages does not admit it.

mod support;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use support::redis::{Cluster, Server};
use tollgate::backend::Redis;
use tollgate::key::{global, header};
use tollgate::{HOUR, Limit, OnFailure, Quota, RateLimiter, Rule};
use tower::ServiceExt;

static PER_USER: Limit = Limit::new("per-user", Quota::token_bucket(2, HOUR));
static EVERYONE: Limit = Limit::new("everyone", Quota::token_bucket(1_000, HOUR));

/// How many of twelve requests of a user run.
async fn runs(app: &Router, user: &str) -> usize {
    let mut runs = 0;
    for _ in 0..12 {
        let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
        match app.clone().oneshot(request).await.unwrap().status() {
            StatusCode::OK => runs += 1,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {}
            other => panic!("{other}"),
        }
    }
    runs
}

fn app(rule: impl Into<Rule>, also: Option<Rule>, redis: Redis) -> Router {
    let layer = RateLimiter::new(redis).layer(rule).on_failure(OnFailure::Admit);
    let route = Router::new().route("/", get(async || "hello"));
    match also {
        Some(also) => route.layer(layer.and(also)),
        None => route.layer(layer),
    }
}

fn per_user() -> Rule {
    Rule::new(&PER_USER).key(header("x-user"))
}

/// All twelve ran, for ever: the layer took what the cluster refuses to decide for an outage.
#[tokio::test]
async fn buckets_in_several_slots_of_a_cluster() {
    let cluster = Cluster::start(3);
    let redis = Redis::cluster(cluster.urls()).connect().await.unwrap();
    let app = app(per_user(), Some(Rule::new(&EVERYONE).key(global())), redis);
    for user in ["alice", "bob"] {
        assert_eq!(runs(&app, user).await, 0, "{user}");
    }
    // That is no outage; this is one.
    let one = RateLimiter::new(Redis::cluster(cluster.urls()).connect().await.unwrap());
    cluster.nodes().iter().for_each(Server::kill);
    let layer = one.layer(per_user()).on_failure(OnFailure::Admit);
    let route = Router::new().route("/", get(async || "hello")).layer(layer);
    assert_eq!(runs(&route, "alice").await, 12);
}

/// A client whose bucket's name holds something else passed as often as it liked.
#[tokio::test]
async fn a_key_that_holds_no_bucket() {
    let server = Server::start();
    let app = app(per_user(), None, Redis::connect(server.url()).await.unwrap());
    server.command(&["SET", "tollgate:per-user:mallory", "no bucket"]).ok();
    server.command(&["LPUSH", "tollgate:per-user:eve", "no bucket"]).int();
    for (user, most) in [("mallory", 0), ("eve", 0), ("alice", 2)] {
        assert_eq!(runs(&app, user).await, most, "{user}");
    }
}

/// With the URL of one node of a cluster, the clients whose buckets are on other nodes passed.
#[tokio::test]
async fn a_bucket_on_another_node_than_the_only_one_that_is_asked() {
    let cluster = Cluster::start(2);
    let redis = Redis::connect(cluster.node(0).url()).await.unwrap();
    let app = app(per_user(), None, redis);
    let names: Vec<_> = (0..8).map(|nth| format!("user-{nth}")).collect();
    let is_here = |name: &String| {
        cluster.node_of_slot(cluster.slot_of(format!("tollgate:per-user:{name}"))) == 0
    };
    assert!(names.iter().any(is_here) && !names.iter().all(is_here), "the keys are on both nodes");
    for name in &names {
        let most = if is_here(name) { 2 } else { 0 };
        assert_eq!(runs(&app, name).await, most, "{name}");
    }
}
