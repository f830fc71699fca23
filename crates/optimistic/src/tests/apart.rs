//! A store that swaps one value at a time.

use super::{CasMap, backend_error, name, on};
use tollgate::algebra::{Bucket, State, Terms, Verdict};
use tollgate::backend::{Adjustment, Backend, BucketId, Charge};
use tollgate::clock::ManualClock;
use tollgate::{DAY, HOUR, Key, Limit, MINUTE, Quota, RateLimiter};
use tollgate_conformance::history::START;

static FIRST: Limit = Limit::new("first", Quota::token_bucket(10, DAY));
static SECOND: Limit = Limit::new("second", Quota::token_bucket(10, DAY));

#[tokio::test(start_paused = true)]
async fn several_limits_in_one_call_fail_before_anything_is_sent() {
    let (map, store) = on(CasMap::<false>::default());
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    let error = limiter.limit(&FIRST).key("a").and(&SECOND).key("a").await.unwrap_err();
    let error = backend_error(&error);
    assert_eq!(
        error.to_string(),
        "map backend can never decide this: the call charges several buckets at once, of `first`, \
         `second`, and this store swaps one value at a time (use one limit in each call, or \
         implement `SwapStore::swap_all` and set `SWAPS_SEVERAL`)"
    );
    assert!(!error.is_outage());
    assert_eq!(map.counts(), [0, 0]);
    // Looks take nothing, so they need no single step.
    let [a, b] = ["a", "b"].map(Key::from);
    let looks = [&a, &b].map(|key| Charge::look(BucketId::new("x", key), FIRST.bucket(), 1));
    let (_, store) = on(CasMap::<false>::default());
    let looked = store.apply(&looks).wait().await.unwrap();
    assert_eq!((looked.verdict(), looked.readings().len()), (Verdict::Admitted, 2));
}

#[tokio::test(start_paused = true)]
async fn a_charge_on_two_shards_is_paid_by_the_fuller() {
    let clock = ManualClock::new(START);
    let (map, store) = on(CasMap::<false>::default());
    let store = store.clock(clock.clone());
    let quota = Quota::token_bucket(20, HOUR).shards(2);
    let bucket = Bucket::of_shard(&quota).unwrap();
    let token = bucket.units(1).unwrap();
    let key = Key::from("a");
    let id = BucketId::new("x", &key);
    let take = async |units: i64, own: u32, terms: Terms| {
        let charge = Charge::take(id.shard(own), &bucket, units).terms(terms);
        store.apply(&[charge.second_shard(1 - own)]).wait().await
    };
    // Each shard holds 10. Of two that hold the same, the own one pays.
    let first = take(6 * token, 1, Terms::AT_ONCE).await.unwrap();
    let paid: Vec<_> = first.readings().iter().map(|it| it.units() / token).collect();
    assert_eq!((first.verdict(), paid), (Verdict::Admitted, vec![6, 0]));
    let second = take(5 * token, 1, Terms::AT_ONCE).await.unwrap();
    let paid: Vec<_> = second.readings().iter().map(|it| it.units() / token).collect();
    assert_eq!((second.verdict(), paid), (Verdict::Admitted, vec![0, 5]));
    // 4 and 5 are left: both together would have 9, but they cannot pay in one step.
    let refused = take(6 * token, 0, Terms::AT_ONCE).await.unwrap();
    assert_eq!(refused.verdict(), Verdict::Refused);
    let wait = refused.wait();
    assert_eq!(wait, MINUTE * 6, "a shard gains ten an hour");
    clock.advance(wait);
    assert_eq!(take(6 * token, 0, Terms::AT_ONCE).await.unwrap().verdict(), Verdict::Admitted);
    // Never, so a wait would be wrong.
    let error = take(11 * token, 0, Terms::AT_ONCE).await.unwrap_err();
    assert!(!error.is_outage());
    assert!(error.to_string().contains("more than one shard of `x` can grant"), "{error}");
    let reserving = Terms::reserving(bucket.floor());
    assert_eq!(take(11 * token, 0, reserving).await.unwrap().verdict(), Verdict::Reserved);
    assert_eq!(map.counts()[1], 4, "one swap for each charge that was not refused");
}

/// 200 requests at once, and the shards grant what the limit has.
#[tokio::test(start_paused = true)]
async fn shards_grant_the_whole_limit_and_no_more() {
    let (_, store) = on(CasMap::<false>::default());
    let limiter = RateLimiter::new(store.clock(ManualClock::new(START)));
    let shards = Limit::new("shards", Quota::token_bucket(40, DAY).shards(4));
    let mut admitted = 0;
    for _ in 0..200 {
        admitted += u32::from(limiter.limit(&shards).await.is_ok());
    }
    assert_eq!(admitted, 40);
}

#[tokio::test(start_paused = true)]
async fn adjustments_of_several_buckets_are_made_one_by_one_but_undos_are_refused() {
    let (map, store) = on(CasMap::<false>::default());
    let store = store.clock(ManualClock::new(START));
    let keys = ["a", "b"].map(Key::from);
    let ids = [BucketId::new("x", &keys[0]), BucketId::new("x", &keys[1])];
    let bucket = FIRST.bucket();
    let token = bucket.units(1).unwrap();
    let take = |id, tokens: i64| Adjustment::refund(id, bucket, -tokens * token);
    let adjustments = [take(ids[1], 1), take(ids[0], 2), take(ids[1], 4)];
    let applied = store.adjust(&adjustments).wait().await.unwrap();
    let held: Vec<_> = applied.readings().iter().map(|it| it.state().value / token).collect();
    // Each shows what its bucket holds after all of them.
    assert_eq!((applied.verdict(), held), (Verdict::Admitted, vec![5, 8, 5]));
    assert_eq!(map.counts()[1], 2);
    let undos = ids.map(|id| Adjustment::undo(id, bucket, 1, State { value: 0, ts: START }));
    let applied = store.adjust(&undos).wait().await.unwrap();
    let held: Vec<_> = applied.readings().iter().map(|it| it.state().value / token).collect();
    assert_eq!((applied.verdict(), held), (Verdict::Refused, vec![8, 5]));
    assert_eq!(map.counts()[1], 2);
}

/// The parts behind the one that failed were left out.
#[tokio::test(start_paused = true)]
async fn parts_that_follow_one_that_fails_are_made_all_the_same() {
    let (map, store) = on(CasMap::<false>::default());
    let store = store.clock(ManualClock::new(START));
    let keys = ["a", "b", "c"].map(Key::from);
    let [a, b, c] = [0, 1, 2].map(|nth: usize| BucketId::new(FIRST.name(), &keys[nth]));
    let (bucket, token) = (FIRST.bucket(), FIRST.bucket().units(1).unwrap());
    let spoil = |key| {
        let value = (b"no bucket".to_vec(), None);
        map.state.lock().unwrap().values.insert(name(&FIRST, key), value);
    };
    let left = async |id| {
        let looked = store.apply(&[Charge::look(id, bucket, 0)]).wait().await.unwrap();
        looked.readings()[0].state().value / token
    };
    spoil(&keys[0]);
    let penalties = [a, b, c].map(|id| Adjustment::refund(id, bucket, -4 * token));
    let error = store.adjust(&penalties).wait().await.unwrap_err();
    assert!(error.to_string().contains("is not a bucket"), "{error}");
    assert_eq!([left(b).await, left(c).await], [6, 6]);
    spoil(&keys[1]);
    let error = store.reset(&[a, b, c]).wait().await.unwrap_err();
    assert!(error.to_string().contains("is not a bucket"), "{error}");
    assert_eq!(left(c).await, 10);
}
