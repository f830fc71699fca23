//! `tollgate-plan` answers as a limiter does that gets the requests of the log.

use std::env;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::algebra::Verdict;
use tollgate::clock::ManualClock;
use tollgate::{HOUR, Limit, MINUTE, Quota, RateLimiter, SECOND, Timestamp};
use tollgate_testing::{START, at_once, limiter, quotas};

use self::program::line::{Entry, Fields};
use self::program::log;
use self::program::proposal::{Trials, with_rate};
use self::program::replay::{Numbers, Replay, Ruling, key};
use self::program::spool::Spool;

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../src/main.rs"]
mod program;

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
        let mut replay = Replay::new(Numbers::new(&quota, wait).unwrap(), "api");
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
    ) {
        let quota = match in_windows {
            true => Quota::fixed_window(rate, period),
            false => Quota::token_bucket(rate, period),
        };
        let quota = quota.capacity(capacity);
        let mut replay = Replay::new(Numbers::new(&quota, None).unwrap(), "plan");
        let mut spool = Spool::new().unwrap();
        for entry in &requests {
            let (key, _) = replay.play(entry);
            spool.write((entry.at, entry.cost, key)).unwrap();
        }
        let phases = replay.keys.iter().map(|row| row.phase).collect();
        let mut trials = Trials { spool: &mut spool, phases, max_wait: None };
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

    #[test]
    fn any_text_is_a_request_or_a_broken_line(text in ".{0,80}") {
        let fields = Fields::default();
        let _ = fields.read(&text);
        for line in [
            format!(r#"192.0.2.1 - - [{text}] "GET / HTTP/1.1" 200 5"#),
            format!(r#"192.0.2.1 - - [10/Oct/2000:13:55:36 {text}] "GET / HTTP/1.1" 200 5"#),
            format!(r#"{{"time":{},"key":"a"}}"#, serde_json::to_string(&text).unwrap()),
        ] {
            let _ = fields.read(&line);
        }
    }
}

/// The output of the program, with such words and such a log.
fn run(words: &[&str], log: &str) -> Result<String, String> {
    let mut output = Vec::new();
    let words = words.iter().map(|word| (*word).to_owned());
    program::run(words, log.as_bytes(), &mut output).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(output).unwrap())
}

const COMMON: &str = r#"192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326
192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326
192.0.2.1 - - [10/Oct/2000:14:56:36 -0700] "GET /b HTTP/1.0" 304 -
"#;

#[test]
fn plan_reads_the_common_format() {
    let expected = "\
quota      1 per minute
read       3 lines, 3 requests of 1 key
           from 2000-10-10T20:55:36Z to 2000-10-10T21:56:36Z
refused    1 of 3 requests (33.33%)
memory     about 50 bytes (1 bucket not full, 0 requests waiting)

by key     1 of 1 keys would have been refused or delayed
  key                requests    refused   share  = run # refused
  192.0.2.1                 3          1  33.33%  ===========================#############

by hour
  from (UTC)         requests    refused   share  = run # refused
  2000-10-10 20:00          2          1  50.00%  ====================####################
  2000-10-10 21:00          1          0   0.00%  ====================
";
    assert_eq!(run(&["1 per minute"], COMMON).unwrap(), expected);
}

#[test]
fn plan_reads_the_combined_format() {
    let log =
        COMMON.replace(" 2326\n", r#" 2326 "http://example.org/\"[x]" "Agent (1.0)""#.trim_end());
    let log = log.replace(r#"(1.0)""#, "(1.0)\"\n");
    let words = ["--key", "path", "--at-most", "0%", "1 per hour"];
    let text = run(&words, &log).unwrap();
    assert!(text.contains("3 lines, 3 requests of 2 keys"), "{text}");
    assert!(text.contains("  /a                        2          1  50.00%"), "{text}");
    assert!(text.contains("smallest   2 per hour: refuses 0 of 3 requests (0.00%)"), "{text}");
    assert!(text.contains("too small  1 per hour: refuses 1 of 3 requests (33.33%)"), "{text}");

    let words = ["--key", "user", "--cost", "bytes", "2000 per hour"];
    let text = run(&words, &log).unwrap();
    assert!(text.contains("2 cost more than the quota ever grants"), "{text}");
}

#[test]
fn plan_reads_json_lines_and_lets_requests_wait() {
    let log = r#"{"time":"2026-01-31T12:00:00.25+01:00","key":"alice","cost":2}
{"time":1769857200.25,"key":"alice"}
{"time":"1769857200250","key":7}
"#;
    let text = run(&["--wait", "10s", "2 per minute, max_reserved 1", "-"], log).unwrap();
    assert!(
        text.contains("from 2026-01-31T11:00:00.250000Z to 2026-01-31T11:00:00.250000Z"),
        "{text}"
    );
    assert!(text.contains("refused    1 of 3"), "{text}");
    let text = run(&["--wait", "30s", "2 per minute, max_reserved 1", "-"], log).unwrap();
    assert!(text.contains("delayed    1 of 3 requests (33.33%), by 30s at most"), "{text}");
    assert!(
        text.contains("memory     about 614 bytes (2 buckets not full, 1 request waiting)"),
        "{text}"
    );

    let nested = r#"{"ts":0,"user":{"id":"alice"},"tokens":"3"}"#;
    let words = ["--time", "ts", "--key", "/user/id", "--cost", "tokens", "2 per minute"];
    let text = run(&words, nested).unwrap();
    assert!(text.contains("1 cost more than the quota ever grants"), "{text}");
}

#[test]
fn broken_lines_and_lines_out_of_order_are_counted() {
    let long = "x".repeat(100_000);
    let log =
        format!("{COMMON}\n{{\"time\":\"noon\"}}\n{long}\n{}", COMMON.lines().next().unwrap());
    let text = run(&["10 per minute"], &log).unwrap();
    assert!(text.contains("read       7 lines, 4 requests"), "{text}");
    assert!(text.contains("not read: 2 lines, the first is line 5: no time in `time`"), "{text}");
    let early = "out of order: 1 line, the first is line 7: \
                 2000-10-10T20:55:36Z is before 2000-10-10T21:56:36Z";
    assert!(text.contains(early), "{text}");
}

#[test]
fn a_line_that_is_too_long_is_not_kept() {
    let log = vec![b'x'; 65_537];
    let read = log::read(&log[..], &Fields::default(), |_| unreachable!()).unwrap();
    let broken = read.broken.unwrap();
    assert_eq!((broken.lines, broken.reason.as_str()), (1, "longer than 65536 bytes"));
}

#[test]
fn times_that_do_not_exist_are_broken_lines() {
    for time in [
        "31/Feb/2000:13:55:36 -0700",
        "10/oct/2000:13:55:36 -0700",
        "10/Oct/2000:25:55:36 -0700",
        "10/Oct/2000:13:55:36 -0760",
        "10/Oct/2000:13:55:36",
        "1/Oct/2000:13:55:36 +0000",
    ] {
        let line = format!("192.0.2.1 - - [{time}] \"GET / HTTP/1.1\" 200 5");
        let read = Fields::default().read(&line).map(|entry| entry.at);
        assert!(read.is_err(), "{time}: {read:?}");
    }
    for time in ["2026-02-30T00:00:00Z", "2026-01-31T12:00:00", "-1", "1e9", "", "12 o'clock"] {
        let line = format!(r#"{{"time":"{time}","key":"a"}}"#);
        let read = Fields::default().read(&line).map(|entry| entry.at);
        assert!(read.is_err(), "{time}: {read:?}");
    }
}

#[test]
fn a_generated_log_is_read_whole() {
    for words in [&["--generate", "1000"][..], &["--generate", "1000", "--json"]] {
        let log = run(words, "").unwrap();
        let text = run(&["10 per minute"], &log).unwrap();
        assert!(text.contains("read       1000 lines, 1000 requests of"), "{text}");
        assert!(!text.contains("not read") && !text.contains("out of order"), "{text}");
    }
}

/// `TOLLGATE_PLAN_LINES=10000000` tries a log of so many lines, in a release build.
#[test]
fn a_generated_log_is_decided_as_by_a_limiter() {
    let lines = env::var("TOLLGATE_PLAN_LINES").unwrap_or_else(|_| "20000".to_owned());
    let log = run(&["--generate", &lines, "--json"], "").unwrap();
    for wait in [None, Some(SECOND)] {
        let quota = Quota::token_bucket(1, MINUTE).capacity(4);
        let limit = Limit::new("plan", quota);
        let clock = ManualClock::new(START);
        let limiter = limiter(&clock);
        let (mut refused, mut delayed) = (0, 0);
        log::read(log.as_bytes(), &Fields::default(), |entry| {
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
        let text = run(words, &log).unwrap();
        assert!(text.contains(&format!("refused    {refused} of {lines} requests")), "{text}");
        let told = text.contains(&format!("delayed    {delayed} of {lines} requests"));
        assert_eq!(told, wait.is_some(), "{text}");
    }
}

#[test]
fn wrong_words_are_errors_that_say_what_is_allowed() {
    let errors = [
        (
            &["10 per minute", "--wait", "long"][..],
            "--wait long: expected number at 0 (write it as --wait 30s)",
        ),
        (
            &["10 per minute", "--at-most", "2"],
            "--at-most 2: not a share from 0% to 100% (write it as --at-most 1%)",
        ),
        (&["10 per minute", "--top"], "--top needs a value (see --help)"),
        (&["10 per minute", "--colour"], "there is no option --colour (see --help)"),
        (&[], "no quota is given, such as \"10 per minute\" (see --help)"),
        (&["10 per minute", "a", "b"], "`b` is too much: one quota and one file (see --help)"),
    ];
    for (words, expected) in errors {
        assert_eq!(run(words, "").unwrap_err(), expected);
    }
    assert!(
        run(&["10 per minute", "/no/such/file"], "").unwrap_err().starts_with("/no/such/file: ")
    );
    assert!(run(&["--help"], "").unwrap().starts_with("plan: "));
}
