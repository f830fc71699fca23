//! One line of a log: its time, key and cost.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use serde_json::Value;
use tollgate::Timestamp;

use super::format::{ALL, Format, Name, unbracketed};
use super::time;

/// A request, as a line of the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) at: Timestamp,
    pub(crate) key: Cow<'a, str>,
    pub(crate) cost: u64,
}

/// Which fields of a line have its key, time and cost; each format has its own unless they are named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// `all` is one key for all requests.
    pub(crate) key: Option<String>,
    pub(crate) time: Option<String>,
    pub(crate) cost: Option<String>,
}

/// Reads the lines of a log, and finds its format by the first line that has one.
#[derive(Debug)]
pub(crate) struct Lines {
    fields: Fields,
    candidates: &'static [Format],
    format: Option<Format>,
    /// The names of the fields, if lines of the log say them.
    columns: Vec<String>,
}

impl Lines {
    pub(crate) fn new(fields: Fields, name: Option<Name>) -> Self {
        let candidates = name.map_or(&ALL[..], Name::formats);
        let format = match candidates {
            [only] => Some(*only),
            _ => None,
        };
        Self { fields, candidates, format, columns: Vec::new() }
    }

    /// The format, once a line has told it.
    pub(crate) fn format(&self) -> Option<Format> {
        self.format
    }

    /// Reads a line; `None` if it is a comment.
    pub(crate) fn read<'a>(&mut self, line: &'a str) -> Result<Option<Entry<'a>>, String> {
        if line.starts_with('#') {
            if let Some(names) = line.strip_prefix("#Fields:") {
                self.columns = names.split_ascii_whitespace().map(str::to_owned).collect();
                if self.candidates.contains(&Format::W3c) {
                    self.format.get_or_insert(Format::W3c);
                }
            }
            return Ok(None);
        }
        let format = match self.format {
            Some(format) => format,
            None => *self.candidates.iter().find(|format| format.fits(line)).ok_or(NO_FORMAT)?,
        };
        self.format = Some(format);
        match format.is_json() {
            true => self.json(format, line).map(Some),
            false => self.text(format, line).map(Some),
        }
    }

    fn text<'a>(&self, format: Format, line: &'a str) -> Result<Entry<'a>, String> {
        let words = format.words(line)?;
        let wanted = format.names().len();
        // Envoy does not escape quotes, by which a client could move the fields behind its own.
        if format == Format::Envoy && words.len() != wanted {
            return Err(format!("{} fields, but Envoy's default text has {wanted}", words.len()));
        }
        let field = |name: &str| self.word(format, &words, name);
        let time = self.fields.time.as_deref().unwrap_or("time");
        let at = match (format, &self.fields.time) {
            (Format::W3c, None) => {
                let [date, time] = [field("date")?, field("time")?];
                time::any(&format!("{date}T{time}Z"))
            }
            _ => time::any(unbracketed(field(time)?)),
        };
        let at = at.ok_or_else(|| format!("no time in `{time}`"))?;
        let key = match self.fields.key.as_deref().unwrap_or(format.key()) {
            "all" => "all".into(),
            name => network(present(name, field(name)?)?.into()),
        };
        let cost = match self.fields.cost.as_deref() {
            None if format == Format::Plain && words.len() > 2 => whole("cost", field("cost")?)?,
            None => 1,
            Some(name) => whole(name, field(name)?)?,
        };
        Ok(Entry { at, key, cost })
    }

    /// A field of a line of text, by the format's name or by one that all formats know.
    fn word<'a>(&self, format: Format, words: &[&'a str], name: &str) -> Result<&'a str, String> {
        let position = |name: &str| match format {
            Format::W3c => self.columns.iter().position(|own| own.eq_ignore_ascii_case(name)),
            _ => format.names().iter().position(|own| own.eq_ignore_ascii_case(name)),
        };
        let own = format.own(name).next();
        let at = position(own.unwrap_or(name));
        let is_request = at.is_none() && matches!(name, "path" | "method");
        let Some(at) = at.or_else(|| position("request").filter(|_| is_request)) else {
            return Err(match (format, &*self.columns) {
                (Format::W3c, []) => "no line `#Fields:` before it".to_owned(),
                (Format::W3c, names) => no_field(name, names),
                _ => no_field(name, format.names()),
            });
        };
        let word = *words.get(at).ok_or_else(|| format!("ends before `{name}`"))?;
        Ok(match (format, name) {
            (_, "method") if is_request => word.split(' ').next().unwrap_or_default(),
            (_, "path") if is_request => path(word.split(' ').nth(1).unwrap_or_default()),
            (Format::Envoy, "client") => word.rsplit(',').next().unwrap_or_default().trim(),
            (Format::Alb, "client") => {
                let address = word.rsplit_once(':').map_or(word, |(address, _port)| address);
                unbracketed(address)
            }
            _ => word,
        })
    }

    fn json<'a>(&self, format: Format, line: &str) -> Result<Entry<'a>, String> {
        let object: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let field = |name: &str| member(format, &object, name).and_then(text);

        let name = self.fields.time.as_deref().unwrap_or("time");
        let at = field(name).and_then(|text| time::any(&text));
        let at = at.ok_or_else(|| format!("no time in `{name}`"))?;

        let key = match self.fields.key.as_deref().unwrap_or(format.key()) {
            "all" => "all".to_owned(),
            name => {
                let key = field(name).ok_or_else(|| format!("no text or number in `{name}`"))?;
                let key = if name == "path" { path(&key).to_owned() } else { key };
                present(name, &key)?.to_owned()
            }
        };
        let cost = match self.fields.cost.as_deref() {
            None if format == Format::Json && object.get("cost").is_some() => Some("cost"),
            name => name,
        };
        let cost = match cost {
            None => 1,
            Some(name) => whole(name, &field(name).unwrap_or_default())?,
        };
        Ok(Entry { at, key: network(key.into()), cost })
    }
}

const NO_FORMAT: &str = "in no format that is known (see --help, or name it with --format)";

/// A member of an object. A name that begins with a slash leads into objects (`/user/id`), and that of
/// a header field of the request is found where the server writes those.
fn member<'a>(format: Format, object: &'a Value, name: &str) -> Option<&'a Value> {
    let exact = |name: &str| match name.starts_with('/') {
        true => object.pointer(name),
        false => object.get(name),
    };
    let own = format.own(name).find_map(exact).or_else(|| exact(name));
    own.or_else(|| {
        let (headers, prefix) = match format {
            Format::Caddy => (object.pointer("/request/headers")?, ""),
            Format::Traefik => (object, "request_"),
            _ => return None,
        };
        let is_it = |own: &str| {
            let own = own.strip_prefix(prefix);
            own.is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        headers.as_object()?.iter().find(|(own, _)| is_it(own)).map(|(_, value)| value)
    })
}

/// A text or a number, or the first one of a list.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(values) => match values.first()? {
            Value::Array(_) => None,
            first => text(first),
        },
        _ => None,
    }
}

/// The path of a target: `/path?query`, or `http://host/path` as load balancers and proxies have it.
fn path(target: &str) -> &str {
    let target = target.split_once("://").filter(|(scheme, _)| !scheme.contains('/')).map_or(
        target,
        |(_, rest)| match rest.find('/') {
            Some(begin) => rest.get(begin..).unwrap_or("/"),
            None => "/",
        },
    );
    target.split('?').next().unwrap_or_default()
}

/// Logs write a dash where there is no value.
fn present<'a>(name: &str, value: &'a str) -> Result<&'a str, String> {
    match value {
        "" | "-" => Err(format!("no value in `{name}`")),
        value => Ok(value),
    }
}

fn whole(name: &str, value: &str) -> Result<u64, String> {
    match value {
        "-" => Ok(0),
        value => value.parse().map_err(|_| format!("no whole number in `{name}`")),
    }
}

fn no_field(name: &str, names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    format!("no field `{name}` in this format, which has {}", names.join(", "))
}

/// An IPv6 address counts by its network of 64 bits, as `ClientIp` counts it.
fn network(key: Cow<'_, str>) -> Cow<'_, str> {
    match key.parse::<Ipv6Addr>() {
        Ok(address) => match address.to_ipv4_mapped() {
            Some(address) => address.to_string().into(),
            None => {
                let network = address.to_bits() >> 64 << 64;
                format!("{}/64", Ipv6Addr::from_bits(network)).into()
            }
        },
        Err(_) => key,
    }
}
