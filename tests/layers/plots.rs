//! The plots and drawings of the guides are also in the documentation, where a relative path to a file is dead.
//!
//! A file `plots.md` of the crate defines each plot as the text of its file. After a benchmark or
//! `scripts/drawings` has drawn new ones, write the files with `TOLLGATE_WRITE_PLOTS=1 cargo test --all-features --test layers
//! plots`.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

/// The pages with the labels of their plots, and the files of these.
const PAGES: [(&str, &[(&str, &str)]); 2] =
    [("src/_guide/plots.md", &PLOTS), ("crates/leasing/src/plots.md", &LEASING)];

const LEASING: [(&str, &str); 2] = [
    ("plot-leasing-trips", "crates/leasing/docs/trips.svg"),
    ("plot-leasing-used", "crates/leasing/docs/used.svg"),
];

const PLOTS: [(&str, &str); 10] = [
    ("drawing-fallback", "docs/drawings/fallback.svg"),
    ("drawing-queueing", "docs/drawings/queueing.svg"),
    ("drawing-settling", "docs/drawings/settling.svg"),
    ("drawing-several-limits", "docs/drawings/several-limits.svg"),
    ("plot-capacity", "benches/shards/plots/capacity.svg"),
    ("plot-flood", "benches/peers/results/flood.svg"),
    ("plot-flood-bytes", "benches/peers/results/flood-bytes.svg"),
    ("plot-keys", "benches/peers/results/keys.svg"),
    ("plot-layer-fields", "benches/peers/results/layer-fields.svg"),
    ("plot-ratios", "benches/peers/results/ratios.svg"),
];

#[test]
fn plots_of_the_documentation_are_those_of_the_benchmarks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (page, plots) in PAGES {
        let mut definitions = String::new();
        for (label, file) in plots {
            let drawing = fs::read_to_string(root.join(file)).expect(file);
            let _ = writeln!(definitions, "[{label}]: data:image/svg+xml,{}", encoded(&drawing));
        }
        definitions.push('\n');
        let path = root.join(page);
        if env::var_os("TOLLGATE_WRITE_PLOTS").is_some() {
            fs::write(&path, &definitions).unwrap();
        }
        assert!(
            fs::read_to_string(&path).is_ok_and(|page| page == definitions),
            "{page} has other plots (write it: tests/layers/plots.rs says how)"
        );
    }
}

/// The text as part of a URL, in which all but a few characters are percent-encoded.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut url, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'/' | b':' | b'=' => {
                url.push(char::from(byte));
            }
            byte => {
                let _ = write!(url, "%{byte:02X}");
            }
        }
        url
    })
}

#[test]
fn characters_that_a_url_does_not_allow_are_encoded() {
    assert_eq!(encoded("<a b=\"ä\">"), "%3Ca%20b=%22%C3%A4%22%3E");
}
