//! Other numbers while the program runs.

use std::fs;
#[cfg(unix)]
use std::io::Write;
use std::path::PathBuf;
#[cfg(unix)]
use std::process::Command;

use tollgate::{HOUR, Limit, Quota, RateLimiter, SECOND};
use tollgate_config::{Config, ConfiguredLimit};
use tollgate_testing::at_once;

use crate::layers::{ASK, in_memory};
use crate::text::{FORMATS, config};

#[test]
fn requests_in_flight_have_other_numbers_at_once_and_become_a_rate_at_a_restart() {
    for format in FORMATS {
        let running = config(
            "{limits: {streams: \"4 in flight, lost_after 1 hour\", calls: \"10 per second\"}}",
            format,
        );
        let limiter = in_memory();
        let streams = running.limit("streams").unwrap();
        assert_eq!(*streams.quota(), Quota::in_flight(4).lost_after(HOUR));
        let next = config("{limits: {streams: \"6 in flight\", calls: \"2 in flight\"}}", format);
        let changes = running.apply(&next, &limiter).unwrap();
        assert_eq!(limiter.quota(&streams), Quota::in_flight(6));
        let restarts: Vec<_> = changes.restarts().map(ToString::to_string).collect();
        let [told] = &*restarts else { panic!("{restarts:?}") };
        assert!(
            told.ends_with(
                "limit \"calls\": it counts requests in flight, or does so no longer (this takes a \
                 restart)"
            ),
            "{told}"
        );
    }
}

/// What a limiter says of these limits.
fn numbers(limiter: &RateLimiter, limits: &[&ConfiguredLimit]) -> Vec<String> {
    limits.iter().map(|limit| limiter.quota(limit).to_string()).collect()
}

#[test]
fn a_comparison_names_the_numbers_that_differ_and_what_takes_a_restart() {
    for format in FORMATS {
        let running = config(
            "{dialects: \"draft-6\", enabled: true, limits: {\
             api: {quota: \"10 per second\", key: \"client address\", cost: 2},\
             login: \"5 per hour\", old: \"1 per day\", same: {rate: 60, per: \"1 minute\", \
             shadow: true}}}",
            format,
        );
        let next = config(
            "{dialects: [\"draft-6\"],\n enabled: true,\n on_failure: \"admit\",\n limits: {\n\
             api: {quota: \"20 per second\", shadow: true, key: \"header x-user\"},\n\
             login: {rate: 5, per: \"1h\"},\n new: \"1 per day\",\n\
             same: {shadow: true, quota: \"60/min\"}}}",
            format,
        );
        let limiter = in_memory();
        let changes = running.compare(&next, &limiter);
        // The lines of TOML begin at other places.
        let told: Vec<_> = changes
            .to_string()
            .lines()
            .map(|line| match line.split_once(": ") {
                Some((place, rest)) if place.starts_with("limits.") => rest.to_owned(),
                _ => line.to_owned(),
            })
            .collect();
        assert_eq!(
            told,
            [
                "limit \"api\": 20 per second (it was 10 per second)",
                "`dialects` and `on_failure` have changed (this takes effect after a restart)",
                "limit \"api\": `key`, `cost` and `shadow` have changed (this takes effect after a \
                 restart)",
                "limit \"old\": it was removed, and its last numbers count until a restart",
                "limit \"new\": it is new (this takes effect after a restart)",
            ]
        );
        assert!(!changes.is_empty());
        let change = changes.quotas().next().unwrap();
        assert_eq!((change.name(), change.from().rate(), change.to().rate()), ("api", 10, 20));
        let lines: Vec<_> = changes.restarts().map(|restart| restart.line().is_some()).collect();
        assert_eq!(lines, [true, true, false, true]);
        assert_eq!(limiter.quota(&running.limit("api").unwrap()).rate(), 10, "nothing is changed");
        assert!(running.compare(&running, &limiter).is_empty());
    }
    let running = config("{limits: {a: \"5 per hour\"}}", "json");
    let next =
        config("{\n enabled: false, limits: {\n a: {cost: 3, quota: \"5 per hour\"}}}", "json");
    assert_eq!(
        running.compare(&next, &in_memory()).to_string(),
        "limits.json:2:2: `enabled` has changed (this takes effect after a \
         restart)\nlimits.json:3:8: limit \"a\": `cost` has changed (this takes effect after a \
         restart)"
    );
}

#[test]
fn the_same_numbers_in_another_spelling_are_no_change() {
    let running = config(
        "{limits: {a: \"10 per second\", b: \"60 per minute, capacity 60\", c: \"fixed window: 5 per \
         day, start 2026-01-01T00:00:00Z\"}}",
        "yaml",
    );
    let next = config(
        "{limits: {a: \"10/1000ms, capacity 10, shards 1\", b: \"60/60s, initial 60\", c: \"fixed \
         window: 5 per day, capacity 5, start 2026-07-01T00:00:00Z\"}}",
        "yaml",
    );
    let changes = running.compare(&next, &in_memory());
    assert_eq!(changes.to_string(), "nothing has changed");
}

/// A quota in windows of a calendar may be written as a text and as fields, too.
#[test]
fn a_calendar_in_another_spelling_is_no_change_and_another_zone_is_one() {
    let of = |zone: &str| {
        let text = "{limits: {a: {rate: 10, per: \"month in Z\"}, b: \"5 per day in Z\"}}";
        config(&text.replace('Z', zone), "yaml")
    };
    let running = config(
        "{limits: {a: \"10 per month in Europe/Berlin\", b: {rate: 5, per: \"DAY in europe/berlin\"}}}",
        "yaml",
    );
    let changes = |next| running.compare(&next, &in_memory()).to_string();
    assert_eq!(changes(of("Europe/Berlin")), "nothing has changed");
    // The clocks of Paris show the same, but its rules are its own.
    let other = changes(of("Europe/Paris"));
    assert!(other.contains("10 per month in Europe/Paris (it was "), "{other}");
}

#[tokio::test]
async fn numbers_are_in_force_at_once_and_what_was_used_stays_used() {
    let running = config(
        "{limits: {api: {quota: \"2 per hour\", key: \"none\"}, login: \"5 per hour\", plan: \"1 \
         per day\"}}",
        "yaml",
    );
    let limiter = in_memory();
    let [api, login, plan] = running.limits(["api", "login", "plan"]).unwrap();
    let layer = api.layer(&limiter).unwrap();
    let ask = async || ASK.through(&layer).await.0.as_u16();
    assert_eq!([ask().await, ask().await, ask().await], [200, 200, 429]);
    at_once(limiter.limit(&login).key(7).cost(5)).unwrap();

    let next = config(
        "{limits: {api: {quota: \"3 per hour\", key: \"none\"}, login: \"50 per hour\", plan: \
         \"1 per day\"}}",
        "toml",
    );
    let changes = running.apply(&next, &limiter).unwrap();
    assert_eq!(
        changes.to_string(),
        "limit \"api\": 3 per hour (it was 2 per hour)\nlimit \"login\": 50 per hour (it was 5 \
         per hour)"
    );
    assert_eq!([ask().await, ask().await], [200, 429]);
    assert_eq!(at_once(limiter.peek(&login).key(7)).unwrap().remaining(), 45);
    assert_eq!(
        numbers(&limiter, &[&api, &login, &plan]),
        ["3 per hour", "50 per hour", "1 per day"]
    );

    // The next one is compared with what counts now, and the start's numbers undo it all.
    assert!(running.apply(&next, &limiter).unwrap().is_empty());
    let changes = running.apply(&running, &limiter).unwrap();
    assert_eq!(
        changes.to_string(),
        "limit \"api\": 2 per hour (it was 3 per hour)\nlimit \"login\": 5 per hour (it was 50 \
         per hour)"
    );
    // Another limiter has its own numbers.
    assert_eq!(running.apply(&next, &in_memory()).unwrap().quotas().count(), 2);
    assert_eq!(numbers(&limiter, &[&api, &login]), ["2 per hour", "5 per hour"]);
}

#[test]
fn nothing_is_applied_if_a_running_cost_would_never_fit() {
    let running = config(
        "{limits: {a: \"5 per hour\", api: {quota: \"10 per hour\", key: \"none\", cost: 5}}}",
        "toml",
    );
    let next = config(
        "{limits: {a: \"6 per hour\",\n api: {quota: \"3 per hour\", key: \"none\", cost: 1}}}",
        "json",
    );
    let limiter = in_memory();
    let error = running.apply(&next, &limiter).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limits.json:2:2: limit \"api\": cost of 5 can never fit limit `api` (it holds at most 3: \
         ask for less, or raise its capacity); the cost of the program changes at a restart only"
    );
    let [a, api] = running.limits(["a", "api"]).unwrap();
    assert_eq!(numbers(&limiter, &[&a, &api]), ["5 per hour", "10 per hour"]);
}

/// A layer charges one token for each request where the file writes no cost.
#[test]
fn nothing_is_applied_if_a_layer_would_refuse_every_request() {
    let file = |quota: &str, of_calls: &str| {
        let api = format!("{{quota: \"{quota}\", key: \"none\"}}");
        format!("{{limits: {{api: {api},\n calls: \"{of_calls}\"}}}}")
    };
    let running = config(&file("10 per hour", "10 per hour"), "toml");
    let limiter = in_memory();
    let [api, calls] = running.limits(["api", "calls"]).unwrap();
    let apply = |limit: Limit| {
        // As code that made the file would: the numbers have passed the reader.
        let text = format!("{{limits: {{api: \"{}\", calls: \"5 per hour\"}}}}", limit.quota());
        running.apply(&config(&text, "json"), &limiter)
    };
    let tenths = Limit::new("api", Quota::token_bucket(10, HOUR).shards(100));
    let error = apply(tenths).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "limits.json:1:13: limit \"api\": cost of 1 can never fit limit `api` (a request takes \
             from at most two of its 100 shards of 0.1 tokens, 0.2 together: "
        ),
        "{error}"
    );
    assert_eq!(numbers(&limiter, &[&api, &calls]), ["10 per hour", "10 per hour"]);
    // A limit that is used in calls alone may have any numbers: they may reserve.
    let next = config(&file("11 per hour", "10 per hour, shards 100"), "yaml");
    running.apply(&next, &limiter).unwrap();
    assert_eq!(numbers(&limiter, &[&api, &calls]), ["11 per hour", "10 per hour, shards 100"]);
}

#[tokio::test]
async fn a_limit_is_paused_by_a_rate_of_zero_and_goes_on_where_it_was() {
    let with = |api: &str, format| config(&format!("{{limits: {{api: {{{api}}}}}}}"), format);
    let running = with("quota: \"5 per hour\", key: \"none\", cost: 2", "toml");
    let limiter = in_memory();
    let layer = running.limit("api").unwrap().layer(&limiter).unwrap();
    let ask = async || ASK.through(&layer).await;
    assert_eq!(ask().await.0, 200);
    for (format, numbers) in [
        ("toml", "quota: \"0 per day\""),
        ("json", "rate: 0, per: \"1 minute\""),
        ("yaml", "kind: \"fixed window\", rate: 0, per: \"1 hour\""),
    ] {
        let paused = with(&format!("{numbers}, key: \"none\", cost: 2"), format);
        let changes = running.apply(&paused, &limiter).unwrap();
        assert_eq!(changes.to_string(), "limit \"api\": 0 per day (it was 5 per hour)");
        let (status, headers) = ask().await;
        assert_eq!((status.as_u16(), headers.get("retry-after")), (429, None));
        assert!(!headers.contains_key("ratelimit-policy"));
        let changes = running.apply(&running, &limiter).unwrap();
        assert_eq!(changes.to_string(), "limit \"api\": 5 per hour (it was 0 per day)");
    }
    assert_eq!(ask().await.1["ratelimit"], "\"api\";r=1;t=720");
}

#[test]
fn nothing_is_applied_if_the_limiter_refuses_numbers() {
    let limiter = in_memory();
    // A limiter keeps 65,536 versions. One place is left, for the first of the two.
    for number in 0..256 {
        let many = Limit::try_new(format!("many {number}"), Quota::token_bucket(1, HOUR)).unwrap();
        for rate in 2..=257 - u64::from(number == 0) {
            limiter.replace(&many, Quota::token_bucket(rate, HOUR)).unwrap();
        }
    }
    let running = config("{limits: {a: \"5 per hour\", b: \"5 per hour\"}}", "toml");
    let next = config("{limits: {a: \"6 per hour\", b: \"6 per hour\"}}", "toml");
    let error = running.apply(&next, &limiter).unwrap_err().to_string();
    assert!(
        error.starts_with("limits.toml: limit \"b\" keeps its quota, and cannot take 6 per hour"),
        "{error}"
    );
    let [a, b] = running.limits(["a", "b"]).unwrap();
    assert_eq!(numbers(&limiter, &[&a, &b]), ["5 per hour", "5 per hour"]);
}

#[test]
fn plans_that_began_alike_do_not_take_the_numbers_of_each_other() {
    let running = config(
        "{limits: {free: {name: \"plan\", quota: \"5 per hour\"}, pro: {name: \"plan\", quota: \
         \"5 per hour\"}}}",
        "json",
    );
    let next = config(
        "{limits: {free: {name: \"plan\", quota: \"5 per hour\"},\n pro: {name: \"plan\", quota: \
         \"50 per hour\"}}}",
        "json",
    );
    let limiter = in_memory();
    let changes = running.apply(&next, &limiter).unwrap();
    assert_eq!(
        changes.to_string(),
        "limits.json:1:13: limit \"free\": it has shared its name and numbers with \"pro\" since \
         the start, and can leave them at a restart only\nlimits.json:2:2: limit \"pro\": it has \
         shared its name and numbers with \"free\" since the start, and can leave them at a \
         restart only"
    );
    let [free, pro] = running.limits(["free", "pro"]).unwrap();
    assert_eq!(numbers(&limiter, &[&free, &pro]), ["5 per hour", "5 per hour"]);
    // Both together can change, and plans that began with other numbers can each.
    let both = config(
        "{limits: {free: {name: \"plan\", quota: \"6 per hour\"}, pro: {name: \"plan\", quota: \
         \"6 per hour\"}}}",
        "json",
    );
    assert_eq!(running.apply(&both, &limiter).unwrap().quotas().count(), 2);
    assert_eq!(numbers(&limiter, &[&free, &pro]), ["6 per hour", "6 per hour"]);
    let changes = next.apply(&both, &in_memory()).unwrap();
    assert_eq!(changes.quotas().count(), 2);
}

#[test]
fn a_configuration_without_a_file_is_not_reloaded() {
    let error = config("{limits: {a: \"5 per hour\"}}", "toml").reload(&in_memory()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limits.toml: the configuration was read from no file, so there is none to read again \
         (call `Config::apply` with another configuration)"
    );
    let part: Config = serde_json::from_str(r#"{"limits": {"a": "5 per hour"}}"#).unwrap();
    let error = part.reload(&in_memory()).unwrap_err().to_string();
    assert!(error.starts_with("the configuration was read from no file"), "{error}");
}

/// The reload has read an older file, and would undo what came after it.
#[cfg(unix)]
#[test]
fn numbers_that_come_while_a_file_is_read_are_in_force_after_it() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("reload-slowly-{}.toml", std::process::id()));
    fs::write(&path, "limits.api = '10 per second'").unwrap();
    let config = Config::from_file(&path).unwrap();
    let next = Config::from_text("limits.toml", "limits.api = '30 per second'").unwrap();
    let (limiter, api) = (in_memory(), config.limit("api").unwrap());
    // A file of which a reader gets as much as is written.
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| config.reload(&limiter).map(|changes| changes.to_string()));
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all(b"limits.api = ").unwrap();
        let apply = scope.spawn(|| config.apply(&next, &limiter).map(|_| ()));
        // Long enough to overtake the reload, if it can.
        std::thread::sleep(std::time::Duration::from_millis(50));
        file.write_all(b"'20 per second'").unwrap();
        drop(file);
        let told = reload.join().unwrap().unwrap();
        assert_eq!(told, "limit \"api\": 20 per second (it was 10 per second)");
        apply.join().unwrap().unwrap();
    });
    assert_eq!(limiter.quota(&api).to_string(), "30 per second");
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_is_read_again_and_a_broken_one_changes_nothing() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("reload-{}.toml", std::process::id()));
    let write = |text: &str| fs::write(&path, text).unwrap();
    write("limits.api = '10 per second'");
    let config = Config::from_file(&path).unwrap();
    let api = config.limit("api").unwrap();
    let limiter = in_memory();
    assert_eq!(config.reload(&limiter).unwrap().to_string(), "nothing has changed");
    for (text, wanted) in [
        ("limits.api = '20 per second'", Ok("limit \"api\": 20 per second (it was 10 per second)")),
        ("limits.api = '20 per secnd'", Err(":1:14: limit \"api\": `20 per secnd` is not a quota")),
        ("limits.api = ", Err(":1:14: this is not TOML")),
        ("", Err(":1:1: there are no limits")),
        ("limits.api = '10/s'", Ok("limit \"api\": 10 per second (it was 20 per second)")),
    ] {
        write(text);
        let before = limiter.quota(&api);
        match (config.reload(&limiter), wanted) {
            (Ok(changes), Ok(wanted)) => assert_eq!(changes.to_string(), wanted),
            (Err(error), Err(wanted)) => {
                let error = error.to_string();
                assert!(
                    error.strip_prefix(path.to_str().unwrap()).unwrap().starts_with(wanted),
                    "{error}"
                );
                assert_eq!(limiter.quota(&api), before);
            }
            (reloaded, _) => panic!("{text}: {reloaded:?}"),
        }
    }
    fs::remove_file(&path).unwrap();
    let error = config.reload(&limiter).unwrap_err().to_string();
    assert!(
        error.ends_with("the file cannot be read (name one that this process may read)"),
        "{error}"
    );
    assert_eq!(limiter.quota(&api), Quota::token_bucket(10, SECOND));
}
