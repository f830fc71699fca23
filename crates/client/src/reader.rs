//! The reader: which statuses refuse, and what is read of a response.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::fields::Fields;
use super::grpc::{self, GrpcRefusal};
use super::reading::{LimitReading, Reading, RefusalScope};
use super::{ASSUMED_WAIT, limits, waits};

/// Reads what a response says about limits, by the default [`Reader`].
///
/// See the [module docs](super) for an example.
#[must_use]
pub fn read(headers: &HeaderMap, status: StatusCode) -> Reading {
    Reader::new().read(headers, status)
}

/// Reads responses, with a list of the statuses that refuse.
///
/// # Examples
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tollgate_client::{Reader, read};
///
/// let overloaded = StatusCode::from_u16(529).unwrap();
/// let mut headers = HeaderMap::new();
/// headers.insert("retry-after", "7".parse().unwrap());
/// assert!(!read(&headers, overloaded).is_refused());
///
/// let reader = Reader::new().statuses([StatusCode::TOO_MANY_REQUESTS, overloaded]);
/// assert_eq!(reader.read(&headers, overloaded).retry_after().unwrap().as_secs(), 7);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reader {
    /// `None`: the default ones, without an allocation.
    statuses: Option<Arc<[StatusCode]>>,
}

impl Reader {
    /// Makes a reader for which 429 and 503 refuse, and 403 if it names a wait.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the statuses that refuse a request, in place of 403, 429 and 503.
    ///
    /// 403 refuses only if the response names a wait.
    #[must_use]
    pub fn statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        Self { statuses: Some(statuses.into_iter().collect()) }
    }

    /// Reads what a response says about limits.
    #[must_use]
    pub fn read(&self, headers: &HeaderMap, status: StatusCode) -> Reading {
        let mut fields = Fields::new(headers);
        let limits = limits::read(&mut fields);
        let grpc = grpc::refusal(&mut fields);
        let mut reading = Reading { limits, ..Reading::default() };
        if grpc.is_some() || self.refuses(status) {
            let wait = wait(&mut fields, status, grpc.as_ref(), &reading.limits);
            reading.is_refused = wait.is_some() || status != StatusCode::FORBIDDEN;
            reading.retry_after = wait;
            reading.is_final = waits::is_final(headers) || grpc.is_some_and(|grpc| grpc.is_final);
            reading.scope = scope(&fields);
        }
        reading.unreadable = fields.into_unreadable();
        reading
    }

    fn refuses(&self, status: StatusCode) -> bool {
        self.statuses.as_deref().unwrap_or(&REFUSALS).contains(&status)
    }
}

/// The wait that a refusal names or implies.
fn wait(
    fields: &mut Fields<'_>,
    status: StatusCode,
    grpc: Option<&GrpcRefusal>,
    limits: &[LimitReading],
) -> Option<Duration> {
    let told = grpc.and_then(|grpc| grpc.wait).or_else(|| waits::told(fields));
    // The server may have carried out what it answers so.
    let may_be_done = status.is_server_error() || grpc.is_some_and(|grpc| grpc.is_unavailable);
    if told.is_some() || may_be_done {
        return told;
    }
    let exhausted = limits.iter().filter(|limit| limit.remaining == 0);
    let reset = exhausted.filter_map(|limit| limit.reset.or(limit.window)).max();
    let is_unclear = status != StatusCode::FORBIDDEN && fields.has_unreadable();
    reset.or(is_unclear.then_some(ASSUMED_WAIT))
}

fn scope(fields: &Fields<'_>) -> RefusalScope {
    match fields.text("x-ratelimit-scope") {
        Some("shared") => RefusalScope::Resource,
        Some("global") => RefusalScope::Host,
        _ if fields.text("x-ratelimit-global") == Some("true") => RefusalScope::Host,
        _ => RefusalScope::Kind,
    }
}

const REFUSALS: [StatusCode; 3] =
    [StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
