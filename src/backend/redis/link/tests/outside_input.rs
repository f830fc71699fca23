//! What comes from outside of this process, read by the link: URLs, and the answers of clusters and sentinels.
//!
//! With a million cases each, in some minutes:
//!
//! ```sh
//! PROPTEST_CASES=1000000 cargo test --release --all-features --lib outside_input
//! ```

use std::error::Error;

use ::redis::Value;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::address::is_host;
use super::super::sentinel;
use super::super::slot_map::SlotMap;
use super::super::{ConnectOptions, Servers};
use crate::backend::redis::RedisBuilder;
use crate::backend::redis::key_name::slot;
use crate::backend::{BackendError, Redis};

/// What no text may show; a secret begins with it.
const MARK: &str = "Zq7";

/// A secret, as it is and percent-encoded.
fn secret() -> impl Strategy<Value = String> {
    let rest = prop_oneof![
        2 => "[a-z0-9]{0,8}",
        4 => "[a-z0-9@:/?#%&=. -]{0,8}",
        1 => "[0-9]{1,5}[/?#@:]?[0-9a-z]{0,4}",
        1 => any::<String>(),
    ];
    (rest, any::<bool>()).prop_map(|(rest, is_encoded)| match is_encoded {
        false => format!("{MARK}{rest}"),
        true => rest.bytes().fold(MARK.to_owned(), |text, byte| format!("{text}%{byte:02X}")),
    })
}

/// URLs with a secret where one may stand, or where a mistake puts it; but not where a host stands, as
/// that is told.
const FORMS: [&str; 42] = [
    "redis://user:{}@host:6379/0",
    "redis://user:{}@host",
    "redis://:{}@host:6379",
    "redis://{}@host",
    "redis://{}:{}@host",
    "redis://user:{}host:6379",
    "redis://user:{}127.0.0.1:6379",
    "redis://user:{}",
    "redis://:{}",
    "redis://user:{}@",
    "redis://user:{}@:6379",
    "redis://user:{}@host:99999",
    "redis://user:{}@host:port",
    "redis://user:{}@ho st",
    "redis://user:{}@[::1",
    "redis://user:{}@0.0.0.0",
    "redis://user:{}@host/x",
    "redis://user:12/{}@host",
    "redis://user:12?{}@host",
    "redis://user:12#{}@host",
    "redis:user:{}@host",
    "redis:/user:{}@host",
    "redis//user:{}@host",
    "user:{}@host:6379",
    "{}",
    "{}://host",
    "http://user:{}@host",
    "redis://host:{}",
    "redis://host:6379/{}",
    "redis://host/0?protocol={}",
    "redis://host?password={}",
    "redis://host/?{}",
    "redis://host#{}",
    " redis://user:{}@host\n",
    "REDIS://user:{}@host",
    "rediss://user:{}@host:6379",
    "rediss://user:{}@host/#insecure",
    "rediss://user:{}host",
    "valkeys://:{}@host/3",
    "unix:///run/redis.sock?user=user&pass={}&db=3",
    "unix://user:{}@/run/redis.sock?pass={}&db={}",
    "redis+unix:///run/redis.sock?pass={}&protocol={}",
];

fn url_with_a_secret() -> impl Strategy<Value = String> {
    (select(&FORMS[..]), secret()).prop_map(|(form, secret)| form.replace("{}", &secret))
}

/// All that an error shows, and its causes.
fn shown(error: &(dyn Error + 'static)) -> String {
    let mut texts = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(cause) = next {
        texts += &format!(" {cause} {cause:?}");
        next = cause.source();
    }
    texts
}

/// All that is shown of the servers of URLs, whether they can be used or not.
fn shown_of(servers: Result<Servers, BackendError>) -> String {
    servers.map_or_else(|error| shown(&error), |servers| format!("{servers:?} {servers:#?}"))
}

#[track_caller]
fn is_hidden(text: &str, url: &str) {
    assert!(!text.to_ascii_lowercase().contains(&MARK.to_ascii_lowercase()), "{url}: {text}");
}

fn is_hidden_everywhere(url: &str) {
    let (common, sound) = (ConnectOptions::default(), "redis://127.0.0.1");
    let urls = [sound.to_owned(), url.to_owned()];
    let all = [
        Servers::single(url, &common),
        Servers::cluster(&urls, &common),
        Servers::sentinel(&urls, "shop", Some(("user", url)), &common),
    ];
    for servers in all {
        is_hidden(&shown_of(servers), url);
    }
    let builders: [RedisBuilder; 3] = [
        Redis::at(url),
        Redis::cluster([url]),
        Redis::sentinel([url], "shop").sentinel_login("user", url),
    ];
    for builder in builders {
        is_hidden(&format!("{:?}", builder.hash_keys(url)), url);
    }
}

/// A line of a file of inputs that were found by hand, or that once broke something.
fn corpus(lines: &'static str, field: &str) -> Vec<String> {
    let value = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let text = |line| value(line)[field].as_str().unwrap().to_owned();
    lines.lines().map(text).collect()
}

/// Integers that slots, ports and their neighbours have.
fn integer() -> impl Strategy<Value = Value> {
    let known = [-1, 0, 1, 5_460, 16_383, 16_384, 65_535, 65_536, i64::MIN, i64::MAX];
    prop_oneof![3 => 0..16_384_i64, 1 => select(known.to_vec()), 1 => any::<i64>()]
        .prop_map(Value::Int)
}

fn text() -> impl Strategy<Value = Value> {
    let known = ["127.0.0.1", "::1", "", "a.example", "?", "a b", "\r\n", "6379", "shop"];
    prop_oneof![
        4 => select(known.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..300),
    ]
    .prop_map(Value::BulkString)
}

/// Any value, of the parts that answers have.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => integer(),
        4 => text(),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => any::<f64>().prop_map(Value::Double),
        1 => any::<String>().prop_map(Value::SimpleString),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            6 => vec(inner.clone(), 0..8).prop_map(Value::Array),
            1 => vec(inner.clone(), 0..4).prop_map(Value::Set),
            1 => vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// The answer about slots as clusters give it, of which a part may be anything.
fn slots() -> impl Strategy<Value = Value> {
    let node = || {
        let sound = (text(), integer(), text()).prop_map(|(host, port, id)| vec![host, port, id]);
        prop_oneof![12 => sound.prop_map(Value::Array), 1 => value()]
    };
    let range = (integer(), integer(), vec(node(), 0..4)).prop_map(|(first, last, nodes)| {
        Value::Array([first, last].into_iter().chain(nodes).collect())
    });
    vec(prop_oneof![12 => range, 1 => value()], 0..12).prop_map(Value::Array)
}

#[track_caller]
fn slots_are_read_or_left(answer: Value) {
    let shown = format!("{answer:?}");
    let Some(slots) = SlotMap::read(answer, "own.example") else { return };
    let (mut masters, mut covered) = (0, 0);
    for range in slots.ranges() {
        assert!(is_host(&range.host), "{shown}");
        masters += 1;
    }
    for number in (0..=u16::MAX).step_by(61).chain([slot::LAST, slot::LAST + 1]) {
        let owner = slots.master(number);
        assert!(owner.is_none() || number <= slot::LAST, "{shown}");
        covered += usize::from(owner.is_some());
    }
    assert!(
        slots.replicas().len() <= 1_000 && slots.replicas().iter().all(|(host, _)| is_host(host))
    );
    assert!(covered == 0 || masters > 0, "{shown}");
    assert_eq!(slots.is_empty(), masters == 0, "{shown}");
}

#[track_caller]
fn a_master_is_read_or_left(answer: Value) {
    if let Some(Some((host, _))) = sentinel::read(answer) {
        assert!(is_host(&host), "{host:?}");
    }
}

#[test]
fn what_is_known_to_be_nasty_is_read_or_left() {
    for url in corpus(include_str!("../../../../../tests/data/redis_urls.jsonl"), "url") {
        is_hidden_everywhere(&url);
    }
    for answer in corpus(include_str!("../../../../../tests/data/redis_answers.jsonl"), "answer") {
        let Ok(answer) = ::redis::parse_redis_value(answer.as_bytes()) else { continue };
        slots_are_read_or_left(answer.clone());
        a_master_is_read_or_left(answer);
    }
}

proptest! {
    #[test]
    fn no_url_shows_its_secret(url in url_with_a_secret()) {
        is_hidden_everywhere(&url);
    }

    #[test]
    fn any_text_is_a_url_or_none(text in prop_oneof![any::<String>(), "(redis|rediss|unix)://[!-~]{0,40}"]) {
        let _ = shown_of(Servers::single(&text, &ConnectOptions::default()));
    }

    #[test]
    fn any_answer_about_slots_is_read_or_left(answer in prop_oneof![4 => slots(), 1 => value()]) {
        slots_are_read_or_left(answer);
    }

    #[test]
    fn any_answer_of_a_sentinel_is_read_or_left(
        answer in prop_oneof![2 => vec(text(), 0..4).prop_map(Value::Array), 1 => value()],
    ) {
        a_master_is_read_or_left(answer);
    }
}
