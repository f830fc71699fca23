//! The tables of `docs/observing.md`, which are the reference of the metrics, and the code agree.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tollgate::{HOUR, Limit, Quota, RateLimiter};
use tollgate_metrics::Metrics;

use tollgate_testing::at_once;

/// A row of the table of metrics.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    kind: String,
    unit: String,
    description: String,
    pub(crate) in_prometheus: String,
}

pub(crate) fn docs(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cells of each row of the table with this head, without back quotes around a whole cell.
fn rows(head: &str) -> Vec<Vec<String>> {
    let guide = docs("observing.md");
    let lines = guide.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        let cells = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        cells.collect::<Vec<_>>()
    };
    let rows: Vec<_> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "docs/observing.md has no table `{head}`");
    rows
}

fn unquoted(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

pub(crate) fn metrics() -> Vec<Row> {
    let row = |cells: Vec<String>| {
        let [name, kind, _, description, in_prometheus] = cells.as_slice() else {
            panic!("{cells:?}")
        };
        let (kind, unit) = match kind.split_once(", ") {
            Some((kind, "seconds")) => (kind, "seconds"),
            None => (&**kind, "count"),
            _ => panic!("{kind}"),
        };
        Row {
            name: unquoted(name),
            kind: kind.to_owned(),
            unit: unit.to_owned(),
            description: description.clone(),
            in_prometheus: unquoted(in_prometheus),
        }
    };
    rows("| metric |").into_iter().map(row).collect()
}

/// The labels by their names in Prometheus, with their values where these are listed.
pub(crate) fn labels() -> BTreeMap<String, Vec<String>> {
    let label = |cells: Vec<String>| {
        let values = cells[2].split(", ").filter(|value| value.starts_with('`'));
        (unquoted(&cells[1]), values.map(unquoted).collect())
    };
    rows("| label |").into_iter().map(label).collect()
}

/// Keeps the descriptions that it is given.
#[derive(Clone, Default)]
struct Descriptions(Arc<Mutex<Vec<Row>>>);

impl Descriptions {
    fn add(&self, kind: &str, name: KeyName, unit: Option<Unit>, description: SharedString) {
        let name = name.as_str().to_owned();
        let mut in_prometheus = name.replace('.', "_");
        let unit = unit.unwrap().as_str().to_owned();
        if unit == "seconds" {
            in_prometheus += "_seconds";
        }
        if kind == "counter" {
            in_prometheus += "_total";
        }
        let (kind, description) = (kind.to_owned(), description.into_owned());
        self.0.lock().unwrap().push(Row { name, kind, unit, description, in_prometheus });
    }
}

impl Recorder for Descriptions {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.add("counter", name, unit, description);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.add("gauge", name, unit, description);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.add("histogram", name, unit, description);
    }
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn the_table_of_the_guide_has_each_metric_as_the_code_describes_it() {
    let descriptions = Descriptions::default();
    let limiter = RateLimiter::in_memory().observe(Metrics::new().recorder(descriptions.clone()));
    let limit = Limit::new("any", Quota::token_bucket(1, HOUR));
    for _ in 0..2 {
        drop(at_once(limiter.limit(&limit)));
    }
    let by_name = |mut rows: Vec<Row>| {
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
    };
    // Each once.
    let described = by_name(descriptions.0.lock().unwrap().clone());
    assert_eq!(by_name(metrics()), described);
    let names = described.iter().map(|row| &*row.name);
    assert!(names.clone().all(|name| name.starts_with("tollgate.")), "{described:#?}");
}

#[test]
fn the_table_of_labels_has_all_kinds_of_errors() {
    // Those that the code has are in `BackendError::kind`, and its unit test plays each of them.
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/backend/error.rs");
    let source = fs::read_to_string(source).unwrap();
    let (_, code) = source.split_once("fn kind(").unwrap();
    let (code, _) = code.split_once("\n    }").unwrap();
    let mut known: Vec<_> = code.split('"').skip(1).step_by(2).collect();
    known.sort_unstable();
    assert_eq!(labels()["error_type"], known);
}
