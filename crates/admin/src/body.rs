//! The bodies of requests, and what keeps those of other sites out.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use axum::body::Body;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, StatusCode};
use serde::Deserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::error::AdminError;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tollgate::kit::excerpt;

/// The largest body.
const MAX_BYTES: usize = 4 * 1024;

/// Refuses a request that a page of another site has made its browser send.
///
/// A browser says where a request comes from. Other programs do not, and are no danger: they have no
/// cookies of an operator.
pub(super) fn refuse_other_sites(headers: &HeaderMap) -> Result<(), AdminError> {
    match headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes()) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(AdminError::new(
            StatusCode::FORBIDDEN,
            "a page of another site has sent this request, as its `Sec-Fetch-Site` says (send it from \
             a page of this one, or from a program)",
        )),
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The fields of a body in JSON. The content type is required: no form has it, so that a browser asks
/// first whether a page of another site may send such a request.
pub(super) async fn fields(
    headers: &HeaderMap,
    body: Body,
) -> Result<Map<String, Value>, AdminError> {
    refuse_other_sites(headers)?;
    let given = headers.get(CONTENT_TYPE).map(|given| String::from_utf8_lossy(given.as_bytes()));
    let essence = given.as_deref().and_then(|given| given.split(';').next()).map(str::trim);
    if !essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Err(AdminError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!(
                "content type `{}` is not JSON (send `Content-Type: application/json`)",
                excerpt(given.as_deref().unwrap_or_default())
            ),
        ));
    }
    let body = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let detail = format!(
                "the body has more than {MAX_BYTES} bytes (one object with one field is enough)"
            );
            return AdminError::new(StatusCode::PAYLOAD_TOO_LARGE, detail);
        }
        AdminError::bad_request("the body ended too early (send it again)")
    })?;
    let text = body.to_bytes();
    match serde_json::from_slice(&text) {
        Ok(Value::Object(fields)) => {
            // The map has the last of several fields of one name.
            match serde_json::Deserializer::from_slice(&text).deserialize_map(EachOnce) {
                Ok(()) => Ok(fields),
                Err(error) => Err(AdminError::bad_request(format!("the body has {error}"))),
            }
        }
        Ok(_) => Err(unprocessable("the body is not an object")),
        Err(error) => Err(AdminError::bad_request(format!("the body is not JSON: {error}"))),
    }
}

/// Reads an object, and fails if a field is there twice.
struct EachOnce;

impl<'de> Visitor<'de> for EachOnce {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some((name, IgnoredAny)) = map.next_entry::<String, _>()? {
            if seen.contains(&name) {
                let name = excerpt(&name);
                return Err(A::Error::custom(format!("`{name}` twice (give it once)")));
            }
            seen.insert(name);
        }
        Ok(())
    }
}

/// `{"tokens": 5}`
pub(super) fn tokens(fields: &Map<String, Value>) -> Result<u64, AdminError> {
    let example = "write `{\"tokens\": 5}`";
    let [(name, value)] = fields.iter().collect::<Vec<_>>()[..] else {
        return Err(unprocessable(format!("the body has {} fields ({example})", fields.len())));
    };
    match value.as_u64().filter(|tokens| *tokens > 0) {
        Some(tokens) if name == "tokens" => Ok(tokens),
        _ if name != "tokens" => {
            Err(unprocessable(format!("`{}` is not a field here ({example})", excerpt(name))))
        }
        _ => Err(unprocessable(format!(
            "tokens `{}` is not a whole number from 1 to {}",
            excerpt(&value.to_string()),
            u64::MAX
        ))),
    }
}

/// `{"seconds": 3600}` or `{"time": "1 hour"}`
pub(super) fn time(fields: &Map<String, Value>) -> Result<Duration, AdminError> {
    let example = "write `{\"seconds\": 3600}` or `{\"time\": \"1 hour\"}`";
    let [(name, value)] = fields.iter().collect::<Vec<_>>()[..] else {
        return Err(unprocessable(format!("the body has {} fields ({example})", fields.len())));
    };
    let given = || excerpt(&value.to_string());
    match name.as_str() {
        "seconds" => {
            let seconds = value.as_u64().filter(|seconds| *seconds > 0);
            seconds.map(Duration::from_secs).ok_or_else(|| {
                let most = u64::MAX;
                unprocessable(format!(
                    "seconds `{}` is not a whole number from 1 to {most}",
                    given()
                ))
            })
        }
        "time" => {
            let time = value.as_str().and_then(|text| humantime::parse_duration(text).ok());
            time.filter(|time| !time.is_zero()).ok_or_else(|| {
                unprocessable(format!(
                    "time {} is not a time (write `\"1 hour\"`, `\"90 seconds\"` or `\"1h 30m\"`)",
                    given()
                ))
            })
        }
        other => {
            Err(unprocessable(format!("`{}` is not a field here ({example})", excerpt(other))))
        }
    }
}

fn unprocessable(detail: impl Into<String>) -> AdminError {
    AdminError::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}
