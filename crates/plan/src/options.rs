//! The words behind the name of the program.

use std::fmt::Display;
use std::num::NonZeroU64;
use std::time::Duration;

use tollgate::Quota;

use super::line::Fields;

pub(crate) const USAGE: &str = r#"plan: what a quota would have refused, from an access log.

  plan [OPTIONS] QUOTA [FILE]     FILE is standard input unless it is named
  plan --generate LINES [--json]  writes a made-up log

QUOTA is the text form of a quota: "10 per minute, capacity 20" or "fixed window: 1000 per day".
FILE is in the common or combined format, or has a JSON object on each line.

  --key FIELD        what the quota counts by: host (default), user, path or all; in JSON, the name
                     of a field (default: key), or a path such as /user/id
  --time FIELD       in JSON, the field with the time (default: time): RFC 3339, or a number since 1970
  --cost FIELD       the tokens of a request (default: 1, or in JSON the field cost, if it is there);
                     bytes is the size of the response in the common format
  --wait DURATION    requests may wait so long, as `30s`, before they run; without it, none waits
  --at-most SHARE    proposes the smallest quota that refuses at most this share, as `1%`
  --name NAME        the name of the limit, from which the start of a fixed window follows
  --top NUMBER       how many keys are shown (default: 10)
"#;

#[derive(Clone, Debug)]
pub(crate) enum Command {
    Help,
    Generate { lines: u64, json: bool },
    Plan(Box<Options>),
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) quota: Quota,
    pub(crate) file: Option<String>,
    pub(crate) fields: Fields,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) at_most: Option<Share>,
    pub(crate) name: String,
    pub(crate) top: usize,
}

/// A share in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

impl Share {
    /// The most of so many requests that are at most this share.
    pub(crate) fn of_requests(self, requests: u64) -> u64 {
        let part = u128::from(requests) * u128::from(self.0) / 1_000_000;
        u64::try_from(part).unwrap_or(requests)
    }

    /// Reads `1%` or `0.25%`.
    fn read(text: &str) -> Option<Self> {
        let (whole, fraction) = text
            .strip_suffix('%')?
            .trim()
            .split_once('.')
            .unwrap_or((text.strip_suffix('%')?.trim(), "0"));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || !(1..=4).contains(&fraction.len()) {
            return None;
        }
        let millionths = format!("{whole}{fraction:0<4}").parse().ok()?;
        (millionths <= 1_000_000).then_some(Self(millionths))
    }
}

impl Command {
    pub(crate) fn read(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let (mut fields, mut free) = (Fields::default(), Vec::new());
        let (mut max_wait, mut at_most, mut name, mut top) = (None, None, "plan".to_owned(), 10);
        let (mut generate, mut json) = (None, false);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value (see --help)"));
            match &*word {
                "--help" | "-h" => return Ok(Self::Help),
                "--json" => json = true,
                "--key" => fields.key = Some(value()?),
                "--time" => fields.time = Some(value()?),
                "--cost" => fields.cost = Some(value()?),
                "--name" => name = value()?,
                "--wait" => {
                    let text = value()?;
                    let wait = humantime::parse_duration(&text);
                    max_wait = Some(wait.map_err(|error| wrong("--wait", &text, error, "30s"))?);
                }
                "--at-most" => {
                    let text = value()?;
                    let wrong = || wrong("--at-most", &text, "not a share from 0% to 100%", "1%");
                    at_most = Some(Share::read(&text).ok_or_else(wrong)?);
                }
                "--top" => top = number("--top", &value()?)?,
                "--generate" => {
                    let lines: NonZeroU64 = number("--generate", &value()?)?;
                    generate = Some(lines.get());
                }
                "-" => free.push(word),
                option if option.starts_with('-') => {
                    return Err(format!("there is no option {option} (see --help)"));
                }
                _ => free.push(word),
            }
        }
        if let Some(lines) = generate {
            return match free.first() {
                None => Ok(Self::Generate { lines, json }),
                Some(word) => Err(format!("`{word}` is not needed to generate a log")),
            };
        }
        if json {
            return Err("--json is for --generate; a JSON log is seen as such".to_owned());
        }
        let mut free = free.into_iter();
        let quota =
            free.next().ok_or("no quota is given, such as \"10 per minute\" (see --help)")?;
        let quota: Quota = quota.parse().map_err(|error| format!("{error}"))?;
        let quota = quota.validated().map_err(|error| error.to_string())?;
        if quota.is_none() {
            return Err("a quota of 0 refuses each request, which needs no log".to_owned());
        }
        let file = free.next().filter(|file| file != "-");
        if let Some(more) = free.next() {
            return Err(format!("`{more}` is too much: one quota and one file (see --help)"));
        }
        let options = Options { quota, file, fields, max_wait, at_most, name, top };
        Ok(Self::Plan(Box::new(options)))
    }
}

fn number<T: std::str::FromStr<Err: Display>>(option: &str, text: &str) -> Result<T, String> {
    let text_only = text.replace('_', "");
    text_only.parse().map_err(|error| wrong(option, text, error, "10"))
}

fn wrong(option: &str, text: &str, error: impl Display, example: &str) -> String {
    format!("{option} {text}: {error} (write it as {option} {example})")
}
