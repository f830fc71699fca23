//! The fields of a limit that become a rule: key, cost, conditions, and what a response does.

use std::sync::Arc;

use http::{Method, StatusCode};

use super::block_fields::{self, BlockSetting};
use super::client_address::networks;
use super::field_names::LimitField;
use super::key_text::{self, KeySetting};
use super::portion;
use super::reader::{Given, Reader, Setting, word};
use super::statuses::StatusPattern;
use super::tree::{ConfigNode, NodeValue};
use tollgate::key::{ClientIp, KeyExtractor, Networks};
use tollgate::limiter::Limit;
use tollgate::middleware::{Portion, Rule};

/// The fields of a rule as they were given.
#[derive(Default)]
pub(super) struct RuleFields {
    pub(super) key: Option<Given<KeySetting>>,
    pub(super) cost: Option<Given<u64>>,
    missing_key: Option<Given<MissingKey>>,
    methods: Option<Given<Vec<Method>>>,
    exempt_paths: Option<Given<Vec<String>>>,
    exempt_networks: Option<Given<Networks>>,
    sample: Option<Given<Portion>>,
    enforce: Option<Given<Portion>>,
    shadow: Option<Given<bool>>,
    refund_if: Option<Given<Vec<StatusPattern>>>,
    refund_unless: Option<Given<Vec<StatusPattern>>>,
    reset_if: Option<Given<Vec<StatusPattern>>>,
    block_after: Option<Given<BlockSetting>>,
    enabled: Option<Given<bool>>,
}

/// What happens to a request without a key.
#[derive(Clone, Copy)]
enum MissingKey {
    Reject(StatusCode),
    Exempt,
    Shared,
}

/// What a rule is made of, without its limit.
#[derive(Clone)]
pub(super) struct RuleSettings {
    pub(super) key: Option<Arc<dyn KeyExtractor>>,
    /// Whether the address of the client is read.
    pub(super) has_address: bool,
    pub(super) cost: Option<u64>,
    missing_key: Option<MissingKey>,
    methods: Option<Vec<Method>>,
    exempt_paths: Option<Vec<String>>,
    exempt_networks: Option<(ClientIp, Networks)>,
    sample: Option<Portion>,
    enforced: Option<Portion>,
    refund_if: Option<Vec<StatusPattern>>,
    refund_unless: Option<Vec<StatusPattern>>,
    reset_if: Option<Vec<StatusPattern>>,
    block_after: Option<BlockSetting>,
    is_off: bool,
}

/// The methods that servers know. A method of another name would be a typing mistake far more often
/// than an extension, and then the limit would apply to no request.
const METHODS: [(&str, Method); 9] = [
    ("GET", Method::GET),
    ("HEAD", Method::HEAD),
    ("POST", Method::POST),
    ("PUT", Method::PUT),
    ("PATCH", Method::PATCH),
    ("DELETE", Method::DELETE),
    ("OPTIONS", Method::OPTIONS),
    ("CONNECT", Method::CONNECT),
    ("TRACE", Method::TRACE),
];

impl RuleFields {
    /// Reads a field if it is one of a rule.
    pub(super) fn read(
        &mut self,
        reader: &mut Reader<'_>,
        field: LimitField,
        node: &ConfigNode,
        address: &ClientIp,
    ) {
        let statuses = |reader: &mut Reader<'_>| reader.list(field, node, StatusPattern::read);
        match field {
            LimitField::Key => self.key = key_text::read(reader, node, address),
            LimitField::MissingKey => self.missing_key = reader.read(field, node, missing_key),
            LimitField::Cost => self.cost = reader.whole(field, node, 1..=u64::MAX),
            LimitField::Methods => {
                self.methods = reader.list(field, node, |item| word(item, &METHODS));
            }
            LimitField::ExemptPaths => self.exempt_paths = reader.list(field, node, path),
            LimitField::ExemptNetworks => {
                self.exempt_networks = networks(reader, field, node, ALL_EXEMPT);
            }
            LimitField::Sample => self.sample = reader.read(field, node, portion),
            LimitField::Enforce => self.enforce = reader.read(field, node, portion),
            LimitField::Shadow => self.shadow = reader.flag(field, node),
            LimitField::RefundIf => self.refund_if = statuses(reader),
            LimitField::RefundUnless => self.refund_unless = statuses(reader),
            LimitField::ResetIf => self.reset_if = statuses(reader),
            LimitField::BlockAfter => self.block_after = block_fields::read(reader, node),
            LimitField::Enabled => self.enabled = reader.flag(field, node),
            _ => {}
        }
    }

    /// The rule, after a look for fields that contradict each other.
    pub(super) fn build(self, reader: &mut Reader<'_>, address: &ClientIp) -> RuleSettings {
        self.check(reader);
        let shadow = self.shadow.good().filter(|shadow| *shadow).map(|_| Portion::NONE);
        let exempt_networks = self.exempt_networks.good();
        let key = self.key.good();
        let has_address =
            exempt_networks.is_some() || key.as_ref().is_some_and(|key| key.has_address);
        RuleSettings {
            key: key.map(|key| key.extractor),
            has_address,
            cost: self.cost.good(),
            missing_key: self.missing_key.good(),
            methods: self.methods.good(),
            exempt_paths: self.exempt_paths.good(),
            exempt_networks: exempt_networks.map(|networks| (address.clone(), networks)),
            sample: self.sample.good(),
            enforced: shadow.or(self.enforce.good()),
            refund_if: self.refund_if.good(),
            refund_unless: self.refund_unless.good(),
            reset_if: self.reset_if.good(),
            block_after: self.block_after.good(),
            is_off: self.enabled.good() == Some(false),
        }
    }

    fn check(&self, reader: &mut Reader<'_>) {
        if let (Some(_), Some(enforce)) = (&self.shadow, &self.enforce) {
            let text =
                "`shadow` beside `enforce` (a shadow enforces nothing: leave one of them out)";
            reader.mistake(enforce.at, text);
        }
        if let (Some(_), Some(unless)) = (&self.refund_if, &self.refund_unless) {
            reader.mistake(unless.at, "`refund_if` beside `refund_unless` (leave one of them out)");
        }
        let Some(Given { value: Some(key), .. }) = &self.key else { return };
        if !key.is_global {
            return;
        }
        if let Some(missing) = &self.missing_key {
            let text =
                "`missing_key` beside the key \"none\", which no request lacks (leave it out)";
            reader.mistake(missing.at, text);
        }
        if let Some(Given { at, value: Some(enforce) }) = &self.enforce
            && !(enforce.is_none() || enforce.is_all())
        {
            let text = "`enforce` chooses by the key, and with the key \"none\" all requests have \
                        the same (write 0% or 100%, or another key)";
            reader.mistake(*at, text);
        }
    }

    /// Whether no request is held to the limit.
    pub(super) fn only_watches(&self) -> bool {
        let none = |enforce: &Given<Portion>| enforce.value.is_some_and(Portion::is_none);
        matches!(self.shadow, Some(Given { value: Some(true), .. }))
            || self.enforce.as_ref().is_some_and(none)
    }
}

impl RuleSettings {
    /// Whether clients are exempt by their addresses.
    pub(super) const fn exempts_networks(&self) -> bool {
        self.exempt_networks.is_some()
    }

    /// The rule of a limit with this key.
    pub(super) fn rule(&self, limit: &Arc<Limit>, key: impl KeyExtractor) -> Rule {
        let mut rule = Rule::from(limit).key(key);
        if let Some(tokens) = self.cost {
            rule = rule.cost(tokens);
        }
        rule = match self.missing_key {
            None => rule,
            Some(MissingKey::Reject(status)) => rule.missing_key(status),
            Some(MissingKey::Exempt) => rule.missing_key_exempt(),
            Some(MissingKey::Shared) => rule.missing_key_shared(),
        };
        if self.is_off {
            rule = rule.only_if(|_| false);
        }
        if let Some(methods) = self.methods.clone() {
            rule = rule.only_methods(methods);
        }
        if let Some(paths) = self.exempt_paths.clone() {
            rule = rule.only_if(move |head| !paths.iter().any(|path| path == head.uri().path()));
        }
        if let Some((address, networks)) = self.exempt_networks.clone() {
            let is_exempt = address.within(networks);
            rule = rule.only_if(move |head| !is_exempt(head));
        }
        if let Some(sample) = self.sample {
            rule = rule.sample(sample);
        }
        if let Some(enforced) = self.enforced {
            rule = rule.enforce(enforced);
        }
        if let Some(statuses) = self.refund_if.clone() {
            rule = rule.refund_if(move |response| statuses.iter().any(|one| one.has(response)));
        }
        if let Some(statuses) = self.refund_unless.clone() {
            rule = rule.refund_if(move |response| !statuses.iter().any(|one| one.has(response)));
        }
        if let Some(statuses) = self.reset_if.clone() {
            rule = rule.reset_if(move |response| statuses.iter().any(|one| one.has(response)));
        }
        if let Some(blocks) = self.block_after {
            rule = blocks.set(rule);
        }
        rule
    }
}

const ALL_EXEMPT: &str = "that is each address, so no client would be limited: name some networks, \
                          or switch the limit off by `enabled`";

fn missing_key(node: &ConfigNode) -> Result<MissingKey, String> {
    let way_out =
        || "write \"exempt\", \"shared\", or the status of the response, such as 401".to_owned();
    match &node.value {
        NodeValue::Text(text) if text == "exempt" => Ok(MissingKey::Exempt),
        NodeValue::Text(text) if text == "shared" => Ok(MissingKey::Shared),
        NodeValue::Number(number) => {
            let code = number.whole.filter(|code| (400..=599).contains(code));
            let code = code.and_then(|code| u16::try_from(code).ok());
            let status = code.and_then(|code| StatusCode::from_u16(code).ok());
            status.map(MissingKey::Reject).ok_or_else(way_out)
        }
        _ => Err(way_out()),
    }
}

fn portion(node: &ConfigNode) -> Result<Portion, String> {
    portion::parse(node.text().unwrap_or_default())
}

/// An exact path. Only exemptions go by the path: a client that writes it in another way, such as
/// with percent signs, stays limited.
fn path(node: &ConfigNode) -> Result<String, String> {
    let path = node.text().filter(|path| path.starts_with('/') && !path.contains('*'));
    path.map(str::to_owned).ok_or_else(|| {
        "write a whole path that begins with a slash, such as \"/health\"".to_owned()
    })
}
