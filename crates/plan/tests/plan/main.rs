//! `tollgate-plan` as a program, and its parts.

mod hostile;
mod order;
mod process;
mod replay;
mod samples;
mod series;

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../src/main.rs"]
mod program;
