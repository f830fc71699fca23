//! Decisions a second on PostgreSQL, beside `SELECT 1` and a plain upsert by the same pool, then a
//! hot key in shards, then the size of the table after a million decisions.

use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate_testing::postgres::Server;

use crate::contestant::{Contestant, HOT, LIMIT, TABLE, limiter, pool};
use crate::drive::{median, rate, spread};

mod contestant;
mod drive;

const KEYS: u64 = 10_000;

/// Processes that charge one hot key, and the connections of each.
const PROCESSES: usize = 8;
const EACH: NonZeroUsize = NonZeroUsize::new(2).unwrap();

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_quick = args.iter().any(|arg| arg == "--quick");
    let connections = args.iter().skip_while(|arg| *arg != "--connections").nth(1);
    let connections = connections.map_or("4", String::as_str).parse().unwrap();
    let (rounds, time) = if is_quick { (3, 300) } else { (7, 1_000) };
    let time = Duration::from_millis(time);
    let decisions = if is_quick { 100_000 } else { 1_000_000 };

    let server = Server::start();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("{}, {connections} connections\n", server.query("SELECT version()"));
    beside_bare_statements(&runtime, &server, connections, rounds, time);
    hot_key(&runtime, &server, rounds, time);
    table_size(&runtime, &server, connections, decisions);
}

fn beside_bare_statements(
    runtime: &Runtime,
    server: &Server,
    connections: NonZeroUsize,
    rounds: usize,
    time: Duration,
) {
    server.query(TABLE);
    let pool = pool(&server.settings(), connections);
    let limiter = runtime.block_on(limiter(&pool, connections));
    let contestants = [
        Contestant::Ours(limiter, &LIMIT),
        Contestant::SelectOne(pool.clone()),
        Contestant::Upsert(pool),
    ];
    println!("| tasks | decisions/s | `SELECT 1`/s | upserts/s | by `SELECT 1` | by upserts |");
    println!("|--:|--:|--:|--:|---|---|");
    for tasks in [1, 4, 16, 64, 256] {
        let mut rates = [const { Vec::new() }; 3];
        for round in 0..rounds {
            // Another one goes first in each round.
            for turn in 0..contestants.len() {
                let nth = (round + turn) % contestants.len();
                let contestant = std::slice::from_ref(&contestants[nth]);
                rates[nth].push(rate(runtime, contestant, tasks, KEYS, time));
            }
        }
        let [ours, ones, upserts] = &rates;
        let [a, b, c] = rates.clone().map(median);
        let (by_ones, by_upserts) = (spread(ours, ones), spread(ours, upserts));
        println!("| {tasks} | {a:.0} | {b:.0} | {c:.0} | {by_ones} | {by_upserts} |");
    }
}

fn hot_key(runtime: &Runtime, server: &Server, rounds: usize, time: Duration) {
    let limiters: Vec<_> = (0..PROCESSES)
        .map(|_| runtime.block_on(limiter(&pool(&server.settings(), EACH), EACH)))
        .collect();
    println!(
        "\n| tasks of each of {PROCESSES} processes | shards of one hot key | decisions/s | by one shard |"
    );
    println!("|--:|--:|--:|---|");
    for tasks in [1, 8, 32] {
        let mut rates = [const { Vec::new() }; HOT.len()];
        for round in 0..rounds {
            for turn in 0..HOT.len() {
                let nth = (round + turn) % HOT.len();
                let ours = |limiter: &_| Contestant::Ours(Clone::clone(limiter), &HOT[nth]);
                let contestants: Vec<_> = limiters.iter().map(ours).collect();
                rates[nth].push(rate(runtime, &contestants, tasks, 1, time));
            }
        }
        for (limit, ours) in HOT.iter().zip(&rates) {
            let (shards, ratio) = (limit.quota().get_shards(), spread(ours, &rates[0]));
            println!("| {tasks} | {shards} | {:.0} | {ratio} |", median(ours.clone()));
        }
    }
}

fn table_size(runtime: &Runtime, server: &Server, connections: NonZeroUsize, decisions: u64) {
    let (tasks, lots) = (64, 10);
    let pool = pool(&server.settings(), connections);
    let limiter = runtime.block_on(limiter(&pool, connections));
    server.query("TRUNCATE tollgate.buckets");
    println!("\n| decisions on 1,000 keys | table | index | updates that stay in their page |");
    println!("|--:|--:|--:|--:|");
    for lot in 1..=lots {
        runtime.block_on(async {
            let each = decisions / lots / tasks;
            let running: Vec<_> = (0..tasks)
                .map(|task| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move {
                        for nth in 0..each {
                            let key = (task * each + nth) % 1_000;
                            drop(limiter.limit(&LIMIT).key(key).await.unwrap());
                        }
                    })
                })
                .collect();
            for task in running {
                task.await.unwrap();
            }
        });
        let size = server.query(
            "SELECT pg_relation_size('tollgate.buckets') / 1024 || ' kB | ' || \
             pg_indexes_size('tollgate.buckets') / 1024 || ' kB'",
        );
        // The server writes its statistics down within a second.
        std::thread::sleep(Duration::from_secs(1));
        let hot = server.query(
            "SELECT round(100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1), 1) FROM \
             pg_stat_user_tables WHERE relname = 'buckets' AND schemaname = 'tollgate'",
        );
        println!("| {} | {size} | {hot} % |", decisions / lots * lot);
    }
}
