//! The counts of the last change, with which the next one is compared.

use std::fs;
use std::path::{Path, PathBuf};

use super::count::Counts;

/// How many times as many instructions a work may take, and how many times as many cache lines.
const MOST: f64 = 1.05;
const MOST_LINES: f64 = 1.1;

fn unit(name: &str) -> &'static str {
    if name.starts_with("lines") { "cache lines" } else { "instructions" }
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("counts.csv")
}

pub fn print(counts: &Counts) {
    for (name, count) in counts {
        println!("{name:44} {count:6.0}");
    }
}

pub fn write(counts: &Counts) -> Result<(), String> {
    print(counts);
    let lines: String =
        counts.iter().map(|(name, count)| format!("\"{name}\";{count:.0}\n")).collect();
    fs::write(file(), lines).map_err(|error| error.to_string())
}

/// Fails where a work of ours takes longer than it did.
pub fn check(counts: &Counts) -> Result<(), String> {
    let text = fs::read_to_string(file()).map_err(|error| error.to_string())?;
    let kept = |name: &str| {
        text.lines().find_map(|line| {
            let (known, count) = line.rsplit_once(';')?;
            if known.trim_matches('"') != name {
                return None;
            }
            count.parse::<f64>().ok()
        })
    };
    let mut longer = String::new();
    for &(name, count) in counts.iter().filter(|(name, _)| !name.contains(": ")) {
        let Some(before) = kept(name) else {
            longer += &format!("{name}: {count:.0}, and none are kept in counts.csv\n");
            continue;
        };
        let unit = unit(name);
        let most = if unit == "instructions" { MOST } else { MOST_LINES };
        println!("{name:32} {count:6.0} {unit}, {before:.0} before");
        if count > before * most {
            longer += &format!("{name}: {count:.0} {unit}, {before:.0} before\n");
        }
    }
    match longer.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "these take over 5 % more instructions than before, or 10 % more cache lines:\n{longer}\
             If that is what it costs, write the new counts by `-- keep`, and say why."
        )),
    }
}
