//! Allocations: a decision about a key that the store holds makes none.

use std::convert::Infallible;

use http::{Request, Response, StatusCode};
use tollgate::algebra::{Bucket, Verdict};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge, Memory};
use tollgate::clock::ManualClock;
use tollgate::fields::Dialect;
use tollgate::key::header;
use tollgate::{HOUR, Key, Limit, Quota, RateLimitLayer, SECOND};
use tollgate_testing::cases::times;
use tollgate_testing::{START, at_once, is_admitted, limiter, store};
use tower::{Layer, Service};

static LIMIT: Limit = Limit::new("limit", Quota::token_bucket(1_000, HOUR));

/// A key as long as a UUID.
const KEY: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn allocations(work: impl FnOnce()) -> u64 {
    allocation_counter::measure(work).count_total
}

#[test]
fn a_known_key_is_decided_without_an_allocation() {
    let limiter = limiter(&ManualClock::new(START));
    let ask = |cost| {
        std::hint::black_box(is_admitted(limiter.limit(&LIMIT).key(KEY).cost(cost)));
    };
    assert!(allocations(|| ask(1)) > 0, "a new key allocates, and the counter sees it");
    assert_eq!(allocations(|| (0..999).for_each(|_| ask(1))), 0, "admitted");
    let peek = || assert!(!at_once(limiter.peek(&LIMIT).key(KEY)).unwrap().fits());
    assert_eq!(allocations(peek), 0, "looked at");
}

/// The error is boxed, so that it makes no `Result` larger. That is all that a refusal allocates.
#[test]
fn a_refusal_allocates_its_error_and_nothing_else() {
    let limiter = limiter(&ManualClock::new(START));
    assert!(is_admitted(limiter.limit(&LIMIT).key(KEY).cost(1_000)));
    let refuse = || assert!(!is_admitted(limiter.limit(&LIMIT).key(KEY)));
    assert_eq!(allocations(|| (0..999).for_each(|_| refuse())), 999);
}

#[test]
fn two_shards_are_decided_without_an_allocation() {
    let (memory, _) = store(Memory::new(), &ManualClock::new(START));
    let shard = Bucket::of_shard(&Quota::token_bucket(10_000, HOUR).shards(10)).unwrap();
    let key = Key::from(KEY);
    let id = |shard| BucketId::new("hot", &key).shard(shard);
    let ask = |tokens: u64, verdict| {
        let charge = Charge::take(id(2), &shard, shard.units(tokens).unwrap()).second_shard(7);
        let applied = at_once(memory.apply(&[charge]).wait()).unwrap();
        assert_eq!(applied.verdict(), verdict);
    };
    ask(1_001, Verdict::Admitted);
    assert_eq!(allocations(|| (0..333).for_each(|_| ask(3, Verdict::Admitted))), 0, "admitted");
    assert_eq!(allocations(|| (0..999).for_each(|_| ask(3, Verdict::Refused))), 0, "refused");
}

#[test]
fn a_short_transaction_allocates_no_more_than_its_answer() {
    let (memory, _) = store(Memory::new(), &ManualClock::new(START));
    let keys: Vec<_> = (0..9).map(Key::from).collect();
    let bucket = LIMIT.bucket();
    let charge =
        |key| Charge::take(BucketId::new(LIMIT.name(), key), bucket, bucket.units(1).unwrap());
    let charges: Vec<_> = keys.iter().map(charge).collect();
    let refunds: Vec<_> =
        charges.iter().map(|one| Adjustment::refund(one.id(), bucket, 1)).collect();
    let _ = at_once(memory.apply(&charges).wait()).unwrap();
    for (buckets, most) in [(2, 0), (3, 1), (8, 1)] {
        let take = || drop(at_once(memory.apply(&charges[..buckets]).wait()).unwrap());
        assert_eq!(allocations(take), most, "{buckets} buckets");
        let give_back = || drop(at_once(memory.adjust(&refunds[..buckets]).wait()).unwrap());
        assert_eq!(allocations(give_back), most, "{buckets} refunds");
    }
    let with_pairs: Vec<_> = charges[..4].iter().map(|charge| charge.second_shard(1)).collect();
    let take = || drop(at_once(memory.apply(&with_pairs).wait()).unwrap());
    take();
    assert_eq!(allocations(take), 1, "four times two shards");
}

/// How often 100 requests through this layer allocate. All of them are answered with `status`.
fn allocations_of_requests(layer: RateLimitLayer, status: StatusCode) -> u64 {
    let inner = tower::service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(())))
    });
    let mut service = layer.key(header("x-user")).layer(inner);
    let request = || Request::builder().header("x-user", KEY).body(()).unwrap();
    let mut ask = |request| at_once(service.call(request)).unwrap().status();
    ask(request());
    let requests: Vec<_> = (0..100).map(|_| request()).collect();
    allocations(|| requests.into_iter().for_each(|request| assert_eq!(ask(request), status)))
}

#[test]
fn the_layer_adds_no_allocation_to_an_admitted_request() {
    let layer = limiter(&ManualClock::new(START)).layer(&LIMIT).dialects(Dialect::None);
    assert_eq!(allocations_of_requests(layer, StatusCode::OK), 0);
}

/// The map of header fields allocates twice, and the text of the numbers once, unless they are those of
/// a response before. A wait of more than five minutes is one more text.
#[test]
fn fields_and_refusals_allocate_two_or_three_times() {
    let layer = || limiter(&ManualClock::new(START)).layer(&LIMIT);
    assert_eq!(allocations_of_requests(layer(), StatusCode::OK), 300, "admitted");
    let of_refusals =
        |cost| allocations_of_requests(layer().cost(cost), StatusCode::TOO_MANY_REQUESTS);
    // A text for the second request, which is kept, and the handle by which others share it.
    assert_eq!(of_refusals(510), 203, "for 72 seconds");
    assert_eq!(of_refusals(1_000), 303, "for an hour");
}

/// A server may make a layer for each connection. Each was compared with all others, and had a ledger
/// for its requests.
#[test]
fn each_of_ten_thousand_layers_costs_the_same_and_answers_like_the_only_one() {
    let limiter = limiter(&ManualClock::new(START));
    let inner = || {
        tower::service_fn(|_: Request<()>| {
            std::future::ready(Ok::<_, Infallible>(Response::new(())))
        })
    };
    let make = || limiter.layer(&LIMIT).key(header("x-user")).dialects(Dialect::None);
    let mut services = Vec::with_capacity(10_000);
    let mut costs = Vec::new();
    for nth in 0..10_000 {
        let layer = make();
        let made = allocation_counter::measure(|| services.push(layer.layer(inner())));
        let request = Request::builder().header("x-user", nth).body(()).unwrap();
        let mut service = services[nth].clone();
        assert_eq!(at_once(service.call(request)).unwrap().status(), StatusCode::OK);
        let request = Request::builder().header("x-user", nth).body(()).unwrap();
        let asked = allocations(|| drop(at_once(service.call(request)).unwrap()));
        costs.push((made.count_total, made.bytes_total, asked));
    }
    let (first, second) = (costs[0], costs[1]);
    assert_eq!(second.2, 0, "a request");
    assert!(
        costs[1..].iter().all(|costs| *costs == second),
        "{first:?} {second:?} {:?}",
        costs[9_999]
    );
}

/// The bytes that `work` allocates and does not free.
fn kept(work: impl FnOnce()) -> i64 {
    allocation_counter::measure(work).bytes_current
}

#[test]
fn quotas_that_no_bucket_uses_any_more_take_no_memory() {
    let (memory, limiter) = store(Memory::new().max_keys(10), &ManualClock::new(START));
    let ask = |rate| {
        let limit = Limit::try_new("plan", Quota::token_bucket(rate, HOUR)).unwrap();
        assert!(is_admitted(limiter.limit(&limit).key("alice")));
        at_once(limiter.reset(&limit).key("alice")).unwrap();
    };
    (1..=10).for_each(ask);
    assert_eq!(kept(|| (11..1_000).for_each(ask)), 0);
    assert!(memory.is_empty());
}

#[test]
fn former_quotas_of_a_bucket_take_no_memory() {
    let (_, limiter) = store(Memory::new().max_keys(10), &ManualClock::new(START));
    let ask = |rate| {
        let limit =
            Limit::try_new("plan", Quota::token_bucket(rate, SECOND).capacity(1_000_000)).unwrap();
        assert!(is_admitted(limiter.limit(&limit).key("alice")));
    };
    (1..=10).for_each(ask);
    assert_eq!(kept(|| (11..1_000).for_each(ask)), 0);
}

#[test]
fn keys_that_come_and_go_leave_no_memory_behind() {
    let (memory, limiter) = store(Memory::new().max_keys(100), &ManualClock::new(START));
    let take = |key: u64, cost| assert!(is_admitted(limiter.limit(&LIMIT).key(key).cost(cost)));
    (0..=100).for_each(|key| take(key, 5)); // full: the shard was scanned
    let come_and_go = |times: u64| {
        (0..times).for_each(|key| {
            take(1_000 + key, 1);
            at_once(limiter.reset(&LIMIT).key(1_000 + key)).unwrap();
        })
    };
    come_and_go(200);
    // The log of resets takes 1 MiB, and does not grow once it is full.
    assert!(kept(|| come_and_go(70_000)) < (1_024 + 64) * 1_024);
    // A key that left a single byte behind would show.
    assert!(kept(|| come_and_go(times(100_000, 10_000))) < 4 * 1_024);
    assert!(memory.len() <= 100);
}
