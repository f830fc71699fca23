//! The words behind the name of the program.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use tollgate::Quota;

use super::format::Name;

/// What would this rate limit have refused? Replays an access log against a quota.
#[derive(Clone, Debug, Parser)]
#[command(name = "tollgate-plan", version, long_about = ABOUT, after_long_help = EXAMPLES)]
#[command(after_help = "--help explains the formats, the exit codes and three commands.")]
pub(crate) struct Options {
    /// The quota, as "10 per minute, capacity 20" or "fixed window: 1000 per day"
    #[arg(required_unless_present = "generate", value_parser = quota)]
    pub(crate) quota: Option<Quota>,
    /// The log, also packed by gzip; standard input unless it is named, or if it is `-`
    pub(crate) log: Option<PathBuf>,
    /// The format of the log; found by its first lines unless it is named
    #[arg(long, value_enum)]
    pub(crate) format: Option<Name>,
    /// What the quota counts by: client, path, user, all (one key), or a field or header of the log
    #[arg(long, value_name = "FIELD")]
    pub(crate) key: Option<String>,
    /// The field with the time, if it is not that of the format
    #[arg(long, value_name = "FIELD")]
    pub(crate) time: Option<String>,
    /// The field with the tokens of a request, as `bytes`; by default each costs 1
    #[arg(long, value_name = "FIELD")]
    pub(crate) cost: Option<String>,
    /// How long a request may wait before it runs, as 30s; without it, none waits
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) wait: Option<Duration>,
    /// Propose the smallest quota that refuses at most this share, as 1%
    #[arg(long, value_name = "SHARE")]
    pub(crate) at_most: Option<Share>,
    /// Exit with 1 if a request is refused, or a larger share than --at-most allows
    #[arg(long)]
    pub(crate) check: bool,
    /// Draw what was refused over time, and the keys, on a page for a browser
    #[arg(long, value_name = "FILE.html")]
    pub(crate) plot: Option<PathBuf>,
    /// How many keys are shown
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(crate) top: usize,
    /// The name of the limit, which sets when the windows of a key begin if the quota has no `start`
    #[arg(long, default_value = "plan")]
    pub(crate) name: String,
    /// Write a made-up log of so many lines instead, in the format of nginx or plain
    #[arg(long, value_name = "LINES", conflicts_with = "quota")]
    pub(crate) generate: Option<u64>,
}

const ABOUT: &str = "\
What would this rate limit have refused? Replays an access log against a quota of tollgate: how many
requests it would have refused, of which keys and when, and which quota would refuse fewer.

The answers are those of a limiter in memory that gets the requests at the times of the log. The log
does not show what refused clients would have done next.";

const EXAMPLES: &str = "\
Examples:
  tollgate-plan \"10 per minute, capacity 20\" access.log
      Each client may send 10 requests a minute, and 20 at once after a rest.
        refused    807 of 200000 requests (0.40%)
            They would have been answered with 429.
        by key     1 of 83116 keys would have been refused or delayed
            The clients that are hit hardest follow. If one has most refusals, it may be the client that
            has to change. Then follow the hours: do refusals come at the peak?

  tollgate-plan --wait 30s --at-most 1% --plot plan.html \"10 per minute, capacity 20\" access.log.gz
      Requests may wait for 30 seconds in a queue. Open plan.html in a browser.
        delayed    1890 of 200000 requests (0.94%), by 30s at most
            They would have waited, and run.
        smallest   7 per minute, capacity 14: refuses 1661 of 200000 requests (0.83%)
        too small  6 per minute, capacity 12: refuses 2156 of 200000 requests (1.07%)
            The smallest quota of this shape that refuses at most 1 %, and the next one.

  tollgate-plan --check --key x-api-key \"fixed window: 1000 per day\" caddy.log || echo too strict
      Counts by a header field that Caddy has logged, and exits with 1 if a request is refused.
        not read: 3 lines, the first is line 9: no text or number in `x-api-key`
            Lines that are no requests, or have no key, are counted and left out.

Formats:
  nginx       combined                     apache      common, combined, vhost_combined
  traefik     common, json                 caddy       json
  envoy       its default text; the client is the last address of X-Forwarded-For
  alb         of the load balancer of AWS, by the time at which requests came
  cloudfront  W3C, with the line #Fields:
  json        an object on each line, with time, key and cost; /user/id leads into objects
  plain       `time key [cost]` on each line, for all other logs
  A time is 2026-01-31T12:00:00+01:00, 31/Jan/2026:12:00:00 +0100, or a number since 1970. An IPv6 address
  counts by its network of 64 bits. Lines may be out of order by 10 seconds.

Exit codes:
  0  the log was replayed, whatever was refused
  1  with --check: a request was refused, or more than --at-most allows
  2  an option is wrong, the log cannot be read, or none of its lines is a request";

fn quota(text: &str) -> Result<Quota, String> {
    let quota: Quota = text.parse().map_err(|error| format!("{error}"))?;
    let quota = quota.validated().map_err(|error| error.to_string())?;
    match quota.is_none() {
        true => Err("a quota of 0 refuses each request, which needs no log".to_owned()),
        false => Ok(quota),
    }
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
}

impl FromStr for Share {
    type Err = &'static str;

    /// Reads `1%` or `0.25%`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "not a share from 0% to 100%, with four decimals at most";
        let number = text.strip_suffix('%').ok_or(WRONG)?.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || !(1..=4).contains(&fraction.len()) {
            return Err(WRONG);
        }
        let millionths = format!("{whole}{fraction:0<4}").parse().map_err(|_| WRONG)?;
        if millionths > 1_000_000 { Err(WRONG) } else { Ok(Self(millionths)) }
    }
}
