//! Hostile servers: whatever they send takes little memory, every call is answered, and no error
//! shows a password.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate::{MINUTE, RateLimited, RateLimiter};
use tollgate_redis::{Redis, RedisBuilder};
use tollgate_testing::redis::{Impostor, Server, Words, endlessly, greet, pass};
use tollgate_testing::traffic::{COUNTED, DEADLINE, chain, wait_until};

/// Writes an answer.
type Say = fn(&mut TcpStream) -> io::Result<()>;

/// Answers without an end. The client of Redis keeps all of an answer in memory.
const ENDLESS: [(&str, Say); 10] = [
    ("a string", |to| {
        to.write_all(b"$9999999999\r\n")?;
        endlessly(to, b"x")
    }),
    ("a line", |to| {
        to.write_all(b"+")?;
        endlessly(to, b"x")
    }),
    ("an error", |to| {
        to.write_all(b"-ERR ")?;
        endlessly(to, b"x")
    }),
    ("a list of numbers", |to| {
        to.write_all(b"*1000000000\r\n")?;
        endlessly(to, b":1\r\n")
    }),
    ("lists in lists", |to| endlessly(to, b"*4096\r\n")),
    ("long lists that have begun, in each other", |to| {
        to.write_all(&b"*4096\r\n:1\r\n".repeat(98))?;
        endlessly(to, b":1\r\n")
    }),
    ("lists of a list", |to| {
        to.write_all(b"*1000000000\r\n")?;
        endlessly(to, b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n")
    }),
    ("a map", |to| {
        to.write_all(b"%1000000000\r\n")?;
        endlessly(to, b"+a\r\n")
    }),
    ("an attribute", |to| {
        to.write_all(b"|1000000000\r\n")?;
        endlessly(to, b"+a\r\n")
    }),
    ("messages", |to| endlessly(to, b">2\r\n+message\r\n+x\r\n")),
];

/// Far more than any decision needs, and far less than such answers took: 771 to 896 MB.
const MOST: u64 = 24 << 20;

async fn ask(limiter: &RateLimiter) -> Result<(), RateLimited> {
    limiter.limit(&COUNTED).await.map(drop)
}

/// The most bytes that are held at once while a store is asked, until it has given up some connections.
fn held(impostor: &Impostor, redis: RedisBuilder) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async || {
        let limiter = RateLimiter::new(redis.deadline(DEADLINE).connect_lazily().unwrap());
        let is_given_up = async || {
            assert!(ask(&limiter).await.unwrap_err().is_unavailable());
            impostor.connections() > 1
        };
        wait_until("connections are given up", is_given_up).await;
    };
    allocation_counter::measure(|| runtime.block_on(work())).bytes_max
}

/// A server that answers this command by something endless.
fn endless_at(command: &'static str, say: Say) -> Impostor {
    Impostor::answering(move |words: &Words, to| {
        match words.first().is_some_and(|word| word.eq_ignore_ascii_case(command.as_bytes())) {
            true => say(to),
            false => greet(words, to).map(drop),
        }
    })
}

#[test]
fn an_endless_answer_to_a_decision_takes_little_memory() {
    for (what, say) in ENDLESS {
        let impostor = endless_at("EVALSHA", say);
        let held = held(&impostor, Redis::at(impostor.url()));
        assert!(held < MOST, "{what}: {held} bytes");
    }
}

#[test]
fn an_endless_greeting_takes_little_memory() {
    for (what, say) in ENDLESS {
        for command in ["HELLO", "PING"] {
            let impostor = endless_at(command, say);
            let held = held(&impostor, Redis::at(impostor.url()));
            assert!(held < MOST, "{what} for {command}: {held} bytes");
        }
    }
}

#[test]
fn an_endless_answer_of_a_sentinel_takes_little_memory() {
    for (what, say) in ENDLESS {
        let impostor = endless_at("SENTINEL", say);
        let held = held(&impostor, Redis::sentinel([impostor.url()], "shop"));
        assert!(held < MOST, "{what}: {held} bytes");
    }
}

/// The slots of a large cluster are a long answer, so it may be longer than others.
#[test]
fn an_endless_answer_about_slots_takes_some_memory() {
    for (what, say) in ENDLESS {
        let impostor = endless_at("CLUSTER", say);
        let held = held(&impostor, Redis::cluster([impostor.url()]));
        assert!(held < 3 * MOST, "{what}: {held} bytes");
    }
}

#[tokio::test]
async fn the_error_says_that_an_answer_is_too_long() {
    let (_, say) = ENDLESS[0];
    let impostor = endless_at("EVALSHA", say);
    let redis = Redis::at(impostor.url()).deadline(MINUTE).connect().await.unwrap();
    let told = chain(&ask(&RateLimiter::new(redis)).await.unwrap_err());
    assert_eq!(
        told,
        format!(
            "limit `counted` could not be decided < redis backend could not decide: lost the \
             connection to 127.0.0.1:{}: it sent more than 65600 bytes without a complete answer",
            impostor.port()
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_recovers_is_used_again() {
    let server = Server::start();
    let port = server.port();
    for (what, say) in ENDLESS {
        let is_sound = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&is_sound);
        let hostile = move |words: &Words, to: &mut TcpStream| match greet(words, to)? {
            true => Ok(()),
            false => say(to),
        };
        let impostor = Impostor::accepting(move |stream| match of_thread.load(Ordering::Acquire) {
            true => pass(stream, port),
            false => Impostor::serve(stream, hostile),
        });
        let redis = Redis::at(impostor.url()).deadline(DEADLINE).connect_lazily().unwrap();
        let limiter = RateLimiter::new(redis);
        for _ in 0..3 {
            assert!(ask(&limiter).await.unwrap_err().is_unavailable(), "{what}");
        }
        is_sound.store(true, Ordering::Release);
        wait_until(what, async || ask(&limiter).await.is_ok()).await;
    }
}

const PASSWORD: &str = "hush-Zq7-hush";

/// All that an error shows, and its causes.
fn shown(error: &(dyn Error + 'static)) -> String {
    let mut texts = format!("{error} | {error:?} | {error:#?}");
    let mut next = error.source();
    while let Some(cause) = next {
        texts += &format!(" < {cause} | {cause:?}");
        next = cause.source();
    }
    texts
}

/// Servers that repeat what they were sent, in all forms that an answer has: some proxies do, and so
/// does whatever else listens at a port.
fn parrots() -> Vec<(&'static str, Impostor)> {
    /// What answers a request.
    type Repeat = fn(&str) -> String;
    let forms: [(&str, Repeat); 9] = [
        ("a line", |said| format!("+{said}\r\n")),
        ("an error", |said| format!("-ERR unknown command {said}\r\n")),
        ("an error with a code", |said| format!("-{said}\r\n")),
        ("arguments", |said| format!("-ERR unknown command, with args beginning with {said}\r\n")),
        ("a string", |said| format!("${}\r\n{said}\r\n", said.len())),
        ("an error of many lines", |said| format!("!{}\r\nERR {said}\r\n", said.len() + 4)),
        ("a list", |said| format!("*1\r\n${}\r\n{said}\r\n", said.len())),
        ("a map", |said| format!("%1\r\n+{said}\r\n+{said}\r\n")),
        ("no answer at all", |said| format!("{said}\r\n")),
    ];
    let answering = |repeat: Repeat| {
        Impostor::answering(move |words: &Words, to| {
            let said = words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>();
            to.write_all(repeat(&said.join(" ")).as_bytes())
        })
    };
    let mut all: Vec<_> =
        forms.into_iter().map(|(what, repeat)| (what, answering(repeat))).collect();
    all.push((
        "an echo",
        Impostor::accepting(|stream| {
            let mut chunk = [0; 4_096];
            while let length @ 1.. = stream.read(&mut chunk)? {
                stream.write_all(&chunk[..length])?;
            }
            Ok(())
        }),
    ));
    all
}

/// Errors quoted whatever a server sent, including the password that the server had received.
#[tokio::test]
async fn no_error_shows_a_password_that_a_server_repeats() {
    for (what, parrot) in parrots() {
        let url = parrot.url().replace("://", &format!("://user:{PASSWORD}@"));
        let sentinel = Redis::sentinel([parrot.url()], "shop").sentinel_login("user", PASSWORD);
        for redis in [Redis::at(url.as_str()), sentinel, Redis::cluster([url.as_str()])] {
            let shown_builder = format!("{redis:?}");
            // Some of these greet like a server.
            let told = match redis.clone().connect().await {
                Err(error) => shown(&error),
                Ok(redis) => shown(&ask(&RateLimiter::new(redis)).await.unwrap_err()),
            };
            assert!(!told.contains("Zq7"), "{what}: {told}");
            assert!(!shown_builder.contains("Zq7"), "{shown_builder}");
        }
    }
}

/// A line break and the colours of a terminal forge lines of a log.
#[tokio::test]
async fn an_error_of_a_server_is_shown_on_one_line_of_bounded_length() {
    let forged = "ERR \u{1b}[2K\r\n2026-11-22 all is well".to_owned() + &"!".repeat(10_000);
    let answer = format!("!{}\r\n{forged}\r\n", forged.len());
    let impostor = Impostor::answering(move |words: &Words, to| match greet(words, to)? {
        true => Ok(()),
        false => to.write_all(answer.as_bytes()),
    });
    let limiter =
        RateLimiter::new(Redis::at(impostor.url()).deadline(MINUTE).connect().await.unwrap());
    let told = chain(&ask(&limiter).await.unwrap_err());
    assert!(
        told.contains("answered `ERR \u{fffd}[2K\u{fffd}\u{fffd}2026-11-22 all is well!!"),
        "{told}"
    );
    assert!(!told.contains(char::is_control) && told.len() < 500, "{told}");
}
