//! What one request touches, by valgrind's trace of all that a process executes, reads and writes.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

/// The first is written to before each work and the other one after it, so that the trace shows what
/// is of a request.
static MARKS: [AtomicU8; 2] = [AtomicU8::new(0), AtomicU8::new(0)];

/// How often a work is traced. Now and then a request compares two clocks, which takes more lines.
const TIMES: u32 = 40;

/// The bytes of a cache line.
const LINE: u64 = 64;

/// What one request has touched.
#[derive(Debug, Default)]
pub struct Touched {
    /// Where its instructions are, in the order in which it executed them.
    pub instructions: Vec<u64>,
    /// The cache lines of its code.
    pub code: BTreeSet<u64>,
    /// The cache lines that it reads or writes, its stack among them.
    pub data: BTreeSet<u64>,
}

impl Touched {
    pub fn lines(&self) -> usize {
        self.code.len() + self.data.len()
    }
}

#[inline(always)]
pub fn begin() {
    MARKS[0].store(1, Ordering::Relaxed);
}

#[inline(always)]
pub fn end() {
    MARKS[1].store(1, Ordering::Relaxed);
}

/// Does a work for the process that traces this one, which is told between two lines of the trace
/// where the marks are, and where the program begins.
pub fn be_traced(work: fn(u32), times: u32) {
    let program = env::current_exe().unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut own = maps.lines().filter(|line| line.ends_with(&*program.to_string_lossy()));
    let first = own.next().and_then(|line| line.split('-').next()).unwrap_or("0");
    let told = format!("marks {:x} {first}\n", (&raw const MARKS).addr());
    // In one piece, so that it is a line of its own.
    io::stderr().write_all(told.as_bytes()).expect("the tracer listens");
    work(times);
}

/// Traces a work. Returns the request that touched the fewest lines, with the addresses of its
/// instructions as they are in the program's file.
///
/// # Errors
///
/// If valgrind is missing or fails.
pub fn of(name: &str) -> Result<Touched, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new("valgrind")
        .args(["--tool=lackey", "--trace-mem=yes", "--log-fd=2"])
        .arg(program)
        .args(["traced", name, &TIMES.to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("valgrind: {error} (Debian: apt-get install valgrind)"))?;
    let trace = child.stderr.take().ok_or("valgrind has no output")?;
    let requests = read(BufReader::with_capacity(1 << 20, trace));
    let status = child.wait().map_err(|error| error.to_string())?;
    let requests = requests.map_err(|error| error.to_string())?;
    match requests.into_iter().min_by_key(Touched::lines) {
        Some(least) if status.success() => Ok(least),
        _ => Err(format!("valgrind traced nothing of {name}")),
    }
}

/// What each request has touched.
fn read(mut trace: impl BufRead) -> io::Result<Vec<Touched>> {
    let (mut all, mut current) = (Vec::new(), None);
    let (mut marks, mut first) = (u64::MAX - 1, 0);
    let mut line = String::new();
    while trace.read_line(&mut line)? > 0 {
        let told = line.trim_end().strip_prefix("marks ").and_then(|told| told.split_once(' '));
        if let Some((at, program)) = told {
            (marks, first) = (address_of(at), address_of(program));
        } else if let Some((kind, access)) = line.split_at_checked(3)
            && let Some((address, size)) = access.trim_end().split_once(',')
        {
            let (address, size) = (address_of(address), size.parse().unwrap_or(1));
            if kind == " S " && address == marks {
                current = Some(Touched::default());
            } else if kind == " S " && address == marks + 1 {
                all.extend(current.take());
            } else if let Some(request) = &mut current {
                request.add(kind, address, size, first);
            }
        }
        line.clear();
    }
    Ok(all)
}

impl Touched {
    fn add(&mut self, kind: &str, address: u64, size: u64, first: u64) {
        let lines = address / LINE..=(address + size - 1) / LINE;
        match kind {
            "I  " => {
                self.instructions.push(address.wrapping_sub(first));
                self.code.extend(lines);
            }
            " L " | " S " | " M " => self.data.extend(lines),
            _ => {}
        }
    }
}

fn address_of(hexadecimal: &str) -> u64 {
    u64::from_str_radix(hexadecimal, 16).unwrap_or(u64::MAX)
}
