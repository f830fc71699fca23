//! What a configuration says for all its limits.

use std::sync::atomic::{AtomicBool, Ordering};

use super::client_address;
use super::entry::EntryDraft;
use super::field_names::FileField;
use super::layer_fields::{ON_FAILURE, dialects, on_refusal};
use super::origin::Origin;
use super::problem::Mistakes;
use super::reader::{Reader, Setting};
use super::tree::{Node, NodeField, NodeValue};
use crate::fields::Dialects;
use crate::key::ClientIp;
use crate::limiter::RateLimiter;
use crate::middleware::{OnFailure, OnRefusal};

/// The settings beside the limits.
pub(super) struct FileSettings {
    pub(super) origin: Origin,
    pub(super) address: ClientIp,
    dialects: Option<Dialects>,
    on_refusal: Option<OnRefusal>,
    on_failure: Option<OnFailure>,
    is_off: bool,
    /// What was given, but for the limits.
    pub(super) fields: Vec<GivenField>,
    /// Whether a limiter has these settings.
    is_applied: AtomicBool,
    /// Whether a key or the program reads the address of the client.
    is_address_used: AtomicBool,
}

/// A field of the file as a whole.
#[derive(Clone, Debug)]
pub(super) struct GivenField {
    pub(super) field: FileField,
    pub(super) at: Option<usize>,
    pub(super) node: Node,
}

/// The settings and the limits of a tree; those that are wrong are left out.
pub(super) fn read(
    mistakes: &mut Mistakes,
    origin: Origin,
    root: &Node,
) -> (FileSettings, Vec<EntryDraft>) {
    let mut given: Vec<(FileField, &NodeField)> = Vec::new();
    let mut reader = Reader::new(mistakes, String::new());
    match &root.value {
        NodeValue::Table(fields) => {
            reader.fields(fields, |_, field, node| given.push((field, node)))
        }
        NodeValue::Nothing => {}
        _ => reader.mistake(root.at, format!("the configuration is {root} ({TABLE})")),
    }
    let mut settings = FileSettings::new(origin);
    let find = |wanted| given.iter().find(|(field, _)| *field == wanted).map(|(_, given)| *given);
    // First, since the keys of the limits depend on it.
    if let Some(NodeField { node, .. }) = find(FileField::ClientAddress) {
        settings.address = client_address::read(&mut reader, node);
    }
    let mut entries = Vec::new();
    for (field, NodeField { at, node, .. }) in given.iter().copied() {
        match field {
            FileField::Limits => {
                entries = limits(&mut reader, node, &settings.address);
                continue;
            }
            FileField::ClientAddress => {}
            FileField::Dialects => {
                settings.dialects = dialects(&mut reader, field, node).good();
            }
            FileField::OnRefusal => {
                settings.on_refusal = on_refusal(&mut reader, field, node).good();
            }
            FileField::OnFailure => {
                settings.on_failure = reader.word(field, node, &ON_FAILURE).good();
            }
            FileField::Enabled => {
                settings.is_off = reader.flag(field, node).good() == Some(false);
            }
        }
        settings.fields.push(GivenField { field, at: *at, node: node.clone() });
    }
    if find(FileField::Limits).is_none()
        && matches!(root.value, NodeValue::Table(_) | NodeValue::Nothing)
    {
        reader.mistake(root.at, format!("there are no limits ({TABLE})"));
    }
    (settings, entries)
}

const TABLE: &str = "write a table `limits` with a name and a quota for each limit, such as `api` and \
                     \"10 per second\"";

fn limits(reader: &mut Reader<'_>, node: &Node, address: &ClientIp) -> Vec<EntryDraft> {
    let entries = match &node.value {
        NodeValue::Table(entries) if !entries.is_empty() => entries,
        NodeValue::Table(_) => {
            reader.mistake(node.at, format!("`limits` is empty ({TABLE})"));
            return Vec::new();
        }
        _ => {
            reader.mistake(node.at, format!("`limits` is {node} ({TABLE})"));
            return Vec::new();
        }
    };
    let mut drafts: Vec<EntryDraft> = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    for given in entries {
        let mut reader = reader.of_limit(&given.name);
        match names.insert(&given.name) {
            true => drafts.extend(EntryDraft::read(&mut reader, given, address)),
            false => reader.mistake(given.at, "it is given twice (leave one out)"),
        }
    }
    drafts.sort_by(|one, other| one.name().cmp(other.name()));
    drafts
}

impl FileSettings {
    fn new(origin: Origin) -> Self {
        Self {
            origin,
            address: ClientIp::peer(),
            dialects: None,
            on_refusal: None,
            on_failure: None,
            is_off: false,
            fields: Vec::new(),
            is_applied: AtomicBool::new(false),
            is_address_used: AtomicBool::new(false),
        }
    }

    /// The limiter with these settings as its defaults.
    pub(super) fn configure(&self, mut limiter: RateLimiter) -> RateLimiter {
        self.is_applied.store(true, Ordering::Relaxed);
        if let Some(dialects) = self.dialects {
            limiter = limiter.dialects(dialects);
        }
        if let Some(on_refusal) = self.on_refusal.clone() {
            limiter = limiter.on_refusal(on_refusal);
        }
        if let Some(on_failure) = self.on_failure {
            limiter = limiter.on_failure(on_failure);
        }
        limiter.enabled(!self.is_off)
    }

    pub(super) fn use_address(&self) {
        self.is_address_used.store(true, Ordering::Relaxed);
    }

    /// The settings that have had no effect so far, and why.
    pub(super) fn unused(&self) -> impl Iterator<Item = (&GivenField, &'static str)> {
        let is_applied = self.is_applied.load(Ordering::Relaxed);
        let is_address_used = self.is_address_used.load(Ordering::Relaxed);
        self.fields.iter().filter_map(move |given| match given.field {
            FileField::Limits => None,
            FileField::ClientAddress if is_address_used => None,
            FileField::ClientAddress => Some((given, UNUSED_ADDRESS)),
            _ if is_applied => None,
            _ => Some((given, UNUSED_DEFAULT)),
        })
    }
}

const UNUSED_ADDRESS: &str = "no limit has the key \"client address\", and the program reads no \
                              address by `Config::client_address`";

const UNUSED_DEFAULT: &str = "the program makes no layer by `ConfiguredLimit::layer`, and no limiter \
                              by `Config::configure`";
