//! Decisions by the call that users write.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tollgate::backend::Memory;
use tollgate::{DAY, Limit, Quota, RateLimiter, SECOND};

use super::trace;

/// More than can be asked for: all are admitted.
const OPEN: u64 = 1_000_000_000;

static OPEN_LIMIT: Limit = Limit::new("limit", Quota::token_bucket(OPEN, SECOND));
static SPENT_LIMIT: Limit = Limit::new("limit", Quota::token_bucket(1, DAY));
static DAILY_LIMIT: Limit = Limit::new("limit", Quota::token_bucket(1_000, DAY));
static IN_TWO_SHARDS: Limit = Limit::new("limit", Quota::token_bucket(OPEN, SECOND).shards(2));
static SECOND_LIMIT: Limit = Limit::new("second", Quota::token_bucket(OPEN, SECOND));
static THIRD_LIMIT: Limit = Limit::new("third", Quota::token_bucket(OPEN, SECOND));
static EIGHT_LIMITS: [Limit; 8] = [
    Limit::new("1", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("2", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("3", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("4", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("5", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("6", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("7", Quota::token_bucket(OPEN, SECOND)),
    Limit::new("8", Quota::token_bucket(OPEN, SECOND)),
];

/// By this name a profiler tells what is measured from what comes before. A trace is told by two
/// marks, of an instruction each.
#[inline(never)]
pub fn measured<T>(works: impl IntoIterator<Item = T>, mut work: impl FnMut(T)) {
    for one in works {
        trace::begin();
        work(black_box(one));
        trace::end();
    }
}

/// What a future says at its first poll. In an `async fn` the poll is the same.
#[inline(always)]
pub fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("everything is in memory"),
    }
}

pub fn client(number: u32) -> Ipv4Addr {
    // An odd factor makes it a permutation of all addresses.
    Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1))
}

pub fn session() -> String {
    "0123456789abcdef01234567".to_owned()
}

pub fn address(times: u32) {
    ask_by_address(&RateLimiter::in_memory(), times);
}

/// The numbers of another limiter are replaced.
pub fn another_replaced(times: u32) {
    replace(&RateLimiter::in_memory());
    ask_by_address(&RateLimiter::in_memory(), times);
}

pub fn address_replaced(times: u32) {
    let limiter = RateLimiter::in_memory();
    replace(&limiter);
    ask_by_address(&limiter, times);
}

/// Puts other numbers in place of those of the open limit.
pub fn replace(limiter: &RateLimiter) {
    let other = Quota::token_bucket(OPEN - 1, SECOND);
    limiter.replace(&OPEN_LIMIT, other).expect("a limit of these numbers");
}

fn ask_by_address(limiter: &RateLimiter, times: u32) {
    let ask = |client: Ipv4Addr| {
        assert!(black_box(at_once(limiter.limit(&OPEN_LIMIT).key(client)).is_ok()));
    };
    ask(client(7));
    measured((0..times).map(|_| client(7)), ask);
}

pub fn string(times: u32) {
    let (limiter, session) = (RateLimiter::in_memory(), session());
    let ask = |session: &str| {
        assert!(black_box(at_once(limiter.limit(&OPEN_LIMIT).key(session)).is_ok()));
    };
    ask(&session);
    measured((0..times).map(|_| session.as_str()), ask);
}

pub fn address_refused(times: u32) {
    let limiter = RateLimiter::in_memory();
    let ask = |client: Ipv4Addr| {
        assert!(black_box(at_once(limiter.limit(&SPENT_LIMIT).key(client)).is_err()));
    };
    assert!(at_once(limiter.limit(&SPENT_LIMIT).key(client(7))).is_ok());
    measured((0..times).map(|_| client(7)), ask);
}

pub fn many_addresses(times: u32) {
    const KEYS: u32 = 100_000;
    let limiter = RateLimiter::in_memory();
    let ask = |client: Ipv4Addr| {
        assert!(black_box(at_once(limiter.limit(&DAILY_LIMIT).key(client)).is_ok()));
    };
    (0..KEYS).for_each(|number| ask(client(number)));
    let picks: Vec<_> = (0..times).map(|nth| client(nth.wrapping_mul(7_919) % KEYS)).collect();
    measured(picks, ask);
}

pub fn three_limits(times: u32) {
    let limiter = RateLimiter::in_memory();
    let ask = |client: Ipv4Addr| {
        let call = limiter.limit(&OPEN_LIMIT).key(client).and(&SECOND_LIMIT).and(&THIRD_LIMIT);
        assert!(black_box(at_once(call).is_ok()));
    };
    ask(client(7));
    measured((0..times).map(|_| client(7)), ask);
}

pub fn eight_limits(times: u32) {
    let limiter = RateLimiter::in_memory();
    let [first, rest @ ..] = &EIGHT_LIMITS;
    let ask = |client: Ipv4Addr| {
        let call =
            rest.iter().fold(limiter.limit(first).key(client), |call, limit| call.and(limit));
        assert!(black_box(at_once(call).is_ok()));
    };
    ask(client(7));
    measured((0..times).map(|_| client(7)), ask);
}

pub fn two_shards(times: u32) {
    let limiter = RateLimiter::in_memory();
    let ask = |client: Ipv4Addr| {
        assert!(black_box(at_once(limiter.limit(&IN_TWO_SHARDS).key(client)).is_ok()));
    };
    ask(client(7));
    measured((0..times).map(|_| client(7)), ask);
}

pub fn newcomer(times: u32) {
    newcomers(Memory::new().max_keys(1_000_000), 0, times);
}

pub fn newcomer_at_the_bound(times: u32) {
    newcomers(Memory::new().max_keys(100_000), 200_000, times);
}

fn newcomers(memory: Memory, before: u32, times: u32) {
    let limiter = RateLimiter::new(memory);
    let ask = |client: Ipv4Addr| {
        assert!(black_box(at_once(limiter.limit(&DAILY_LIMIT).key(client)).is_ok()));
    };
    (0..before).for_each(|number| ask(client(number)));
    measured((before..before + times).map(client), ask);
}

/// A key for the layers.
pub fn one_client() -> Ipv4Addr {
    client(7)
}

pub fn open_limit() -> &'static Limit {
    &OPEN_LIMIT
}

pub fn spent_limit() -> &'static Limit {
    &SPENT_LIMIT
}
