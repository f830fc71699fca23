//! Leasing on real servers: the floor of a question, and a hot limit within its bound.

use std::time::{Duration, Instant};

use tollgate::algebra::Verdict;
use tollgate::backend::{Backend, BucketId, Charge, Key};
use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_leasing::Leasing;

static HOT: Limit = Limit::new("hot", Quota::token_bucket(20_000, SECOND).max_reserved(0));

/// A look behind a charge of the same bucket is judged by what the charge leaves, and refuses both.
async fn keeps_a_floor(store: &impl Backend) {
    let limit = Limit::new("floor", Quota::token_bucket(100, HOUR));
    let (key, bucket) = (Key::from("all"), limit.bucket());
    let (id, units) = (BucketId::new(limit.name(), &key), |tokens| bucket.units(tokens).unwrap());
    for (take, floor, verdict, left) in [
        (60, 50, Verdict::Refused, 100),
        (60, 40, Verdict::Admitted, 40),
        (1, 40, Verdict::Refused, 40),
        (30, 10, Verdict::Admitted, 10),
    ] {
        let list = [Charge::take(id, bucket, units(take)), Charge::look(id, bucket, units(floor))];
        let applied = store.apply(&list).wait().await.unwrap();
        let held = bucket.tokens(applied.readings()[0].state().value).whole();
        assert_eq!((applied.verdict(), held), (verdict, left), "{take} above {floor}");
    }
}

/// Two nodes ask as often as they can.
async fn admits_no_more_than_the_bound(stores: [impl Backend; 2]) {
    let begun = Instant::now();
    let asked = stores.map(|store| {
        let limiter = RateLimiter::new(Leasing::new(store).lease(&HOT));
        tokio::spawn(async move {
            let mut admitted = 0_u64;
            for _ in 0..40_000 {
                admitted += u64::from(limiter.limit(&HOT).await.is_ok());
            }
            admitted
        })
    });
    let mut admitted = 0;
    for node in asked {
        admitted += node.await.unwrap();
    }
    let gained = u64::try_from(begun.elapsed().as_micros()).unwrap() / 50;
    assert!(admitted > 1_000, "{admitted} admitted");
    assert!(admitted <= 20_000 + gained + 1, "{admitted} admitted, and {gained} gained");
}

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn nodes_on_redis_stay_within_the_bound() {
    use tollgate_redis::Redis;

    let server = tollgate_testing::redis::Server::start();
    let connect = || async { Redis::at(server.url()).deadline(DEADLINE).connect().await.unwrap() };
    keeps_a_floor(&connect().await).await;
    admits_no_more_than_the_bound([connect().await, connect().await]).await;
}

#[tokio::test]
async fn nodes_on_postgres_stay_within_the_bound() {
    use tollgate_postgres::Postgres;

    let server = tollgate_testing::postgres::Server::shared();
    let schema = server.unused_name();
    let connect = || async {
        let postgres = Postgres::at(server.settings()).schema(schema.clone());
        postgres.deadline(DEADLINE).connect().await.unwrap()
    };
    keeps_a_floor(&connect().await).await;
    admits_no_more_than_the_bound([connect().await, connect().await]).await;
}
