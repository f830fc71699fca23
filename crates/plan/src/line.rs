//! One line of a log: its time, key and cost.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use serde_json::Value;
use tollgate::Timestamp;

use super::time;

/// A request, as a line of the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) at: Timestamp,
    pub(crate) key: Cow<'a, str>,
    pub(crate) cost: u64,
}

/// Where a line has its key, time and cost.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// `host`, `user`, `path`, or a field of the JSON; `all` is one key for all requests.
    pub(crate) key: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) cost: Option<String>,
}

impl Fields {
    /// Reads a line in the common or combined format, or one that is a JSON object.
    pub(crate) fn read<'a>(&self, line: &'a str) -> Result<Entry<'a>, String> {
        match line.starts_with('{') {
            true => self.json(line),
            false => self.common(line),
        }
    }

    fn common<'a>(&self, line: &'a str) -> Result<Entry<'a>, String> {
        let (host, rest) = line.split_once(' ').ok_or(NO_TIME)?;
        // The name of a user may hold brackets and spaces, so the time is what reads as one.
        let (at, user, rest) = rest
            .match_indices('[')
            .find_map(|(begin, _)| {
                let (user, time_on) = rest.split_at_checked(begin)?;
                let (time, rest) = time_on.get(1..)?.split_once(']')?;
                Some((time::common(time)?, user, rest))
            })
            .ok_or(NO_TIME)?;
        let key = match self.key.as_deref() {
            None | Some("host") => network(host),
            Some("user") => user.trim_end().split_once(' ').ok_or("no user")?.1.into(),
            Some("path") => {
                request(rest).and_then(|(request, _)| path(request)).ok_or("no path")?.into()
            }
            Some("all") => "all".into(),
            Some(other) => {
                return Err(format!(
                    "no `{other}` in this format (use `host`, `user`, `path` or `all`)"
                ));
            }
        };
        let cost = match self.cost.as_deref() {
            None => 1,
            Some("bytes") => request(rest).and_then(|(_, rest)| bytes(rest)).ok_or("no bytes")?,
            Some(other) => return Err(format!("no `{other}` in this format (use `bytes`)")),
        };
        Ok(Entry { at, key, cost })
    }

    fn json<'a>(&self, line: &'a str) -> Result<Entry<'a>, String> {
        let object: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        // A name that begins with a slash leads into objects: `/user/id`.
        let field = |name: &str| match name.starts_with('/') {
            true => object.pointer(name),
            false => object.get(name),
        };
        let name = self.time.as_deref().unwrap_or("time");
        let at = field(name).and_then(text).and_then(|text| time::any(&text));
        let at = at.ok_or_else(|| format!("no time in `{name}`"))?;

        let name = self.key.as_deref().unwrap_or("key");
        let key = match name {
            "all" => Some("all".to_owned()),
            _ => field(name).and_then(text),
        };
        let key = key.ok_or_else(|| format!("no text or number in `{name}`"))?;

        let name = self.cost.as_deref().unwrap_or("cost");
        let cost = match field(name) {
            None => Some(1),
            Some(value) => text(value).and_then(|text| text.parse().ok()),
        };
        let cost = cost.ok_or_else(|| format!("no whole number in `{name}`"))?;
        Ok(Entry { at, key: network(&key).into_owned().into(), cost })
    }
}

const NO_TIME: &str =
    "neither a JSON object nor a line with a time as `[10/Oct/2000:13:55:36 -0700]`";

/// An IPv6 address counts by its network of 64 bits, as `ClientIp` counts it.
fn network(host: &str) -> Cow<'_, str> {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => match address.to_ipv4_mapped() {
            Some(address) => address.to_string().into(),
            None => {
                let network = address.to_bits() >> 64 << 64;
                format!("{}/64", Ipv6Addr::from_bits(network)).into()
            }
        },
        Err(_) => host.into(),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The text in the first pair of quotes, and what follows it.
fn request(rest: &str) -> Option<(&str, &str)> {
    let (_, rest) = rest.split_once('"')?;
    let mut is_escaped = false;
    let end = rest.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    let (request, rest) = rest.split_at_checked(end)?;
    Some((request, rest.get(1..)?))
}

/// The path of `GET /path?query HTTP/1.1`.
fn path(request: &str) -> Option<&str> {
    request.split(' ').nth(1)?.split('?').next()
}

/// The second word after the request: the status is the first.
fn bytes(rest: &str) -> Option<u64> {
    match rest.split_ascii_whitespace().nth(1)? {
        "-" => Some(0),
        number => number.parse().ok(),
    }
}
