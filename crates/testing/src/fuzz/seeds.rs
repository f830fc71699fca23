//! The seeds: inputs that were or could be misread, each with its expected outcome.

use super::field::Field;

/// One line of a file in `tests/data/fuzz`.
#[derive(Debug)]
pub struct Seed {
    /// The input.
    pub field: Field,
    /// The expected outcome.
    pub wanted: &'static str,
}

/// Reads a file of seeds: `input => what has to come of it`, and comments behind a `#`.
#[track_caller]
pub fn seeds(file: &'static str) -> Vec<Seed> {
    let lines = file.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let seeds: Vec<_> = lines
        .map(|line| {
            let (input, wanted) = line.rsplit_once(" => ").unwrap_or_else(|| panic!("{line:?}"));
            Seed { field: Field::written(input.trim()), wanted: wanted.trim() }
        })
        .collect();
    assert!(seeds.len() >= 10, "tens of seeds");
    seeds
}
