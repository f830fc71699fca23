//! Keys as text: `header x-user`, or `bearer token or client address`.
//!
//! A text has one source, or several with `or` between them: each is the fallback of the one before
//! it. Options of a source follow after commas, as those of a quota do.

use std::sync::Arc;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};

use super::reader::{Given, Reader};
use super::suggestion::{Quote, list, nearest};
use super::tree::{ConfigNode, NodeValue};
use crate::field_names::LimitField;
use tollgate::key::{ClientIp, Header, KeyExtractor, global};
use tollgate::kit::{ADDRESS_FIELDS, excerpt};

/// The key of a limit.
#[derive(Clone)]
pub(super) struct KeySetting {
    pub(super) extractor: Arc<dyn KeyExtractor>,
    /// Whether all requests have the same key.
    pub(super) is_global: bool,
    /// Whether the address of the client is a part of it.
    pub(super) has_address: bool,
}

/// A way to take a key from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeySource {
    ClientAddress,
    Header,
    BearerToken,
    ApiKey,
    Cookie,
    MatchedPath,
    None,
}

impl KeySource {
    const ALL: [Self; 7] = [
        Self::ClientAddress,
        Self::Header,
        Self::BearerToken,
        Self::ApiKey,
        Self::Cookie,
        Self::MatchedPath,
        Self::None,
    ];

    /// What a text begins with.
    const fn name(self) -> &'static str {
        match self {
            Self::ClientAddress => "client address",
            Self::Header => "header",
            Self::BearerToken => "bearer token",
            Self::ApiKey => "api key",
            Self::Cookie => "cookie",
            Self::MatchedPath => "matched path",
            Self::None => "none",
        }
    }

    /// How a text is written that has a name after it; `None` if nothing comes after it.
    const fn example(self) -> Option<&'static str> {
        match self {
            Self::Header => Some("header x-user"),
            Self::ApiKey => Some("api key x-api-key"),
            Self::Cookie => Some("cookie session"),
            _ => None,
        }
    }

    const fn options(self) -> &'static [&'static str] {
        match self {
            Self::Header => &[IGNORE_CASE, MAX_LENGTH],
            Self::BearerToken | Self::ApiKey => &[MAX_LENGTH],
            _ => &[],
        }
    }

    /// The feature that this source needs and that this build lacks.
    const fn missing_feature(self) -> Option<&'static str> {
        let (is_on, feature) = match self {
            Self::BearerToken | Self::ApiKey | Self::Cookie => {
                (cfg!(feature = "credentials"), "credentials")
            }
            Self::MatchedPath => (cfg!(feature = "axum"), "axum"),
            Self::ClientAddress | Self::Header | Self::None => (true, ""),
        };
        if is_on { None } else { Some(feature) }
    }
}

const IGNORE_CASE: &str = "ignore case";
const MAX_LENGTH: &str = "max length 256";

/// The most keys that a list combines.
const MAX_PARTS: usize = 4;

/// Reads a key: a text, or a list of texts for a bucket of each combination.
pub(super) fn read(
    reader: &mut Reader<'_>,
    node: &ConfigNode,
    address: &ClientIp,
) -> Option<Given<KeySetting>> {
    let is_list = matches!(node.value, NodeValue::List(_));
    let parts = reader.list(LimitField::Key, node, |item| match item.text() {
        Some("none") if is_list => Err(NONE_ALONE.to_owned()),
        Some("none") => {
            Ok(KeySetting { extractor: Arc::new(global()), is_global: true, has_address: false })
        }
        Some(text) => alternatives(text, address),
        None => Err(HOW_TO_WRITE.to_owned()),
    })?;
    let at = parts.at;
    let Some(parts) = parts.value else { return Some(Given { at, value: None }) };
    let (count, is_global) = (parts.len(), parts.iter().all(|part| part.is_global));
    let has_address = parts.iter().any(|part| part.has_address);
    let mut extractors = parts.into_iter().map(|part| part.extractor);
    let mut next = || extractors.next();
    let extractor: Option<Arc<dyn KeyExtractor>> = match (next(), next(), next(), next()) {
        _ if count > MAX_PARTS => None,
        (Some(only), None, ..) => Some(only),
        (Some(a), Some(b), None, _) => Some(Arc::new((a, b))),
        (Some(a), Some(b), Some(c), None) => Some(Arc::new((a, b, c))),
        (Some(a), Some(b), Some(c), Some(d)) => Some(Arc::new((a, b, c, d))),
        (None, ..) => None,
    };
    if extractor.is_none() {
        let text = format!("`key` has {count} parts (a key is combined of at most {MAX_PARTS})");
        reader.mistake(at, text);
    }
    let setting = |extractor| KeySetting { extractor, is_global, has_address };
    Some(Given { at, value: extractor.map(setting) })
}

/// The sources of a text, each the fallback of the one before it; or the way out.
fn alternatives(text: &str, address: &ClientIp) -> Result<KeySetting, String> {
    let mut setting: Option<KeySetting> = None;
    for text in text.split(" or ") {
        let source = source(text, address)?;
        setting = Some(match setting {
            None => source,
            Some(first) => KeySetting {
                extractor: Arc::new(first.extractor.or(source.extractor)),
                is_global: false,
                has_address: first.has_address || source.has_address,
            },
        });
    }
    setting.ok_or_else(|| HOW_TO_WRITE.to_owned())
}

fn source(text: &str, address: &ClientIp) -> Result<KeySetting, String> {
    let mut parts = text.split(',').map(str::trim);
    let given = parts.next().unwrap_or_default();
    let after = |source: &KeySource| match given.strip_prefix(source.name()) {
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => Some((*source, rest.trim())),
        _ => None,
    };
    let Some((source, argument)) = KeySource::ALL.iter().find_map(after) else {
        return Err(unknown(given));
    };
    if source == KeySource::None {
        return Err(NONE_ALONE.to_owned());
    }
    if let Some(feature) = source.missing_feature() {
        return Err(lacks_feature(source.name(), feature));
    }
    match source.example() {
        Some(example) if argument.is_empty() => {
            return Err(format!("write the name after it, such as \"{example}\""));
        }
        None if !argument.is_empty() => {
            return Err(format!("nothing comes after \"{}\"", source.name()));
        }
        _ => {}
    }
    let options = Options::read(source, parts)?;
    let extractor = extractor(source, argument, options, address)?;
    Ok(KeySetting { extractor, is_global: false, has_address: source == KeySource::ClientAddress })
}

fn extractor(
    source: KeySource,
    argument: &str,
    options: Options,
    address: &ClientIp,
) -> Result<Arc<dyn KeyExtractor>, String> {
    match source {
        KeySource::ClientAddress => Ok(Arc::new(address.clone())),
        KeySource::Header => {
            let name = header_name(argument)?;
            if name == AUTHORIZATION || name == COOKIE {
                let instead = if name == COOKIE { "cookie session" } else { "bearer token" };
                return Err(format!(
                    "that would put a secret into the store and the log; write \"{instead}\", \
                     which hashes it"
                ));
            }
            if ADDRESS_FIELDS.contains(&name.as_str()) {
                return Err(WRITTEN_BY_CLIENTS.to_owned());
            }
            let header = Header::new(name);
            let header = if options.ignores_case { header.ignore_case() } else { header };
            Ok(options.bound(header))
        }
        #[cfg(feature = "credentials")]
        KeySource::BearerToken => Ok(options.bound(tollgate::key::bearer())),
        #[cfg(feature = "credentials")]
        KeySource::ApiKey => {
            Ok(options.bound(tollgate::key::api_key(header_name(argument)?.as_str())))
        }
        #[cfg(feature = "credentials")]
        KeySource::Cookie => match tollgate::key::try_cookie(argument) {
            Some(cookie) => Ok(Arc::new(cookie)),
            None => Err(format!("`{}` is not the name of a cookie", excerpt(argument))),
        },
        #[cfg(feature = "axum")]
        KeySource::MatchedPath => Ok(Arc::new(tollgate::key::matched_path())),
        // What needs a feature that is off was an error before.
        #[allow(unreachable_patterns, reason = "depends on the features")]
        _ => Err(HOW_TO_WRITE.to_owned()),
    }
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("`{}` is not the name of a header field", excerpt(text)))
}

/// The options after the commas.
#[derive(Clone, Copy, Default)]
struct Options {
    ignores_case: bool,
    max_length: Option<usize>,
}

impl Options {
    fn read<'t>(source: KeySource, given: impl Iterator<Item = &'t str>) -> Result<Self, String> {
        let mut options = Self::default();
        for option in given {
            let length = option.strip_prefix("max length ").map(|bytes| bytes.trim().parse());
            match (option, length) {
                (IGNORE_CASE, _) if source.options().contains(&IGNORE_CASE) => {
                    options.ignores_case = true;
                }
                (_, Some(Ok(bytes))) if bytes > 0 && source.options().contains(&MAX_LENGTH) => {
                    options.max_length = Some(bytes);
                }
                _ => {
                    let (given, name) = (excerpt(option), source.name());
                    return Err(match source.options() {
                        [] => format!("`{given}` is not an option: \"{name}\" has none"),
                        options => format!(
                            "`{given}` is not an option of \"{name}\": there are {}",
                            list(options, Quote::Text)
                        ),
                    });
                }
            }
        }
        Ok(options)
    }

    fn bound(self, header: Header) -> Arc<dyn KeyExtractor> {
        Arc::new(match self.max_length {
            Some(bytes) => header.max_len(bytes),
            None => header,
        })
    }
}

/// What a text was meant to be that begins with no source.
fn unknown(given: &str) -> String {
    let names = KeySource::ALL.map(KeySource::name);
    let first_words = |count| given.split(' ').take(count).collect::<Vec<_>>().join(" ");
    let near = |count| nearest(&first_words(count), names);
    match near(2).or_else(|| near(1)) {
        Some(name) => format!("did you mean \"{name}\"?"),
        None => HOW_TO_WRITE.to_owned(),
    }
}

fn lacks_feature(source: &str, feature: &str) -> String {
    format!("\"{source}\" needs the feature `{feature}` of `tollgate-config`: add it")
}

const WRITTEN_BY_CLIENTS: &str = "any client can write that field, and so choose its bucket; write \
                                  \"client address\", and name the field and the proxies in \
                                  `client_address`";

const NONE_ALONE: &str = "\"none\" stands alone: it is one bucket for all requests";

const HOW_TO_WRITE: &str = "write \"client address\", \"header x-user\", \"bearer token\", \
                            \"api key x-api-key\", \"cookie session\", \"matched path\" \
                            or \"none\"; the program can give any other key";
