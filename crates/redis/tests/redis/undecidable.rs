//! What Redis does not decide: a layer that admits during outages admits nothing else.

use std::error::Error;
use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::{Request, StatusCode};
use tollgate::backend::BackendError;
use tollgate::key::{global, header};
use tollgate::{HOUR, Limit, MINUTE, OnFailure, Quota, RateLimited, RateLimiter, Rule};
use tollgate_redis::Redis;
use tollgate_testing::redis::{Cluster, Server, until};
use tollgate_testing::traffic::{chain, wait_until};
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

/// All twelve requests ran, and so did all after them: the layer took a call that the cluster can
/// never decide for an outage.
#[tokio::test]
async fn buckets_in_several_slots_of_a_cluster() {
    let cluster = Cluster::start(3);
    let redis = Redis::cluster(cluster.urls()).deadline(MINUTE).connect().await.unwrap();
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

/// If the Redis key of a bucket held another value, the requests of its client passed without a
/// limit.
#[tokio::test]
async fn a_key_that_holds_no_bucket() {
    let server = Server::start();
    let app = app(per_user(), None, patient(&server).await);
    server.command(&["SET", "tollgate:per-user:mallory", "no bucket"]).ok();
    server.command(&["LPUSH", "tollgate:per-user:eve", "no bucket"]).int();
    for (user, most) in [("mallory", 0), ("eve", 0), ("alice", 2)] {
        assert_eq!(runs(&app, user).await, most, "{user}");
    }
}

/// With the URL of one node of a cluster, clients with buckets on other nodes passed without a
/// limit.
#[tokio::test]
async fn a_bucket_on_another_node_than_the_only_one_that_is_asked() {
    let cluster = Cluster::start(2);
    let app = app(per_user(), None, patient(cluster.node(0)).await);
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

/// 50 of 50 requests of a client ran: made-up keys had filled the server, which counted as an
/// outage.
#[tokio::test]
async fn a_server_that_made_up_keys_have_filled() {
    let server = Server::start();
    let app = app(per_user(), None, patient(&server).await);
    assert_eq!(runs(&app, "warm").await, 2);
    let room: u64 = server.info("memory", "used_memory").parse::<u64>().unwrap() + 100_000;
    server.command(&["CONFIG", "SET", "maxmemory", &room.to_string()]).ok();
    // 200 bytes each: four times as many as there is room for.
    for nth in 0..2_000 {
        let user = format!("made-up-{nth}");
        let request = Request::get("/").header("x-user", user).body(Body::empty()).unwrap();
        drop(app.clone().oneshot(request).await);
    }
    assert_eq!(runs(&app, "mallory").await, 0);
    // Calls that store nothing are still decided.
    assert_eq!(runs(&app, "warm").await, 0);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    assert_eq!(runs(&app, "mallory").await, 2);
}

/// The server's answer to a call that takes, and whether a layer admits what it does not decide.
#[track_caller]
fn assert_told(error: &RateLimited, code: &str, is: fn(&BackendError) -> bool) {
    let told = chain(error);
    assert!(told.contains(&format!("answered `{code} ")), "{told}");
    let backend = error.source().and_then(|source| source.downcast_ref::<BackendError>());
    assert!(backend.is_some_and(is), "{code} is something else: {told}");
}

/// As `docs/redis.md` lists it. Before, all of these counted as outages.
#[tokio::test]
async fn what_is_an_outage_and_what_is_not() {
    // Memory, and a snapshot that cannot be written: its file has the name of a directory.
    let server = Server::with(&["--save", "3600", "1"]);
    let limiter = RateLimiter::new(patient(&server).await);
    let ask = async |limiter: &RateLimiter| limiter.limit(&EVERYONE).await.map(drop);
    ask(&limiter).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).ok();
    let error = ask(&limiter).await.unwrap_err();
    assert_told(&error, "OOM", |error| error.is_full() && !error.is_outage());
    let way_out =
        "(give it more memory, set `maxmemory-policy volatile-ttl`, or use shorter periods)";
    assert!(chain(&error).ends_with(way_out), "{}", chain(&error));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).ok();
    let directory = server.command(&["CONFIG", "GET", "dir"]).list()[1].text().to_owned();
    std::fs::create_dir(Path::new(&directory).join("dump.rdb")).unwrap();
    server.command(&["BGSAVE"]).text();
    until("the snapshot has failed", || {
        server.info("persistence", "rdb_last_bgsave_status") == "err"
    });
    let error = ask(&limiter).await.unwrap_err();
    assert_told(&error, "MISCONF", |error| error.is_full() && !error.is_outage());
    server.command(&["CONFIG", "SET", "save", ""]).ok();
    ask(&limiter).await.unwrap();

    // Replicas that are gone.
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
    let answer = ask(&limiter).await;
    // Before version 7, scripts write all the same.
    match server.info("server", "redis_version").starts_with("6.") {
        true => answer.unwrap(),
        false => assert_told(&answer.unwrap_err(), "NOREPLICAS", BackendError::is_outage),
    }
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();

    // Rights that are withdrawn, and a login that is no longer valid.
    server.command(&["ACL", "SETUSER", "default", "-evalsha"]).ok();
    let error = ask(&limiter).await.unwrap_err();
    let is_mistake = |error: &BackendError| error.is_misconfigured() && !error.is_outage();
    assert_told(&error, "NOPERM", is_mistake);
    server.command(&["ACL", "SETUSER", "default", "+evalsha"]).ok();
    ask(&limiter).await.unwrap();
    server.command(&["CONFIG", "SET", "requirepass", "secret"]).ok();
    for (login, code) in [("", "NOAUTH"), (":wrong@", "WRONGPASS")] {
        let url = format!("redis://{login}127.0.0.1:{}", server.port());
        let redis = Redis::at(url).deadline(MINUTE).connect_lazily().unwrap();
        assert_told(&ask(&RateLimiter::new(redis)).await.unwrap_err(), code, is_mistake);
    }
}

/// A replica, before and after it has lost its master. Calls are tried again until their deadline.
#[tokio::test]
async fn a_server_that_is_no_master_is_an_outage() {
    let (master, server) = (Server::start(), Server::start());
    let limiter = RateLimiter::new(Redis::connect(server.url()).await.unwrap());
    let is_outage = async || limiter.limit(&EVERYONE).await.is_err_and(|error| error.is_outage());
    server.command(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).ok();
    until("it has synchronized", || server.info("replication", "master_link_status") == "up");
    wait_until("a replica is an outage", is_outage).await;
    server.command(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).ok();
    master.kill();
    until("it has lost its master", || server.info("replication", "master_link_status") == "down");
    wait_until("a replica without its master is an outage", is_outage).await;
}

async fn patient(server: &Server) -> Redis {
    Redis::at(server.url()).deadline(MINUTE).connect().await.unwrap()
}
