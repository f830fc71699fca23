//! Limits, snapshots and lists as JSON.

use serde_json::{Map, Value, json};

use super::path::{below, encode, key_segment};
use super::query::{BLOCKED, IN_DEBT, ListQuery, state_of};
use tollgate::backend::{Debtor, OnFailure};
use tollgate::clock::Timestamp;
use tollgate::limiter::{Limit, Snapshot};
use tollgate::quota::Kind;

/// A limit and its numbers `in_force`; `path` is that of the page.
pub(super) fn limit(limit: &Limit, in_force: &Limit, path: &str) -> Value {
    let (quota, bucket) = (in_force.quota(), in_force.bucket());
    let replaced = (limit.quota() != quota).then(|| limit.quota().to_string());
    json!({
        "name": limit.name(),
        "href": below(path, limit.name()),
        "quota": quota.to_string(),
        "replaced_quota": replaced,
        "kind": match quota.kind() {
            Kind::TokenBucket => "token bucket",
            Kind::FixedWindow => "fixed window",
        },
        "rate": quota.rate(),
        "period_us": u64::try_from(quota.period().as_micros()).unwrap_or(u64::MAX),
        "capacity": quota.get_capacity(),
        "initial": quota.get_initial(),
        "max_reserved": quota.get_max_reserved(),
        "start": match quota.is_from_first_use() {
            true => Value::from("first use"),
            false => json!(quota.get_start()),
        },
        "shards": quota.get_shards(),
        "on_failure": limit.get_on_failure().map(|on_failure| match on_failure {
            OnFailure::Refuse => "refuse",
            OnFailure::Admit => "admit",
            _ => "other",
        }),
        "bucket": {
            "step_us": bucket.step(),
            "gain": bucket.gain(),
            "token": bucket.token(),
            "capacity": bucket.capacity().max(0),
        },
    })
}

/// How a key stands: what a [`Snapshot`] is as JSON, and more that concerns operators.
pub(super) fn snapshot(snapshot: &Snapshot, key: &str) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(snapshot) {
        Ok(Value::Object(fields)) => fields,
        // Not reached: a snapshot is an object.
        Ok(_) | Err(_) => Map::new(),
    };
    let state = snapshot.state();
    for (name, value) in [
        ("key", json!(key)),
        ("fits", json!(snapshot.fits())),
        ("tokens", json!(snapshot.tokens().to_string())),
        ("value", json!(state.value)),
        ("token", json!(snapshot.limit().bucket().token())),
        ("ts", json!(state.ts)),
        ("window_start", json!(snapshot.window_start())),
    ] {
        fields.insert(name.to_owned(), value);
    }
    fields
}

/// One key of a list.
fn debtor(debtor: &Debtor<Snapshot>, path: &str) -> Value {
    let key = debtor.key_text();
    let mut fields = snapshot(debtor.snapshot(), &key);
    // The list has it already.
    fields.remove("limit");
    let href = debtor.key().map(|_| below(path, key_segment(&key)));
    fields.insert("href".to_owned(), json!(href));
    fields.insert("state".to_owned(), json!(state_of(debtor)));
    if debtor.snapshot().limit().quota().get_shards() > 1 {
        // The numbers of this shard, and not the estimate for all.
        fields.insert("shard".to_owned(), json!(debtor.shard_index()));
        fields.insert("tokens".to_owned(), json!(debtor.tokens().to_string()));
        fields.insert("value".to_owned(), json!(debtor.state().value));
    }
    Value::Object(fields)
}

/// A page of a list.
pub(super) fn page(
    limit: &Limit,
    at: Timestamp,
    debtors: &[Debtor<Snapshot>],
    next: Option<String>,
    path: &str,
) -> Value {
    let debtors: Vec<_> = debtors.iter().map(|one| debtor(one, path)).collect();
    json!({ "limit": limit.name(), "at": at, "debtors": debtors, "next": next })
}

/// What a store counts that keeps no keys.
pub(super) struct Count {
    pub(super) at: Timestamp,
    pub(super) in_debt: u64,
    pub(super) blocked: u64,
}

/// A count; `debtors` is null, and no empty list.
pub(super) fn count(limit: &Limit, query: &ListQuery, count: &Count) -> Value {
    let mut counts = Map::new();
    for (kind, found) in [(IN_DEBT, count.in_debt), (BLOCKED, count.blocked)] {
        if query.kind.is_none_or(|only| only == kind) {
            counts.insert(kind.to_owned(), json!(found));
        }
    }
    json!({
        "limit": limit.name(),
        "at": count.at,
        "debtors": null,
        "count": counts,
        "detail": format!(
            "the store keeps no keys, so it counts all buckets with the numbers `{}` (look at a key \
             by its name: `{}/{{key}}`; a store made by `Memory::new().keep_keys()` lists them)",
            limit.quota(),
            encode(limit.name()),
        ),
    })
}
