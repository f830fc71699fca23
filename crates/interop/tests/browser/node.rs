//! A process of Node that answers lines by lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use serde_json::Value;

/// What a script prints for these lines, each of which is JSON; in one process.
#[track_caller]
pub(crate) fn run(script: &str, lines: &[Value]) -> Vec<Value> {
    let mut child = start(script);
    let mut stdin: ChildStdin = child.stdin.take().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let answers = thread::scope(|scope| {
        // Beside the reading, as both pipes are small.
        scope.spawn(move || {
            for line in lines {
                // A script that has ended says why on its standard error.
                if writeln!(stdin, "{line}").is_err() {
                    break;
                }
            }
        });
        let parse = |line: String| serde_json::from_str(&line).unwrap();
        stdout.lines().map(|line| parse(line.unwrap())).collect::<Vec<_>>()
    });
    let status = child.wait().unwrap();
    assert!(status.success(), "{script} failed: {status}");
    assert_eq!(answers.len(), lines.len(), "{script} answers each line");
    answers
}

fn start(script: &str) -> Child {
    let mut command = Command::new("node");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/").to_owned() + script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap_or_else(|error| {
        panic!("node cannot be started: {error} (bash scripts/programs --install browser)")
    })
}
