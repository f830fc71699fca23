//! Keys that hold something else than a bucket.

use tollgate_testing::redis::{Client, Reply};

use super::one::SingleBucket;
use super::{Dice, START, Server, on};
use crate::ColdStart;
use tollgate::HOUR;
use tollgate::Quota;
use tollgate::algebra::{State, Verdict};
use tollgate::backend::{Adjustment, Backend, BackendError, BucketId, Charge, Key};
use tollgate::clock::ManualClock;

const QUOTA: Quota = Quota::token_bucket(10, HOUR);

/// A bucket with these numbers: value, ts, gain, token, capacity, step.
fn bucket(numbers: [f64; 6]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Values that no limiter has stored.
fn nonsense() -> Vec<Vec<u8>> {
    // 10 an hour.
    let sound = [3.0, 4.1e15, 1.0, 360_000_000.0, 3_600_000_000.0, 1.0];
    let mut all = vec![
        b"hello".to_vec(),
        b"7".to_vec(),
        vec![b'x'; 48],
        vec![0; 48],
        vec![0xff; 48],
        vec![b' '; 47],
        vec![b' '; 49],
    ];
    for place in 0..6 {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5, 1e16, -1e16, 1e300] {
            let mut numbers = sound;
            numbers[place] = number;
            all.push(bucket(numbers));
        }
    }
    for (place, number) in [
        (0, 3_600_000_001.0),
        (2, 0.0),
        (3, -1.0),
        (4, -1.0),
        (5, 0.0),
        (0, 0.5),
        (0, -9_007_199_254_740_992.0),
    ] {
        let mut numbers = sound;
        numbers[place] = number;
        all.push(bucket(numbers));
    }
    let mut dice = Dice(1);
    for _ in 0..200 {
        all.push((0..48).map(|_| u8::try_from(dice.below(256)).unwrap()).collect());
    }
    all
}

/// All that a key holds, whatever its type.
fn dump(client: &mut Client) -> Reply {
    client.call(&[b"DUMP", SingleBucket::NAME]).unwrap()
}

/// The error names the limit and the way out, and not the key, which may be the name of a person.
fn assert_foreign_key_error(answer: &Result<(), BackendError>, what: &str) {
    let Err(error) = answer else { panic!("{what} is taken for a bucket") };
    let told = error.to_string();
    assert!(told.contains("limit `one`") && told.contains("reset it"), "{what}: {told}");
    assert!(!told.contains("alice"), "{what}: {told}");
}

async fn assert_all_calls_fail(one: &SingleBucket, client: &mut Client, what: &str) {
    let before = dump(client);
    let other = Key::from("bob");
    let token = one.bucket.units(1).unwrap();
    let bob = || BucketId::new("one", &other);
    let taken = async || {
        let look = Charge::look(bob(), &one.bucket, 0);
        let applied = one.redis.apply(&[look]).wait().await.unwrap();
        one.bucket.capacity() - applied.readings()[0].state().value
    };
    let taken_before = taken().await;
    let (take, theirs) =
        (Charge::take(one.id(), &one.bucket, token), Charge::take(bob(), &one.bucket, token));
    let left = State { value: 0, ts: START };
    let give = Adjustment::refund(one.id(), &one.bucket, token);
    let block = Adjustment::block(one.id(), &one.bucket, HOUR);
    // All of these at the same time, with one call on another key.
    let answers = [
        one.redis.apply(&[take]),
        one.redis.apply(&[Charge::look(one.id(), &one.bucket, token)]),
        one.redis.apply(&[theirs, take]),
        one.redis.apply(&[take.second_shard(3)]),
    ];
    let refunds = [
        one.redis.adjust(&[give]),
        one.redis.adjust(&[Adjustment::undo(one.id(), &one.bucket, token, left)]),
        one.redis.adjust(&[block]),
        one.redis.adjust(&[Adjustment::refund(bob(), &one.bucket, -token), give]),
    ];
    let own = one.redis.apply(&[theirs]);
    let mut errors = Vec::new();
    for answer in answers {
        errors.push(answer.wait().await.map(|applied| format!("{applied:?}")));
    }
    for answer in refunds {
        errors.push(answer.wait().await.map(|refunded| format!("{refunded:?}")));
    }
    for (nth, error) in errors.into_iter().enumerate() {
        assert_foreign_key_error(&error.map(drop), &format!("{what}: {nth}"));
    }
    assert_eq!(own.wait().await.unwrap().verdict(), Verdict::Admitted);
    assert_eq!(dump(client), before, "{what}");
    assert_eq!(taken().await, taken_before + token, "{what}");
    one.redis.reset(&[bob()]).wait().await.unwrap();
}

async fn assert_reset_succeeds(one: &SingleBucket, client: &mut Client, what: &str) {
    one.redis.reset(&[one.id()]).wait().await.unwrap();
    assert_eq!(dump(client), Reply::Nil, "{what}");
    assert_eq!(one.take(1).await, (true, "9".to_owned()), "{what}");
    one.redis.reset(&[one.id()]).wait().await.unwrap();
}

#[tokio::test]
async fn a_foreign_value_is_an_error_and_stays_unchanged_until_it_is_reset() {
    let server = Server::start();
    let mut client = server.client();
    let one = SingleBucket::connect(on(&server, &ManualClock::new(START)), &QUOTA).await;
    for raw in nonsense() {
        let what = format!("{raw:?}");
        client.call(&[b"SET", SingleBucket::NAME, &raw]).unwrap().ok();
        assert_all_calls_fail(&one, &mut client, &what).await;
        assert_reset_succeeds(&one, &mut client, &what).await;
    }
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays_unchanged_until_it_is_reset() {
    let server = Server::start();
    let mut client = server.client();
    let one = SingleBucket::connect(on(&server, &ManualClock::new(START)), &QUOTA).await;
    let made: [&[&[u8]]; 4] = [
        &[b"RPUSH", SingleBucket::NAME, b"1"],
        &[b"HSET", SingleBucket::NAME, b"1", b"2"],
        &[b"SADD", SingleBucket::NAME, b"1"],
        &[b"ZADD", SingleBucket::NAME, b"1", b"2"],
    ];
    for words in made {
        let what = format!("{:?}", str::from_utf8(words[0]));
        client.call(words).unwrap();
        assert_all_calls_fail(&one, &mut client, &what).await;
        assert_reset_succeeds(&one, &mut client, &what).await;
        client.call(words).unwrap();
        assert_reset_and_use_succeed(&one).await;
    }
}

/// Resets a bucket and uses it, perhaps in one call.
async fn assert_reset_and_use_succeed(one: &SingleBucket) {
    let token = one.bucket.units(1).unwrap();
    let reset = one.redis.reset(&[one.id()]);
    let first = one.redis.apply(&[Charge::take(one.id(), &one.bucket, token)]);
    reset.wait().await.unwrap();
    assert_eq!(first.wait().await.unwrap().verdict(), Verdict::Admitted);
    assert_eq!(one.take(9).await, (true, "0".to_owned()));
    one.redis.reset(&[one.id()]).wait().await.unwrap();
}

/// Only a call that would store something notices an empty string.
#[tokio::test]
async fn an_empty_string_is_not_overwritten() {
    let server = Server::start();
    let mut client = server.client();
    let one = SingleBucket::connect(on(&server, &ManualClock::new(START)), &QUOTA).await;
    let empty: [&[u8]; 3] = [b"SET", SingleBucket::NAME, b""];
    client.call(&empty).unwrap().ok();
    let (what, before) = ("an empty string", dump(&mut client));
    let bob = Key::from("bob");
    let bob = BucketId::new("one", &bob);
    let token = one.bucket.units(1).unwrap();
    let take = |id| one.redis.apply(&[Charge::take(id, &one.bucket, token)]);
    let (first, own, second) = (take(one.id()), take(bob), take(one.id()));
    assert_foreign_key_error(&first.wait().await.map(drop), what);
    assert_eq!(own.wait().await.unwrap().verdict(), Verdict::Admitted);
    assert_foreign_key_error(&second.wait().await.map(drop), what);
    let block = one.redis.adjust(&[Adjustment::block(one.id(), &one.bucket, HOUR)]);
    assert_foreign_key_error(&block.wait().await.map(drop), what);
    assert_eq!(dump(&mut client), before);
    assert_reset_succeeds(&one, &mut client, what).await;
    client.call(&empty).unwrap().ok();
    assert_reset_and_use_succeed(&one).await;
}

/// Reads an integer of `INFO`.
fn figure(server: &Server, section: &str, field: &str) -> u64 {
    server.info(section, field).parse().unwrap()
}

/// Regression: the script read the whole value and sent it to the client. With 64 MB for each call,
/// 57 of 65 decisions on other keys failed meanwhile.
#[tokio::test]
async fn a_value_of_any_length_costs_no_more_than_a_bucket() {
    const LENGTH: u64 = 64 << 20;
    let server = Server::start();
    let mut client = server.client();
    let init: &[u8] = b"tollgate:#init";
    for (cold_start, name) in [
        (ColdStart::Full, SingleBucket::NAME),
        (ColdStart::Empty, SingleBucket::NAME),
        (ColdStart::Empty, init),
    ] {
        server.flush_all();
        let clock = ManualClock::new(START);
        let one = SingleBucket::connect(on(&server, &clock).cold_start(cold_start), &QUOTA).await;
        one.take(0).await;
        let last = (LENGTH - 1).to_string();
        let made = client.call(&[b"SETRANGE", name, last.as_bytes(), b"x"]).unwrap();
        assert_eq!(made.int(), LENGTH.cast_signed());
        clock.advance(HOUR);
        let before = ["used_memory_peak", "total_net_output_bytes"];
        let figures =
            || [figure(&server, "memory", before[0]), figure(&server, "stats", before[1])];
        let [peak, sent] = figures();
        let keys: Vec<_> = (0_u64..65).map(Key::from).collect();
        let token = one.bucket.units(1).unwrap();
        let take = |id| one.redis.apply(&[Charge::take(id, &one.bucket, token)]);
        for key in &keys {
            let (foreign, own) = (take(one.id()), take(BucketId::new("one", key)));
            let foreign = foreign.wait().await.map(drop);
            if name == SingleBucket::NAME {
                assert_foreign_key_error(&foreign, "a long value");
            }
            let own = own.wait().await.unwrap();
            // A value that is not a time of initialization is replaced by one, and buckets are
            // empty from then on.
            let is_born_now = name == init;
            assert_eq!(own.verdict() == Verdict::Refused, is_born_now, "{cold_start:?}");
        }
        let [peak_after, sent_after] = figures();
        assert!(peak_after < peak + LENGTH / 16, "{} bytes of memory", peak_after - peak);
        assert!(sent_after < sent + LENGTH / 16, "{} bytes to clients", sent_after - sent);
    }
}

/// The script counts in doubles, and must store what it reports.
#[tokio::test]
async fn memory_and_redis_cut_debt_that_is_too_deep_to_be_counted_alike() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let mut client = server.client();
    for (capacity, token) in [(3.0, 2.0), (9_007_199_254_740_991.0, 360_000_001.0), (5.0, 1e15)] {
        let one = SingleBucket::connect(on(&server, &clock), &QUOTA).await;
        // The deepest debt that any quota allows.
        let deepest = capacity - 9_007_199_254_740_992.0;
        let raw = bucket([deepest, 4.1e15, 1.0, token, capacity, 1.0]);
        client.call(&[b"SET", SingleBucket::NAME, &raw]).unwrap();
        let give = Adjustment::refund(one.id(), &one.bucket, 1);
        let given = one.redis.adjust(&[give]).wait().await.unwrap();
        let look = Charge::look(one.id(), &one.bucket, 0);
        let stored = one.redis.apply(&[look]).wait().await.unwrap();
        assert_eq!(given.readings()[0].state(), stored.readings()[0].state(), "{capacity} {token}");
    }
}
