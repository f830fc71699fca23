//! What differs between the configuration of a running program and another one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::entry::ConfigEntry;
use super::field_names::FieldName;
use super::lookup::{Config, ConfigContent};
use super::origin::ConfigOrigin;
use super::problem::ConfigProblem;
use super::suggestion::{Quote, list};
use super::tree::ConfigNode;
use tollgate::limiter::{Limit, RateLimiter};
use tollgate::quota::Quota;

/// What differs between the configuration of a running program and another one; made by
/// [`Config::compare`].
///
/// The numbers of a limit can change while the program runs. Everything else was built into layers
/// when the program started, and changes at the next start.
///
/// `Display` shows a line for each change.
#[derive(Debug, Default)]
pub struct ConfigChanges {
    quotas: Vec<QuotaChange>,
    restarts: Vec<ConfigProblem>,
}

/// A limit with other numbers than it has in the running program.
#[derive(Clone)]
pub struct QuotaChange {
    pub(super) entry: Arc<ConfigEntry>,
    pub(super) from: Quota,
    pub(super) to: Quota,
}

impl Config {
    /// Compares this configuration, as the program runs with it, with another one that was read
    /// later.
    ///
    /// The numbers that count are those of the limiter, which may have changed since the program
    /// started. Nothing is changed here: [`apply`](Self::apply) does that.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
    ///
    /// let limiter = RateLimiter::in_memory();
    /// let running = Config::from_text(
    ///     "limits.toml",
    ///     "[limits]
    ///      api = { quota = '10 per second', key = 'client address' }
    ///      login = '5 per hour'",
    /// )?;
    /// let next = Config::from_text(
    ///     "limits.toml",
    ///     "[limits]
    ///      api = { quota = '20 per second', key = 'header x-user' }
    ///      login = { rate = 5, per = '1h' }",
    /// )?;
    /// let changes = running.compare(&next, &limiter);
    /// assert_eq!(
    ///     changes.to_string(),
    ///     "limit \"api\": 20 per second (it was 10 per second)\n\
    ///      limits.toml:2:39: limit \"api\": `key` has changed (this takes effect after a restart)"
    /// );
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn compare(&self, next: &Self, limiter: &RateLimiter) -> ConfigChanges {
        let (running, next) = (&*self.content, &*next.content);
        let mut changes = ConfigChanges::default();
        changes.compare_files(running, next);
        // Plans that share a name may be one limit to the limiter.
        let mut namesakes: BTreeMap<&str, Vec<&ConfigEntry>> = BTreeMap::new();
        for entry in &running.entries {
            namesakes.entry(entry.limit.name()).or_default().push(entry);
        }
        for entry in &running.entries {
            let Some(other) = next.find(&entry.name) else {
                let text = "it was removed, and its last numbers count until a restart";
                changes.note(&next.file.origin, None, Some(&entry.name), text);
                continue;
            };
            let origin = &next.file.origin;
            let namesakes = namesakes.get(entry.limit.name()).map_or(&[][..], Vec::as_slice);
            match twin(namesakes, entry, next) {
                Some(twin) => {
                    let text = format!(
                        "it has shared its name and numbers with \"{twin}\" since the start, and \
                         can leave them at a restart only"
                    );
                    changes.note(origin, other.at, Some(&other.name), &text);
                }
                None if counts_other(&entry.limit, &other.limit) => {
                    let text = "it counts requests in flight, or does so no longer (this takes a \
                                restart)";
                    changes.note(origin, other.at, Some(&other.name), text);
                }
                None => changes.compare_quotas(entry, other, limiter),
            }
            changes.compare_fields(entry, other, origin);
        }
        for entry in next.entries.iter().filter(|entry| running.find(&entry.name).is_none()) {
            let text = "it is new (this takes effect after a restart)";
            changes.note(&next.file.origin, entry.at, Some(&entry.name), text);
        }
        changes
    }
}

impl ConfigChanges {
    fn compare_files(&mut self, running: &ConfigContent, next: &ConfigContent) {
        let fields = |content: &ConfigContent| -> Vec<_> {
            let fields = content.file.fields.iter();
            fields.map(|given| (given.field, given.at, given.node.clone())).collect()
        };
        let (running, found) = (fields(running), fields(next));
        if let Some((at, text)) = difference(&running, &found) {
            self.note(&next.file.origin, at, None, &text);
        }
    }

    fn compare_quotas(
        &mut self,
        entry: &Arc<ConfigEntry>,
        other: &ConfigEntry,
        limiter: &RateLimiter,
    ) {
        let (from, to) = (limiter.quota(&entry.limit), *other.limit.quota());
        if from != to {
            self.quotas.push(QuotaChange { entry: Arc::clone(entry), from, to });
        }
    }

    fn compare_fields(&mut self, entry: &ConfigEntry, other: &ConfigEntry, origin: &ConfigOrigin) {
        let fields = |entry: &ConfigEntry| -> Vec<_> {
            let fields = entry.fields.iter();
            fields.map(|given| (given.field, given.at, given.node.clone())).collect()
        };
        if let Some((at, text)) = difference(&fields(entry), &fields(other)) {
            self.note(origin, at.or(other.at), Some(&other.name), &text);
        }
    }

    fn note(&mut self, origin: &ConfigOrigin, at: Option<usize>, limit: Option<&str>, text: &str) {
        let text = match limit {
            Some(limit) => format!("limit \"{limit}\": {text}"),
            None => text.to_owned(),
        };
        self.restarts.push(ConfigProblem::new(origin, at, text));
    }

    /// The limits whose numbers differ.
    pub fn quotas(&self) -> std::slice::Iter<'_, QuotaChange> {
        self.quotas.iter()
    }

    /// What differs beside numbers, with its place in the other configuration: it takes effect when
    /// the program starts again.
    pub fn restarts(&self) -> std::slice::Iter<'_, ConfigProblem> {
        self.restarts.iter()
    }

    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.quotas.is_empty() && self.restarts.is_empty()
    }
}

/// Whether one of them counts requests in flight and the other a rate, which cannot
/// [replace](RateLimiter::replace) it.
fn counts_other(running: &Limit, next: &Limit) -> bool {
    let [running, next] = [running.quota(), next.quota()];
    !running.is_none() && !next.is_none() && running.is_in_flight() != next.is_in_flight()
}

/// Another entry that is the same limit to a limiter, and is to have other numbers than this one:
/// plans that began alike.
fn twin<'e>(
    namesakes: &[&'e ConfigEntry],
    entry: &ConfigEntry,
    next: &ConfigContent,
) -> Option<&'e str> {
    let quota = |entry: &ConfigEntry| next.find(&entry.name).map(|next| *next.limit.quota());
    let is_twin = |other: &&&ConfigEntry| {
        *other.limit == *entry.limit
            && other.limit.get_on_failure() == entry.limit.get_on_failure()
            && quota(other) != quota(entry)
    };
    namesakes.iter().find(is_twin).map(|twin| &*twin.name)
}

/// The fields that two tables do not have in common, and where the first of them is.
fn difference<F: FieldName>(
    running: &[(F, Option<usize>, ConfigNode)],
    next: &[(F, Option<usize>, ConfigNode)],
) -> Option<(Option<usize>, String)> {
    let find = |fields: &[(F, Option<usize>, ConfigNode)], wanted: F| {
        let found = fields.iter().find(|(field, ..)| *field == wanted);
        found.map(|(_, at, node)| (*at, node.clone()))
    };
    let changed: Vec<_> = F::ALL
        .iter()
        .filter_map(|field| {
            let (before, after) = (find(running, *field), find(next, *field));
            let at = after.as_ref().and_then(|(at, _)| *at);
            let [before, after] = [before, after].map(|found| found.map(|(_, node)| node));
            (before != after).then_some((field.name(), at))
        })
        .collect();
    let names: Vec<_> = changed.iter().map(|(name, _)| *name).collect();
    let (_, at) = changed.first()?;
    let have = if names.len() == 1 { "has" } else { "have" };
    Some((
        *at,
        format!("{} {have} changed (this takes effect after a restart)", list(&names, Quote::Code)),
    ))
}

impl fmt::Display for ConfigChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quotas = self.quotas.iter().map(ToString::to_string);
        let restarts = self.restarts.iter().map(ToString::to_string);
        let lines: Vec<_> = quotas.chain(restarts).collect();
        match &*lines {
            [] => f.write_str("nothing has changed"),
            lines => f.write_str(&lines.join("\n")),
        }
    }
}

impl QuotaChange {
    /// The name of the entry.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// The numbers of the running program.
    #[must_use]
    pub const fn from(&self) -> &Quota {
        &self.from
    }

    /// The other numbers.
    #[must_use]
    pub const fn to(&self) -> &Quota {
        &self.to
    }
}

impl fmt::Display for QuotaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit \"{}\": {} (it was {})", self.name(), self.to, self.from)
    }
}

impl fmt::Debug for QuotaChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuotaChange").field(&format_args!("{self}")).finish()
    }
}
