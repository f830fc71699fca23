//! How many instructions a decision takes, and a request through the layer.
//!
//! No other program on the machine disturbs them, so that a change which makes a hot path longer is
//! seen at once.

mod count;
mod decisions;
mod kept;
mod layers;
mod observed;
#[cfg(feature = "peers")]
mod peers;
mod trace;
mod visits;

use std::process::ExitCode;

const USAGE: &str = "\
usage: instructions-bench               count the instructions of all works, with valgrind
       instructions-bench check         the same, and fail where a work takes over 5 % more than the file says
       instructions-bench keep          the same, and write the file
       instructions-bench loop NAME N   do one work so often, for a profiler
       instructions-bench files NAME    the source files that one request of a work visits
       instructions-bench shared NAME   its instructions that several processors have to agree on
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => count::all().map(|counts| kept::print(&counts)),
        ["check"] => check(),
        ["keep"] => count::all().and_then(|counts| kept::write(&counts)),
        [how @ ("loop" | "traced"), name, times] => {
            match (count::work(name), times.parse(), *how) {
                (Some(work), Ok(times), "loop") => work(times),
                (Some(work), Ok(times), _) => trace::be_traced(work, times),
                _ => return usage(),
            }
            Ok(())
        }
        ["files", name] if count::work(name).is_some() => visits::print_files(name),
        ["shared", name] if count::work(name).is_some() => visits::print_shared(name),
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::FAILURE
}

/// On a busy machine the clocks are compared more often for each decision, which adds some
/// instructions: what takes too many is counted again, and the smallest of three counts holds.
fn check() -> Result<(), String> {
    let mut least = count::all()?;
    for _ in 0..2 {
        if kept::check(&least).is_ok() {
            return Ok(());
        }
        for ((_, least), (_, again)) in least.iter_mut().zip(count::all()?) {
            *least = least.min(again);
        }
    }
    kept::check(&least)
}
