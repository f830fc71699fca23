//! The limits that a response names, in all dialects.

use std::cmp::Reverse;
use std::time::Duration;

use http::HeaderName;
use serde_json::Value;

use super::counts::{self, Count};
use super::fields::Fields;
use super::reading::{Assumed, LimitReading};
use super::{ASSUMED_RESET, FOREVER, MAX_LIMITS, structured, times};

/// Reads the limits of a response. If there are too many, those with the fewest tokens are kept.
pub(super) fn read(fields: &mut Fields<'_>) -> Vec<LimitReading> {
    let mut all = structured::read(fields);
    let names = fields.headers.keys().map(HeaderName::as_str);
    let names = names.filter(|name| name.contains("remaining") && is_about_limits(name));
    all.extend(names.filter_map(|name| triple(fields, name)));
    all.extend(shopify(fields));
    all.extend(trakt(fields));
    all.iter_mut().for_each(come_later);
    // One limit may be there several times, for several partitions or in several dialects.
    let mut limits: Vec<LimitReading> = Vec::new();
    for limit in all {
        match limits.iter_mut().find(|other| other.name == limit.name) {
            Some(other) if tightness(&limit) < tightness(other) => *other = limit,
            Some(_) => {}
            None => limits.push(limit),
        }
    }
    if limits.len() > MAX_LIMITS {
        limits.sort_by_key(tightness);
        limits.truncate(MAX_LIMITS);
    }
    limits
}

/// The least is the tightest: of the fewest tokens, those that are so for longest.
fn tightness(limit: &LimitReading) -> (u64, Reverse<Option<Duration>>) {
    (limit.remaining, Reverse(limit.reset.or(limit.window)))
}

fn is_about_limits(name: &str) -> bool {
    name.contains("limit") || name.starts_with("anthropic-")
}

/// A server that has nothing left and says that it has at once rounds the time down.
fn come_later(limit: &mut LimitReading) {
    if limit.remaining == 0 && limit.reset == Some(Duration::ZERO) {
        limit.reset = Some(Duration::from_secs(1));
    }
}

/// `..-remaining..`, and the fields that have `limit` and `reset` in its place.
fn triple(fields: &mut Fields<'_>, name: &str) -> Option<LimitReading> {
    let headers = fields.headers;
    let beside = |word: &str| name.replacen("remaining", word, 1);
    let remaining = fields.read(name, Assumed::Nothing, counts::smallest).ok()??;
    let limit = fields.read(&beside("limit"), Assumed::Nothing, counts::list);
    let quota = limit.as_ref().ok().and_then(|counts| counts.as_ref()?.first().copied());
    let mut windows = limit.ok().flatten().unwrap_or_default();
    windows.push(remaining);
    let is_plain = name.ends_with("ratelimit-remaining");
    if is_plain {
        windows.extend(fields.peek("ratelimit-policy", counts::list).unwrap_or_default());
    }
    let mut reset = |word| {
        let read = fields.read(&beside(word), Assumed::Reset, |text| times::reset(text, headers));
        read.unwrap_or(Some(ASSUMED_RESET))
    };
    let reset = reset("reset-after").or_else(|| reset("reset"));
    // GitHub and Discord count several kinds of requests apart.
    let kind = ["x-ratelimit-resource", "x-ratelimit-bucket"];
    let kind = kind.iter().find_map(|name| fields.text(*name)).filter(|_| is_plain);
    Some(LimitReading {
        name: kind.unwrap_or(name).into(),
        quota: quota.map(|count| count.number),
        window: window(quota, &windows).or_else(|| period(name)),
        remaining: remaining.number,
        reset,
    })
}

/// The window of this quota, or else the longest.
fn window(quota: Option<Count>, counts: &[Count]) -> Option<Duration> {
    let windows = |all: bool| {
        let of_quota = counts
            .iter()
            .filter(move |count| all || quota.is_some_and(|quota| quota.number == count.number));
        of_quota.filter_map(|count| count.window).max()
    };
    windows(false).or_else(|| windows(true)).map(|window| window.min(FOREVER))
}

/// The period that a name has in it: `x-ratelimit-remaining-minute`.
fn period(name: &str) -> Option<Duration> {
    let seconds = name.split('-').find_map(|word| match word {
        "second" => Some(1),
        "minute" => Some(60),
        "hour" => Some(3_600),
        "day" | "daily" | "24hour" => Some(86_400),
        "month" => Some(31 * 86_400),
        _ => None,
    });
    seconds.map(Duration::from_secs)
}

/// `32/40`: a bucket that counts what is used, and is empty after 20 seconds on each plan.
fn shopify(fields: &mut Fields<'_>) -> Option<LimitReading> {
    let name = "x-shopify-shop-api-call-limit";
    let pair = |text: &str| {
        let (used, quota) = text.split_once('/')?;
        let [used, quota] = [used, quota].map(counts::smallest);
        Some((used?.number, quota?.number)).filter(|(_, quota)| *quota > 0)
    };
    let (used, quota) = fields.read(name, Assumed::Nothing, pair).ok()??;
    let window = Duration::from_secs(20);
    let remaining = quota.saturating_sub(used);
    let parts = u32::try_from(quota).unwrap_or(u32::MAX);
    let token = window.checked_div(parts).unwrap_or(window);
    let tokens = u32::try_from(remaining.max(1)).unwrap_or(u32::MAX);
    Some(LimitReading {
        name: name.into(),
        quota: Some(quota),
        window: Some(window),
        remaining,
        reset: Some(token.saturating_mul(tokens).min(window)),
    })
}

/// `{"name":"..","period":300,"limit":1000,"remaining":0,"until":"2020-10-10T00:24:00Z"}`.
fn trakt(fields: &mut Fields<'_>) -> Option<LimitReading> {
    let (name, headers) = ("x-ratelimit", fields.headers);
    let read = |text: &str| {
        let json: Value = serde_json::from_str(text).ok()?;
        let shown = |key| json.get(key).map(|value| value.to_string());
        let number = |key| Some(counts::smallest(&shown(key)?)?.number);
        let reset = json.get("until").map(|until| {
            let until = until.as_str().and_then(|until| times::reset(until, headers));
            until.unwrap_or(ASSUMED_RESET)
        });
        let window = shown("period").and_then(|period| times::seconds(&period));
        let named = json.get("name").and_then(Value::as_str);
        Some(LimitReading {
            name: named.filter(|name| name.len() <= super::fields::MAX_NAME).unwrap_or(name).into(),
            quota: number("limit"),
            window: window.filter(|window| !window.is_zero()).map(|window| window.min(FOREVER)),
            remaining: number("remaining")?,
            reset,
        })
    };
    fields.read(name, Assumed::Nothing, read).ok()?
}
