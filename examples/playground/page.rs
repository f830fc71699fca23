//! The page: files of this folder, and the predictor of the library.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get};
use tollgate::routes::predictor;

/// Nothing from elsewhere, and nothing inline.
const POLICY: &str =
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'";

macro_rules! file {
    ($name:literal, $kind:literal) => {
        file(concat!($kind, "; charset=utf-8"), include_str!($name))
    };
}

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", file!("index.html", "text/html"))
        .route("/style.css", file!("style.css", "text/css"))
        .route("/app.js", file!("app.js", "text/javascript"))
        .route("/chart.js", file!("chart.js", "text/javascript"))
        .route("/lane.js", file!("lane.js", "text/javascript"))
        .route("/lessons.js", file!("lessons.js", "text/javascript"))
        .route("/time.js", file!("time.js", "text/javascript"))
        .route("/tollgate.js", get(predictor))
}

fn file(kind: &'static str, text: &'static str) -> MethodRouter {
    let fields =
        [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache"), (CONTENT_SECURITY_POLICY, POLICY)];
    get(async move || (fields, text).into_response())
}
