//! Limits in configuration files, and snapshots for the clients that ask what they have left.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{Limit, Snapshot};
use crate::quota::Quota;

/// Writes the name and the quota: `{"name": "login", "quota": "5 per hour"}`.
impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut limit = serializer.serialize_struct("Limit", FIELDS.len())?;
        limit.serialize_field("name", self.name())?;
        limit.serialize_field("quota", self.quota())?;
        limit.end()
    }
}

/// Reads a name and a quota, with all their checks.
///
/// A field of another name is an error, so that a typing mistake does not go unseen. A table of limits
/// by their names is a map of names and [`Quota`]s, each of which [`Limit::try_new`] makes a limit.
///
/// # Examples
///
/// ```
/// use std::collections::BTreeMap;
/// use tollgate::{HOUR, Limit, Quota};
///
/// let login: Limit = serde_json::from_str(r#"{ "name": "login", "quota": "5 per hour" }"#)?;
/// assert_eq!(login, Limit::new("login", Quota::token_bucket(5, HOUR)));
///
/// let table: BTreeMap<String, Quota> = serde_json::from_str(r#"{ "login": "5 per hour" }"#)?;
/// let limits: Result<Vec<_>, _> =
///     table.iter().map(|(name, quota)| Limit::try_new(&**name, *quota)).collect();
/// assert_eq!(limits?, [login]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("Limit", &FIELDS, LimitVisitor)
    }
}

const FIELDS: [&str; 2] = ["name", "quota"];

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a limit like {name = \"login\", quota = \"5 per hour\"}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Limit, A::Error> {
        let (mut name, mut quota) = (None::<String>, None::<Quota>);
        while let Some(field) = fields.next_key::<String>()? {
            match &*field {
                "name" if name.is_some() => return Err(A::Error::duplicate_field("name")),
                "quota" if quota.is_some() => return Err(A::Error::duplicate_field("quota")),
                "name" => name = Some(fields.next_value()?),
                "quota" => quota = Some(fields.next_value()?),
                other => return Err(A::Error::unknown_field(other, &FIELDS)),
            }
        }
        let name = name.ok_or_else(|| A::Error::missing_field("name"))?;
        let quota = quota.ok_or_else(|| A::Error::missing_field("quota"))?;
        Limit::try_new(name, quota).map_err(|error| match std::error::Error::source(&error) {
            // In the message, as serde keeps no sources.
            Some(cause) => A::Error::custom(format_args!("{error}: {cause}")),
            None => A::Error::custom(error),
        })
    }
}

/// Writes what a client needs that asks what it has left:
///
/// | field | is |
/// |---|---|
/// | `limit` | the name of the limit |
/// | `remaining`, `capacity`, `cost` | whole tokens, as [`remaining`](Snapshot::remaining), [`capacity`](Snapshot::capacity) and [`cost`](Snapshot::cost) say |
/// | `wait_ms` | [`wait`](Snapshot::wait) in milliseconds, rounded up; zero if the cost fits, null if it never will |
/// | `at`, `full_at` | the time of the snapshot, and that at which the bucket is full, as a [`Timestamp`](crate::Timestamp) shows them |
/// | `resets_at` | when the limit [starts again](Snapshot::resets_at); null if its quota grants nothing |
/// | `window_end` | [when the window ends](Snapshot::window_end); null for a token bucket |
/// | `blocked_until` | when a [block ends](Snapshot::blocked_until); null without one |
///
/// These fields keep their names and their meaning; more may come.
///
/// # Examples
///
/// ```
/// use serde_json::json;
/// use tollgate::backend::Memory;
/// use tollgate::clock::ManualClock;
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const EXPORTS: Limit = Limit::new("exports", Quota::token_bucket(10, MINUTE));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new("2026-01-31T12:00:00Z".parse()?);
/// let limiter = RateLimiter::new(Memory::new().clock(clock));
/// limiter.limit(&EXPORTS).key("alice").cost(9).await?;
///
/// let snapshot = limiter.peek(&EXPORTS).key("alice").cost(2).await?;
/// let told = json!({
///     "limit": "exports",
///     "remaining": 1,
///     "capacity": 10,
///     "cost": 2,
///     "wait_ms": 6_000,
///     "at": "2026-01-31T12:00:00Z",
///     "full_at": "2026-01-31T12:00:54Z",
///     "resets_at": "2026-01-31T12:00:54Z",
///     "window_end": null,
///     "blocked_until": null,
/// });
/// assert_eq!(serde_json::to_value(&snapshot)?, told);
/// # Ok(())
/// # }
/// ```
impl Serialize for Snapshot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut snapshot = serializer.serialize_struct("Snapshot", 10)?;
        snapshot.serialize_field("limit", self.limit().name())?;
        snapshot.serialize_field("remaining", &self.remaining())?;
        snapshot.serialize_field("capacity", &self.capacity())?;
        snapshot.serialize_field("cost", &self.cost())?;
        snapshot.serialize_field("wait_ms", &self.wait().map(millis))?;
        snapshot.serialize_field("at", &self.at())?;
        snapshot.serialize_field("full_at", &self.full_at())?;
        snapshot.serialize_field("resets_at", &self.resets_at())?;
        snapshot.serialize_field("window_end", &self.window_end())?;
        snapshot.serialize_field("blocked_until", &self.blocked_until())?;
        snapshot.end()
    }
}

/// Rounded up: a client that comes back then is not early.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
