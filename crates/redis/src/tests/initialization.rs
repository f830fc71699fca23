//! Stores that have lost their data.

use std::time::Duration;

use tollgate_testing::cases::seeds;
use tollgate_testing::redis::Reply;

use super::expiry::drop_expired;
use super::one::SingleBucket;
use super::{Dice, START, Server, on};
use crate::ColdStart;
use tollgate::Quota;
use tollgate::algebra::{Bucket, Verdict, check_history};
use tollgate::backend::{Backend, BucketId, Charge, Memory, Reading};
use tollgate::clock::{Clock, ManualClock, Timestamp};
use tollgate::{DAY, HOUR, MINUTE, SECOND};
use tollgate_conformance::history::{History, Step, expect_ready, keys, play_step};

fn initialized_at(server: &Server, prefix: &str) -> Reply {
    server.command(&["GET", &format!("{prefix}:#init")])
}

/// How long after the initialization a bucket that is reset is full.
const RESETS_KNOWN: Duration = Duration::from_secs(32 * 24 * 60 * 60);

/// A memory store in which all buckets were empty at the instant of initialization.
struct EmptyAtInit {
    memory: Memory,
    clock: ManualClock,
    initialized_at: Timestamp,
}

impl EmptyAtInit {
    fn new(clock: &ManualClock, history: &History) -> Self {
        let memory = Memory::new().clock(clock.clone()).keep_full();
        let all = Self { memory, clock: clock.clone(), initialized_at: clock.now() };
        for (limit, quota) in &history.limits {
            let bucket = Bucket::of_shard(quota).unwrap();
            for (key, shard) in
                keys().iter().flat_map(|key| (0..quota.get_shards()).map(move |s| (key, s)))
            {
                all.empty(BucketId::new(limit, key).shard(shard), &bucket);
            }
        }
        all
    }

    /// Empties a bucket at the instant of initialization.
    fn empty(&self, id: BucketId<'_>, bucket: &Bucket) {
        let now = self.clock.now();
        self.clock.set(self.initialized_at);
        let charge = Charge::take(id, bucket, bucket.capacity());
        let applied = expect_ready(self.memory.apply(&[charge])).unwrap();
        assert_eq!(applied.verdict(), Verdict::Admitted);
        self.clock.set(now);
    }

    /// The answer of such a store to a step.
    fn play_step(&self, history: &History, step: &Step) -> String {
        let told = expect_ready(play_step(&self.memory, step)).unwrap();
        if let Step::Reset(targets) = step
            && self.clock.now() >= self.initialized_at + RESETS_KNOWN
        {
            // A bucket that is reset so late is as if never used: empty at the initialization.
            for (nth, target) in targets.iter().enumerate() {
                if targets.iter().take(nth).any(|before| before.id() == target.id()) {
                    continue;
                }
                let quota =
                    history.limits.iter().find(|(limit, _)| *limit == target.limit).unwrap().1;
                self.empty(target.id(), &Bucket::of_shard(&quota).unwrap());
            }
        }
        told
    }
}

#[tokio::test]
async fn absent_buckets_count_as_empty_at_the_initialization() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let (mut played, mut births, mut histories) = (0, 0, 0);
    let seeds = seeds(32);
    for seed in seeds.clone() {
        clock.set(START);
        let prefix = format!("b{seed}");
        let redis = on(&server, &clock).prefix(prefix.as_str()).cold_start(ColdStart::Empty);
        let redis = redis.connect().await.unwrap();
        let mut history = History::steady(seed);
        // Of a calendar, the script knows the present window alone: see the test below.
        if history
            .limits
            .iter()
            .any(|(_, quota)| Bucket::of_shard(quota).unwrap().calendar().is_some())
        {
            continue;
        }
        histories += 1;
        let mut emptied = EmptyAtInit::new(&clock, &history);
        for nth in 0..80 {
            history.pass(&clock);
            clock.set(clock.now().max(emptied.initialized_at));
            if nth == 0 || history.dice.one_in(25) {
                server.flush_all();
                emptied = EmptyAtInit::new(&clock, &history);
                let anything = history.draw_charge();
                redis.apply(&[anything.charge()]).wait().await.unwrap();
                expect_ready(emptied.memory.apply(&[anything.charge()])).unwrap();
                births += 1;
            }
            let mut step = history.step();
            if let Step::Adjust(backs) = &mut step {
                // A refund to an absent bucket is lost.
                backs.retain(|back| back.adjustment().takes());
            }
            let told = play_step(&redis, &step).wait().await.unwrap();
            if matches!(&step, Step::Adjust(backs) if backs.is_empty()) {
                continue;
            }
            assert_eq!(told, emptied.play_step(&history, &step), "seed {seed}: {step:?}");
            let look = history.draw_charge();
            let applied = redis.apply(&[look.charge()]).wait().await.unwrap();
            assert_eq!(expect_ready(emptied.memory.apply(&[look.charge()])).unwrap(), applied);
            history.seen.extend(applied.readings().iter().map(Reading::state));
            let old = history.seen.len().saturating_sub(6);
            history.seen.drain(..old);
            assert_eq!(initialized_at(&server, &prefix).int(), emptied.initialized_at.as_micros());
            played += 2;
        }
    }
    assert!(histories * 4 >= seeds.end, "{histories} of {seeds:?}");
    assert!(played >= 120 * histories && births >= 2 * histories, "{played} {births}");
}

/// The script is told the start of the present window, and no other. So it counts the windows since
/// the initialization by the length that none exceeds: up to an eighth fewer, and never one too many.
#[tokio::test]
async fn a_calendar_has_no_window_too_many_since_the_initialization() {
    use tollgate::kit::Calendar;

    let server = Server::start();
    let mut late = 0;
    for (nth, calendar) in
        [Calendar::daily(), Calendar::monthly().zone("Europe/Berlin")].into_iter().enumerate()
    {
        let clock = ManualClock::new(START);
        let quota = Quota::calendar(1_000, calendar).capacity(1_000_000);
        let redis = on(&server, &clock).prefix(format!("c{nth}")).cold_start(ColdStart::Empty);
        let store = SingleBucket::connect(redis, &quota).await;
        let mut told = Vec::new();
        for _ in 0..40 {
            let gained = calendar.count(START, clock.now()) * 1_000;
            let (_, left) = store.take(0).await;
            told.push((left.parse::<u64>().unwrap(), gained));
            clock.advance(HOUR * 24 * 9);
        }
        late += told.iter().filter(|(left, gained)| left < gained).count();
        assert!(told.iter().all(|(left, gained)| left <= gained), "{told:?}");
        assert!(told.iter().all(|(left, gained)| left + gained / 8 + 1_000 >= *gained), "{told:?}");
    }
    assert!(late > 0);
}

#[tokio::test]
async fn the_time_of_initialization_is_stored_once() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let quota = Quota::token_bucket(10, MINUTE);
    let full = SingleBucket::connect(on(&server, &clock), &quota).await;
    assert_eq!(full.take(1).await, (true, "9".to_owned()));
    // A store with `ColdStart::Full` writes no time of initialization, and buckets that are stored
    // are not absent.
    assert_eq!(initialized_at(&server, "tollgate"), Reply::Nil);
    let empty = async || {
        SingleBucket::connect(on(&server, &clock).cold_start(ColdStart::Empty), &quota).await
    };
    assert_eq!(empty().await.take(1).await, (true, "8".to_owned()));
    let noted = initialized_at(&server, "tollgate");
    assert_eq!(noted.int(), START.as_micros());
    assert_eq!(server.command(&["TTL", "tollgate:#init"]), Reply::Int(-1));

    clock.advance(MINUTE / 2);
    server.command(&["DEL", str::from_utf8(SingleBucket::NAME).unwrap()]);
    assert_eq!(empty().await.take(1).await, (true, "4".to_owned()));
    assert_eq!(initialized_at(&server, "tollgate"), noted);

    server.flush_all();
    assert_eq!(empty().await.take(1).await, (false, "0".to_owned()));
    assert_eq!(initialized_at(&server, "tollgate").int(), (START + MINUTE / 2).as_micros());
    clock.advance(MINUTE);
    assert_eq!(empty().await.take(10).await, (true, "0".to_owned()));
}

#[tokio::test]
async fn after_an_initialization_no_bucket_starts_above_its_initial_value() {
    for quota in [
        Quota::token_bucket(1, SECOND).capacity(10).initial(3),
        Quota::fixed_window(1, SECOND).capacity(10).initial(3).start(START),
    ] {
        let server = Server::start();
        let clock = ManualClock::new(START);
        let redis = on(&server, &clock).cold_start(ColdStart::Empty);
        let one = SingleBucket::connect(redis, &quota).await;
        for (after, held) in [(0, 0), (2, 2), (3, 3), (60, 3)] {
            clock.set(START + SECOND * after);
            let look = Charge::look(one.id(), &one.bucket, 0);
            let applied = one.redis.apply(&[look]).wait().await.unwrap();
            let state = applied.readings()[0].state();
            assert_eq!(one.bucket.tokens(state.value).to_string(), held.to_string(), "{after} s");
        }
        // From its first use on, the bucket is like any other.
        assert_eq!(one.take(1).await, (true, "2".to_owned()));
        assert_eq!(one.take(3).await, (false, "2".to_owned()));
        clock.advance(SECOND * 60);
        assert_eq!(one.take(10).await, (true, "0".to_owned()));
    }
}

async fn reset(one: &SingleBucket) {
    one.redis.reset(&[one.id()]).wait().await.unwrap();
}

#[tokio::test]
async fn after_an_initialization_a_reset_gives_a_full_bucket() {
    for quota in [
        Quota::token_bucket(6, DAY),
        Quota::fixed_window(6, DAY),
        Quota::fixed_window(6, DAY).start(START),
    ] {
        let server = Server::start();
        let (clock, mut client) = (ManualClock::new(START), server.client());
        let connect = |cold_start| on(&server, &clock).cold_start(cold_start);
        let one = SingleBucket::connect(connect(ColdStart::Empty), &quota).await;
        let all = SingleBucket::connect(connect(ColdStart::Full), &quota).await;
        assert_eq!(one.take(1).await, (false, "0".to_owned()), "{quota}");
        reset(&one).await;
        assert_eq!(one.take(0).await, (true, "6".to_owned()), "{quota}");
        assert_eq!(all.take(0).await, (true, "6".to_owned()), "{quota}");
        // It is full until it is used, and again after it was.
        clock.advance(HOUR * 5);
        drop_expired(&mut client, &clock);
        assert_eq!(one.take(5).await, (true, "1".to_owned()), "{quota}");
        assert_eq!(one.take(2).await, (false, "1".to_owned()), "{quota}");
        reset(&one).await;
        assert_eq!(one.take(2).await, (true, "4".to_owned()), "{quota}");
        for _ in 0..70 {
            clock.advance(HOUR / 2);
            drop_expired(&mut client, &clock);
            let (_, left) = one.take(0).await;
            assert!(left.parse::<f64>().unwrap() >= 4.0, "{quota}: {left}");
        }
        assert!(one.take(6).await.0, "{quota}");
    }
}

/// Calls that may share a run of the script, in any way.
#[tokio::test]
async fn after_an_initialization_a_reset_among_other_calls_gives_a_full_bucket() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let quota = Quota::token_bucket(6, DAY);
    let one = SingleBucket::connect(on(&server, &clock).cold_start(ColdStart::Empty), &quota).await;
    for _ in 0..20 {
        let take = |tokens| {
            let units = one.bucket.units(tokens).unwrap();
            one.redis.apply(&[Charge::take(one.id(), &one.bucket, units)]).wait()
        };
        let calls = [take(7), take(1), take(7)];
        let (reset, then) = (one.redis.reset(&[one.id()]).wait(), [take(5), take(2), take(1)]);
        let mut told = Vec::new();
        for call in calls {
            told.push(call.await.unwrap().verdict());
        }
        reset.await.unwrap();
        for call in then {
            told.push(call.await.unwrap().verdict());
        }
        let (yes, no) = (Verdict::Admitted, Verdict::Refused);
        assert_eq!(told, [no, no, no, yes, no, yes]);
    }
}

/// Resets leave something behind only while a bucket that is not stored may not be full.
#[tokio::test]
async fn the_mark_of_a_reset_ends_32_days_after_the_initialization() {
    let server = Server::start();
    let (clock, mut client) = (ManualClock::new(START), server.client());
    let quota = Quota::token_bucket(31, DAY * 31);
    let one = SingleBucket::connect(on(&server, &clock).cold_start(ColdStart::Empty), &quota).await;
    let stored = || server.command(&["EXISTS", str::from_utf8(SingleBucket::NAME).unwrap()]);
    for days in [1, 20, 10] {
        reset(&one).await;
        assert_eq!(stored().int(), 1);
        clock.advance(DAY * days);
        drop_expired(&mut client, &clock);
        assert_eq!(one.take(0).await, (true, "31".to_owned()));
    }
    clock.advance(DAY * 2);
    drop_expired(&mut client, &clock);
    assert_eq!(stored().int(), 0);
    assert_eq!(one.take(1).await, (true, "30".to_owned()));
    reset(&one).await;
    assert_eq!(stored().int(), 0);
    assert_eq!(one.take(0).await, (true, "31".to_owned()));
}

/// What ran under a limit while its store was flushed now and then.
async fn ran_over_losses(quota: &Quota, cold_start: ColdStart, seed: u64) -> Vec<(Timestamp, u64)> {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let one = SingleBucket::connect(on(&server, &clock).cold_start(cold_start), quota).await;
    let (mut dice, mut ran) = (Dice(seed), Vec::new());
    for _ in 0..400 {
        if dice.one_in(20) {
            server.flush_all();
        }
        clock.advance(SECOND * u32::try_from(dice.below(60)).unwrap());
        let cost = 1 + dice.below(3);
        if one.take(cost).await.0 {
            ran.push((clock.now(), cost));
        }
    }
    ran
}

#[tokio::test]
async fn with_an_empty_cold_start_no_client_exceeds_its_limit_over_a_loss() {
    for quota in [
        Quota::token_bucket(20, HOUR).capacity(10),
        Quota::fixed_window(5, MINUTE * 10).capacity(10),
    ] {
        for seed in 0..5 {
            let ran = ran_over_losses(&quota, ColdStart::Empty, seed).await;
            assert!(ran.len() >= 10, "{} ran", ran.len());
            assert_eq!(check_history(&quota, &ran).unwrap(), None, "{quota}, seed {seed}");
            let ran = ran_over_losses(&quota, ColdStart::Full, seed).await;
            assert!(check_history(&quota, &ran).unwrap().is_some(), "{quota}, seed {seed}");
        }
    }
}

/// Regression: the script took such a value for a time, and the client did not. So every decision
/// failed until an operator deleted the key.
#[tokio::test]
async fn a_value_that_is_not_a_time_of_initialization_is_replaced() {
    let server = Server::start();
    let clock = ManualClock::new(START);
    let quota = Quota::token_bucket(10, MINUTE);
    let now = START.as_micros().to_string();
    for (noted, is_kept) in [
        ("0", true),
        ("0000000000000000", true),
        ("9007199254740991", true),
        ("9007199254740992", false),
        ("9007199254740993", false),
        ("00000000000000000", false),
        ("1e3", false),
        ("0x10", false),
        (" 7 ", false),
        ("+7", false),
        ("-7", false),
        ("7.0", false),
        ("inf", false),
        ("nan", false),
        ("", false),
        ("text", false),
    ] {
        server.flush_all();
        server.command(&["SET", "tollgate:#init", noted]).ok();
        let one =
            SingleBucket::connect(on(&server, &clock).cold_start(ColdStart::Empty), &quota).await;
        let (admitted, _) = one.take(1).await;
        let born_long_ago = noted.trim_start_matches('0').is_empty() && is_kept;
        assert_eq!(admitted, born_long_ago, "{noted}");
        assert_eq!(initialized_at(&server, "tollgate").text(), if is_kept { noted } else { &*now });
    }
}
