//! The fields of a configuration as a whole: its limits, and what it says for all of them.

use std::collections::BTreeSet;

use super::client_address;
use super::entry::EntryDraft;
use super::field_names::FileField;
use super::file_settings::FileSettings;
use super::origin::ConfigOrigin;
use super::problem::Mistakes;
use super::reader::Reader;
use super::tree::{ConfigNode, NodeField, NodeValue};
use tollgate::key::ClientIp;

/// The settings and the limits of a tree; those that are wrong are left out.
pub(super) fn read(
    mistakes: &mut Mistakes,
    origin: ConfigOrigin,
    root: &ConfigNode,
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
    if let Some(given) = find(FileField::ClientAddress) {
        settings.address = client_address::read(&mut reader, &given.node);
    }
    let mut entries = Vec::new();
    for (field, given) in given.iter().copied() {
        match field {
            FileField::Limits => entries = limits(&mut reader, &given.node, &settings.address),
            _ => settings.read(&mut reader, field, given),
        }
    }
    if find(FileField::ClientAddress).is_none() {
        for draft in &entries {
            if let Some(given) = draft.exemption() {
                reader.of_limit(draft.name()).mistake(given.at, NO_ADDRESS);
            }
        }
    }
    if find(FileField::Limits).is_none()
        && matches!(root.value, NodeValue::Table(_) | NodeValue::Nothing)
    {
        reader.mistake(root.at, format!("there are no limits ({TABLE})"));
    }
    (settings, entries)
}

const TABLE: &str = "write a table `limits` with a name and a quota for each limit, such as `api` \
                     and \"10 per second\"";

const NO_ADDRESS: &str = "`exempt_networks` without `client_address`: behind a proxy, all requests \
                          have its address, and all might be exempt (say how the address of a client \
                          is found; if no proxy is before the program, `from` is \"connection\")";

fn limits(reader: &mut Reader<'_>, node: &ConfigNode, address: &ClientIp) -> Vec<EntryDraft> {
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
    let mut names = BTreeSet::new();
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
