//! `tollgate-plan` answers as a limiter does that gets the requests of the log.

use std::env;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::Verdict;
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::{START, at_once, limiter, quotas};

use super::process::report;
use super::program::line::{Entry, Fields, Lines};
use super::program::log;
use super::program::proposal::{Trials, with_rate};
use super::program::replay::{MAX_KEYS, Numbers, Replay, Ruling, key};
use super::program::report::keys;
use super::program::spool::Spool;

/// Keys of all forms.
const KEYS: [&str; 4] = ["192.0.2.1", "2001:db8::/64", "alice", "all"];

/// Requests: the microseconds since the one before, the key, and the cost.
fn requests(costs: std::ops::RangeInclusive<u64>) -> impl Strategy<Value = Vec<Entry<'static>>> {
    let gaps = prop_oneof![Just(0_i64), 0..=1_000_i64, 0..=3_000_000_i64, 0..=90_000_000_000_i64];
    prop::collection::vec((gaps, prop::sample::select(&KEYS[..]), costs), 0..80).prop_map(|all| {
        let mut now = START.as_micros();
        let mut entry = |(gap, key, cost): (i64, &'static str, u64)| {
            now += gap;
            Entry { at: Timestamp::from_micros(now), key: key.into(), cost }
        };
        all.into_iter().map(&mut entry).collect()
    })
}

/// What a limiter answers to a request.
fn ask(limit: &Limit, calls: &RateLimiter, entry: &Entry<'_>, wait: Option<Duration>) -> Ruling {
    let call = calls.limit(limit).key(key(&entry.key)).cost(entry.cost);
    let answer = match wait {
        None => at_once(call).map(|_permit| Duration::ZERO),
        Some(max_wait) => at_once(call.reserve_within(max_wait)).map(|reservation| {
            let wait = reservation.wait();
            drop(reservation.keep());
            wait
        }),
    };
    let ruling = |verdict, wait, too_large| Ruling { verdict, wait, too_large };
    match answer {
        Ok(Duration::ZERO) => ruling(Verdict::Admitted, Duration::ZERO, false),
        Ok(wait) => ruling(Verdict::Reserved, wait, false),
        Err(error) if error.is_too_large() => ruling(Verdict::Refused, Duration::ZERO, true),
        Err(error) => {
            assert!(error.is_refused(), "{error:?}");
            ruling(Verdict::Refused, error.retry_after().unwrap(), false)
        }
    }
}

proptest! {
    #[test]
    fn plan_decides_as_a_limiter_does(
        quota in quotas(),
        max_reserved in prop_oneof![Just(None), (0..40_u64).prop_map(Some)],
        initial in prop_oneof![Just(None), (0..10_u64).prop_map(Some)],
        wait in prop_oneof![
            Just(None),
            Just(Some(Duration::ZERO)),
            (0..100_000_000_u64).prop_map(|micros| Some(Duration::from_micros(micros))),
        ],
        requests in requests(0..=12),
        // Rows are dropped as often as they can be, or never.
        max_keys in prop::sample::select(vec![0, MAX_KEYS]),
    ) {
        let quota = max_reserved.map_or(quota, |tokens| quota.max_reserved(tokens));
        let quota = match initial {
            Some(tokens) => quota.initial(tokens.min(quota.get_capacity())),
            None => quota,
        };
        prop_assume!(quota.validated().is_ok());
        let limit = Limit::try_new("api", quota).unwrap();
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let mut replay = Replay::new(Numbers::new(&quota, wait).unwrap(), "api", max_keys);
        for entry in &requests {
            clock.set(entry.at);
            let told = ask(&limit, &limiter, entry, wait);
            let (_, mut planned) = replay.play(entry);
            if planned.too_large {
                planned.wait = Duration::ZERO;
            }
            prop_assert_eq!(planned, told, "{:?} of {}", entry, quota);
        }
        prop_assert_eq!(replay.total.requests, requests.len() as u64);
    }

    /// Against all smaller rates, one after another.
    #[test]
    fn the_proposal_is_the_smallest_quota_that_is_enough(
        (rate, capacity) in (1..=40_u64, 1..=60_u64),
        period in prop::sample::select(vec![SECOND, MINUTE, HOUR]),
        in_windows in any::<bool>(),
        requests in requests(1..=1),
        percent in 0..=100_u64,
        max_keys in prop::sample::select(vec![0, MAX_KEYS]),
    ) {
        let quota = match in_windows {
            true => Quota::fixed_window(rate, period),
            false => Quota::token_bucket(rate, period),
        };
        let quota = quota.capacity(capacity);
        let mut replay = Replay::new(Numbers::new(&quota, None).unwrap(), "plan", MAX_KEYS);
        let mut spool = Spool::new().unwrap();
        for entry in &requests {
            let (request, _) = replay.play(entry);
            spool.write(request).unwrap();
        }
        let mut trials = Trials { spool: &mut spool, max_wait: None, max_keys };
        prop_assert_eq!(trials.refused(&quota).unwrap(), Some(replay.total.refused));

        let allowed = requests.len() as u64 * percent / 100;
        let proposal = trials.smallest(&quota, allowed).unwrap();
        let (found, refused) = proposal.enough.unwrap();
        prop_assert_eq!(trials.refused(&found).unwrap(), Some(refused));
        prop_assert!(refused <= allowed);
        for rate in 1..found.rate() {
            let refused = trials.refused(&with_rate(&quota, rate)).unwrap().unwrap();
            prop_assert!(refused > allowed, "{rate} is enough");
        }
    }
}

/// `TOLLGATE_PLAN_LINES=10000000` tries a log of so many lines, in a release build.
#[test]
fn a_generated_log_is_decided_as_by_a_limiter() {
    let lines = env::var("TOLLGATE_PLAN_LINES").unwrap_or_else(|_| "20000".to_owned());
    let log = report(&["--generate", &lines, "--format", "plain"], "");
    for wait in [None, Some(SECOND)] {
        let quota = Quota::token_bucket(1, MINUTE).capacity(4);
        let limit = Limit::new("plan", quota);
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let (mut refused, mut delayed) = (0, 0);
        let mut read = Lines::new(Fields::default(), None);
        log::read(log.as_bytes(), &mut read, |entry, _| {
            clock.set(entry.at);
            match ask(&limit, &limiter, &entry, wait).verdict {
                Verdict::Refused => refused += 1,
                Verdict::Reserved => delayed += 1,
                _ => {}
            }
            Ok(())
        })
        .unwrap();
        assert!(refused > 1_000, "{refused}");
        assert_eq!(delayed > 0, wait.is_some());

        let words = match wait {
            None => &["1 per minute, capacity 4"][..],
            Some(_) => &["--wait", "1s", "1 per minute, capacity 4"],
        };
        let text = report(words, &log);
        assert!(text.contains(&format!("refused    {refused} of {lines} requests")), "{text}");
        let told = text.contains(&format!("delayed    {delayed} of {lines} requests"));
        assert_eq!(told, wait.is_some(), "{text}");
    }
}

/// A flood of made-up keys filled the memory: it kept a row for each.
#[test]
fn keys_that_say_nothing_are_dropped() {
    let quota = Quota::token_bucket(1, SECOND);
    let mut replay = Replay::new(Numbers::new(&quota, None).unwrap(), "plan", 100);
    let mut most = 0;
    for second in 0..10_000 {
        let at = Timestamp::from_unix_seconds(second);
        // One of the keys comes too often in the beginning, and rests then.
        let mut play = |key: String| {
            replay.play(&Entry { at, key: key.into(), cost: 1 });
            most = most.max(replay.keys.len());
        };
        if second < 3 {
            play("often".to_owned());
            play("often".to_owned());
        }
        play(second.to_string());
    }
    assert!(most <= 101, "{most}");
    assert_eq!((replay.total.requests, replay.total.refused), (10_006, 3));
    let often = replay.keys.values().find(|row| row.tally.refused > 0).unwrap();
    assert_eq!((&*often.name, often.tally.requests), ("often", 6));
    assert_eq!(keys(&replay), "at most 10001 keys");
}

/// Which they do for each key at another time.
#[test]
fn other_rates_are_tried_in_the_same_windows() {
    let quota = Quota::fixed_window(5, MINUTE);
    let mut replay = Replay::new(Numbers::new(&quota, None).unwrap(), "plan", MAX_KEYS);
    let mut spool = Spool::new().unwrap();
    for second in 0..2_000 {
        let at = Timestamp::from_unix_seconds(second * 9);
        let (request, _) =
            replay.play(&Entry { at, key: format!("{}", second / 20).into(), cost: 1 });
        spool.write(request).unwrap();
    }
    let mut trials = Trials { spool: &mut spool, max_wait: None, max_keys: MAX_KEYS };
    assert_eq!(trials.refused(&quota).unwrap(), Some(replay.total.refused));
}
