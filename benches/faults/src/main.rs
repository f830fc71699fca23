//! Measures how late answers are while a Redis server fails, and how soon decisions resume
//! afterwards.

mod faults;
mod report;

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::time::sleep;
use tollgate_redis::Redis;
use tollgate_testing::redis::{Cluster, Mode, Proxy, Sentinels, Server};
use tollgate_testing::traffic::{DEADLINE, Lost, RECOVERY, Traffic};

use self::faults::{Fault, Loss, Start, Way};
use self::report::Report;

const TASKS: u64 = 64;

/// How long a fault lasts, and how long all is well before it and after it.
const FAULT: Duration = Duration::from_secs(3);
const PEACE: Duration = Duration::from_secs(1);

fn main() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime of two threads").block_on(async {
        let mut report = Report::begin(DEADLINE, TASKS);
        of_a_server(&mut report).await;
        by_a_proxy(&mut report).await;
        of_a_master(&mut report).await;
        of_a_cluster(&mut report).await;
        report.end();
    });
}

async fn of_a_server(report: &mut Report) {
    let server = Server::start();
    let faults = [
        Fault::new("none").lasts(FAULT),
        Fault::new("killed, starts empty").lasts(FAULT).loses(Loss::All),
        Fault::new("restarts empty at once").loses(Loss::All),
        Fault::new("stopped").lasts(FAULT),
        Fault::new("FLUSHALL").loses(Loss::All),
        Fault::new("SCRIPT FLUSH"),
    ];
    for (nth, fault) in faults.into_iter().enumerate() {
        let way = Way::of(Redis::at(server.url()), Redis::at(server.url()));
        let begin = || match nth {
            1 => server.kill(),
            2 => server.restart(),
            3 => server.stop(),
            4 => server.flush_all(),
            5 => server.script_flush(),
            _ => {}
        };
        let end = || match nth {
            1 => server.restart(),
            3 => server.resume(),
            _ => {}
        };
        run(report, &fault, way, begin, end).await;
    }
}

async fn by_a_proxy(report: &mut Report) {
    let delay = Mode::Delay(Duration::from_millis(40), Duration::from_millis(60));
    let faults = [
        (Fault::new("silent from the start").begins(Start::First), Mode::Silent),
        (Fault::new("silent"), Mode::Silent),
        (Fault::new("answers are lost"), Mode::LoseAnswers),
        (Fault::new("answers are cut"), Mode::Cut),
        (Fault::new("answers take 40 to 60 ms"), delay),
        (Fault::new("connections are refused"), Mode::Refuse),
    ];
    for (fault, mode) in faults {
        let server = Server::start();
        let proxy = Proxy::before(server.port());
        let way = Way::of(Redis::at(proxy.url()), Redis::at(server.url()));
        let (begin, end) = (|| proxy.set(mode), || proxy.set(Mode::Pass));
        run(report, &fault.lasts(FAULT), way, begin, end).await;
    }
}

async fn of_a_master(report: &mut Report) {
    for name in ["master killed, replaced", "SENTINEL FAILOVER"] {
        let sentinels = Sentinels::start();
        let at = || Redis::sentinel(sentinels.urls(), sentinels.master_name());
        let fault = Fault::new(name).loses(Loss::Some);
        let change = || {
            if name == "SENTINEL FAILOVER" {
                sentinels.failover();
                sentinels.until_obeyed();
            } else {
                sentinels.until_replaced(sentinels.kill_master());
            }
        };
        run(report, &fault, Way::of(at(), at()), change, || ()).await;
    }
}

async fn of_a_cluster(report: &mut Report) {
    let cluster = Cluster::start(3);
    let way = || Way::of(Redis::cluster(cluster.urls()), Redis::cluster(cluster.urls()));
    let move_slots = || {
        for node in cluster.nodes() {
            for key in node.command(&["KEYS", "*"]).list() {
                let slot = cluster.slot_of(key.bytes());
                let from = cluster.node_of_slot(slot);
                cluster.move_slot(slot, from, (from + 1) % 3);
            }
        }
    };
    run(report, &Fault::new("all slots in use are moved"), way(), move_slots, || ()).await;
    let (stop, resume) = (|| cluster.node(0).stop(), || cluster.node(0).resume());
    run(report, &Fault::new("one node of three stopped").lasts(FAULT), way(), stop, resume).await;
}

/// Whether a fault is to be tried: all are, unless some are named.
fn is_wanted(fault: &Fault) -> bool {
    let mut parts = std::env::args().skip(1).peekable();
    parts.peek().is_none() || parts.any(|part| fault.name.contains(&part))
}

/// Causes a fault under traffic, and reports its effects.
async fn run(report: &mut Report, fault: &Fault, way: Way, begin: impl Fn(), end: impl Fn()) {
    if !is_wanted(fault) {
        return;
    }
    let way = way.with_prefix(fault.name.replace([' ', ','], "-"));
    let redis = || way.used.clone().deadline(DEADLINE).connect_lazily().expect("a plain URL");
    let (traffic, begun) = match fault.start {
        Start::First => {
            let begun = Instant::now();
            begin();
            (Traffic::begin(redis(), TASKS), begun)
        }
        Start::UnderTraffic => {
            let traffic = Traffic::begin(redis(), TASKS);
            traffic.goes_on().await;
            sleep(PEACE).await;
            let begun = Instant::now();
            begin();
            (traffic, begun)
        }
    };
    sleep(fault.lasts).await;
    end();
    let ended = Instant::now();
    let recovery = traffic.goes_on().await;
    let after = Instant::now();
    sleep(PEACE).await;
    let log = traffic.end().await;
    // Even if the store lost its memory, no token was taken twice.
    let lost = match fault.loss {
        Loss::None => Lost::Nothing,
        Loss::Some => Lost::Something(after),
        Loss::All => Lost::Everything(begun, ended),
    };
    let held = way.held.deadline(RECOVERY).connect_lazily().expect("an address");
    log.is_what(held, lost).await;
    report.row(fault.name, &log, recovery);
}
