//! The limits of a configuration, by their names.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::Limit;
use super::serde::named;

/// The limits of a configuration: a table of names and quotas.
///
/// Each entry is a name and the text form of a [`Quota`](crate::Quota). An error names the entry.
/// Read the table once, at the start, and keep it for as long as the limits are used: calls borrow
/// them, and layers copy them. `config::Config`, with the feature `config`, reads whole files, with
/// keys, conditions and queues, and changes the numbers while the program runs.
///
/// # Examples
///
/// ```
/// use serde::Deserialize;
/// use tollgate::key::header;
/// use tollgate::limiter::Limits;
/// use tollgate::{RateLimiter, Rule};
///
/// #[derive(Deserialize)]
/// struct Config {
///     limits: Limits,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let Config { limits } = toml::from_str(
///     r#"
///     [limits]
///     login = "5 per hour"
///     api = "10 per second, capacity 20"
///     "#,
/// )?;
/// let limiter = RateLimiter::in_memory();
/// let login = limits.get("login").ok_or("the configuration has no limit `login`")?;
/// assert_eq!(limiter.limit(login).key("alice").await?.remaining(), 4);
///
/// let api = limits.get("api").ok_or("the configuration has no limit `api`")?;
/// let layer = limiter.layer(Rule::new(api).key(header("x-user")));
/// # drop(layer);
///
/// let error = toml::from_str::<Config>("limits = { login = \"5 per fortnight\" }").err().unwrap();
/// assert!(error.message().starts_with("limit \"login\": `5 per fortnight` is not a quota"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Sorted by name, each name once.
    limits: Vec<Limit>,
}

impl Limits {
    /// The limit of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Limit> {
        let place = self.place(name).ok()?;
        self.limits.get(place)
    }

    /// All limits, by the order of their names.
    pub fn iter(&self) -> std::slice::Iter<'_, Limit> {
        self.limits.iter()
    }

    /// Where the limit of this name is, or where it would be.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.limits.binary_search_by(|limit| limit.name().cmp(name))
    }
}

impl<'a> IntoIterator for &'a Limits {
    type Item = &'a Limit;
    type IntoIter = std::slice::Iter<'a, Limit>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Writes a map of names and quotas.
impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|limit| (limit.name(), limit.quota())))
    }
}

/// Reads a map of names and quotas. The error of an entry begins with its name.
impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LimitsVisitor)
    }
}

struct LimitsVisitor;

impl<'de> Visitor<'de> for LimitsVisitor {
    type Value = Limits;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of limits like login = \"5 per hour\"")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Limits, A::Error> {
        let mut limits = Limits::default();
        while let Some(name) = entries.next_key::<String>()? {
            let Err(place) = limits.place(&name) else {
                let twice = format_args!("limit {name:?} is given twice (leave one out)");
                return Err(A::Error::custom(twice));
            };
            limits.limits.insert(place, entries.next_value_seed(EntryReader { name: &name })?);
        }
        Ok(limits)
    }
}

/// Reads the quota of one entry: it has to know the name, which the error begins with.
struct EntryReader<'a> {
    name: &'a str,
}

impl<'de> DeserializeSeed<'de> for EntryReader<'_> {
    type Value = Limit;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Limit, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for EntryReader<'_> {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for limit {:?} a quota like \"10 per minute, capacity 20\"", self.name)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
        let wrong = |error| E::custom(format_args!("limit {:?}: {error}", self.name));
        named(self.name, text.parse().map_err(wrong)?)
    }
}
