//! Any URL: no text shows its secret, and a URL that can be used is read as by a slow and simple
//! parser.

use std::error::Error;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_testing::fuzz::bytes::{draws_each, texts};
use tollgate_testing::fuzz::seeds::{Seed, seeds};

use super::super::dial::Dial;
use super::super::url::Topology;
use super::super::{ConnectOptions, Servers};
use crate::Redis;
use crate::RedisBuilder;
use tollgate::backend::BackendError;

/// The start of each secret, which no text may show.
const MARK: &str = "Zq7";

/// All messages about URLs. None of them quotes a URL.
const PROBLEMS: [&str; 11] = [
    "it has no `://`",
    "its scheme is not that of a server",
    "it asks for TLS, which needs the feature `tls` of `tollgate-redis`",
    "its host or its port is missing or invalid",
    "its host or its port is missing or invalid (is there an `@` before the host?)",
    "there is an `@` or a `#` after its host",
    "its `protocol` is neither `resp2` nor `resp3`",
    "its database is not a number",
    "it has no host",
    "0.0.0.0 and [::] are not addresses to connect to",
    "it is not the URL of a server",
];

const WAY_OUT: &str = " (write redis://user:password@host:port/db, rediss:// for TLS or unix:///path for a \
                       socket, and in a password %40 for `@`, %2F for `/` and so on)";

/// The result of a URL: a server, or a problem.
#[derive(Clone, Debug, PartialEq)]
enum UrlOutcome {
    Server { name: String, database: i64, user: Option<String>, password: Option<String> },
    Problem(&'static str),
}

impl UrlOutcome {
    #[track_caller]
    fn parse(url: &str) -> Self {
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

    /// The result as it stands in the seeds: `name database user password`, or the problem.
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
fn reference(url: &str) -> Option<UrlOutcome> {
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
    Some(UrlOutcome::Server { name: format!("{host}:{port}"), database, user, password })
}

fn url_seeds() -> Vec<Seed> {
    seeds(include_str!("../../../../../tests/data/fuzz/redis_url.txt"))
}

#[test]
fn seeds_of_urls_are_read_as_recorded() {
    for Seed { field, wanted } in url_seeds() {
        let url = field.text();
        assert_eq!(UrlOutcome::parse(&url).written(), wanted, "{url:?}");
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

/// URLs with a secret where one may stand, or where a mistake may put one. None has it in place of
/// the host, because messages show that.
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

/// All that an error and its causes show.
pub(super) fn shown(error: &(dyn Error + 'static)) -> String {
    let mut texts = format!("{error} {error:?}");
    let mut next = error.source();
    while let Some(cause) = next {
        texts += &format!(" {cause} {cause:?}");
        next = cause.source();
    }
    texts
}

/// All that is shown of the servers of URLs, usable or not.
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
fn the_inputs_have_usable_urls_and_urls_that_the_reference_reads() {
    draws_each(&inputs(), 4, |url| {
        (matches!(UrlOutcome::parse(&url), UrlOutcome::Server { .. }), reference(&url).is_some())
    });
}

proptest! {
    #[test]
    fn no_url_shows_its_secret(url in url_with_a_secret()) {
        is_hidden_everywhere(&url);
    }

    /// The result is the server that the slow parser finds, or one of the known problems.
    #[test]
    fn any_text_gives_the_server_that_it_names_or_a_known_problem(url in inputs()) {
        let read = UrlOutcome::parse(&url);
        if let (UrlOutcome::Server { .. }, Some(slow)) = (&read, reference(&url)) {
            prop_assert_eq!(read, slow);
        }
    }
}
