//! The formats of logs: how each cuts a line into fields, and what it calls them.

use std::net::IpAddr;

use clap::ValueEnum;
use serde_json::Value;

use super::time;

/// A format, as `--format` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    Nginx,
    Apache,
    Traefik,
    Caddy,
    Envoy,
    Alb,
    Cloudfront,
    Json,
    Plain,
}

/// A format, as lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The common and the combined log format, also with the fields that Traefik adds.
    Common,
    /// Its default text.
    Envoy,
    Alb,
    /// W3C extended: a line `#Fields:` names the fields of those below it.
    W3c,
    /// `time key [cost]`
    Plain,
    Caddy,
    Traefik,
    /// Any other JSON object on each line.
    Json,
}

/// The more a format asks of a line, the earlier it is tried.
pub(crate) const ALL: [Format; 8] = [
    Format::Caddy,
    Format::Traefik,
    Format::Json,
    Format::Alb,
    Format::Envoy,
    Format::Common,
    Format::W3c,
    Format::Plain,
];

impl Name {
    /// What may be meant by the name.
    pub(crate) fn formats(self) -> &'static [Format] {
        match self {
            Self::Nginx | Self::Apache => &[Format::Common],
            Self::Traefik => &[Format::Traefik, Format::Common],
            Self::Caddy => &[Format::Caddy],
            Self::Envoy => &[Format::Envoy],
            Self::Alb => &[Format::Alb],
            Self::Cloudfront => &[Format::W3c],
            Self::Json => &[Format::Json],
            Self::Plain => &[Format::Plain],
        }
    }
}

impl Format {
    pub(crate) fn is_json(self) -> bool {
        matches!(self, Self::Caddy | Self::Traefik | Self::Json)
    }

    /// For the report, so that a format that was found can be seen.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Common => "common or combined (nginx, Apache, Traefik)",
            Self::Envoy => "the default text of Envoy",
            Self::Alb => "AWS ALB",
            Self::W3c => "W3C (CloudFront)",
            Self::Plain => "plain: time, key, cost",
            Self::Caddy => "JSON of Caddy",
            Self::Traefik => "JSON of Traefik",
            Self::Json => "JSON",
        }
    }

    /// What a limit counts by unless `--key` says it.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Plain | Self::Json => "key",
            _ => "client",
        }
    }

    /// Whether the line looks like one of this format.
    pub(crate) fn fits(self, line: &str) -> bool {
        if self.is_json() {
            let line: Option<Value> = serde_json::from_str(line).ok();
            return line.is_some_and(|line| match self {
                Self::Caddy => line.pointer("/request/uri").is_some(),
                Self::Traefik => line.get("ClientHost").is_some(),
                _ => line.is_object(),
            });
        }
        let Ok(words) = self.words(line) else { return false };
        let time = |at: usize| words.get(at).and_then(|word| time::any(unbracketed(word)));
        match self {
            Self::Common => true,
            Self::Envoy => words.len() == ENVOY.len() && time(0).is_some(),
            Self::Alb => words.len() > 12 && time(1).is_some(),
            Self::Plain => matches!(words.len(), 2 | 3) && time(0).is_some(),
            // Only its line of names tells it.
            _ => false,
        }
    }

    /// The names of the fields, as far as lines do not bring them.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Common => &COMMON,
            Self::Envoy => &ENVOY,
            Self::Alb => &ALB,
            Self::Plain => &["time", "key", "cost"],
            _ => &[],
        }
    }

    /// The format's own names for a name that `--key`, `--time` and `--cost` know in all formats.
    pub(crate) fn own(self, name: &str) -> impl Iterator<Item = &'static str> {
        let own = OWN.iter().filter(move |(format, known, _)| *format == self && *known == name);
        own.map(|(_, _, own)| *own)
    }

    /// The fields of a line of text.
    pub(crate) fn words(self, line: &str) -> Result<Vec<&str>, String> {
        match self {
            Self::Common => common(line).ok_or_else(|| {
                "no client and time as `192.0.2.1 - - [10/Oct/2000:13:55:36 -0700]`".to_owned()
            }),
            // Neither escapes quotes.
            Self::Envoy | Self::Alb => Ok(words(line, None)),
            Self::W3c => Ok(line.split(['\t', ' ']).collect()),
            _ => Ok(line.split_ascii_whitespace().collect()),
        }
    }
}

/// `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"` of Apache, which nginx has too, and what
/// Traefik adds.
const COMMON: [&str; 13] = [
    "client",
    "ident",
    "user",
    "time",
    "request",
    "status",
    "bytes",
    "referer",
    "user-agent",
    "number",
    "router",
    "server",
    "duration",
];

const ENVOY: [&str; 13] = [
    "time",
    "request",
    "status",
    "flags",
    "received",
    "bytes",
    "duration",
    "upstream-time",
    "x-forwarded-for",
    "user-agent",
    "x-request-id",
    "host",
    "upstream",
];

/// By the names of the load balancer's documentation, which may add fields at the end.
const ALB: [&str; 30] = [
    "type",
    "time",
    "elb",
    "client:port",
    "target:port",
    "request_processing_time",
    "target_processing_time",
    "response_processing_time",
    "elb_status_code",
    "target_status_code",
    "received_bytes",
    "sent_bytes",
    "request",
    "user_agent",
    "ssl_cipher",
    "ssl_protocol",
    "target_group_arn",
    "trace_id",
    "domain_name",
    "chosen_cert_arn",
    "matched_rule_priority",
    "request_creation_time",
    "actions_executed",
    "redirect_url",
    "error_reason",
    "target:port_list",
    "target_status_code_list",
    "classification",
    "classification_reason",
    "conn_trace_id",
];

const OWN: [(Format, &str, &str); 27] = [
    // The instant of the request; `time` is that of the response.
    (Format::Alb, "time", "request_creation_time"),
    (Format::Alb, "client", "client:port"),
    (Format::Alb, "bytes", "sent_bytes"),
    (Format::Alb, "host", "domain_name"),
    (Format::Alb, "user-agent", "user_agent"),
    // The last address is the one that Envoy adds.
    (Format::Envoy, "client", "x-forwarded-for"),
    (Format::W3c, "client", "c-ip"),
    (Format::W3c, "method", "cs-method"),
    (Format::W3c, "path", "cs-uri-stem"),
    (Format::W3c, "bytes", "sc-bytes"),
    (Format::W3c, "host", "x-host-header"),
    (Format::W3c, "user-agent", "cs(User-Agent)"),
    (Format::Caddy, "time", "ts"),
    // Versions before 2.7 write the peer alone.
    (Format::Caddy, "client", "/request/client_ip"),
    (Format::Caddy, "client", "/request/remote_ip"),
    (Format::Caddy, "method", "/request/method"),
    (Format::Caddy, "path", "/request/uri"),
    (Format::Caddy, "host", "/request/host"),
    (Format::Caddy, "user", "user_id"),
    (Format::Caddy, "bytes", "size"),
    (Format::Traefik, "time", "StartUTC"),
    (Format::Traefik, "client", "ClientHost"),
    (Format::Traefik, "user", "ClientUsername"),
    (Format::Traefik, "method", "RequestMethod"),
    (Format::Traefik, "path", "RequestPath"),
    (Format::Traefik, "host", "RequestHost"),
    (Format::Traefik, "bytes", "DownstreamContentSize"),
];

/// The text between the brackets of `[..]`.
pub(crate) fn unbracketed(word: &str) -> &str {
    word.strip_prefix('[').and_then(|word| word.strip_suffix(']')).unwrap_or(word)
}

fn common(line: &str) -> Option<Vec<&str>> {
    let (first, others) = line.split_once(' ')?;
    // In `vhost_combined` the name of the server comes first: no `%l` is an address.
    let is_address = |(word, _): &(&str, &str)| word.parse::<IpAddr>().is_ok();
    let (client, rest) = others.split_once(' ').filter(is_address).unwrap_or((first, others));
    // The name of a user may hold brackets and spaces, and what reads as a time. Servers escape its
    // quotes, so it cannot hold the one that follows the time.
    rest.match_indices('[').find_map(|(begin, _)| {
        let (front, time_on) = rest.split_at_checked(begin)?;
        let (time, rest) = time_on.get(1..)?.split_once(']')?;
        let rest = rest.strip_prefix(' ').filter(|rest| rest.starts_with('"'))?;
        time::common(time)?;
        let (ident, user) = front.trim_end().split_once(' ')?;
        let mut fields = vec![client, ident, user, time];
        fields.extend(words(rest, Some(b'\\')));
        Some(fields)
    })
}

/// Words between spaces, or between quotes. The escape takes a quote its meaning.
fn words(line: &str, escape: Option<u8>) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start_matches(' ');
    while !rest.is_empty() {
        let quoted = rest.strip_prefix('"').and_then(|inner| {
            let (word, rest) = inner.split_at_checked(end_of_quote(inner, escape)?)?;
            Some((word, rest.get(1..)?))
        });
        let (word, after) = quoted.unwrap_or_else(|| rest.split_once(' ').unwrap_or((rest, "")));
        words.push(word);
        rest = after.trim_start_matches(' ');
    }
    words
}

/// Where the quote is that ends the word: one before a space or the end of the line.
fn end_of_quote(inner: &str, escape: Option<u8>) -> Option<usize> {
    let mut is_escaped = false;
    let mut bytes = inner.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        let is_end = bytes.peek().is_none_or(|(_, next)| *next == b' ');
        if byte == b'"' && !is_escaped && is_end {
            return Some(at);
        }
        is_escaped = Some(byte) == escape && !is_escaped;
    }
    None
}
