//! What a client cannot read is a line in the log: one for each host and field, of all layers.

use std::convert::Infallible;

use http::{Request, Response};
use tokio::runtime::Builder;
use tollgate_client::pacing::PacingLayer;
use tollgate_client::retry::RetryLayer;
use tollgate_testing::log::logged;
use tower::{Layer, ServiceExt, service_fn};
use tracing::Level;

#[test]
fn a_field_that_cannot_be_read_is_one_warning_for_its_host() {
    let value = format!("so\u{fc}n {}", "x".repeat(100));
    let server = service_fn(move |_: Request<()>| {
        let response = Response::builder().status(429).header("retry-after", value.as_bytes());
        std::future::ready(Ok::<_, Infallible>(response.body(()).unwrap()))
    });
    // Both layers read it, and each of ten requests is sent five times.
    let client = RetryLayer::new().layer(PacingLayer::new().layer(server));
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let lines = logged(Level::WARN, || {
        runtime.block_on(async {
            for host in ["one.example", "two.example:81"].repeat(5) {
                let request = Request::get(format!("http://user@{host}/")).body(()).unwrap();
                client.clone().oneshot(request).await.unwrap();
            }
        });
    });
    let line = |host| {
        let value = format!("so\\\\xc3\\\\xbcn {}", "x".repeat(58));
        format!(
            "a field about limits cannot be read (logged once for each host and field) \
             host=\"{host}\" field=\"retry-after\" value=\"{value}\" \
             assumed=\"a wait of 30s is assumed\""
        )
    };
    let wanted = [line("one.example"), line("two.example")];
    assert_eq!(lines.len(), 2, "{lines:?}");
    for (line, wanted) in lines.iter().zip(wanted) {
        assert!(line.ends_with(&wanted), "{line}\nis not\n{wanted}");
    }
}
