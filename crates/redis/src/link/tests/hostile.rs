//! A cluster with hostile nodes: they cannot fill the memory, and the link finds a sound node.

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use ::redis::Value;
use tokio::time::Instant;
use tollgate_testing::redis::{Impostor, Words, greet};

use super::super::{Call, ConnectOptions, Link, Route, Servers};
use super::cluster::{ready, told_of_slots};
use super::process::until;
use super::single::{COUNT, WITHIN, chain};

/// The answer to `CLUSTER SLOTS`, with the slots spread evenly over these masters.
fn slots(masters: &[(String, u16)]) -> Vec<u8> {
    let each = 16_384 / masters.len();
    let mut answer = format!("*{}\r\n", masters.len()).into_bytes();
    for (nth, (host, port)) in masters.iter().enumerate() {
        let (first, last) = (nth * each, nth * each + each - 1);
        let length = host.len();
        let range =
            format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${length}\r\n{host}\r\n:{port}\r\n");
        answer.extend_from_slice(range.as_bytes());
    }
    answer
}

/// A node that answers `CLUSTER SLOTS` by one function, and any other command by another.
fn node(
    slots: impl Fn(u16) -> Vec<u8> + Send + Sync + 'static,
    reply: impl Fn() -> String + Send + Sync + 'static,
) -> Impostor {
    Impostor::answering(move |words: &Words, to: &mut TcpStream| -> io::Result<()> {
        match words.first().map(Vec::as_slice) {
            _ if greet(words, to)? => Ok(()),
            Some(b"CLUSTER") => to.write_all(&slots(to.local_addr()?.port())),
            _ => to.write_all(reply().as_bytes()),
        }
    })
}

/// A node that claims to have all slots.
fn alone(reply: impl Fn() -> String + Send + Sync + 'static) -> Impostor {
    node(|port| slots(&[("127.0.0.1".to_owned(), port)]), reply)
}

fn link(nodes: &[&Impostor]) -> Link {
    let urls: Vec<_> = nodes.iter().map(|node| node.url()).collect();
    let servers = Servers::cluster(&urls, &ConnectOptions::default()).unwrap();
    Link::open(servers, COUNT, WITHIN).unwrap()
}

async fn call(link: &Link) -> Result<Value, String> {
    let soon = Instant::now() + WITHIN;
    link.call(Call::new(&["count"], b"", soon)).await.map_err(|error| chain(&error))
}

fn known_nodes(link: &Link) -> usize {
    let Route::Cluster(cluster) = &link.0.route else { panic!("a cluster") };
    cluster.known_nodes()
}

/// Regression: the link began 16,384 connections at once. If the masters had names, 512 threads
/// looked these up for minutes.
#[tokio::test]
async fn an_answer_with_thousands_of_masters_is_rejected() {
    for (host, masters) in [("127.0.0.1", 16_384), ("no-such-host.invalid", 1_001)] {
        let masters = (1..=masters).map(|port| (host.to_owned(), port)).collect::<Vec<_>>();
        let liar = node(move |_| slots(&masters), || "-ERR\r\n".to_owned());
        let link = link(&[&liar]);
        let told = chain(&link.ready().await.unwrap_err());
        let port = liar.port();
        // A slow machine never reads an answer that long in time.
        let texts = ["reported slots that no cluster has", "did not report the slots"];
        let texts = texts.map(|text| format!("127.0.0.1:{port} {text}"));
        let is_told = |text: &String| told.ends_with(text);
        assert!(texts.iter().any(is_told) || told.ends_with("within 1000 ms"), "{told}");
        assert_eq!(known_nodes(&link), 0);
    }
}

#[tokio::test]
async fn answers_with_impossible_slots_and_hosts_are_rejected() {
    let place = |host: &str, port: u16| (host.to_owned(), port);
    let mut lies: Vec<Vec<u8>> = vec![
        b"*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n".to_vec(),
        b"*1\r\n*3\r\n:9\r\n:8\r\n*2\r\n$1\r\na\r\n:1\r\n".to_vec(),
        b"*1\r\n*3\r\n:-1\r\n:8\r\n*2\r\n$1\r\na\r\n:1\r\n".to_vec(),
        b"*1\r\n*3\r\n:0\r\n:8\r\n*2\r\n$1\r\na\r\n:65536\r\n".to_vec(),
        b"*1\r\n*3\r\n:0\r\n:8\r\n$1\r\na\r\n".to_vec(),
        b"*1\r\n:0\r\n".to_vec(),
        b":1\r\n".to_vec(),
    ];
    for host in ["a b", "a\nb", "../a", "a@b", "\u{1b}[31m", &"a".repeat(254)] {
        lies.push(slots(&[place(host, 7000)]));
    }
    for lie in lies {
        let shown = String::from_utf8_lossy(&lie).into_owned();
        let liar = node(move |_| lie.clone(), || "-ERR\r\n".to_owned());
        let told = told_of_slots(&link(&[&liar])).await;
        assert!(told.ends_with("reported slots that no cluster has"), "{told}: {shown}");
    }
}

/// Regression: each address stayed known as long as the slots could not be read.
#[tokio::test]
async fn redirections_to_ever_different_addresses_do_not_fill_the_memory() {
    let next = Arc::new(AtomicUsize::new(0));
    let is_known = Arc::new(AtomicBool::new(true));
    let (count, known) = (Arc::clone(&next), Arc::clone(&is_known));
    let slots_at_first = move |port| match known.load(Ordering::Relaxed) {
        true => slots(&[("127.0.0.1".to_owned(), port)]),
        false => b"-ERR not now\r\n".to_vec(),
    };
    let liar = node(slots_at_first, move || {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        format!("-MOVED 1 127.0.0.1:{}\r\n", 1 + nth % 1_000)
    });
    let link = link(&[&liar]);
    ready(&link).await;
    is_known.store(false, Ordering::Relaxed);
    while next.load(Ordering::Relaxed) < 200 {
        call(&link).await.unwrap_err();
    }
    assert!(known_nodes(&link) <= 65, "{}", known_nodes(&link));
    // The link does not ask these nodes for the slots in place of the known ones: that would make
    // more connections.
    assert_eq!(liar.connections(), 1);
}

#[tokio::test]
async fn circular_redirections_end_with_the_deadline() {
    let ports = Arc::new([AtomicU16::new(0), AtomicU16::new(0)]);
    for word in ["ASK", "MOVED"] {
        let to = |nth: usize| {
            let ports = Arc::clone(&ports);
            move || format!("-{word} 1 127.0.0.1:{}\r\n", ports[nth].load(Ordering::Relaxed))
        };
        let nodes = [alone(to(1)), alone(to(0))];
        for (port, node) in ports.iter().zip(&nodes) {
            port.store(node.port(), Ordering::Relaxed);
        }
        let link = link(&[&nodes[0]]);
        ready(&link).await;
        let told = call(&link).await.unwrap_err();
        let late = "redis backend could not decide within 50 ms";
        assert!(told.contains(&format!("answered `{word} 1 127.0.0.1:")) || told == late, "{told}");
    }
}

#[tokio::test]
async fn a_redirection_to_an_invalid_address_is_an_error() {
    for address in
        ["127.0.0.1", "a b:1", "127.0.0.1:99999", "127.0.0.1:-1", "\u{1b}[31m:1", ":", ""]
    {
        let liar = alone(move || format!("-MOVED 1 {address}\r\n"));
        let link = link(&[&liar]);
        ready(&link).await;
        let late = Instant::now() + Duration::from_secs(30);
        let told = chain(&link.call(Call::new(&["count"], b"", late)).await.unwrap_err());
        assert!(told.contains("answered `MOVED"), "{told}");
        assert!(!told.contains(char::is_control), "{told:?}");
    }
}

/// Regression: after a hostile node had named a thousand silent masters, the link only asked the
/// seeds after five minutes.
#[tokio::test]
async fn a_sound_seed_is_asked_soon_even_if_a_node_names_a_thousand_masters() {
    let is_over = Arc::new(AtomicBool::new(false));
    let sound = {
        let is_over = Arc::clone(&is_over);
        node(
            move |port| match is_over.load(Ordering::Relaxed) {
                true => slots(&[("127.0.0.1".to_owned(), port)]),
                false => b"-ERR not yet\r\n".to_vec(),
            },
            || ":7\r\n".to_owned(),
        )
    };
    // Most of these ports have no listener.
    let masters: Vec<_> = (1..=1_000).map(|port| ("127.0.0.1".to_owned(), port)).collect();
    let liar = node(move |_| slots(&masters), || "-ERR\r\n".to_owned());
    let link = link(&[&liar, &sound]);
    ready(&link).await;
    assert_eq!(known_nodes(&link), 1_000);

    let Route::Cluster(cluster) = &link.0.route else { panic!("a cluster") };
    let seeds = [&liar, &sound].map(|seed| format!("127.0.0.1:{}", seed.port()));
    let mut masters = HashSet::new();
    for turn in 0..200 {
        let mut asked = cluster.asked_in_turn(turn);
        assert_eq!(asked.split_off(5), seeds);
        masters.extend(asked);
    }
    assert_eq!(masters.len(), 1_000, "each in its turn");

    is_over.store(true, Ordering::Relaxed);
    drop(liar);
    until("the sound node is asked", async || call(&link).await.is_ok()).await;
    assert_eq!(known_nodes(&link), 1);
}
