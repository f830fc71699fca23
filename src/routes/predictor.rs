//! The JavaScript module that predicts, and the handler that serves it.

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, StatusCode};

/// The JavaScript module that predicts in a browser, or in Node, what a limit will answer.
///
/// It is `js/tollgate.js` of the repository: an ES module of a page of code, without dependencies.
/// It reads the answer of [`remaining`](super::remaining()), and computes in exact integers what
/// [`calculate`](crate::algebra::calculate()) does. The guide [predicting](crate::_guide::predicting)
/// shows how to use it.
///
/// Serve it by [`predictor`], or write it into your own bundle.
///
/// # Examples
///
/// ```
/// assert!(tollgate::routes::PREDICTOR.contains("export async function look("));
/// ```
pub const PREDICTOR: &str = include_str!("../../js/tollgate.js");

/// Serves [`PREDICTOR`]: mount it as `get(predictor)`.
///
/// Browsers may keep the module, and ask whether it is still the same before each use. The answer is
/// then 304, by the module's `ETag`.
///
/// # Examples
///
/// ```
/// use axum::body::Body;
/// use axum::{Router, routing::get};
/// use http::Request;
/// use tollgate::routes::predictor;
/// use tower::ServiceExt;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let app: Router = Router::new().route("/tollgate.js", get(predictor));
/// let request = Request::get("/tollgate.js").body(Body::empty()).unwrap();
/// let response = app.oneshot(request).await.unwrap();
/// assert_eq!(response.headers()["content-type"], "text/javascript; charset=utf-8");
/// # }
/// ```
pub async fn predictor(headers: HeaderMap) -> Response {
    let tag = format!("\"{:016x}\"", const { fingerprint(PREDICTOR.as_bytes()) });
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|known| has_tag(known, &tag));
    let mut response = match is_known {
        true => Response::new(Body::empty()),
        false => Response::new(Body::from(PREDICTOR)),
    };
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Whether a line of `If-None-Match` has this tag. A proxy that compresses marks it as weak, which
/// does not count here (RFC 9110, section 13.1.2).
fn has_tag(line: &HeaderValue, tag: &str) -> bool {
    let mut known = line.to_str().unwrap_or_default().split(',').map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// FNV-1a, which tells versions of the module apart. It need not withstand forgery.
const fn fingerprint(mut bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    while let [byte, rest @ ..] = bytes {
        // A widening conversion: `u64::from` is not const.
        #[expect(clippy::as_conversions, reason = "`From` is not const")]
        let wide = *byte as u64;
        hash = (hash ^ wide).wrapping_mul(0x0000_0100_0000_01b3);
        bytes = rest;
    }
    hash
}
