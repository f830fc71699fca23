//! What is particular to a format: its syntax, its types, and its ways to write a table.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;

use tollgate::{DAY, Limit, Quota, RateLimiter};
use tollgate_config::Config;

use crate::text::{FORMATS, error_of};

#[test]
fn the_examples_of_all_formats_say_the_same() {
    const TOML: &str = r#"
        on_failure = "refuse" # a comment
        [limits]
        login = "5 per hour"
        [limits.exports]
        kind = "fixed window"
        rate = 1_00
        per = "1 day"
        start = 2026-01-01T00:00:00Z
        queue = { max_wait = "30s" }
    "#;
    const JSON: &str = r#"{
        "on_failure": "refuse",
        "limits": {
            "login": "5 per hour",
            "exports": {
                "kind": "fixed window", "rate": 100, "per": "1 \u0064ay",
                "start": "2026-01-01T00:00:00Z", "queue": {"max_wait": "30s"}
            }
        }
    }"#;
    const YAML: &str = r"
on_failure: refuse # a comment
limits:
  login: 5 per hour
  exports:
    kind: 'fixed window'
    rate: 0x64
    per: 1 day
    start: 2026-01-01T00:00:00Z
    queue:
      max_wait: 30s
";
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let quota = Quota::fixed_window(100, DAY).start(start);
    let read = FORMATS.map(|format| {
        let text = [("toml", TOML), ("json", JSON), ("yaml", YAML)];
        let (_, text) = text.iter().find(|(name, _)| *name == format).unwrap();
        Config::from_text(format!("limits.{format}"), text).unwrap()
    });
    for config in &read {
        assert_eq!(config.limit("login").unwrap().quota().to_string(), "5 per hour");
        assert_eq!(config.limit("exports").unwrap().quota(), &quota);
        // A date that TOML writes as such is another value than text, which needs no restart.
        let changes = config.compare(&read[0], &RateLimiter::in_memory());
        assert_eq!(changes.to_string(), "nothing has changed");
    }
    // The other end that YAML files have, and names that are written large.
    for name in ["limits.yml", "LIMITS.YAML"] {
        assert!(Config::from_text(name, YAML).is_ok());
    }
}

#[test]
fn toml_that_is_none_tells_where() {
    for (text, wanted) in [
        (
            "[limits]\na = \"5 per hour\"\na = \"6 per hour\"",
            "3:1: this name is given twice (leave one out)",
        ),
        ("[limits]\na = 'x'\n[limits]\n", "3:2: this name is given twice (leave one out)"),
        (
            "[limits]\na = 5 per hour",
            "2:5: this is not TOML: string values must be quoted, expected literal string",
        ),
        (
            "[limits]\na = 'five' per hour",
            "2:12: this is not TOML: unexpected key or value, expected newline, `#`",
        ),
        (
            "[limits]\na = \"5 per hour",
            "2:16: this is not TOML: invalid basic string, expected `\"`",
        ),
        ("limits", "1:7: this is not TOML: key with no value, expected `=`"),
        (
            "[limits.a]\nrate = 5\nper = 07:32:00",
            "3:7: limit \"a\": `per` is the time 07:32:00 (write a time with its unit, such as \
             \"30s\" or \"1h 30m\")",
        ),
        (
            "[limits.a]\nrate = 5\nper = '1h'\nstart = 2026-01-01T02:00:00+02:00",
            "4:9: limit \"a\": `start` is the time 2026-01-01T02:00:00+02:00 (write a time in UTC, \
             such as \"2026-01-01T00:00:00Z\", or \"first use\")",
        ),
        ("[[limits]]\na = '5 per hour'", "1:1: `limits` is a list"),
        (
            "[limits]\na.rate = 99999999999999999999\na.per = '1h'",
            "2:10: limit \"a\": `rate` is the number 99999999999999999999 (write a whole number",
        ),
    ] {
        let error = error_of("toml", text);
        assert!(error.starts_with(wanted), "{text}\n{error}");
    }
}

#[test]
fn json_that_is_none_tells_where() {
    for (text, wanted) in [
        (
            "{\"limits\": {\"a\": \"5 per hour\",\n \"a\": \"6 per hour\"}}",
            "2:2: limit \"a\": it is given twice (leave one out)",
        ),
        (
            "{\"limits\": {\"a\": {\"quota\": \"5 per hour\",\n \"quota\": \"6 per hour\"}}}",
            "2:2: limit \"a\": `quota` is given twice (leave one out)",
        ),
        (
            "{\"limits\": {\"a\": \"5 per hour\"},\n\"limits\": {\"b\": \"5 per hour\"}}",
            "2:1: `limits` is given twice (leave one out)",
        ),
        (
            "{\"limits\": {\n\"a\": \"5 per hour\",}}",
            "2:19: this is not JSON: key must be a string",
        ),
        ("// the limits\n{}", "1:1: this is not JSON: expected value"),
        ("{'limits': 5}", "1:2: this is not JSON: key must be a string"),
        ("{\"limits\": 5", "1:12: this is not JSON: EOF while parsing an object"),
        ("{\"limits\": 5} x", "1:15: this is not JSON: trailing characters"),
        ("", "1:1: this is not JSON: EOF while parsing a value"),
        (
            "{\"limits\":\n {\"a\": \"\\ud800\"}}",
            "2:8: this is not JSON: unexpected end of hex escape",
        ),
        ("[]", "1:1: the configuration is a list (write a table `limits`"),
        (
            "{\"limits\": {\"a\": null}}",
            "1:18: limit \"a\": the limit is nothing (write a quota, such as \"10 per minute\", or \
             a table of fields)",
        ),
        (
            "{\"limits\": {\"a\": {\"quota\": \"5 per hour\", \"cost\": null}}}",
            "1:50: limit \"a\": `cost` is nothing (write a whole number, such as 10)",
        ),
    ] {
        let error = error_of("json", text);
        assert!(error.starts_with(wanted), "{text}\n{error}");
    }
}

#[test]
fn yaml_that_is_none_tells_where() {
    for (text, wanted) in [
        (
            "limits:\n  a: 5 per hour\n  a: 6 per hour",
            "3:3: limit \"a\": it is given twice (leave one out)",
        ),
        (
            "limits:\n  a: &five 5 per hour\n  b: *five",
            "3:6: aliases are not supported (write the value out)",
        ),
        ("limits:\n  b: *five", "2:6: aliases are not supported (write the value out)"),
        ("limits:\n  a: !!str 5 per hour", "2:6: tags are not supported (leave it out)"),
        ("limits: !map {}", "1:9: tags are not supported (leave it out)"),
        (
            "limits:\n  a: 5 per hour\n---\nlimits:\n",
            "3:1: a second document begins here (a file has one; remove the `---`)",
        ),
        ("%YAML 1.2\n---\nlimits:", "1:1: this is not YAML: YAML directives are disallowed"),
        ("limits:\n\ta: 5 per hour", "2:2: this is not YAML: tabs disallowed within this context"),
        ("limits: {a: 5 per hour", "1:9: this is not YAML: unclosed bracket '{'"),
        ("limits: a: b", "1:10: this is not YAML: mapping values are not allowed in this context"),
        ("? [a]\n: 5", "1:3: a name is text here, and this is a list"),
        (
            "limits:\n  a: {quota: 5 per hour, shadow: no}",
            "2:34: limit \"a\": `shadow` is the text \"no\" (write true or false)",
        ),
        ("", "1:1: there are no limits (write a table `limits`"),
        ("limits:\n", "1:1: `limits` is nothing (write a table `limits`"),
        ("limits:\n  a: 5\n", "2:6: limit \"a\": the limit is the number 5"),
        ("limits:\n  a: ~\n", "2:6: limit \"a\": the limit is nothing"),
        (
            "limits:\n  a: {rate: 1_000, per: 1h}",
            "2:13: limit \"a\": `rate` is the text \"1_000\" (write a whole number, such as 10)",
        ),
    ] {
        let error = error_of("yaml", text);
        assert!(error.starts_with(wanted), "{text}\n{error}");
    }
    // An anchor that nothing refers to, and names that look like other values.
    let text = "limits:\n  a: &five 5 per hour\n  10: 5 per hour\n  true: 5 per hour\n";
    let config = Config::from_text("limits.yaml", text).unwrap();
    assert!(config.limits(["a", "10", "true"]).is_ok());
}

#[test]
fn columns_count_characters_and_lines_end_in_any_way() {
    let error = error_of("toml", "[limits]\r\n\"größe\" = \"5 per hour\"\r\nünd = 5\r\n");
    assert!(error.starts_with("3:1: this is not TOML"), "{error}");
    let error = error_of("yaml", "limits:\r\n  größe: {quota: 5 per hour, ky: 5}\r\n");
    assert!(error.contains("\n2:30: limit \"größe\": there is no field `ky`"), "{error}");
    let error = error_of("json", "\u{feff}{\"limits\": {\"größe\": 5}}");
    assert!(error.starts_with("1:22: limit \"größe\": the limit is the number 5"), "{error}");
}

#[test]
fn a_name_of_a_file_tells_its_format() {
    let way_out = "its name does not show its format (use one that ends in `toml`, `json`, `yaml` \
                   and `yml`)";
    for name in ["limits", "limits.conf", "toml"] {
        let error = Config::from_text(name, "").unwrap_err();
        assert_eq!(error.to_string(), format!("{name}: {way_out}"));
        assert_eq!(error.problems().next().unwrap().line(), None);
    }
}

/// A file of this name in a directory of its own.
fn file(name: &str, contents: &[u8]) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("config");
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join(format!("{}-{name}", std::process::id()));
    fs::write(&path, contents).unwrap();
    path
}

#[test]
fn a_file_is_read_by_its_path() {
    let path = file("good.toml", b"limits.a = '5 per hour'");
    let config = Config::from_file(&path).unwrap();
    assert_eq!(config.limit("a").unwrap().quota().rate(), 5);
    let missing = config.limit("b").unwrap_err().to_string();
    assert_eq!(missing, format!("{}: there is no limit \"b\" (there are \"a\")", path.display()));
    fs::remove_file(&path).unwrap();
    let error = Config::from_file(&path).unwrap_err();
    let text = format!(
        "{}: the file cannot be read (name one that this process may read)",
        path.display()
    );
    assert_eq!(error.to_string(), text);
    let source = error.source().unwrap().to_string();
    assert_eq!(format!("{error:?}"), format!("{text}: {source}"));
}

#[test]
fn a_file_that_is_no_text_or_endless_is_an_error() {
    let path = file("bytes.yaml", b"limits:\n  a: \xff\xfe");
    let error = Config::from_file(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("bytes.yaml:2:6: this is not UTF-8 (save the file as UTF-8)"),
        "{error}"
    );
    fs::remove_file(path).unwrap();

    let path = file("long.json", &vec![b' '; (1 << 20) + 1]);
    let error = Config::from_file(&path).unwrap_err().to_string();
    let wanted =
        "long.json: it is longer than 1048576 bytes (a thousand limits take a tenth of that)";
    assert!(error.ends_with(wanted), "{error}");
    fs::remove_file(path).unwrap();
    let longest = format!("{}limits: {{a: 5 per hour}}", " \n".repeat((1 << 19) - 15));
    assert!(longest.len() <= 1 << 20 && Config::from_text("a.yaml", &longest).is_ok());
}

/// A limit has no part of this crate in it.
#[test]
fn a_limit_is_read_back_from_toml_as_it_was_written() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let quota = Quota::fixed_window(3, DAY).capacity(7).max_reserved(2).start(start);
    let limit = Limit::try_new("x".repeat(64), quota).unwrap();
    let toml = toml::to_string(&limit).unwrap();
    assert_eq!(toml::from_str::<Limit>(&toml).unwrap(), limit, "{toml}");
    let table: BTreeMap<String, Quota> = toml::from_str("login = '3 per day'").unwrap();
    assert_eq!(table["login"], Quota::token_bucket(3, DAY));
}

#[test]
fn a_part_of_another_configuration_is_read_through_serde() {
    #[derive(serde::Deserialize)]
    struct Application {
        rate_limits: Config,
    }
    let toml = "[rate_limits.limits.a]\nrate = 100\nper = '1 day'\nkind = 'fixed window'\n\
                start = 2026-01-01T00:00:00Z\ncapacity = 200\nshadow = true";
    let read: Application = toml::from_str(toml).unwrap();
    let quota = Quota::fixed_window(100, DAY).capacity(200);
    let quota = quota.start("2026-01-01T00:00:00Z".parse().unwrap());
    assert_eq!(read.rate_limits.limit("a").unwrap().quota(), &quota);

    let json = r#"{"rate_limits": {"limits": {"a": {"quota": "5 per hr", "cost": -1, "ky": null,
        "cost": 1.5}, "b": "5 per x"}}}"#;
    let error = serde_json::from_str::<Application>(json).err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "limit \"a\": `cost` is the number -1 (write a whole number from 1 to {})\n\
             limit \"a\": there is no field `ky` (did you mean `key`?)\n\
             limit \"a\": `cost` is given twice (leave one out)\n\
             limit \"b\": `5 per x` is not a quota: `x` is not a period (write `minute`, `90 \
             seconds`, `1h 30m` or `30 days`) at line 2 column 39",
            u64::MAX
        )
    );
    let error = serde_json::from_str::<Application>(r#"{"rate_limits": "limits.toml"}"#);
    let error = error.err().unwrap().to_string();
    assert!(
        error.starts_with("the configuration is the text \"limits.toml\" (write a table"),
        "{error}"
    );
    let missing = read.rate_limits.limit("b").unwrap_err().to_string();
    assert_eq!(missing, "there is no limit \"b\" (there are \"a\")");
}
