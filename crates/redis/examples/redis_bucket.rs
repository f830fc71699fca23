//! Shows a bucket in Redis, or all buckets of a limit, in a readable form.
//!
//! Run it with `cargo run -p tollgate-redis --example redis_bucket`: it takes three tokens from a limit
//! of its own in the Redis at `REDIS_URL` (`redis://127.0.0.1` if not set), and shows the bucket. With
//! a URL and the name of a limit it shows the buckets of that limit; with a key, written as in Redis,
//! only that bucket:
//!
//! ```sh
//! cargo run -p tollgate-redis --example redis_bucket -- redis://127.0.0.1:6379 per-client
//! cargo run -p tollgate-redis --example redis_bucket -- redis://127.0.0.1:6379 per-client ip=192.0.2.1
//! ```
//!
//! It takes nothing then, and needs the right to `SCAN`, `GETRANGE` and `TIME`. Of a cluster it sees the
//! node at that URL.

use std::error::Error;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use humantime::{format_duration, format_rfc3339_micros};
use redis::aio::MultiplexedConnection;
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_redis::Redis;

static LIMIT: Limit = Limit::new("example", Quota::token_bucket(20, HOUR));

const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// Longer than the default of 50 ms, as no request waits for this.
const DEADLINE: Duration = Duration::from_secs(5);

/// A bucket as it is stored: six doubles, the low end first, all of them whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) name: String,
    /// The units in the bucket at `ts`; below zero, the bucket is in debt.
    pub(crate) value: f64,
    /// In microseconds since the Unix epoch, by the clock of the server.
    pub(crate) ts: f64,
    /// The units that are refilled at each step.
    pub(crate) gain: f64,
    /// The units of one token.
    pub(crate) token: f64,
    pub(crate) capacity: f64,
    /// In microseconds: 1 for a token bucket, the period for a fixed window. It is stored below zero
    /// if the limit begins below its capacity.
    pub(crate) step: f64,
}

impl Stored {
    fn read(name: &str, raw: &[u8]) -> Option<Self> {
        let (numbers, []) = raw.as_chunks::<8>() else { return None };
        let numbers: Vec<_> = numbers.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect();
        let [value, ts, gain, token, capacity, step] = *numbers else { return None };
        Some(Self { name: name.to_owned(), value, ts, gain, token, capacity, step: step.abs() })
    }

    /// Describes the bucket at `now`, in microseconds since the Unix epoch.
    pub(crate) fn describe(&self, now: f64) -> String {
        let Self { name, value, ts, gain, token, capacity, step } = self;
        let steps = ((now - ts) / step).floor().max(0.0);
        let holds = (value + steps * gain).min(*capacity);
        let full_at = ts + step * ((capacity - value) / gain).ceil();
        let full = match full_at > now {
            true => format!("full again in {}", duration(full_at - now)),
            false => "full again".to_owned(),
        };
        let when = match now >= *ts {
            true => format!("{} ago", duration(now - ts)),
            false => format!("{} from now: closed until then", duration(ts - now)),
        };
        let gains = match *step {
            1.0 => format!("{gain} every {}", format_duration(micros(*token))),
            _ => format!("{} every {}", tokens(*gain, *token), format_duration(micros(*step))),
        };
        let date = format_rfc3339_micros(UNIX_EPOCH + micros(*ts));
        format!(
            "{name}\n  \
             tokens    {} of {}, {full}\n  \
             value     {} at {date} ({when})\n  \
             limit     gains {gains}, holds {}\n  \
             in units  value {value}, gain {gain}, token {token}, capacity {capacity}, step {step}\n",
            tokens(holds, *token),
            tokens(*capacity, *token),
            tokens(*value, *token),
            tokens(*capacity, *token),
        )
    }
}

/// Tokens with at most two digits behind the point, rounded down.
fn tokens(units: f64, token: f64) -> String {
    ((units / token * 100.0).floor() / 100.0).to_string()
}

fn micros(micros: f64) -> Duration {
    Duration::try_from_secs_f64(micros.max(0.0) / 1e6).unwrap_or(Duration::MAX)
}

/// For people: rounded up to the second, or to the millisecond if it is at most a second.
fn duration(time: f64) -> String {
    let second = 1e6;
    let unit = if time > second { second } else { 1e3 };
    format_duration(micros((time / unit).ceil() * unit)).to_string()
}

/// The limit and the key that are in the name of a bucket: its prefix and its tag stand before them.
fn parts(name: &str) -> Option<(&str, &str)> {
    // Only the tag is in braces.
    let rest = name.split_once("}:").map_or(name, |(_, rest)| rest);
    // The key begins with the first field that has a `=`, as addresses have colons; else it is the last field.
    let before = match rest.find('=') {
        Some(at) => rest.get(..at)?.rfind(':')?,
        None => rest.rfind(':')?,
    };
    let (limit, key) = (rest.get(..before)?, rest.get(before + 1..)?);
    let limit = limit.rsplit(':').next()?;
    Some((limit.split('#').next()?, key))
}

/// The name of a limit as it is written in Redis.
fn written(limit: &str) -> String {
    let mut text = String::new();
    for byte in limit.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-_.~@+/".contains(&byte);
        // To memory, so it cannot fail.
        let _ =
            if plain { write!(text, "{}", char::from(byte)) } else { write!(text, "%{byte:02X}") };
    }
    text
}

/// A connection to the server; the error says in one line what to do.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Box<dyn Error>> {
    let client = redis::Client::open(url)?;
    let address = client.get_connection_info().addr().to_string();
    client.get_multiplexed_async_connection().await.map_err(|error| {
        let way_out = "start one with `redis-server`, or say where one is by REDIS_URL";
        format!("no Redis at {address}: {error} ({way_out})").into()
    })
}

/// The buckets of a limit, or of one key of it, and the time of the server.
pub(crate) async fn buckets(
    server: &mut MultiplexedConnection,
    limit: &str,
    key: Option<&str>,
) -> Result<(Vec<Stored>, f64), Box<dyn Error>> {
    let limit = written(limit);
    // Behind the limit stands its key, or a shard.
    let pattern = format!("*:{limit}[:#]*");
    let (mut cursor, mut names) = (0_u64, Vec::<String>::new());
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
        let (next, some): (u64, Vec<String>) = scan.query_async(server).await?;
        names.extend(some);
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    // A scan may return a name twice.
    names.sort();
    names.dedup();
    names.retain(|name| {
        parts(name).is_some_and(|(name, owner)| name == limit && key.is_none_or(|key| key == owner))
    });
    let mut found = Vec::new();
    for name in names {
        // One byte more than a bucket has shows that a value is longer, and so is no bucket.
        let mut read = redis::cmd("GETRANGE");
        read.arg(&name).arg(0).arg(48);
        let raw: Vec<u8> = read.query_async(server).await?;
        found.extend(Stored::read(&name, &raw));
    }
    let (seconds, rest): (u32, u32) = redis::cmd("TIME").query_async(server).await?;
    Ok((found, f64::from(seconds) * 1e6 + f64::from(rest)))
}

/// Takes three tokens for a made-up client address.
pub(crate) async fn take_some(url: &str) -> Result<(), Box<dyn Error>> {
    let limiter = RateLimiter::new(Redis::at(url).deadline(DEADLINE).connect().await?);
    for _ in 0..3 {
        match limiter.limit(&LIMIT).key(CLIENT).await {
            Ok(_permit) => {}
            Err(error) if error.is_refused() => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

pub(crate) async fn run(args: &[String]) -> Result<String, Box<dyn Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let url = args.first().unwrap_or(&url);
    let mut server = connect(url).await?;
    let (limit, key) = match args {
        [] | [_] => {
            take_some(url).await?;
            (LIMIT.name(), None)
        }
        [_, limit] => (limit.as_str(), None),
        [_, limit, key, ..] => (limit.as_str(), Some(key.as_str())),
    };
    let (found, now) = buckets(&mut server, limit, key).await?;
    if found.is_empty() {
        return Ok("nothing is stored: an absent bucket is a full one\n".to_owned());
    }
    Ok(found.iter().map(|bucket| bucket.describe(now)).collect())
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match run(&args).await {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
