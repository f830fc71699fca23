//! A gateway whose upstream sends limits of its own.

use std::net::SocketAddr;

use axum::Router;
use axum::http::HeaderName;
use axum::response::AppendHeaders;
use axum::routing::get;
use sfv::{List, ListEntry, Parser};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::{Limit, MINUTE, Quota, RateLimitLayer};
use tollgate_testing::web::{Reply, get as fetch, serve};
use tollgate_testing::{START, limiter};

static OURS: Limit = Limit::new("ours", Quota::token_bucket(10, MINUTE));

/// A server that passes on what its upstream has sent.
async fn gateway(
    layer: RateLimitLayer,
    sent: &'static [(&'static str, &'static str)],
) -> SocketAddr {
    let sent: Vec<_> =
        sent.iter().map(|&(name, value)| (HeaderName::from_static(name), value)).collect();
    let pass_on = async move || (AppendHeaders(sent), "hello");
    serve(Router::new().route("/", get(pass_on)).layer(layer)).await
}

fn ours() -> RateLimitLayer {
    limiter(&ManualClock::new(START)).layer(&OURS)
}

fn sending(dialects: impl IntoIterator<Item = Dialect>) -> RateLimitLayer {
    ours().dialects(dialects)
}

async fn reply(layer: RateLimitLayer, sent: &'static [(&'static str, &'static str)]) -> Reply {
    fetch(gateway(layer, sent).await, "/").await
}

/// What a parser of structured fields makes of a list: the values of its members.
#[track_caller]
fn parsed(reply: &Reply, name: &str) -> Vec<String> {
    let list: List = Parser::new(reply.field(name).unwrap()).parse().unwrap();
    let value = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => format!("{:?}", item.bare_item),
        ListEntry::InnerList(_) => panic!("no list within"),
    };
    list.iter().map(value).collect()
}

const DRAFT_7: &[(&str, &str)] = &[
    ("ratelimit-policy", "100;w=60"),
    ("ratelimit", "limit=100, remaining=3, reset=17"),
    ("x-upstream", "yes"),
];

/// Both were joined into a list that no parser read, so that clients heeded neither.
#[tokio::test]
async fn fields_of_another_draft_give_way() {
    let reply = reply(ours(), DRAFT_7).await;
    assert_eq!(reply.field("ratelimit"), Some("\"ours\";r=9;t=54"));
    assert_eq!(reply.field("ratelimit-policy"), Some("\"ours\";q=10;w=60"));
    assert_eq!(reply.field("x-upstream"), Some("yes"));
    let seven = sending(Dialect::Draft7);
    let sent = &[("ratelimit-policy", "\"up\";q=5;w=1"), ("ratelimit", "\"up\";r=0;t=1")];
    let reply = self::reply(seven, sent).await;
    assert_eq!(reply.field("ratelimit"), Some("limit=10, remaining=9, reset=54"));
    assert_eq!(reply.field("ratelimit-policy"), Some("10;w=60"));
}

/// The numbers of this layer do not say when to come back, as those of a refusal do.
#[tokio::test]
async fn in_a_refusal_its_limits_stand_in_the_place_of_ours() {
    let sent = &[
        ("retry-after", "9"),
        ("ratelimit", "\"up\";r=3;t=7, \"ours\";r=1;t=9"),
        ("ratelimit-policy", "\"ours\";q=2;w=18"),
    ];
    let reply = reply(ours(), sent).await;
    assert_eq!(reply.field("ratelimit"), Some("\"ours\";r=1;t=9, \"up\";r=3;t=7"));
    assert_eq!(reply.field("ratelimit-policy"), Some("\"ours\";q=2;w=18"));
}

#[tokio::test]
async fn limits_of_the_same_draft_follow_ours_and_each_name_is_there_once() {
    let sent = &[
        ("ratelimit", "\"up\";r=3;t=7;pk=:cHk=:, \"ours\";r=1;t=1"),
        ("ratelimit", "\"a, \\\"b\\\\\";r=5;x;y=?0;z=tok/en;d=1.5,  \"up\";r=0;t=0"),
        ("ratelimit-policy", "\"up\";q=5;w=60, \"ours\";q=1;w=1"),
    ];
    let reply = reply(ours(), sent).await;
    assert_eq!(
        reply.field("ratelimit"),
        Some(
            "\"ours\";r=9;t=54, \"up\";r=3;t=7;pk=:cHk=:, \
             \"a, \\\"b\\\\\";r=5;x;y=?0;z=tok/en;d=1.5"
        )
    );
    assert_eq!(parsed(&reply, "ratelimit").len(), 3);
    assert_eq!(reply.field("ratelimit-policy"), Some("\"ours\";q=10;w=60, \"up\";q=5;w=60"));
    let sent = &[("ratelimit-policy", "10;w=1, 500;w=3600"), ("ratelimit", "limit=500")];
    let reply = self::reply(sending(Dialect::Draft7), sent).await;
    assert_eq!(reply.field("ratelimit-policy"), Some("10;w=60, 500;w=3600"));
    assert_eq!(reply.field("ratelimit"), Some("limit=10, remaining=9, reset=54"));
}

#[tokio::test]
async fn what_is_no_list_is_dropped() {
    for line in [
        "\"up\";r=3,",
        "\"up",
        "\"up\";R=3",
        "\"up\";r=",
        "up;r=3",
        "(\"up\");r=3",
        "\"up\" \"b\"",
        "\"up\";r=3;",
        ",",
        "\"up\\x\";r=1",
        "\"up\";r=1.",
        "\"up\";pk=:a",
        "100",
        "\"up\";r=3 ;t=1",
        "\"up\";d=?2",
    ] {
        let sent: &'static [(&str, &str)] = Vec::leak(vec![("ratelimit", line)]);
        let reply = reply(ours(), sent).await;
        assert_eq!(reply.field("ratelimit"), Some("\"ours\";r=9;t=54"), "{line}");
    }
}

const GITHUB: &[(&str, &str)] = &[
    ("x-ratelimit-limit", "60"),
    ("x-ratelimit-remaining", "1"),
    ("x-ratelimit-reset", "1700009999"),
    ("x-ratelimit-resource", "core"),
    ("ratelimit-limit", "60"),
];

/// The numbers of the upstream won, as they showed less.
#[tokio::test]
async fn of_a_field_for_one_limit_ours_stands() {
    let own = sending(Dialect::XRateLimit);
    let reply = reply(own, GITHUB).await;
    assert_eq!(reply.field("x-ratelimit-limit"), Some("10"));
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("9"));
    assert_eq!(reply.field("x-ratelimit-resource"), Some("core"));
    // A layer of ours within does not count as others: the fewest requests left are told.
    let inner = Limit::new("inner", Quota::token_bucket(3, MINUTE));
    let limiter = limiter(&ManualClock::new(START)).dialects(Dialect::XRateLimit);
    let app = Router::new().route("/", get(async || "hello")).layer(limiter.layer(inner));
    let reply = fetch(serve(app.layer(limiter.layer(&OURS))).await, "/").await;
    assert_eq!(reply.field("x-ratelimit-limit"), Some("3"));
}

#[tokio::test]
async fn a_gateway_may_replace_or_remove_them() {
    let replacing = |dialect| sending(dialect).replace_foreign_fields();
    let sent = &[("ratelimit", "\"up\";r=3;t=7"), ("x-ratelimit-remaining", "1")];
    let reply = reply(replacing(Dialect::Draft11), sent).await;
    assert_eq!(reply.field("ratelimit"), Some("\"ours\";r=9;t=54"));
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("1"));
    let reply = self::reply(replacing(Dialect::XRateLimit), GITHUB).await;
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("9"));
    assert_eq!(reply.field("ratelimit-limit"), Some("60"));

    let names = |reply: &Reply| {
        let about = |name: &&HeaderName| name.as_str().contains("ratelimit");
        reply.headers.keys().filter(about).map(|name| name.to_string()).collect::<Vec<_>>()
    };
    let removing = |dialect| sending(dialect).remove_foreign_fields();
    for (dialect, told) in
        [(Dialect::Draft11, vec!["ratelimit-policy", "ratelimit"]), (Dialect::None, vec![])]
    {
        for sent in [GITHUB, DRAFT_7] {
            assert_eq!(names(&self::reply(removing(dialect), sent).await), told);
        }
    }
    // Also for a request that is not limited.
    use tollgate::key::{KeyExtractor, global};
    let exempt = removing(Dialect::Draft11).key(global().unless(|_| true));
    assert_eq!(names(&self::reply(exempt, GITHUB).await), [""; 0]);
}

/// Its `Retry-After` goes with its fields.
#[tokio::test]
async fn a_refusal_of_the_upstream_keeps_its_field_for_one_limit() {
    let sent = &[("retry-after", "30"), ("x-ratelimit-remaining", "0")];
    let reply = reply(sending(Dialect::XRateLimit), sent).await;
    assert_eq!(reply.field("x-ratelimit-remaining"), Some("0"));
}
