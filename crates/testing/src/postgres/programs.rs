//! The programs of PostgreSQL.

use std::fs;
use std::path::PathBuf;

/// The directory of the programs, which Debian does not have on the path.
#[track_caller]
pub(super) fn directory() -> PathBuf {
    if let Ok(named) = std::env::var("TOLLGATE_POSTGRES_BIN") {
        return PathBuf::from(named);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path())))
        .filter(|(_, path)| path.join("bin/postgres").exists())
        .max();
    let (_, path) = newest.expect("postgres is missing (bash scripts/programs --install postgres)");
    path.join("bin")
}
