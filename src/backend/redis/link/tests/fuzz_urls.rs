//! URLs: whatever they are, no text shows their secrets, and what can be used is what a slow and simple
//! reading finds.

use std::error::Error;

use proptest::prelude::*;
use proptest::sample::select;

use super::super::dial::Dial;
use super::super::url::Topology;
use super::super::{ConnectOptions, Servers};
use crate::backend::redis::RedisBuilder;
use crate::backend::redis::tests::fuzz::bytes::{draws_each, texts};
use crate::backend::redis::tests::fuzz::seeds::{Seed, seeds};
use crate::backend::{BackendError, Redis};

/// What no text may show; a secret begins with it.
const MARK: &str = "Zq7";

/// All that is told about URLs. None of it quotes a URL.
const PROBLEMS: [&str; 11] = [
    "it has no `://`",
    "its scheme is not that of a server",
    "it asks for TLS, which needs the feature `redis-tls` of tollgate",
    "its host or its port is none",
    "its host or its port is none (is there an `@` before the host?)",
    "there is an `@` or a `#` behind its host",
    "its `protocol` is neither `resp2` nor `resp3`",
    "its database is no number",
    "it has no host",
    "0.0.0.0 and [::] are no addresses to connect to",
    "it is no URL of a server",
];

const WAY_OUT: &str = " (write redis://user:password@host:port/db, rediss:// for TLS or unix:///path for a \
                       socket, and in a password %40 for `@`, %2F for `/` and so on)";

/// What comes of a URL.
#[derive(Clone, Debug, PartialEq)]
enum Read {
    Server { name: String, database: i64, user: Option<String>, password: Option<String> },
    Problem(&'static str),
}

impl Read {
    #[track_caller]
    fn of(url: &str) -> Self {
        match Servers::single(url, &ConnectOptions::default()) {
            Ok(Servers(Topology::One(Dial::Server(server)))) => {
                let [user, password] = [server.login().username(), server.login().password()];
                let [user, password] = [user, password].map(|text| text.map(str::to_owned));
                let name = server.name().to_owned();
                Self::Server { name, database: server.database(), user, password }
            }
            Ok(other) => panic!("{other:?} is no single server"),
            Err(error) => {
                assert!(
                    error.to_string().starts_with("redis backend is misconfigured: "),
                    "{error}"
                );
                let told = error.cause().unwrap().to_string();
                let told = told.strip_prefix("the URL of the server cannot be used: ");
                let problem = told.and_then(|told| told.strip_suffix(WAY_OUT)).unwrap_or_default();
                let known = PROBLEMS.iter().find(|known| **known == problem);
                Self::Problem(known.unwrap_or_else(|| panic!("{error:?} is told of {url:?}")))
            }
        }
    }

    /// As the seeds have it: `name database user password`, or what is wrong.
    fn written(&self) -> String {
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        match self {
            Self::Server { name, database, user, password } => {
                format!("{name} {database} {} {}", shown(user), shown(password))
            }
            Self::Problem(problem) => (*problem).to_owned(),
        }
    }
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        match (first, digits) {
            (b'%', Some(digits)) => {
                let digits = str::from_utf8(digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                rest = &others[2..];
            }
            _ => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// The server of a URL that has a host and no unusual characters; `None` for any other.
fn reference(url: &str) -> Option<Read> {
    if !url.trim().bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
        return None;
    }
    let (scheme, rest) = url.trim().split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    if !["redis", "rediss", "valkey", "valkeys"].contains(&&*scheme) {
        return None;
    }
    let (authority, behind) = match rest.find(['/', '?', '#']) {
        Some(end) => rest.split_at(end),
        None => (rest, ""),
    };
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || b".-0123456789".contains(&byte);
    let (host, port) = place.split_once(':').unwrap_or((place, ""));
    if host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    let port = if port.is_empty() { 6379 } else { port.parse::<u16>().ok()? };
    let path = behind.split(['?', '#']).next()?.trim_matches('/');
    let database = if path.is_empty() { 0 } else { path.parse().ok()? };
    let user = Some(decoded(user)?).filter(|user| !user.is_empty());
    let password = password.filter(|password| !password.is_empty());
    let password = match password {
        Some(password) => Some(decoded(password)?),
        None => None,
    };
    Some(Read::Server { name: format!("{host}:{port}"), database, user, password })
}

fn url_seeds() -> Vec<Seed> {
    seeds(include_str!("../../../../../tests/data/fuzz/redis_url.txt"))
}

#[test]
fn seeds_of_urls_are_read_as_recorded() {
    for Seed { field, wanted } in url_seeds() {
        let url = field.text();
        assert_eq!(Read::of(&url).written(), wanted, "{url:?}");
        if let Some(slow) = reference(&url).filter(|_| !PROBLEMS.contains(&wanted)) {
            assert_eq!(slow.written(), wanted, "{url:?}");
        }
        is_hidden_everywhere(&url);
    }
}

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
pub(super) fn shown(error: &(dyn Error + 'static)) -> String {
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

const WORDS: [&str; 30] = [
    "redis://",
    "rediss://",
    "valkey://",
    "unix://",
    "://",
    "/",
    "//",
    "@",
    ":",
    "user:pass@",
    ":pass@",
    "user@",
    "%40",
    "%",
    "%ff",
    "?",
    "?protocol=resp3",
    "&db=3",
    "#",
    "host",
    "127.0.0.1",
    "0.0.0.0",
    "[::1]",
    "[",
    ":6379",
    ":65536",
    ":0",
    "/3",
    "/-1",
    "/9999999999999999999",
];

fn inputs() -> impl Strategy<Value = String> {
    let part = || prop_oneof![2 => "[a-z0-9]{1,6}", 1 => "([a-z0-9]|%[0-7][0-9a-f]){1,6}"];
    let sound = (
        select(vec!["redis", "REDIS", "valkey"]),
        prop_oneof![part().prop_map(|user| user + ":"), Just(":".to_owned())],
        part(),
        "[a-z][a-z0-9.-]{0,9}",
        prop_oneof![Just(String::new()), any::<u16>().prop_map(|port| format!(":{port}"))],
        prop_oneof![Just(String::new()), any::<i32>().prop_map(|number| format!("/{number}"))],
    );
    let sound = sound.prop_map(|(scheme, user, password, host, port, database)| {
        format!("{scheme}://{user}{password}@{host}{port}{database}")
    });
    prop_oneof![3 => texts(&url_seeds(), &WORDS), 1 => sound]
}

#[test]
fn urls_are_drawn_that_can_be_used_and_that_the_reference_reads() {
    draws_each(&inputs(), 4, |url| {
        (matches!(Read::of(&url), Read::Server { .. }), reference(&url).is_some())
    });
}

proptest! {
    #[test]
    fn no_url_shows_its_secret(url in url_with_a_secret()) {
        is_hidden_everywhere(&url);
    }

    /// A server as the slow reading finds it, or one of the known problems.
    #[test]
    fn any_text_is_the_url_of_the_server_that_is_written_there_or_of_none(url in inputs()) {
        let read = Read::of(&url);
        if let (Read::Server { .. }, Some(slow)) = (&read, reference(&url)) {
            prop_assert_eq!(read, slow);
        }
    }
}
