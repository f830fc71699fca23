//! Counts bytes and allocations, in a program of its own, as counting takes time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::env;
use std::net::Ipv4Addr;

use http::StatusCode;
use peers_bench::keys::{Name, all};
use peers_bench::peers::layers::{
    self, Extend, Inner, Layered, Requests, connect_info, connect_info_07,
};
use peers_bench::peers::{self, Allowance, name as peer};
#[cfg(feature = "limitador")]
use peers_bench::rounds::Effort;
use peers_bench::rounds::{Figures, Plan};
use peers_bench::works::{flood, name};
use tollgate::fields::Dialect;

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static BYTES: Cell<i64> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + layout.size() as i64);
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, bytes: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(bytes, layout) }
    }
}

const KEYS: usize = 1_000_000;
const REQUESTS: usize = 1_000;

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let plan = Plan::from_words(words.iter().map(String::as_str)).expect("words as of a plan");
    if plan.wants(name::BYTES) {
        bytes(&plan);
    }
    if plan.wants(name::FLOOD_BYTES) {
        flood_bytes(&plan);
    }
    if plan.wants(name::ALLOCATIONS) {
        allocations();
    }
}

fn tell(work: &str, at: u64, peer: &str, unit: &str, value: f64) {
    let [work, peer, unit] = [work, peer, unit].map(str::to_owned);
    print!("{}", Figures { work, at, peer, unit, rounds: vec![value] }.csv());
}

/// What a million strings of 24 bytes take, whatever holds them.
fn bytes(plan: &Plan) {
    let keys = all::<String>(plan.size(KEYS));
    let count = keys.len();
    held(peer::OURS, || peers::ours(Allowance::DAILY, count), &keys);
    held(peer::GOVERNOR, || peers::governor(Allowance::DAILY), &keys);
    held(peer::GOVERNOR_FOLDHASH, || peers::governor_foldhash(Allowance::DAILY), &keys);
    held(peer::AXUM_GCRA, || peers::axum_gcra(Allowance::DAILY), &keys);
    held(peer::THROTTLE_KIT, || peers::throttle_kit(Allowance::DAILY), &keys);
    held(peer::THROTTLECRAB, || peers::throttlecrab(Allowance::DAILY), &keys);
    #[cfg(feature = "limitador")]
    if plan.effort != Effort::Quick {
        held(peer::LIMITADOR, || peers::limitador(Allowance::DAILY, count), &keys);
    }
}

fn held<C: FnMut(&String) -> bool>(peer: &str, contender: impl FnOnce() -> C, keys: &[String]) {
    let before = BYTES.get();
    let mut contender = contender();
    for key in keys {
        assert!(contender(key), "all are admitted");
    }
    let held = (BYTES.get() - before) as f64;
    drop(contender);
    tell(name::BYTES, 0, peer, "bytes per key", held / keys.len() as f64);
}

/// What a flood of keys takes that are never seen again.
fn flood_bytes(plan: &Plan) {
    flood_held(plan, peer::OURS, || flood::ours(plan));
    flood_held(plan, peer::GOVERNOR, || peers::governor(Allowance::DAILY));
}

fn flood_held<C>(plan: &Plan, peer: &str, contender: impl FnOnce() -> C)
where
    C: FnMut(&Ipv4Addr) -> bool,
{
    let before = BYTES.get();
    let mut contender = contender();
    for slice in flood::slices(plan) {
        let end = slice.end;
        for number in slice {
            assert!(contender(&Ipv4Addr::numbered(number)), "all are admitted");
        }
        let held = (BYTES.get() - before) as f64;
        tell(name::FLOOD_BYTES, end.into(), peer, "MiB", held / f64::from(1 << 20));
    }
}

/// What a layer adds to a request that it lets through, once it knows the key.
fn allocations() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime of one thread");
    let _within = runtime.enter();
    let open = Allowance::OPEN;
    let bare = per_request(connect_info, Inner);
    let added =
        |peer, each| tell(name::ALLOCATIONS, 0, peer, "allocations per request", each - bare);
    added(peer::OURS_NO_FIELDS, per_request(connect_info, layers::ours(open, Dialect::None, 1)));
    added(peer::OURS, per_request(connect_info, layers::ours(open, Dialect::default(), 1)));
    added(peer::TOWER_GOVERNOR, per_request(connect_info, layers::tower_governor(open)));
    let with_headers = layers::tower_governor_headers(open);
    added(peer::TOWER_GOVERNOR_HEADERS, per_request(connect_info, with_headers));
    added(peer::AXUM_GOVERNOR, per_request(connect_info, layers::axum_governor(open)));
    added(peer::THROTTLE_KIT, per_request(connect_info, layers::throttle_kit(open)));
    added(peer::AXUM_GCRA, per_request(connect_info_07, layers::axum_gcra(open)));
}

fn per_request(extend: Extend, mut service: impl Layered) -> f64 {
    let client = [Ipv4Addr::new(203, 0, 113, 7)];
    let mut requests = Requests::from(&client, extend);
    layers::drive(&mut service, requests.take(1), StatusCode::OK);
    let batch = requests.take(REQUESTS);
    let before = ALLOCATIONS.get();
    layers::drive(&mut service, batch, StatusCode::OK);
    (ALLOCATIONS.get() - before) as f64 / REQUESTS as f64
}
