//! What a configuration says for all its limits.

use std::sync::atomic::{AtomicBool, Ordering};

use super::field_names::FileField;
use super::layer_fields::{ON_FAILURE, dialects, on_refusal};
use super::origin::ConfigOrigin;
use super::reader::{Reader, Setting};
use super::tree::{ConfigNode, NodeField};
use tollgate::fields::Dialect;
use tollgate::key::ClientIp;
use tollgate::limiter::RateLimiter;
use tollgate::middleware::{OnFailure, OnRefusal};

/// The settings beside the limits.
pub(super) struct FileSettings {
    pub(super) origin: ConfigOrigin,
    pub(super) address: ClientIp,
    dialects: Option<Vec<Dialect>>,
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
    pub(super) node: ConfigNode,
}

impl FileSettings {
    pub(super) fn new(origin: ConfigOrigin) -> Self {
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

    /// Reads a field, but for the limits. The address of clients was read before.
    pub(super) fn read(&mut self, reader: &mut Reader<'_>, field: FileField, given: &NodeField) {
        let node = &given.node;
        match field {
            FileField::Limits | FileField::ClientAddress => {}
            FileField::Dialects => self.dialects = dialects(reader, field, node).good(),
            FileField::OnRefusal => self.on_refusal = on_refusal(reader, field, node).good(),
            FileField::OnFailure => {
                self.on_failure = reader.word(field, node, &ON_FAILURE).good();
            }
            FileField::Enabled => self.is_off = reader.flag(field, node).good() == Some(false),
        }
        self.fields.push(GivenField { field, at: given.at, node: node.clone() });
    }

    /// The limiter with these settings as its defaults.
    pub(super) fn configure(&self, mut limiter: RateLimiter) -> RateLimiter {
        self.is_applied.store(true, Ordering::Relaxed);
        if let Some(dialects) = self.dialects.clone() {
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

const UNUSED_DEFAULT: &str = "the program makes no layer by `ConfiguredLimit::layer`, and no \
                              limiter by `Config::configure`";
