//! When keys expire, and that expiry changes no answer.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_testing::cases::seeds;
use tollgate_testing::redis::{Client, Reply, until};

use super::one::SingleBucket;
use super::{Dice, START, Server, on};
use crate::Redis;
use tollgate::Quota;
use tollgate::algebra::{Bucket, State, Verdict};
use tollgate::backend::{Backend, BucketId, BucketRecord, Charge, Key, Memory};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::{HOUR, MINUTE, SECOND};
use tollgate_conformance::history::{History, Step, TestCharge, expect_ready, play_step};
use tollgate_kit::key_name::{HashTag, KeyNames};

/// What a key holds: its bytes, and when it expires, in milliseconds.
type KeyDump = Option<(Vec<u8>, i64)>;

fn dump_key(client: &mut Client, name: &[u8]) -> KeyDump {
    match client.call(&[b"GET", name]).unwrap() {
        Reply::Text(raw) => Some((raw, expiry(client, name))),
        Reply::Nil => None,
        other => panic!("{other:?} is no bucket"),
    }
}

/// When a key expires: Redis 6.2 only says how much time is left, here within one millisecond.
fn expiry(client: &mut Client, name: &[u8]) -> i64 {
    let now = |client: &mut Client| {
        let time = client.call(&["TIME"]).unwrap();
        time.list()[0].int() * 1_000 + time.list()[1].int() / 1_000
    };
    loop {
        let before = now(client);
        let left = client.call(&[b"PTTL", name]).unwrap().int();
        if now(client) == before {
            return before + left;
        }
    }
}

/// Drops the key of the single bucket at the first microsecond at which a server may expire it.
pub(super) fn drop_expired(client: &mut Client, clock: &ManualClock) {
    let expired = dump_key(client, SingleBucket::NAME)
        .is_some_and(|(_, at)| at.saturating_mul(1_000) <= clock.now().as_micros());
    if expired {
        client.call(&[b"DEL", SingleBucket::NAME]).unwrap();
    }
}

fn names(prefix: &str) -> KeyNames {
    KeyNames::new(prefix.to_owned(), HashTag::default(), None).unwrap()
}

/// The buckets that a step names, with the quotas in which it counts them.
fn named(prefix: &str, step: &Step) -> Vec<(Vec<u8>, Option<Bucket>)> {
    let names = names(prefix);
    let name = |id: BucketId<'_>| names.name(id).as_ref().to_vec();
    match step {
        Step::Apply(takes) => {
            let of = |take: &TestCharge| {
                let id = take.target.id();
                let other = take.other.map(|shard| (name(id.shard(shard)), Some(take.bucket)));
                std::iter::once((name(id), Some(take.bucket))).chain(other).collect::<Vec<_>>()
            };
            takes.iter().flat_map(of).collect()
        }
        Step::Adjust(backs) => {
            backs.iter().map(|back| (name(back.target.id()), Some(back.bucket))).collect()
        }
        Step::Reset(targets) => targets.iter().map(|target| (name(target.id()), None)).collect(),
    }
}

/// The numbers of a stored bucket, all of them whole: value, ts, gain, token, capacity, step.
fn numbers(raw: &[u8]) -> [i64; 6] {
    let (numbers, rest) = raw.as_chunks::<8>();
    assert!(rest.is_empty(), "{raw:?}");
    let whole = |number: &[u8; 8]| format!("{}", f64::from_le_bytes(*number)).parse().unwrap();
    numbers.iter().map(whole).collect::<Vec<_>>().try_into().unwrap()
}

fn is_in(raw: &[u8], bucket: &Bucket) -> bool {
    let [_, _, gain, token, capacity, step] = numbers(raw);
    let own = [bucket.gain(), bucket.token(), bucket.step()];
    own == [gain, token, step].map(i64::unsigned_abs)
        && capacity == bucket.capacity()
        && (step > 0) == bucket.is_droppable_when_full()
}

fn state(raw: &[u8]) -> State {
    let [value, ts, ..] = numbers(raw);
    State { value, ts: Timestamp::from_micros(ts) }
}

/// The last instant that the script counts exactly.
const LAST: i64 = 1 << 53;

const DAYS_30: i64 = 30 * 24 * 60 * 60 * 1_000;

/// The last microsecond of an eighth of the time in which a bucket fills, in whole milliseconds.
fn expiry_grid(bucket: &Bucket) -> i64 {
    let empty = State { value: 0, ts: Timestamp::from_micros(0) };
    (bucket.drop_at(empty).as_micros() / 8_000 * 1_000).max(1_000)
}

/// The millisecond at which a bucket in this state expires: at the end of the eighth in which it is
/// full. If it starts below its capacity, 30 days after that, or 30 days after `now` if that is
/// later. The earliest expiry that Redis accepts is the first millisecond after the epoch.
fn forgotten_at(bucket: &Bucket, state: State, now: Timestamp) -> i64 {
    let grid = expiry_grid(bucket);
    let parts = bucket.drop_at(state).as_micros().div_euclid(grid).saturating_add(1);
    let full_at = (parts.saturating_mul(grid) / 1_000).max(1);
    let now = now.as_micros().div_euclid(1_000) + i64::from(now.as_micros().rem_euclid(1_000) > 0);
    if bucket.is_droppable_when_full() { full_at } else { full_at.max(now) + DAYS_30 }
}

#[tokio::test]
async fn a_key_expires_once_its_bucket_is_full_and_at_most_an_eighth_of_its_time_later() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let (mut written, mut late) = (0, 0);
    let seeds = seeds(25);
    for seed in seeds.clone() {
        clock.set(START);
        let prefix = format!("e{seed}");
        let redis = on(&server, &clock).prefix(prefix.as_str()).connect().await.unwrap();
        let mut history = History::new(seed);
        for _ in 0..60 {
            history.pass(&clock);
            let step = history.step();
            let named = named(&prefix, &step);
            let before: Vec<_> =
                named.iter().map(|(name, _)| dump_key(&mut client, name)).collect();
            play_step(&redis, &step).wait().await.unwrap();
            for ((name, _), before) in named.iter().zip(before) {
                let after = dump_key(&mut client, name);
                let Some((raw, expires)) = after.as_ref().filter(|_| after != before) else {
                    continue;
                };
                // One of the calls, which count by different quotas, has written the key.
                let same = named.iter().filter(|(other, _)| other == name);
                let writer = same.filter_map(|(_, bucket)| *bucket).find(|it| is_in(raw, it));
                // An adjustment leaves a bucket in its own quota.
                let own = || {
                    let (before, _) =
                        before.as_ref().filter(|_| matches!(step, Step::Adjust(_)))?;
                    let is_same = numbers(before)[2..] == numbers(raw)[2..];
                    let record = BucketRecord::from_numbers(numbers(raw)).filter(|_| is_same)?;
                    Some(*record.bucket())
                };
                let bucket = writer
                    .or_else(own)
                    .expect("only a quota of one of the calls is stored, and nothing by a reset");
                let state = state(raw);
                let wanted = forgotten_at(&bucket, state, clock.now());
                if bucket.drop_at(state).as_micros() < LAST && wanted <= LAST / 1_000 {
                    assert!(*expires > bucket.drop_at(state).as_micros() / 1_000);
                    assert_eq!(*expires, wanted, "{state:?} of {bucket:?}, seed {seed}: {step:?}");
                    written += 1;
                } else {
                    // In the year 2255, or later.
                    assert!(*expires >= LAST / 1_000, "{expires}, seed {seed}: {step:?}");
                    late += 1;
                }
            }
        }
    }
    assert!(written >= 10 * seeds.end && late >= seeds.end / 2, "{written} {late}");
}

#[tokio::test]
async fn expired_keys_change_no_answer() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let (mut played, mut forgotten) = (0, 0);
    let seeds = seeds(25);
    for seed in seeds.clone() {
        clock.set(START);
        let prefix = format!("f{seed}");
        let redis = on(&server, &clock).prefix(prefix.as_str()).connect().await.unwrap();
        let memory = Memory::new().clock(clock.clone()).keep_full();
        let mut history = History::new(seed);
        let mut known = BTreeSet::<Vec<u8>>::new();
        for _ in 0..80 {
            let before = clock.now();
            history.pass(&clock);
            clock.set(clock.now().max(before));
            // Drops the key at the first microsecond at which a server may expire it.
            if history.dice.one_in(2) {
                for name in &known {
                    let expired = dump_key(&mut client, name).is_some_and(|(raw, at)| {
                        let [.., step] = numbers(&raw);
                        // A bucket that starts below its capacity and was not used for 30 days
                        // starts over.
                        step > 0 && at.saturating_mul(1_000) <= clock.now().as_micros()
                    });
                    if expired {
                        forgotten += client.call(&[b"DEL", name.as_slice()]).unwrap().int();
                    }
                }
            }
            let step = history.step();
            known.extend(named(&prefix, &step).into_iter().map(|(name, _)| name));
            let here = expect_ready(play_step(&memory, &step)).unwrap();
            let there = play_step(&redis, &step).wait().await.unwrap();
            assert_eq!(here, there, "seed {seed}, {played} steps before: {step:?}");
            let look = history.draw_charge();
            let applied = expect_ready(memory.apply(&[look.charge()])).unwrap();
            assert_eq!(applied, redis.apply(&[look.charge()]).wait().await.unwrap(), "seed {seed}");
            history.seen.extend(applied.readings().iter().map(tollgate::backend::Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
            played += 2;
        }
    }
    assert_eq!(played, 160 * seeds.end);
    assert!(forgotten >= 6 * i64::try_from(seeds.end).unwrap(), "{forgotten}");
}

/// How many changes there were, and how often each command that changes something was called.
fn changes(server: &Server) -> [u64; 4] {
    let calls = |command: &str| {
        let stats = server.command(&["INFO", "commandstats"]);
        let line = stats.text().lines().find(|line| line.starts_with(command)).map(str::to_owned);
        line.map_or(0, |line| {
            let calls = line.split(['=', ',']).nth(1).unwrap();
            calls.parse().unwrap()
        })
    };
    let changed = server.info("persistence", "rdb_changes_since_last_save").parse().unwrap();
    [changed, calls("cmdstat_set:"), calls("cmdstat_setrange:"), calls("cmdstat_del:")]
}

#[tokio::test]
async fn refusals_and_looks_write_nothing() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let (mut refused, mut looked, mut wrote) = (0, 0, 0);
    let seeds = seeds(20);
    for seed in seeds.clone() {
        clock.set(START);
        let prefix = format!("n{seed}");
        let redis = on(&server, &clock).prefix(prefix.as_str()).connect().await.unwrap();
        let mut history = History::steady(seed);
        for _ in 0..60 {
            history.pass(&clock);
            let step = history.step();
            let Step::Apply(takes) = &step else {
                play_step(&redis, &step).wait().await.unwrap();
                continue;
            };
            let names = named(&prefix, &step);
            let mut all =
                || names.iter().map(|(name, _)| dump_key(&mut client, name)).collect::<Vec<_>>();
            let (before, changed) = (all(), changes(&server));
            let charges: Vec<_> = takes.iter().map(TestCharge::charge).collect();
            let applied = redis.apply(&charges).wait().await.unwrap();
            if applied.verdict() == Verdict::Refused {
                refused += 1;
            } else if takes.iter().all(|take| !take.takes || take.units == 0) {
                looked += 1;
            } else {
                wrote += 1;
                assert!(changes(&server)[0] > changed[0], "seed {seed}: {step:?}");
                continue;
            }
            assert_eq!(all(), before, "seed {seed}: {step:?}");
            assert_eq!(changes(&server), changed, "seed {seed}: {step:?}");
        }
    }
    let least = 3 * seeds.end;
    assert!(refused >= least && looked >= least && wrote >= least, "{refused} {looked} {wrote}");
}

/// The millisecond in which an eighth of an hour ends.
fn end_of_eighth(at: Timestamp) -> i64 {
    let eighth = i64::try_from(HOUR.as_millis()).unwrap() / 8;
    (at.as_micros() / 1_000 / eighth + 1) * eighth
}

#[tokio::test]
async fn a_full_bucket_is_kept_for_at_most_an_eighth_of_its_time() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let one = SingleBucket::connect(on(&server, &clock), &Quota::token_bucket(5, HOUR)).await;
    assert_eq!(one.take(4).await, (true, "1".to_owned()));
    let (_, expires) = dump_key(&mut client, SingleBucket::NAME).unwrap();
    assert_eq!(expires, end_of_eighth(START + HOUR * 4 / 5));
    one.give(1).await;
    assert_eq!(
        dump_key(&mut client, SingleBucket::NAME).unwrap().1,
        end_of_eighth(START + HOUR * 3 / 5)
    );
    one.give(9).await;
    assert_eq!(dump_key(&mut client, SingleBucket::NAME).unwrap().1, end_of_eighth(START));
}

/// A charge that leaves the expiry as it is writes half as much. So the expiry that it leaves must
/// be the right one.
#[tokio::test]
async fn no_charge_leaves_a_bucket_that_expires_before_it_is_full() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    for (quota, is_seldom_moved) in [
        (Quota::token_bucket(3_600, HOUR), true),
        (Quota::token_bucket(7, SECOND * 11).capacity(2_000), true),
        (Quota::fixed_window(300, MINUTE * 3), true),
        (Quota::token_bucket(100, SECOND).capacity(1), false),
    ] {
        server.flush_all();
        let one = SingleBucket::connect(on(&server, &clock), &quota).await;
        let [.., set, set_range, _] = changes(&server);
        let mut dice = Dice(1);
        for _ in 0..500 {
            clock.advance(Duration::from_micros(dice.below(3_000_000)));
            one.take(1).await;
            let (raw, expires) = dump_key(&mut client, SingleBucket::NAME).unwrap();
            let full_at = one.bucket.drop_at(state(&raw)).as_micros();
            assert_eq!(expires, forgotten_at(&one.bucket, state(&raw), clock.now()), "{quota}");
            assert!(expires * 1_000 > full_at, "{quota}: {expires} for {full_at}");
        }
        let [.., set_then, set_range_then, _] = changes(&server);
        let written = [set_then - set, set_range_then - set_range];
        assert_eq!(written[1] > written[0] * 4, is_seldom_moved, "{quota}: {written:?}");
    }
}

#[tokio::test]
async fn a_bucket_that_starts_below_its_capacity_is_stored_on_first_use_and_kept_for_30_days() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let quota = Quota::token_bucket(5, HOUR).initial(1);
    let one = SingleBucket::connect(on(&server, &clock), &quota).await;
    // Even a refusal is a use: the bucket begins to fill.
    assert_eq!(one.take(2).await, (false, "1".to_owned()));
    let first = dump_key(&mut client, SingleBucket::NAME).unwrap();
    assert_eq!(first.1, end_of_eighth(START + HOUR * 4 / 5) + DAYS_30);
    clock.advance(MINUTE);
    assert!(!one.take(2).await.0);
    assert_eq!(dump_key(&mut client, SingleBucket::NAME).unwrap(), first);
    clock.advance(MINUTE * 11);
    assert_eq!(one.take(2).await, (true, "0".to_owned()));
}

#[tokio::test]
async fn a_real_server_expires_the_keys_in_time() {
    let server = Server::start();
    let redis = Redis::at(server.url()).deadline(Duration::from_secs(60)).connect().await.unwrap();
    let take = async |limit: &str, quota: &Quota| {
        let (bucket, key) = (Bucket::new(quota).unwrap(), Key::from("alice"));
        let charge = Charge::take(BucketId::new(limit, &key), &bucket, bucket.units(1).unwrap());
        let applied = redis.apply(&[charge]).wait().await.unwrap();
        assert_eq!(applied.verdict(), Verdict::Admitted);
    };
    take("long", &Quota::token_bucket(1, HOUR)).await;
    take("short", &Quota::token_bucket(20, SECOND)).await;
    take("window", &Quota::fixed_window(5, SECOND / 20)).await;
    let exists =
        |limit: &str| server.command(&["EXISTS", &format!("tollgate:{limit}:alice")]).int();
    until("the short ones have expired", || exists("short") + exists("window") == 0);
    assert_eq!(exists("long"), 1);
}
