//! The example does what it says.

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../examples/embedded.rs"]
mod embedded;

#[tokio::test]
async fn embedded_brings_no_more_reports_after_a_restart() {
    let path = std::env::temp_dir().join(format!("tollgate-usage-{}.db", std::process::id()));
    for wanted in [[200, 200], [200, 429], [429, 429]] {
        let app = embedded::start(&path).unwrap();
        for status in wanted {
            assert_eq!(embedded::ask(&app, "alice").await, status);
        }
    }
    assert_eq!(embedded::ask(&embedded::start(&path).unwrap(), "bob").await, 200);
    std::fs::remove_file(&path).unwrap();
}
