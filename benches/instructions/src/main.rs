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

use std::process::ExitCode;

const USAGE: &str = "\
usage: instructions-bench               count the instructions of all works, with valgrind
       instructions-bench check         the same, and fail where a work takes over 5 % more than the file says
       instructions-bench keep          the same, and write the file
       instructions-bench loop NAME N   do one work so often, for a profiler
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => count::all().map(|counts| kept::print(&counts)),
        ["check"] => count::all().and_then(|counts| kept::check(&counts)),
        ["keep"] => count::all().and_then(|counts| kept::write(&counts)),
        ["loop", name, times] => match (count::work(name), times.parse()) {
            (Some(work), Ok(times)) => {
                work(times);
                Ok(())
            }
            _ => Err(USAGE.to_owned()),
        },
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
