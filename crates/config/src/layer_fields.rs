//! The fields of a limit that concern the layer that is made of it, and what all limits share.

use std::time::Duration;

use super::field_names::{FieldName, LimitField};
use super::queue_fields::{self, QueueSetting};
use super::reader::{Given, Reader, Setting, word};
use super::tree::ConfigNode;
use tollgate::fields::Dialect;
use tollgate::middleware::{OnFailure, OnRefusal, RateLimitLayer};

/// The fields of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerFields {
    pub(super) queue: Option<Given<QueueSetting>>,
    jitter: Option<Given<Duration>>,
    dialects: Option<Given<Vec<Dialect>>>,
    /// Whether it is a date.
    retry_after: Option<Given<bool>>,
    /// Always random.
    partition_key: Option<Given<()>>,
    on_refusal: Option<Given<OnRefusal>>,
    settle: Option<Given<bool>>,
    refund_dropped: Option<Given<bool>>,
    expose: Option<Given<bool>>,
}

const DIALECTS: [(&str, Dialect); 5] = [
    ("draft-11", Dialect::Draft11),
    ("draft-7", Dialect::Draft7),
    ("draft-6", Dialect::Draft6),
    ("x-ratelimit", Dialect::XRateLimit),
    ("none", Dialect::None),
];

const RETRY_AFTER: [(&str, bool); 2] = [("seconds", false), ("date", true)];

/// What requests get while the store fails.
pub(super) const ON_FAILURE: [(&str, OnFailure); 2] =
    [("refuse", OnFailure::Refuse), ("admit", OnFailure::Admit)];

impl LayerFields {
    /// Reads a field if it is one of a layer.
    pub(super) fn read(&mut self, reader: &mut Reader<'_>, field: LimitField, node: &ConfigNode) {
        match field {
            LimitField::Queue => self.queue = queue_fields::read(reader, node),
            LimitField::Jitter => self.jitter = reader.time(field, node),
            LimitField::Dialects => self.dialects = dialects(reader, field, node),
            LimitField::RetryAfter => self.retry_after = reader.word(field, node, &RETRY_AFTER),
            LimitField::PartitionKey => {
                self.partition_key = reader.word(field, node, &[("random", ())]);
            }
            LimitField::OnRefusal => self.on_refusal = on_refusal(reader, field, node),
            LimitField::Settle => self.settle = reader.flag(field, node),
            LimitField::RefundDropped => self.refund_dropped = reader.flag(field, node),
            LimitField::Expose => self.expose = reader.flag(field, node),
            _ => {}
        }
    }

    /// Applies what was given to a layer.
    pub(super) fn apply(&self, mut layer: RateLimitLayer) -> RateLimitLayer {
        if let Some(setting) = self.queue.clone().good() {
            layer = layer.queue(setting.queue);
        }
        if let Some(spread) = self.jitter.clone().good() {
            layer = layer.jitter(spread);
        }
        if let Some(dialects) = self.dialects.clone().good() {
            layer = layer.dialects(dialects);
        }
        if self.retry_after.clone().good() == Some(true) {
            layer = layer.retry_after_date();
        }
        if self.partition_key.clone().good().is_some() {
            layer = layer.random_partition_key();
        }
        if let Some(on_refusal) = self.on_refusal.clone().good() {
            layer = layer.on_refusal(on_refusal);
        }
        if self.settle.clone().good() == Some(true) {
            layer = layer.settle();
        }
        if self.refund_dropped.clone().good() == Some(true) {
            layer = layer.refund_dropped();
        }
        if self.expose.clone().good() == Some(true) {
            layer = layer.expose();
        }
        layer
    }
}

/// One dialect or several, whose fields do not have the same names.
pub(super) fn dialects(
    reader: &mut Reader<'_>,
    field: impl FieldName,
    node: &ConfigNode,
) -> Option<Given<Vec<Dialect>>> {
    let Given { at, value } = reader.list(field, node, |item| word(item, &DIALECTS))?;
    let named = value.as_deref().unwrap_or_default();
    let fault = if named.len() > 1 && named.contains(&Dialect::None) {
        "has \"none\" beside others (\"none\" stands alone: no fields)"
    } else if named.contains(&Dialect::Draft11) && named.contains(&Dialect::Draft7) {
        "has \"draft-11\" and \"draft-7\", whose fields have the same names (choose one of the two)"
    } else {
        return Some(Given { at, value });
    };
    let name = reader.name(field);
    reader.mistake(at, format!("{name} {fault}"));
    Some(Given { at, value: None })
}

pub(super) fn on_refusal(
    reader: &mut Reader<'_>,
    field: impl FieldName,
    node: &ConfigNode,
) -> Option<Given<OnRefusal>> {
    let words = [
        ("problem details", OnRefusal::problem_details()),
        ("plain text", OnRefusal::plain_text()),
    ];
    reader.word(field, node, &words)
}
