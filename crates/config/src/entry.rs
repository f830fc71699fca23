//! One limit of a configuration, read and checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::field_names::{Concern, LimitField};
use super::file_settings::FileSettings;
use super::layer_fields::{LayerFields, ON_FAILURE};
use super::numbers::NumberFields;
use super::reader::{Given, Reader, Setting};
use super::rule_fields::{RuleFields, RuleSettings};
use super::tree::{ConfigNode, NodeField, NodeValue};
use tollgate::Limit;
use tollgate::algebra::Terms;
use tollgate::key::ClientIp;
use tollgate::kit::explain_cost;
use tollgate::middleware::OnFailure;
use tollgate::quota::Quota;

/// A limit with all that its entry says.
pub(super) struct ConfigEntry {
    pub(super) name: String,
    /// Where the name is.
    pub(super) at: Option<usize>,
    pub(super) limit: Arc<Limit>,
    pub(super) rule: RuleSettings,
    pub(super) layer: LayerFields,
    /// The fields that were given, but for the numbers.
    pub(super) fields: Vec<EntryField>,
    pub(super) file: Arc<FileSettings>,
    /// Whether the program has looked the limit up.
    is_known: AtomicBool,
    /// Whether it has made a rule of the limit.
    has_rule: AtomicBool,
}

/// A field of an entry that is no number.
#[derive(Clone, Debug)]
pub(super) struct EntryField {
    pub(super) field: LimitField,
    pub(super) at: Option<usize>,
    pub(super) node: ConfigNode,
}

/// An entry without what all entries share.
pub(super) struct EntryDraft {
    name: String,
    at: Option<usize>,
    limit: Limit,
    rule: RuleSettings,
    layer: LayerFields,
    fields: Vec<EntryField>,
}

impl EntryDraft {
    /// Reads an entry; `None` if it is wrong.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        given: &NodeField,
        address: &ClientIp,
    ) -> Option<Self> {
        let (at, node) = (given.at, &given.node);
        let mut draft = FieldDraft::default();
        match &node.value {
            NodeValue::Text(_) => draft.numbers = NumberFields::text(reader, node),
            NodeValue::Table(fields) => reader.fields(fields, |reader, field, given| {
                draft.read(reader, field, given, address);
            }),
            _ => {
                let text = "write a quota, such as \"10 per minute\", or a table of fields";
                reader.mistake(node.at, format!("the limit is {node} ({text})"));
                return None;
            }
        }
        let quota = std::mem::take(&mut draft.numbers).build(reader, at);
        let quota_at = quota.as_ref().and_then(|quota| quota.at);
        let limit = limit(reader, given, draft.name.as_ref(), quota);
        let limit = match (limit, draft.on_failure.take().good()) {
            (Some(limit), Some(on_failure)) => Some(limit.on_failure(on_failure)),
            (limit, _) => limit,
        };
        draft.check_queue(reader, limit.as_ref());
        let cost = match &draft.rule.cost {
            Some(cost) => cost.value.map(|tokens| (cost.at, tokens)),
            None => cost_of_layer(&draft.fields, limit.as_ref()).map(|cost| (quota_at, cost)),
        };
        if let (Some(limit), Some((at, cost))) = (&limit, cost)
            && let Some(text) = explain_cost(limit, cost, terms(limit, &draft.layer))
        {
            reader.mistake(at, text);
        }
        let rule = draft.rule.build(reader, address);
        let (name, layer, fields) = (given.name.clone(), draft.layer, draft.fields);
        Some(Self { name, at, limit: limit?, rule, layer, fields })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The field by which clients are exempt by their addresses, if it is right.
    pub(super) fn exemption(&self) -> Option<&EntryField> {
        let field = self.fields.iter().find(|given| given.field == LimitField::ExemptNetworks);
        field.filter(|_| self.rule.exempts_networks())
    }

    pub(super) fn finish(self, file: Arc<FileSettings>) -> ConfigEntry {
        let Self { name, at, limit, rule, layer, fields } = self;
        let (is_known, has_rule) = (AtomicBool::new(false), AtomicBool::new(false));
        let limit = Arc::new(limit);
        ConfigEntry { name, at, limit, rule, layer, fields, file, is_known, has_rule }
    }
}

/// The fields of an entry as they were given.
#[derive(Default)]
struct FieldDraft {
    numbers: NumberFields,
    name: Option<Given<String>>,
    on_failure: Option<Given<OnFailure>>,
    rule: RuleFields,
    layer: LayerFields,
    fields: Vec<EntryField>,
}

impl FieldDraft {
    fn read(
        &mut self,
        reader: &mut Reader<'_>,
        field: LimitField,
        given: &NodeField,
        address: &ClientIp,
    ) {
        let node = &given.node;
        match field.concern() {
            Concern::Numbers => return self.numbers.read(reader, field, given),
            Concern::Limit if field == LimitField::Name => {
                let text = |text: &str| Ok(text.to_owned());
                self.name = reader.parse(field, node, "per-tenant", text);
            }
            Concern::Limit => self.on_failure = reader.word(field, node, &ON_FAILURE),
            Concern::Rule => self.rule.read(reader, field, node, address),
            Concern::Layer => self.layer.read(reader, field, node),
        }
        self.fields.push(EntryField { field, at: given.at, node: node.clone() });
    }

    fn check_queue(&self, reader: &mut Reader<'_>, limit: Option<&Limit>) {
        let Some(queue) = &self.layer.queue else { return };
        if self.rule.only_watches() {
            let text = "`queue` beside a shadow, which never waits (leave the queue out)";
            reader.mistake(queue.at, text);
        }
        if limit.is_some_and(|limit| limit.quota().get_max_reserved() == Some(0)) {
            let text = "`queue` beside a max_reserved of 0, with which no request can wait (raise \
                        max_reserved, or leave the queue out)";
            reader.mistake(queue.at, text);
        }
    }
}

/// The cost of a request where none is written, if the entry is for a layer.
///
/// A limit without capacity is left out: the program may give the layer a queue. If it does not, the
/// log warns when the layer is first used.
fn cost_of_layer(fields: &[EntryField], limit: Option<&Limit>) -> Option<u64> {
    let is_of_layer =
        |given: &EntryField| matches!(given.field.concern(), Concern::Rule | Concern::Layer);
    let may_run = limit.is_some_and(|limit| limit.quota().get_capacity() > 0);
    (may_run && fields.iter().any(is_of_layer)).then_some(1)
}

/// How far a request of a layer may go when its bucket is short.
fn terms(limit: &Limit, layer: &LayerFields) -> Terms {
    layer.queue.clone().good().map_or(Terms::AT_ONCE, |setting| {
        Terms::reserving(limit.bucket().floor()).within(setting.max_wait)
    })
}

/// The limit of an entry: its name is that of the entry, unless it says another.
fn limit(
    reader: &mut Reader<'_>,
    given: &NodeField,
    name: Option<&Given<String>>,
    quota: Option<Given<Quota>>,
) -> Option<Limit> {
    let (at, name) = match name {
        Some(name) => (name.at, name.value.as_deref()?),
        None => (given.at, &*given.name),
    };
    let Given { at: quota_at, value } = quota?;
    match Limit::try_new(name, value?) {
        Ok(limit) => Some(limit),
        Err(error) => {
            match std::error::Error::source(&error) {
                Some(cause) => reader.mistake(quota_at, cause.to_string()),
                None => reader.mistake(
                    at,
                    format!(
                        "its name of {} bytes is invalid (use 1 to 64 printable ASCII characters)",
                        name.len()
                    ),
                ),
            }
            None
        }
    }
}

impl ConfigEntry {
    pub(super) fn mark_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    pub(super) fn mark_rule(&self) {
        self.has_rule.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    pub(super) fn has_rule(&self) -> bool {
        self.has_rule.load(Ordering::Relaxed)
    }

    /// Why the limit cannot have other numbers while the program runs with its cost and its queue.
    pub(super) fn refuses(&self, quota: Quota) -> Option<String> {
        let limit = Limit::try_new(self.limit.name(), quota).ok()?;
        let cost = self.rule.cost.or_else(|| cost_of_layer(&self.fields, Some(&limit)))?;
        explain_cost(&limit, cost, terms(&limit, &self.layer))
    }

    /// The fields that are about any of these.
    pub(super) fn fields_about(&self, concerns: &[Concern]) -> Vec<&EntryField> {
        self.fields.iter().filter(|given| concerns.contains(&given.field.concern())).collect()
    }
}
