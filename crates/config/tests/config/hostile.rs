//! Files that are hostile, or damaged: an error in bounded time, and no panic.

use tollgate_config::Config;
use tollgate_testing::cases::seeds;
use tollgate_testing::dice::Dice;

use crate::text::{FORMATS, config, error_of, render};

#[test]
fn deep_nesting_is_an_error_and_overflows_no_stack() {
    let deep = "lists and tables are nested too deep here (at most 8 levels are read)";
    let nine = format!("{{\"limits\": {}{}}}", "[".repeat(8), "]".repeat(8));
    assert_eq!(error_of("json", &nine), format!("1:19: {deep}"));
    assert_eq!(error_of("yaml", &nine), format!("1:19: {deep}"));
    let toml = format!("limits = {}{}", "[".repeat(8), "]".repeat(8));
    assert_eq!(error_of("toml", &toml), format!("1:17: {deep}"));
    for (open, close) in [("[", "]"), ("{\"a\": ", "}")] {
        let count = 100_000;
        let json = format!("{}1{}", open.repeat(count), close.repeat(count));
        let error = error_of("json", &json);
        assert!(error.ends_with(deep), "{error}");
        assert!(
            error_of("yaml", &json).ends_with("recursion limit exceeded")
                || error_of("yaml", &json).ends_with(deep)
        );
    }
    for text in ["[".repeat(100_000), "- ".repeat(100_000), "? ".repeat(100_000)] {
        error_of("yaml", &text);
        error_of("json", &text);
        error_of("toml", &text);
    }
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("{}a = 1", "a.".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
    ] {
        error_of("toml", &text);
    }
    // Through serde, at any depth that its format lets through.
    let json = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let error = serde_json::from_str::<Config>(&json).err().unwrap().to_string();
    assert!(error.starts_with(deep), "{error}");
}

#[test]
fn a_bomb_of_aliases_is_an_error_at_its_first_alias() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let below = format!("*a{}, ", level - 1).repeat(9);
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    assert_eq!(error_of("yaml", &bomb), "2:10: aliases are not supported (write the value out)");
    // An alias to itself.
    assert_eq!(
        error_of("yaml", "a: &a [*a]"),
        "1:8: aliases are not supported (write the value out)"
    );
}

#[test]
fn a_file_that_is_wrong_throughout_is_told_in_part() {
    let names: String = (0..10_000).map(|number| format!("f{number}: x, ")).collect();
    let text = format!("{{limits: {{a: 5 per hour}}, {names}}}");
    let error = error_of("yaml", &text);
    assert_eq!(error.lines().count(), 21, "{error}");
    assert!(error.ends_with("\nand 9980 more like these"), "{error}");
    let shown = Config::from_text("a.yaml", &text).unwrap_err().problems().count();
    assert_eq!(shown, 20);
    let limits: String = (0..10_000).map(|number| format!("l{number}: 5, ")).collect();
    let error = error_of("yaml", &format!("{{limits: {{{limits}}}}}"));
    assert!(error.ends_with("\nand 9980 more like these"), "{error}");
}

#[test]
fn many_limits_are_read() {
    let limits: String =
        (0..5_000).map(|number| format!("l{number}: \"{number} per day\", ")).collect();
    let limits =
        format!("{{limits: {{{limits}last: \"5 per hour\"}}}}").replace("l0: \"0 per day\", ", "");
    for format in FORMATS {
        let config = config(&limits, format);
        assert_eq!(config.limit("l4999").unwrap().quota().rate(), 4_999);
        assert_eq!(config.all().count(), 5_000);
    }
}

/// What the texts that are damaged hold: each kind of value, at each level.
const WHOLE: &str = "{dialects: [\"draft-6\", \"x-ratelimit\"], on_failure: \"admit\", enabled: \
                     true,\n client_address: {from: \"x-forwarded-for\", trusted_proxies: \
                     [\"10.0.0.0/8\", \"fd00::/8\"], ipv6_prefix: 56},\n limits: {login: \"5 per \
                     hour, shards 2\",\n api: {kind: \"fixed window\", rate: 100, per: \"1 day\", \
                     start: \"2026-01-01T00:00:00Z\", key: [\"header x-user, ignore case or client \
                     address\", \"cookie sid\"], cost: 5, sample: \"1 in 10\", enforce: \"10%\", \
                     refund_if: [401, \"5xx\", \"success\"],\n queue: {max_wait: \"1h 30m\", \
                     on_full: 429}, jitter: \"2s\"}}}";

/// Pieces that mean something to a format or to the reader.
const PIECES: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    ",",
    ":",
    "=",
    "\n",
    "\n\n",
    " ",
    "\t",
    "#",
    "-",
    "- ",
    "? ",
    "&a ",
    "*a",
    "!!str ",
    "---\n",
    "|",
    ">",
    "\\",
    "\\u",
    "\\ud800",
    "0",
    "-1",
    "1e9",
    "1_0",
    "18446744073709551616",
    "true",
    "null",
    "~",
    "é",
    "\u{feff}",
    "\0",
    " or ",
    "per",
    "%",
];

/// Damages a text in a few places.
fn damage(text: &str, dice: &mut Dice) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..=dice.below(4) {
        let at = dice.nth(&chars);
        let until = (at + dice.nth(&[(); 12])).min(chars.len());
        let piece: Vec<char> = match dice.below(4) {
            0 => Vec::new(),
            1 => chars[at..until].to_vec(),
            _ => PIECES[dice.nth(&PIECES)].chars().collect(),
        };
        // In place of a part, or beside it.
        let until = if dice.below(2) == 0 { at } else { until };
        chars.splice(at..until, piece);
        if chars.is_empty() {
            break;
        }
    }
    chars.into_iter().collect()
}

#[test]
fn a_damaged_text_is_read_or_has_errors_at_places_that_are_there() {
    let mut read = 0;
    for format in FORMATS {
        let (text, _) = render(WHOLE, format);
        assert!(Config::from_text(format!("a.{format}"), &text).is_ok(), "{text}");
        for seed in seeds(4_000) {
            let damaged = damage(&text, &mut Dice(seed));
            match Config::from_text(format!("a.{format}"), &damaged) {
                Ok(_) => read += 1,
                Err(error) => {
                    for problem in error.problems() {
                        let place = problem.line().zip(problem.column());
                        let (line, column) = place
                            .unwrap_or_else(|| panic!("{format} {seed}: {problem}\n{damaged}"));
                        let shown = damaged.split('\n').nth(line - 1);
                        // Just behind the last character of a line, where something is missing.
                        let fits = shown.is_some_and(|shown| column <= shown.chars().count() + 2);
                        assert!(fits, "{format} {seed}: {problem}\n{damaged}");
                        assert!(!problem.message().is_empty());
                    }
                }
            }
        }
    }
    assert!(read > 0, "not all damage is a mistake");
}
