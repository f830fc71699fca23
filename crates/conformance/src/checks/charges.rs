//! Single charges and lists of them.

use super::super::quotas::bucket;
use super::super::subject::Subject;
use super::super::trial::Trial;
use tollgate::algebra::{Bucket, Terms, Verdict};
use tollgate::backend::{Backend as _, BucketId, Charge, Key};
use tollgate::quota::{DAY, HOUR, MINUTE, Quota, SECOND};

/// Charges of all sizes on a token bucket and on a window, until they are refused and after.
pub(crate) async fn a_charge_takes_its_units_or_nothing(subject: Subject) {
    let mut trial = Trial::new(&subject);
    for (nth, quota) in
        [Quota::token_bucket(10, HOUR), Quota::fixed_window(10, DAY).start(subject.now().await)]
            .into_iter()
            .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let id = BucketId::new("conformance-charge", &key);
        for tokens in [0, 3, 0, 8, 7, 1, 0, 10, 11] {
            trial.take(id, &bucket, bucket.units(tokens).unwrap()).await;
        }
        // One unit, the smallest part of a token.
        trial.take(id, &bucket, 1).await;
        trial.pass(HOUR);
        trial.take(id, &bucket, bucket.units(10).unwrap()).await;
        let taken = trial.take(id, &bucket, 1).await;
        // Reservations go to the lines, and all else to the store: both have to mean one bucket. A window
        // holds the same when it is looked at later.
        if nth == 1
            && let Some(lines) = subject.store.lines()
        {
            let look = lines.apply(&[Charge::look(id, &bucket, 1)]).wait().await.unwrap();
            assert_eq!(
                look.readings()[0].state(),
                taken.readings()[0].state(),
                "`lines` has other buckets than the store (leave `lines` out of a wrapper that \
                 renames buckets or decides itself)"
            );
        }
    }
}

/// Debt: as deep as the floor of the terms, and for no longer than they allow.
pub(crate) async fn a_charge_reserves_within_its_terms(subject: Subject) {
    let mut trial = Trial::new(&subject);
    for (nth, quota) in [
        Quota::token_bucket(10, HOUR).max_reserved(5),
        Quota::fixed_window(10, HOUR).max_reserved(25),
        Quota::token_bucket(6, MINUTE).capacity(0),
        Quota::token_bucket(6, MINUTE).max_reserved(0),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, bucket) = (Key::from(nth), bucket(quota));
        let id = BucketId::new("conformance-reserve", &key);
        let token = bucket.units(1).unwrap();
        for (tokens, terms) in [
            (11, Terms::reserving(bucket.floor()).within(SECOND)),
            (8, Terms::AT_ONCE),
            (3, Terms::reserving(bucket.floor()).within(SECOND)),
            (3, Terms::reserving(bucket.floor()).within(HOUR * 2)),
            (3, Terms::reserving(-token)),
            (1, Terms::reserving(bucket.floor())),
            (40, Terms::reserving(bucket.floor())),
            (0, Terms::reserving(bucket.floor())),
            (0, Terms::AT_ONCE),
        ] {
            let units = bucket.units(tokens).unwrap();
            trial.apply(&[Charge::look(id, &bucket, units).terms(terms)]).await;
            trial.apply(&[Charge::take(id, &bucket, units).terms(terms)]).await;
        }
        trial.pass(MINUTE);
        trial.take(id, &bucket, token).await;
        trial.look(id, &bucket).await;
    }
}

/// The five rules of a charge on two shards, with its own shard the fuller one and the other.
pub(crate) async fn the_fuller_of_two_shards_pays_or_both_do(subject: Subject) {
    let mut trial = Trial::new(&subject);
    for (nth, quota) in [
        Quota::token_bucket(40, HOUR).max_reserved(12).shards(4),
        Quota::fixed_window(40, DAY).max_reserved(12).shards(4),
        Quota::token_bucket(40, HOUR).initial(8).shards(4),
    ]
    .into_iter()
    .enumerate()
    {
        let (key, shard) = (Key::from(nth), bucket(quota));
        let id = BucketId::new("conformance-shards", &key);
        let units = |tokens| shard.units(tokens).unwrap();
        let pair = |own, other, tokens| {
            Charge::take(id.shard(own), &shard, units(tokens)).second_shard(other)
        };
        for (own, other, tokens) in [
            (0, 1, 3),
            (0, 1, 4),
            (1, 0, 2),
            (0, 1, 0),
            (3, 0, 9),
            (3, 0, 4),
            (1, 3, 20),
            (1, 1, 2),
        ] {
            trial.apply(&[pair(own, other, tokens)]).await;
        }
        let deep = Terms::reserving(shard.floor());
        for tokens in [1, 2, 5, 30] {
            trial.apply(&[pair(0, 1, tokens).terms(deep)]).await;
            trial.apply(&[pair(1, 0, tokens).terms(deep.within(HOUR / 4))]).await;
        }
        // In one list with others, which name the same shards.
        trial.reset(&[0, 1, 2, 3].map(|nth| id.shard(nth))).await;
        for _ in 0..3 {
            let charges = [pair(0, 1, 4), Charge::take(id.shard(1), &shard, 1), pair(1, 2, 3)];
            trial.apply(&charges).await;
        }
        trial.apply(&[Charge::look(id, &shard, units(2)).second_shard(2)]).await;
        trial.pass(MINUTE);
        trial.apply(&[pair(2, 1, 1)]).await;
    }
}

/// Lists of which one charge is refused: no bucket of them has paid, whatever its place.
pub(crate) async fn a_list_is_all_or_nothing(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let (key, bob) = (Key::from("alice"), Key::from("bob"));
    let many = bucket(Quota::token_bucket(100, HOUR).max_reserved(50));
    let few = bucket(Quota::fixed_window(3, DAY).start(subject.now().await));
    let late = bucket(Quota::token_bucket(9, HOUR).initial(2));
    let [wide, narrow, slow] = ["conformance-many", "conformance-few", "conformance-late"]
        .map(|name| BucketId::new(name, &key));
    let (two, three) = (many.units(2).unwrap(), late.units(3).unwrap());
    let all = [
        Charge::take(wide, &many, two),
        Charge::take(narrow, &few, 2),
        Charge::take(BucketId::new("conformance-many", &bob), &many, two),
    ];
    let slow = Charge::take(slow, &late, three);
    let [a, b, c] = all;
    trial.apply(&all).await;
    for list in [vec![a, b, c], vec![b, a], vec![c, a, b], vec![a, slow], vec![slow, b, a]] {
        let applied = trial.apply(&list).await;
        assert_eq!(applied.verdict(), Verdict::Refused, "the suite asks for too much here");
        trial.apply(&[a, c].map(|one| Charge::look(one.id(), one.bucket(), 0))).await;
    }
    // One that reserves, one that looks, and one of zero units, among others that take.
    let reserve = Charge::take(wide, &many, many.units(120).unwrap());
    let reserve = reserve.terms(Terms::reserving(many.floor()));
    trial.apply(&[reserve, Charge::look(narrow, &few, 1), Charge::take(narrow, &few, 0)]).await;
    trial.apply(&[Charge::look(narrow, &few, 9), c]).await;
    // More than a few.
    let keys: Vec<_> = (0_u64..20).map(Key::from).collect();
    for short in [None, Some(19), Some(0), Some(7)] {
        let charges: Vec<_> = (0..20)
            .map(|nth| {
                let units = if short == Some(nth) { 4 } else { 1 };
                Charge::take(BucketId::new("conformance-list", &keys[nth]), &few, units)
            })
            .collect();
        trial.apply(&charges).await;
    }
}

/// The same bucket twice in a list: also with two quotas, and next to each other or not.
pub(crate) async fn a_bucket_named_twice_pays_twice(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let now = subject.now().await;
    let buckets = [
        Quota::token_bucket(10, SECOND),
        Quota::fixed_window(20, DAY).start(now),
        Quota::token_bucket(10, HOUR).initial(4),
    ]
    .map(bucket);
    for (nth, (first, second)) in
        [(0, 0), (1, 1), (0, 1), (1, 0), (0, 2), (2, 1), (2, 2)].into_iter().enumerate()
    {
        let (key, other) = (Key::from(nth), Key::from((nth, "other")));
        let id = BucketId::new("conformance-twice", &key);
        let (first, second) = (&buckets[first], &buckets[second]);
        let take =
            |bucket, tokens| Charge::take(id, bucket, Bucket::units(bucket, tokens).unwrap());
        for tokens in [3, 5, 2, 6, 0] {
            trial.apply(&[take(first, tokens), take(second, tokens)]).await;
            trial.look(id, first).await;
        }
        let between = Charge::take(BucketId::new("conformance-twice", &other), first, 1);
        trial.apply(&[take(first, 1), between, take(second, 1), take(first, 0)]).await;
        // More than a few, and each of them again.
        let charges: Vec<_> = (0..6).flat_map(|_| [take(first, 0), between]).collect();
        trial.apply(&charges).await;
        trial.look(id, second).await;
    }
}

/// After a refusal or a look, each bucket holds what it held before, however often they come.
pub(crate) async fn a_refusal_and_a_look_change_nothing(subject: Subject) {
    let mut trial = Trial::new(&subject);
    let lasting = subject.lasting_bucket().await;
    for (nth, bucket) in [
        lasting,
        bucket(Quota::token_bucket(5, HOUR)),
        bucket(Quota::token_bucket(5, HOUR).initial(1)),
        bucket(Quota::fixed_window(5, HOUR)),
    ]
    .iter()
    .enumerate()
    {
        let key = Key::from(nth);
        let id = BucketId::new("conformance-refusal", &key);
        let all = bucket.capacity();
        for _ in 0..3 {
            trial.take(id, bucket, all + 1).await;
            trial.apply(&[Charge::look(id, bucket, all)]).await;
            trial.apply(&[Charge::look(id, bucket, all + 1)]).await;
        }
        trial.take(id, bucket, all / 2).await;
        for _ in 0..3 {
            trial.take(id, bucket, all).await;
            trial.apply(&[Charge::take(id, bucket, all).second_shard(1)]).await;
            trial.apply(&[Charge::look(id, bucket, 1).terms(Terms::reserving(-all))]).await;
            trial.apply(&[Charge::take(id, bucket, 1), Charge::take(id, bucket, all)]).await;
        }
        trial.look(id.shard(1), bucket).await;
        trial.look(id, bucket).await;
    }
}
