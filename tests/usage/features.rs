//! The features on the crate's page are those of `Cargo.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The features that there are, and whether they are on by default.
fn declared() -> BTreeMap<String, bool> {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("[features]\n").unwrap();
    let (features, _) = rest.split_once("\n[").unwrap();
    let named =
        |line: &str| line.split_once(" = ").map(|(name, list)| (name.to_owned(), list.to_owned()));
    let mut features: BTreeMap<_, _> =
        features.lines().filter(|line| !line.starts_with('#')).filter_map(named).collect();
    let on = features.remove("default").unwrap();
    features.into_keys().map(|name| (name.clone(), on.contains(&format!("\"{name}\"")))).collect()
}

/// The first and the last cell of each row of the table whose head begins with `feature`.
fn tabled(file: &str) -> BTreeMap<String, bool> {
    let text = read(file);
    let lines = text.lines().map(|line| line.trim_start_matches("//!").trim_start());
    let rows = lines.skip_while(|line| !line.starts_with("| feature |")).skip(2);
    rows.map_while(|line| line.strip_prefix("| `")?.strip_suffix(" |"))
        .map(|row| {
            let (name, rest) = row.split_once('`').unwrap();
            let is_on = match rest.rsplit_once("| ").unwrap().1 {
                "yes" => true,
                "no" => false,
                other => panic!("{file}: {name}: {other:?} is neither yes nor no"),
            };
            (name.to_owned(), is_on)
        })
        .collect()
}

/// `quanta` was turned on by default, and the crate's page went on saying that it is off.
#[test]
fn every_feature_is_named_and_whether_it_is_on() {
    let declared = declared();
    assert!(declared["memory"] && !declared["serde"], "{declared:?}");
    assert_eq!(tabled("src/lib.rs"), declared);
}
