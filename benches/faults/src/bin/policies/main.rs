//! What requests get under each policy while a store fails: status, `Retry-After`, latency, how many
//! are admitted against what the policy allows, and how soon the store is used again. Writes the
//! table of `benches/faults/README.md`.

mod stack;
mod table;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate::backend::Backend;
use tollgate_postgres::Postgres;
use tollgate_redis::Redis;
use tollgate_testing::postgres;
use tollgate_testing::redis::{Mode, Proxy, Sentinels, Server};

use self::stack::{DEADLINE, POLICIES, Stack};
use self::table::Table;

/// How long a fault lasts, and how long all is well before it and after it.
const FAULT: Duration = Duration::from_millis(1_500);
const PEACE: Duration = Duration::from_millis(700);

/// Something that goes wrong.
struct Fault {
    name: &'static str,
    lasts: Duration,
    /// Whether the store comes back empty, or may have lost what it was told last.
    loses: bool,
}

impl Fault {
    fn new(name: &'static str) -> Self {
        Self { name, lasts: FAULT, loses: false }
    }

    fn momentary(self) -> Self {
        Self { lasts: Duration::ZERO, ..self }
    }

    fn loses(self) -> Self {
        Self { loses: true, ..self }
    }
}

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime of two threads").block_on(async {
        let mut table = Table::default();
        of_redis(&mut table).await;
        by_a_proxy(&mut table).await;
        of_sentinels(&mut table).await;
        of_postgres(&mut table).await;
        table.end();
    });
}

async fn of_redis(table: &mut Table) {
    let server = Server::start();
    let store = |policy: &str| -> Arc<dyn Backend> {
        let redis = Redis::at(server.url()).prefix(policy.to_owned()).deadline(DEADLINE);
        Arc::new(redis.connect_lazily().expect("a plain URL"))
    };
    run(table, Fault::new("Redis killed").loses(), store, || server.kill(), || server.restart())
        .await;
    run(table, Fault::new("Redis stopped"), store, || server.stop(), || server.resume()).await;
    let restart = Fault::new("Redis restarted empty").momentary().loses();
    run(table, restart, store, || server.restart(), || ()).await;
    let flush = Fault::new("Redis flushed").momentary().loses();
    run(table, flush, store, || server.flush_all(), || ()).await;
}

async fn by_a_proxy(table: &mut Table) {
    let around = Mode::Delay(Duration::from_millis(40), Duration::from_millis(60));
    for (name, mode) in [
        ("black hole", Mode::Silent),
        ("half answers", Mode::Cut),
        ("answers lost", Mode::LoseAnswers),
        ("answers take 40 to 60 ms", around),
        ("connections refused", Mode::Refuse),
    ] {
        let server = Server::start();
        let proxy = Proxy::before(server.port());
        let store = |policy: &str| -> Arc<dyn Backend> {
            let redis = Redis::at(proxy.url()).prefix(policy.to_owned()).deadline(DEADLINE);
            Arc::new(redis.connect_lazily().expect("a plain URL"))
        };
        run(table, Fault::new(name), store, || proxy.set(mode), || proxy.set(Mode::Pass)).await;
    }
}

async fn of_sentinels(table: &mut Table) {
    let sentinels = Sentinels::start();
    let store = |policy: &str| -> Arc<dyn Backend> {
        let redis = Redis::sentinel(sentinels.urls(), sentinels.master_name());
        let redis = redis.prefix(policy.to_owned()).deadline(DEADLINE);
        Arc::new(redis.connect_lazily().expect("plain URLs"))
    };
    let fail_over = || sentinels.until_replaced(sentinels.kill_master());
    let fault = Fault::new("master killed, replaced").momentary().loses();
    run(table, fault, store, fail_over, || ()).await;
}

async fn of_postgres(table: &mut Table) {
    let server = postgres::Server::start();
    let settings = server.settings();
    for policy in POLICIES {
        // The schema is made before the fault.
        let schema = Postgres::at(&settings).schema(policy).deadline(Duration::from_secs(60));
        drop(schema.connect().await.expect("a server"));
    }
    let store = |policy: &str| -> Arc<dyn Backend> {
        let postgres = Postgres::at(&settings).schema(policy).deadline(DEADLINE);
        Arc::new(postgres.connect_lazily().expect("settings"))
    };
    let stopped = Fault::new("PostgreSQL stopped");
    run(table, stopped, store, || server.stop(), || server.resume()).await;
    let killed = Fault::new("PostgreSQL killed").loses();
    run(table, killed, store, || server.crash(), || server.restart()).await;
}

/// Causes a fault under traffic of all policies, and reports its effects.
async fn run(
    table: &mut Table,
    fault: Fault,
    store: impl Fn(&str) -> Arc<dyn Backend>,
    begin: impl Fn(),
    end: impl Fn(),
) {
    let mut parts = std::env::args().skip(1).peekable();
    if parts.peek().is_some() && !parts.any(|part| fault.name.contains(&part)) {
        return;
    }
    let stacks: Vec<_> = POLICIES.iter().map(|policy| Stack::new(policy, store(policy))).collect();
    for stack in &stacks {
        stack.until_decided().await;
        stack.begin();
    }
    sleep(PEACE).await;
    let begun = Instant::now();
    // The faults block their thread, and the traffic goes on in the others.
    tokio::task::block_in_place(begin);
    sleep(fault.lasts).await;
    tokio::task::block_in_place(end);
    let ended = Instant::now();
    let mut recovered = Vec::new();
    for stack in &stacks {
        recovered.push(stack.until_recovered(ended).await);
    }
    sleep(PEACE).await;
    for (stack, recovery) in stacks.into_iter().zip(recovered) {
        let log = stack.end().await;
        table.row(fault.name, fault.loses, &log, [begun, ended], recovery);
    }
}
