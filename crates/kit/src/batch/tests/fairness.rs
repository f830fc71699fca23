//! How many jobs of a flood are sent before those of other clients, for different rules.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::job::Job;
use super::super::lanes::Lanes;
use crate::key_name::{HashTag, KeyNames};
use crate::operation::{NamedOperation, Operation};
use tollgate::backend::{BucketId, Key};

/// The key of the `nth` request of the flood, or of the `nth` client, for this rule.
type KeyOf = fn(nth: usize, rule: &str) -> String;

/// A client that makes up a user for each request, at one address.
fn made_up_users(nth: usize, rule: &str) -> String {
    match rule {
        "user" => format!("made-up-{nth}"),
        _ => "mallory's".to_owned(),
    }
}

/// A client that is one user, at many addresses.
fn many_addresses(nth: usize, rule: &str) -> String {
    match rule {
        "address" => format!("bot-{nth}"),
        _ => "mallory".to_owned(),
    }
}

/// A client that is one user, at one address.
fn one_user(_: usize, rule: &str) -> String {
    format!("mallory's-{rule}")
}

fn honest(nth: usize, rule: &str) -> String {
    format!("client-{nth}-{rule}")
}

struct WaitingRequests {
    names: KeyNames,
    lanes: Lanes,
    arrivals: u64,
    answers: Vec<Box<dyn std::any::Any>>,
}

impl WaitingRequests {
    /// Adds a job of a request with these rules.
    fn push(&mut self, rules: &[&str], nth: usize, key_of: KeyOf) {
        let key = |rule: &&str| match *rule {
            "global" => Key::GLOBAL,
            "tenant" => Key::from("acme"),
            rule => Key::from(key_of(nth, rule).as_str()),
        };
        let keys: Vec<_> = rules.iter().map(key).collect();
        let ids: Vec<_> =
            rules.iter().zip(&keys).map(|(rule, key)| BucketId::new(rule, key)).collect();
        let operation = NamedOperation::new(Operation::resets(&ids), &self.names);
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + Duration::from_secs(3_600);
        let job = Job::new(operation, deadline, reply);
        self.arrivals += 1;
        self.lanes.push(job, self.arrivals);
        self.answers.push(Box::new(answer));
    }
}

/// How many jobs of a flood are sent before the last of ten other clients, which arrive behind
/// 2,000 of them. Whenever a job of the flood is sent, another one arrives. Every other client
/// names its user alone.
fn go_before(rules: &[&str], flood: KeyOf) -> usize {
    let names = KeyNames::new("tollgate".to_owned(), HashTag::Bucket, None).unwrap();
    let lanes = Lanes::default();
    let mut waiting = WaitingRequests { names, lanes, arrivals: 0, answers: Vec::new() };
    (0..FLOOD).for_each(|nth| waiting.push(rules, nth, flood));
    for nth in 0..10 {
        waiting.push(if nth % 2 == 0 { rules } else { &["user"] }, nth, honest);
    }
    let ours = FLOOD as u64 + 1..=FLOOD as u64 + 10;
    let (mut gone, mut left) = (0, 10);
    while left > 0 {
        match waiting.lanes.pop(true).unwrap() {
            job if ours.contains(&job.arrival) => left -= 1,
            _ => {
                gone += 1;
                waiting.push(rules, FLOOD + gone, flood);
            }
        }
    }
    gone
}

const FLOOD: usize = 2_000;

/// Each made-up user had a turn of its own if the rule of the user stood before that of the
/// address. If a rule that all clients share stood first, all jobs were in one lane, and 2,000 were
/// sent before the last client.
#[test]
fn a_flood_delays_no_other_client_in_whatever_order_the_rules_are() {
    let mut figures = Vec::new();
    let floods: [(&str, KeyOf); 3] = [
        ("made-up users", made_up_users),
        ("many addresses", many_addresses),
        ("one user", one_user),
    ];
    for rules in [
        &["user", "address"][..],
        &["address", "user"],
        &["user", "global"],
        &["global", "user"],
        &["user", "tenant"],
        &["tenant", "user"],
        &["global", "address", "user"],
        &["user", "address", "global"],
        &["address", "tenant", "user"],
        &["tenant", "user", "address", "global"],
        &["user"],
    ] {
        for (what, flood) in floods {
            // Without a rule by address, such a flood looks like as many clients.
            if rules.contains(&"address") || what == "one user" {
                figures.push((go_before(rules, flood), what, rules));
            }
        }
    }
    assert!(figures.iter().all(|&(gone, ..)| gone <= MOST), "{figures:?}");
}

/// The first jobs of the flood get a turn or two, while no bucket is named more often than others.
/// The clients of a tenant share one turn.
const MOST: usize = 5;
