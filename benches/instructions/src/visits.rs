//! Which source files of the crate one request visits, and which of its instructions processors have
//! to agree on.

use std::collections::{BTreeSet, HashSet};
use std::env;
use std::path::Path;
use std::process::Command;

use super::trace;

/// A function on the way of a request, with the place in its source.
struct Frame {
    function: String,
    file: String,
    line: String,
}

/// Prints the files of this crate, in the order in which a request comes to them, with the functions
/// that it runs there.
pub fn print_files(name: &str) -> Result<(), String> {
    let request = trace::of(name)?;
    let mut files: Vec<(String, BTreeSet<String>)> = Vec::new();
    // Of code that was inlined, the function that it was inlined into comes first.
    for frame in
        frames(&request.instructions)?.into_iter().flat_map(|(_, way)| way.into_iter().rev())
    {
        let Some(file) = of_the_crate(&frame.file) else { continue };
        let function = plain(&frame.function);
        match files.iter_mut().find(|(known, _)| *known == file) {
            Some((_, functions)) => drop(functions.insert(function)),
            None => files.push((file, BTreeSet::from([function]))),
        }
    }
    println!("| file | functions |\n|---|---|");
    for (file, functions) in &files {
        let functions: Vec<_> = functions.iter().map(String::as_str).collect();
        println!("| `{file}` | {} |", functions.join(", "));
    }
    let (code, data) = (request.code.len(), request.data.len());
    println!("\n{name}: {} files; {code} cache lines of code, {data} of data", files.len());
    Ok(())
}

/// Prints the instructions of a request that take a cache line from all other processors: those with
/// the prefix `lock`, and `xchg`, which implies it.
pub fn print_shared(name: &str) -> Result<(), String> {
    let request = trace::of(name)?;
    let code = output(Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(program()?))?;
    let instructions = code.lines().filter_map(|line| line.trim_start().split_once(":\t"));
    let locked = instructions.filter(|(_, text)| {
        text.starts_with("lock ") || (text.starts_with("xchg") && text.contains('('))
    });
    let locked: HashSet<_> =
        locked.filter_map(|(address, _)| u64::from_str_radix(address, 16).ok()).collect();
    let mut executed = request.instructions;
    executed.retain(|address| locked.contains(address));
    for (_, way) in frames(&executed)? {
        let way = way.iter().filter_map(|frame| {
            let file = of_the_crate(&frame.file)?;
            Some(format!("{} ({file}:{})", plain(&frame.function), frame.line))
        });
        println!("{}", way.collect::<Vec<_>>().join(" < "));
    }
    println!("\n{name}: {} instructions", executed.len());
    Ok(())
}

/// Each instruction, once, with the function that it is of and those which that was inlined into.
fn frames(instructions: &[u64]) -> Result<Vec<(u64, Vec<Frame>)>, String> {
    let mut known = HashSet::new();
    let distinct: Vec<u64> =
        instructions.iter().copied().filter(|address| known.insert(*address)).collect();
    let mut frames: Vec<(u64, Vec<Frame>)> = Vec::new();
    for some in distinct.chunks(1_000) {
        let mut resolve = Command::new("addr2line");
        resolve.args(["-a", "-i", "-f", "-C", "-e"]).arg(program()?);
        let text = output(resolve.args(some.iter().map(|address| format!("{address:x}"))))?;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(address) = line.strip_prefix("0x") {
                frames.push((u64::from_str_radix(address, 16).unwrap_or(0), Vec::new()));
            } else if let (Some((_, way)), Some(place)) = (frames.last_mut(), lines.next()) {
                let (file, at) = place.rsplit_once(':').unwrap_or((place, "?"));
                let (function, file, line) = (line.to_owned(), file.to_owned(), at.to_owned());
                way.push(Frame { function, file, line });
            }
        }
    }
    Ok(frames)
}

/// The path below the root of the crate, if it is the source of this crate.
fn of_the_crate(file: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    let file = Path::new(file).canonicalize().ok()?;
    let own = file.strip_prefix(root).ok().filter(|own| own.starts_with("src"))?;
    Some(own.to_string_lossy().into_owned())
}

/// A function without the types that it is of, and without what makes a closure's name unique.
fn plain(function: &str) -> String {
    let mut depth = 0_usize;
    let mut short = String::new();
    for letter in function.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
    }
    let words = short.split("::").filter(|word| !word.is_empty() && !word.starts_with('{'));
    words.last().unwrap_or(function).to_owned()
}

fn program() -> Result<std::path::PathBuf, String> {
    env::current_exe().map_err(|error| error.to_string())
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error} (Debian: apt-get install binutils)"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
