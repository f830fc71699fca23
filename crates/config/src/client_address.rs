//! How the address of a client is found: said once for all keys of a configuration.

use http::HeaderName;

use super::field_names::{AddressOption, FieldName};
use super::reader::{Given, Reader, Setting};
use super::tree::{ConfigNode, NodeValue};
use tollgate::key::{ClientIp, Networks, Proxies};

/// Where the address of a client stands.
#[derive(Clone, Debug)]
enum AddressOrigin {
    Connection,
    XForwardedFor,
    Forwarded,
    Header(HeaderName),
}

/// Which proxies are believed.
enum ProxyTrust {
    Networks(Networks),
    Hops(usize),
}

/// Reads the table `client_address`.
pub(super) fn read(reader: &mut Reader<'_>, node: &ConfigNode) -> ClientIp {
    let NodeValue::Table(fields) = &node.value else {
        reader.mistake(
            node.at,
            format!("`client_address` is {node} (write a table with `from` and `trusted_proxies`)"),
        );
        return ClientIp::peer();
    };
    let (mut from, mut proxies, mut hops, mut prefix) = (None, None, None, None);
    let mut reader = reader.inner("client_address.");
    reader.fields(fields, |reader, field: AddressOption, given| {
        let node = &given.node;
        match field {
            AddressOption::From => from = reader.read(field, node, read_from),
            AddressOption::TrustedProxies => {
                proxies = networks(reader, field, node, ALL_TRUSTED);
            }
            AddressOption::TrustedHops => hops = reader.whole(field, node, 1..=100),
            AddressOption::Ipv6Prefix => prefix = reader.whole(field, node, 1..=128),
        }
    });
    let address = build(&mut reader, node.at, from, proxies, hops).unwrap_or(ClientIp::peer());
    match prefix.good().and_then(|bits| u8::try_from(bits).ok()) {
        Some(bits) => address.ipv6_prefix(bits),
        None => address,
    }
}

/// The address that these fields name, if nothing is missing and nothing contradicts.
fn build(
    reader: &mut Reader<'_>,
    at: Option<usize>,
    from: Option<Given<AddressOrigin>>,
    proxies: Option<Given<Networks>>,
    hops: Option<Given<u64>>,
) -> Option<ClientIp> {
    let origin = match from {
        Some(from) => from.value?,
        None => AddressOrigin::Connection,
    };
    let trust_at = proxies.as_ref().map(|given| given.at);
    let (trust_at, hops_at) =
        (trust_at.or(hops.as_ref().map(|given| given.at)), hops.as_ref().and_then(|hops| hops.at));
    let trust = match (proxies, hops) {
        (Some(proxies), None) => Some(ProxyTrust::Networks(proxies.value?)),
        (None, Some(hops)) => {
            Some(ProxyTrust::Hops(usize::try_from(hops.value?).unwrap_or(usize::MAX)))
        }
        (None, None) => None,
        (Some(_), Some(_)) => {
            reader.mistake(hops_at, BOTH);
            return None;
        }
    };
    Some(match (origin, trust) {
        (AddressOrigin::Connection, None) => ClientIp::peer(),
        (AddressOrigin::Connection, Some(_)) => {
            reader.mistake(trust_at.flatten(), NO_FIELD);
            return None;
        }
        (_, None) => {
            reader.mistake(at, NO_PROXIES);
            return None;
        }
        (AddressOrigin::Header(_), Some(ProxyTrust::Hops(_))) => {
            reader.mistake(hops_at, NO_LIST);
            return None;
        }
        (AddressOrigin::Header(name), Some(ProxyTrust::Networks(proxies))) => {
            ClientIp::header(name.as_str(), proxies)
        }
        (AddressOrigin::XForwardedFor, Some(trust)) => ClientIp::x_forwarded_for(trust.proxies()),
        (AddressOrigin::Forwarded, Some(trust)) => ClientIp::forwarded(trust.proxies()),
    })
}

impl ProxyTrust {
    fn proxies(self) -> Proxies {
        match self {
            Self::Networks(networks) => Proxies::networks(networks),
            Self::Hops(hops) => Proxies::hops(hops),
        }
    }
}

const BOTH: &str = "`client_address.trusted_hops` beside `trusted_proxies` (name the networks of \
                    the proxies if you know them, or else their number)";

const NO_FIELD: &str = "`client_address` trusts proxies, and the address is that of the connection \
                        (name the field that they write: `from` is \"x-forwarded-for\", \
                        \"forwarded\" or \"header\" and its name)";

const NO_LIST: &str = "`client_address.trusted_hops` counts the entries of a list, and a header of \
                       one address has none (name the networks of the proxies by \
                       `trusted_proxies`)";

const NO_PROXIES: &str = "`client_address` trusts no proxies, and any client can write that field \
                          (name the networks of the proxies by `trusted_proxies`, such as \
                          \"10.0.0.0/8\", or their number by `trusted_hops`)";

fn read_from(node: &ConfigNode) -> Result<AddressOrigin, String> {
    match node.text() {
        Some("connection") => Ok(AddressOrigin::Connection),
        Some("x-forwarded-for") => Ok(AddressOrigin::XForwardedFor),
        Some("forwarded") => Ok(AddressOrigin::Forwarded),
        text => {
            let name = text.and_then(|text| text.strip_prefix("header "));
            let name = name.and_then(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok());
            name.map(AddressOrigin::Header).ok_or_else(|| {
                "write \"connection\", \"x-forwarded-for\", \"forwarded\", or \"header\" and its \
                 name, such as \"header cf-connecting-ip\""
                    .to_owned()
            })
        }
    }
}

const ALL_TRUSTED: &str = "that is each address, so any client could choose its own: name the \
                           networks of the proxies, or their number by `trusted_hops`";

/// Networks by their prefixes, or all private ones. `of_all` is what is wrong with one that has each
/// address.
pub(super) fn networks(
    reader: &mut Reader<'_>,
    field: impl FieldName,
    node: &ConfigNode,
    of_all: &str,
) -> Option<Given<Networks>> {
    if node.text() == Some("private") {
        return Some(Given { at: node.at, value: Some(Networks::private()) });
    }
    let texts = reader.list(field, node, |item| {
        let text = item.text().filter(|text| Networks::try_new([text]).is_ok());
        let prefix = text.and_then(|text| text.split_once('/')?.1.trim().parse::<u8>().ok());
        if prefix == Some(0) {
            return Err(of_all.to_owned());
        }
        text.map(str::to_owned).ok_or_else(|| {
            "write an address and the length of its prefix, such as \"10.0.0.0/8\", or \"private\" \
             alone for all private networks"
                .to_owned()
        })
    });
    texts.map(|Given { at, value }| Given {
        at,
        value: value.and_then(|texts| Networks::try_new(texts).ok()),
    })
}
