//! The numbers of a limit: in their text form, or as fields.

use std::time::Duration;

use super::field_names::{FieldName, LimitField};
use super::reader::{Given, Reader, Setting};
use super::suggestion::{Quote, list};
use super::tree::{ConfigNode, NodeField, NodeValue};
use tollgate::Timestamp;
use tollgate::kit::Calendar;
use tollgate::quota::{Kind, Quota};

/// The numbers of a limit as they were given.
#[derive(Debug, Default)]
pub(super) struct NumberFields {
    quota: Option<Given<Quota>>,
    kind: Option<Given<Kind>>,
    rate: Option<Given<u64>>,
    per: Option<Given<Per>>,
    capacity: Option<Given<u64>>,
    max_reserved: Option<Given<u64>>,
    initial: Option<Given<u64>>,
    start: Option<Given<Start>>,
    shards: Option<Given<u64>>,
    /// The names of the fields beside `quota`, and where the first one is.
    parts: Vec<&'static str>,
    first_part: Option<usize>,
}

/// When tokens arrive: in a period, or as a calendar says.
#[derive(Clone, Copy, Debug)]
enum Per {
    Period(Duration),
    Calendar(Calendar),
}

/// Where windows begin.
#[derive(Clone, Copy, Debug)]
enum Start {
    At(Timestamp),
    FirstUse,
}

const KINDS: [(&str, Kind); 2] =
    [("token bucket", Kind::TokenBucket), ("fixed window", Kind::FixedWindow)];

impl NumberFields {
    /// The text form alone.
    pub(super) fn text(reader: &mut Reader<'_>, node: &ConfigNode) -> Self {
        let quota = reader.parse(LimitField::Quota, node, EXAMPLE, parse);
        Self { quota, ..Self::default() }
    }

    /// Reads a field if it is one of the numbers.
    pub(super) fn read(&mut self, reader: &mut Reader<'_>, field: LimitField, given: &NodeField) {
        let (any, node) = (0..=u64::MAX, &given.node);
        match field {
            LimitField::Quota => {
                self.quota = reader.parse(field, node, EXAMPLE, parse);
                return;
            }
            LimitField::Kind => self.kind = reader.word(field, node, &KINDS),
            LimitField::Rate => self.rate = reader.whole(field, node, any.clone()),
            LimitField::Per => self.per = per(reader, node),
            LimitField::Capacity => self.capacity = reader.whole(field, node, any.clone()),
            LimitField::MaxReserved => self.max_reserved = reader.whole(field, node, any.clone()),
            LimitField::Initial => self.initial = reader.whole(field, node, any),
            LimitField::Start => self.start = start(reader, node),
            LimitField::Shards => {
                self.shards = reader.whole(field, node, 1..=u64::from(Quota::MAX_SHARDS));
            }
            _ => return,
        }
        self.parts.push(field.name());
        self.first_part = self.first_part.or(given.at);
    }

    /// The quota, with where its numbers are. `at` is where the limit is.
    pub(super) fn build(self, reader: &mut Reader<'_>, at: Option<usize>) -> Option<Given<Quota>> {
        let has_rate = (self.rate.is_some(), self.per.is_some());
        match (&self.quota, &*self.parts, has_rate) {
            (Some(_), [], _) => return self.quota,
            (Some(_), parts, _) => {
                let (parts, text) = (list(parts, Quote::Code), "all numbers in `quota`, or none");
                reader.mistake(self.first_part, format!("{parts} beside `quota` (write {text})"));
                return None;
            }
            (None, [], _) => {
                reader.mistake(at, "no numbers (write a `quota`, such as \"10 per minute\")");
                return None;
            }
            (None, _, (true, true)) => {}
            (None, parts, (has_rate, _)) => {
                let (parts, lacks) =
                    (list(parts, Quote::Code), if has_rate { "per" } else { "rate" });
                let text = format!(
                    "{parts} without `{lacks}` (write how many tokens a limit gains by \
                                    `rate`, and in which time by `per`)"
                );
                reader.mistake(self.first_part, text);
                return None;
            }
        }
        // Whatever is wrong has been noted.
        let wrong = |given: &Option<Given<u64>>| matches!(given, Some(Given { value: None, .. }));
        let numbers = [&self.capacity, &self.max_reserved, &self.initial, &self.shards];
        let is_wrong = numbers.into_iter().any(wrong)
            || matches!(self.kind, Some(Given { value: None, .. }))
            || matches!(self.start, Some(Given { value: None, .. }));
        let at = self.rate.as_ref().and_then(|rate| rate.at);
        let (rate, per) = self.rate.good().zip(self.per.good()).filter(|_| !is_wrong)?;
        let quota = match (per, self.kind.good()) {
            (Per::Calendar(calendar), Some(Kind::TokenBucket)) => {
                let text = format!(
                    "a token bucket has no windows of a calendar (leave out `kind`, or write a \
                     period in place of `{calendar}`)"
                );
                reader.mistake(at, text);
                return None;
            }
            (Per::Calendar(calendar), _) => Quota::read_calendar(rate, calendar),
            (Per::Period(per), kind) => Quota::read(kind.unwrap_or(Kind::TokenBucket), rate, per),
        };
        let set = |quota: Quota, set: fn(Quota, u64) -> Quota, given: Option<Given<u64>>| {
            given.good().map_or(quota, |tokens| set(quota, tokens))
        };
        let quota = quota.and_then(|mut quota| {
            quota = set(quota, Quota::capacity, self.capacity);
            quota = set(quota, Quota::max_reserved, self.max_reserved);
            quota = set(quota, Quota::initial, self.initial);
            if let Some(start) = self.start.good() {
                quota = match start {
                    Start::At(start) => quota.start(start),
                    Start::FirstUse => quota.from_first_use(),
                };
            }
            if let Some(shards) = self.shards.good().and_then(|shards| u32::try_from(shards).ok()) {
                quota = quota.shards(shards);
            }
            quota.validated()
        });
        match quota {
            Ok(quota) => Some(Given { at, value: Some(quota) }),
            Err(error) => {
                reader.mistake(at, error.to_string());
                None
            }
        }
    }
}

/// A quota as the messages show one.
const EXAMPLE: &str = "10 per minute, capacity 20";

fn parse(text: &str) -> Result<Quota, String> {
    text.parse::<Quota>().map_err(|error| error.to_string())
}

/// A period, or what begins the windows of a calendar.
fn per(reader: &mut Reader<'_>, node: &ConfigNode) -> Option<Given<Per>> {
    match node.text().and_then(Calendar::parse) {
        None => {
            let Given { at, value } = reader.time(LimitField::Per, node)?;
            Some(Given { at, value: value.map(Per::Period) })
        }
        Some(calendar) => reader.read(LimitField::Per, node, |_| {
            calendar.map(Per::Calendar).map_err(|_| {
                "write a time zone by its name in the database, such as \"month in Europe/Berlin\""
                    .to_owned()
            })
        }),
    }
}

/// An instant, as text or as TOML writes it, or "first use".
fn start(reader: &mut Reader<'_>, node: &ConfigNode) -> Option<Given<Start>> {
    reader.read(LimitField::Start, node, |node| {
        let text = match &node.value {
            NodeValue::Date(text) | NodeValue::Text(text) => text,
            _ => "",
        };
        if text.eq_ignore_ascii_case("first use") {
            return Ok(Start::FirstUse);
        }
        text.parse().map(Start::At).map_err(|_| {
            "write a time in UTC, such as \"2026-01-01T00:00:00Z\", or \"first use\"".to_owned()
        })
    })
}
