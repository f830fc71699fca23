//! A route on which clients ask what they have left, and the answer as JSON.

use std::fmt::{self, Write};
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::algebra::Bucket;
use crate::backend::BucketRecord;
use crate::clock::Timestamp;
use crate::fields::push_json_string;
use crate::key::Head;
use crate::middleware::{Outlook, RateLimitLayer};
use crate::quota::{Kind, Quota};

/// Makes a handler that tells clients what they have left of the limits of a layer.
///
/// It looks at the very buckets that the layer charges, by the keys and the limits of its rules, and
/// takes nothing. Its JSON has all that a client needs to predict later answers by itself, in a
/// browser by [`PREDICTOR`](super::PREDICTOR).
///
/// * A rule counts whatever its conditions are ([`only_methods`](crate::Rule::only_methods),
///   [`only_if`](crate::Rule::only_if), [`sample`](crate::Rule::sample)): they concern the requests
///   that pay. [`limit_with`](crate::Rule::limit_with) gets the head of the request that asks, so a
///   limit that is chosen by the path needs a route for each.
/// * The limits of a request that is exempt, and [shadows](crate::Rule::shadow), are left out, and so
///   are those that count requests [in flight](crate::Quota::in_flight): no client can predict when a
///   request ends.
/// * Asking is not limited. It costs a read of the store for each limit, so put a limit around this
///   route as well if strangers can reach it.
/// * A page of another origin needs CORS, which is yours to allow, as for any route.
///
/// # The answer
///
/// Numbers of tokens are in *units*, of which a token has `bucket.token`. Times are microseconds,
/// points in time those since the Unix epoch. All numbers are whole and at most 2^53, so JavaScript
/// reads them exactly; of `rate` alone, that is true up to 2^53. Fields keep their names and their
/// meaning; more may come.
///
/// | field | is |
/// |---|---|
/// | `now` | the time of the store; null if no limit applies |
/// | `limits` | an array, in the order of the rules |
/// | `.name` | the name of the limit |
/// | `.value`, `.ts` | the state of the bucket, as [`calculate`](crate::algebra::calculate()) takes it; `value` is negative in debt, such as that of requests in a queue |
/// | `.cost` | the tokens of each request; null if they depend on the request |
/// | `.resets_at` | when the limit [starts again](crate::Snapshot::resets_at); null if its quota grants nothing |
/// | `.window_end` | [when the window ends](crate::Snapshot::window_end); null for a token bucket |
/// | `.max_cost` | the most tokens that a request can ever get; null if the quota grants nothing, not even to a request that costs none |
/// | `.max_wait` | the longest wait in the [queue](crate::RateLimitLayer::queue) of the layer: 0 without a queue, null without a bound |
/// | `.stays` | true if requests [stay](crate::middleware::Queue::stay) in line for `max_wait` although their turn is told for later: one that is predicted as `refused` runs if tokens come back, and is else refused when its time is up; left out if not |
/// | `.bucket` | `step`, `gain`, `token`, `capacity` and `floor`, as the getters of [`Bucket`] say |
/// | `.kept` | left out nearly always. If the limit has become
/// [slower](crate::algebra::charge_slower) and has admitted nothing since: the `value`, `ts`,
/// `step`, `gain`, `token` and `capacity` by which the bucket still gains |
/// | `.quota` | `text`, `kind`, `rate`, `period`, `capacity`, `max_reserved`, `initial`, `start` and `shards`, in tokens; null is not set |
///
/// A limit that grants [nothing](crate::Quota::none) has no bucket. It is told with a value and a
/// capacity of 0, and its `ts` is the time of the process.
///
/// A limit in [shards](crate::Quota::shards) is told as one bucket, with the sum of all shards. A
/// request can take only what two of them hold, so a prediction of `admitted` may turn out as
/// refused; a prediction of `refused` holds.
///
/// # Answers in place of it
///
/// A request without its key gets what the layer would
/// [answer](crate::Rule::missing_key). While the store fails, the answer is 503, also under
/// [`OnFailure::Admit`](crate::OnFailure::Admit).
///
/// # Examples
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::{Router, routing::get};
/// use tollgate::key::ClientIp;
/// use tollgate::routes::{predictor, remaining};
/// use tollgate::{Limit, MINUTE, Quota, RateLimiter};
///
/// const PER_CLIENT: Limit = Limit::new("per-client", Quota::token_bucket(10, MINUTE));
///
/// let limit = RateLimiter::in_memory().layer(&PER_CLIENT).key(ClientIp::peer());
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(limit.clone())
///     // After the layer, and so not limited by it.
///     .route("/limits", get(remaining(&limit)))
///     .route("/tollgate.js", get(predictor));
/// let service = app.into_make_service_with_connect_info::<SocketAddr>();
/// # drop(service);
/// ```
#[doc(alias("limits", "left", "status"))]
pub fn remaining<N>(
    layer: &RateLimitLayer<N>,
) -> impl FnOnce(Request) -> BoxedResponse + Clone + Send + Sync + 'static + use<N> {
    let plan = Arc::clone(layer.plan());
    move |request| {
        Box::pin(async move {
            // The body is dropped: it is not needed, and no reference to it can be sent.
            let (parts, _) = request.into_parts();
            match plan.look(&Head::from(&parts)).await {
                Ok(outlooks) => respond(&outlooks),
                Err(response) => response.map(Body::from),
            }
        })
    }
}

type BoxedResponse = Pin<Box<dyn Future<Output = Response> + Send>>;

fn respond(outlooks: &[Outlook]) -> Response {
    let mut response = Response::new(Body::from(to_json(outlooks)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Formats the answer. By hand, since a few numbers do not justify a dependency.
fn to_json(outlooks: &[Outlook]) -> String {
    let mut json = String::with_capacity(outlooks.len().saturating_mul(512).saturating_add(64));
    // Of the store, which was not asked about limits that grant nothing.
    let asked = outlooks.iter().filter(|outlook| !outlook.snapshot.limit().quota().is_none());
    let now = asked.map(|outlook| outlook.snapshot.at()).max();
    let now = now.or(outlooks.first().map(|outlook| outlook.snapshot.at()));
    // Writing to a string does not fail.
    let _ = write!(json, "{{\"now\":{},\"limits\":[", OrNull(now.map(Timestamp::as_micros)));
    for (index, outlook) in outlooks.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        let _ = push_limit(&mut json, outlook);
    }
    json.push_str("]}");
    json
}

fn push_limit(json: &mut String, outlook: &Outlook) -> fmt::Result {
    let limit = outlook.snapshot.limit();
    json.push_str("{\"name\":");
    push_json_string(json, limit.name());
    let (value, ts) = (outlook.snapshot.state().value, outlook.snapshot.state().ts);
    // The numbers of one bucket that holds the whole limit, in which `calculate` counts. A token of a
    // shard has a whole multiple of their units, so rounding down changes no decision on whole tokens.
    let whole = Bucket::new(limit.quota());
    let bucket = whole.as_ref().unwrap_or(limit.bucket());
    let ratio = limit.bucket().token().checked_div(bucket.token()).unwrap_or(1);
    let value = value.checked_div_euclid(i64::try_from(ratio).unwrap_or(1)).unwrap_or(value);
    write!(json, ",\"value\":{value},\"ts\":{}", ts.as_micros())?;
    let [resets_at, window_end] = [outlook.snapshot.resets_at(), outlook.snapshot.window_end()]
        .map(|time| OrNull(time.map(Timestamp::as_micros)));
    write!(json, ",\"resets_at\":{resets_at},\"window_end\":{window_end}")?;
    let max_wait = outlook.max_wait().map(|wait| wait.as_micros());
    let (cost, max_cost) = (OrNull(outlook.cost), OrNull(outlook.max_cost()));
    write!(json, ",\"cost\":{cost},\"max_cost\":{max_cost},\"max_wait\":{}", OrNull(max_wait))?;
    if outlook.stays {
        json.push_str(",\"stays\":true");
    }
    push_bucket(json, bucket, outlook.snapshot.at())?;
    push_kept(json, outlook.snapshot.kept(), outlook.snapshot.at())?;
    push_quota(json, limit.quota())?;
    json.push('}');
    Ok(())
}

fn push_bucket(json: &mut String, bucket: &Bucket, now: Timestamp) -> fmt::Result {
    let (step, gain, token) = (bucket.step(), bucket.gain(), bucket.token());
    let (capacity, floor) = (bucket.capacity().max(0), bucket.floor());
    write!(
        json,
        ",\"bucket\":{{\"step\":{step},\"gain\":{gain},\"token\":{token},\"capacity\":{capacity},\
         \"floor\":{floor}"
    )?;
    if bucket.is_from_first_use() {
        json.push_str(",\"from_first_use\":true");
    }
    push_windows(json, bucket, now)?;
    json.push('}');
    Ok(())
}

/// When the windows of a calendar begin.
fn push_windows(json: &mut String, bucket: &Bucket, now: Timestamp) -> fmt::Result {
    let Some(calendar) = bucket.calendar() else { return Ok(()) };
    write!(json, ",\"windows\":{{\"mean\":{},\"starts\":[", calendar.mean())?;
    let start = calendar.start(now);
    for windows in 0..WINDOWS_TOLD {
        let comma = if windows > 0 { "," } else { "" };
        write!(json, "{comma}{}", calendar.after(start, windows).as_micros())?;
    }
    json.push_str("]}");
    Ok(())
}

/// How many windows of a calendar a client is told, the present one included.
const WINDOWS_TOLD: u64 = 32;

fn push_kept(json: &mut String, kept: Option<&BucketRecord>, now: Timestamp) -> fmt::Result {
    let Some(record) = kept else { return Ok(()) };
    let [value, ts, gain, token, capacity, step] = record.to_numbers();
    let step = step.unsigned_abs();
    write!(
        json,
        ",\"kept\":{{\"value\":{value},\"ts\":{ts},\"step\":{step},\"gain\":{gain},\
         \"token\":{token},\"capacity\":{capacity}"
    )?;
    push_windows(json, record.bucket(), now)?;
    json.push('}');
    Ok(())
}

fn push_quota(json: &mut String, quota: &Quota) -> fmt::Result {
    json.push_str(",\"quota\":{\"text\":");
    push_json_string(json, &quota.to_string());
    let kind = match quota.kind() {
        Kind::TokenBucket => "token bucket",
        Kind::FixedWindow => "fixed window",
    };
    let (rate, period) = (quota.rate(), quota.period().as_micros());
    write!(json, ",\"kind\":\"{kind}\",\"rate\":{rate},\"period\":{period}")?;
    let (capacity, initial) = (quota.get_capacity(), quota.get_initial());
    let max_reserved = OrNull(quota.get_max_reserved());
    write!(json, ",\"capacity\":{capacity},\"max_reserved\":{max_reserved},\"initial\":{initial}")?;
    let shards = quota.get_shards();
    if quota.is_from_first_use() {
        return write!(json, ",\"start\":\"first use\",\"shards\":{shards}}}");
    }
    let start = OrNull(quota.get_start().map(Timestamp::as_micros));
    write!(json, ",\"start\":{start},\"shards\":{shards}}}")
}

/// A number, or `null`.
struct OrNull<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrNull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(number) => number.fmt(f),
            None => f.write_str("null"),
        }
    }
}
