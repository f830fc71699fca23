//! The dashboard for Grafana: valid, complete, and about metrics that exist.

use crate::table;

use std::collections::BTreeSet;

use serde_json::Value;

fn dashboard() -> Value {
    serde_json::from_str(&table::docs("grafana-dashboard.json")).expect("valid JSON")
}

/// All queries: of the panels, and of the variables.
fn queries(dashboard: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = vec![dashboard];
    while let Some(value) = rest.pop() {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (&**name, value) {
                        ("expr" | "query" | "definition", Value::String(query)) => {
                            found.push(query.clone());
                        }
                        _ => rest.push(value),
                    }
                }
            }
            Value::Array(all) => rest.extend(all),
            _ => {}
        }
    }
    found.retain(|query| query != "prometheus");
    found
}

/// The words of a query that begin with `tollgate_`: its metrics and labels.
fn words(query: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    query.split(move |c| !is_word(c)).filter(|word| word.starts_with("tollgate_"))
}

#[test]
fn each_query_of_the_dashboard_is_about_a_metric_of_the_table_and_none_is_missing() {
    let dashboard = dashboard();
    let (metrics, labels) = (table::metrics(), table::labels());
    let mut asked = BTreeSet::new();
    let queries = queries(&dashboard);
    assert!(queries.len() > 12, "{queries:#?}");
    for query in &queries {
        for word in words(query).filter(|word| !labels.contains_key(*word)) {
            let mut ends = ["_bucket", "_sum", "_count"].into_iter();
            let bare = ends.find_map(|end| word.strip_suffix(end)).unwrap_or(word);
            let metric = metrics.iter().find(|row| row.in_prometheus == bare);
            let metric = metric.unwrap_or_else(|| panic!("no metric `{bare}`: {query}"));
            // A histogram is read by its parts, all else as it is.
            assert_eq!(word != bare, bare.ends_with("_seconds"), "{query}");
            asked.insert(metric.in_prometheus.clone());
        }
    }
    let all: BTreeSet<_> = metrics.into_iter().map(|row| row.in_prometheus).collect();
    assert_eq!(asked, all, "left: the dashboard; right: docs/observing.md");
}

#[test]
fn each_value_that_the_dashboard_selects_is_in_the_table_of_labels() {
    let labels = table::labels();
    for query in queries(&dashboard()) {
        for (label, values) in &labels {
            for (_, rest) in query.match_indices(&**label).map(|(at, _)| query.split_at(at)) {
                let rest = &rest[label.len()..];
                let Some((operator, rest)) = rest.split_once('"') else { continue };
                if !matches!(operator, "=" | "!=" | "=~" | "!~") {
                    continue;
                }
                let selected = rest.split('"').next().unwrap();
                let values_of = |text: &str| !text.is_empty() && !text.starts_with('$');
                for value in selected.split('|').filter(|value| values_of(value)) {
                    assert!(values.iter().any(|known| known == value), "{value} in {query}");
                }
            }
        }
    }
}

#[test]
fn each_panel_has_a_place_a_title_and_a_unit() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(!panel["title"].as_str().unwrap().is_empty(), "{panel}");
        let place = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        let [x, y, width, height] = place;
        for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(cell.0 < 24 && taken.insert(cell), "{place:?} overlaps another panel");
        }
        if panel["type"] != "row" {
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{panel}");
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{panel}");
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{panel}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
    assert!(dashboard["uid"].is_string() && dashboard["schemaVersion"].is_u64());
}
