//! Floods: no trips, and memory within its bound.

use super::*;

#[tokio::test]
async fn a_flood_of_refusals_makes_one_trip_a_second() {
    let case = Case::new(|_| Fault::Late);
    assert!(case.take(10).await && !case.take(1).await);
    let asked = case.store.calls();
    for _ in 0..100_000 {
        let Answer::Ready(Ok(refused)) = case.apply(&Key::GLOBAL, 1) else { panic!("no trip") };
        assert_eq!(refused.verdict(), Verdict::Refused);
    }
    assert_eq!(case.store.calls(), asked);
    for second in 1..=60 {
        case.clock.advance(SECOND + Duration::from_micros(1));
        for _ in 0..1_000 {
            assert!(!case.take(1).await);
        }
        assert_eq!(case.store.calls(), asked + second);
    }
}

/// Keys that a client makes up, each of which is refused: some are long.
#[tokio::test]
async fn made_up_keys_take_no_more_than_the_bound() {
    let clock = ManualClock::new(START);
    let store = Memory::new().clock(clock.clone()).max_keys(10_000);
    let cache = DenyCache::new(store).clock(clock.clone()).max_keys(1_000);
    let (_, bytes) = cache.table.size();
    let bucket = Bucket::new(&Quota::token_bucket(10, HOUR)).unwrap();
    let units = bucket.units(11).unwrap();
    for nth in 0..50_000_u64 {
        let key = match nth % 100 {
            0 => Key::from("long".repeat(4_000)).and(nth),
            _ => Key::from(nth),
        };
        let take = Charge::take(BucketId::new("limit", &key), &bucket, units);
        let Answer::Ready(Ok(applied)) = cache.apply(&[take]) else { panic!() };
        assert_eq!(applied.verdict(), Verdict::Refused);
        clock.advance(Duration::from_micros(1));
    }
    let (known, after) = cache.table.size();
    assert_eq!(after, bytes);
    assert!((900..=1_000).contains(&known), "{known}");
    // What the documentation states.
    assert!(bytes <= 132 * 1_000, "{bytes} bytes");
    // The newest are known.
    let slots: Vec<_> = (49_990..50_000_u64).map(Key::from).collect();
    let known = slots.iter().filter(|key| {
        let slot = cache.table.hash(BucketId::new("limit", key));
        cache.table.get(slot, &bucket).is_some()
    });
    assert_eq!(known.count(), 10);
}

#[test]
fn a_cache_without_places_asks_the_store() {
    let case = Case::new(|_| Fault::None);
    let cache = DenyCache::new(Arc::clone(&case.store)).max_keys(0);
    let units = case.bucket.units(10).unwrap();
    let take = Charge::take(BucketId::new("limit", &Key::GLOBAL), &case.bucket, units);
    for _ in 0..10 {
        drop(cache.apply(&[take]));
    }
    assert_eq!(case.store.calls(), 10);
}

/// One of many keys is refused again and again, while the others come and go.
#[tokio::test]
async fn the_hash_tells_names_apart() {
    let table = super::super::table::DenyTable::new(8);
    let (long, short) = (Key::from("ab"), Key::from("b"));
    let ids = [
        BucketId::new("limit", &short),
        BucketId::new("limit", &short).shard(1),
        BucketId::new("limit", &long),
        BucketId::new("limi", &short),
        BucketId::new("limit", &Key::GLOBAL),
    ];
    for (nth, one) in ids.iter().enumerate() {
        for (other_nth, other) in ids.iter().enumerate() {
            assert_eq!(table.hash(*one) == table.hash(*other), nth == other_nth);
        }
    }
}
