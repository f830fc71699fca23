//! `RateLimit` of the IETF drafts 7 to 11: structured fields (RFC 9651).

use std::time::Duration;

use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

use super::FOREVER;
use super::fields::{Fields, MAX_NAME};
use super::reading::{Assumed, LimitReading};

pub(super) fn read(fields: &mut Fields<'_>) -> Vec<LimitReading> {
    if !fields.headers.contains_key("ratelimit") {
        return Vec::new();
    }
    let policies = fields
        .read("ratelimit-policy", Assumed::Nothing, |text| Parser::new(text).parse::<List>().ok());
    let policies = policies.ok().flatten().unwrap_or_default();
    let limits = fields.read("ratelimit", Assumed::Nothing, |text| limits(text, &policies));
    limits.ok().flatten().unwrap_or_default()
}

/// A list of draft 11, or a dictionary of draft 7.
fn limits(text: &str, policies: &List) -> Option<Vec<LimitReading>> {
    let Ok(list) = Parser::new(text).parse::<List>() else {
        let members = Parser::new(text).parse::<Dictionary>().ok()?;
        return draft_7(&members, policies).map(|limit| vec![limit]);
    };
    let of_requests = items(&list).filter(|item| counts_requests(item, policies));
    of_requests.map(|item| member(item, policies)).collect()
}

/// Whether a limit counts requests, as those do whose policy names no unit. What is left of bytes, or of
/// requests at the same time, says nothing about when the next request may be sent.
fn counts_requests(item: &Item, policies: &List) -> bool {
    let unit = policy_of(item, policies).and_then(|policy| find(&policy.params, "qu"));
    unit.is_none_or(|unit| name(unit) == Some("requests"))
}

fn policy_of<'p>(item: &Item, policies: &'p List) -> Option<&'p Item> {
    let name = name(&item.bare_item)?;
    items(policies).find(|policy| self::name(&policy.bare_item) == Some(name))
}

/// A member of draft 11: `"name";r=19;t=114`, with the policy `"name";q=20;w=120`.
fn member(item: &Item, policies: &List) -> Option<LimitReading> {
    let name = name(&item.bare_item)?;
    let policy = policy_of(item, policies);
    let of_policy = |key| policy.and_then(|policy| parameter(&policy.params, key));
    Some(LimitReading {
        name: name.into(),
        quota: of_policy("q"),
        window: of_policy("w").and_then(window),
        remaining: parameter(&item.params, "r")?,
        reset: parameter(&item.params, "t").map(seconds),
    })
}

/// Draft 7: `limit=10, remaining=5, reset=30`, with the policy `10;w=60`.
fn draft_7(members: &Dictionary, policies: &List) -> Option<LimitReading> {
    let value = |key: &str| {
        let (_, entry) = members.iter().find(|(name, _)| name.as_str() == key)?;
        match entry {
            ListEntry::Item(item) => whole(&item.bare_item),
            ListEntry::InnerList(_) => None,
        }
    };
    let quota = value("limit");
    let policy = items(policies)
        .find(|policy| quota.is_some() && whole(&policy.bare_item) == quota)
        .and_then(|policy| parameter(&policy.params, "w"));
    Some(LimitReading {
        name: "ratelimit".into(),
        quota,
        window: policy.and_then(window),
        remaining: value("remaining")?,
        reset: value("reset").map(seconds),
    })
}

fn items(list: &List) -> impl Iterator<Item = &Item> {
    list.iter().filter_map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    })
}

fn name(item: &BareItem) -> Option<&str> {
    let name = match item {
        BareItem::String(name) => name.as_str(),
        BareItem::Token(name) => name.as_str(),
        _ => return None,
    };
    (name.len() <= MAX_NAME).then_some(name)
}

fn parameter(parameters: &Parameters, key: &str) -> Option<u64> {
    whole(find(parameters, key)?)
}

fn find<'p>(parameters: &'p Parameters, key: &str) -> Option<&'p BareItem> {
    parameters.iter().find(|(name, _)| name.as_str() == key).map(|(_, value)| value)
}

/// An integer. Below zero it is zero.
fn whole(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(number) => Some(u64::try_from(i64::from(*number)).unwrap_or(0)),
        _ => None,
    }
}

fn window(number: u64) -> Option<Duration> {
    (number > 0).then(|| seconds(number))
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number).min(FOREVER)
}
