//! The machine: what it is, and which core does what.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

/// The cores, where there are two.
pub const SERVER: usize = 0;
pub const CLIENT: usize = 1;

const PINNED: &str = "REDIS_BENCH_PINNED";

/// Starts this program again on the client's core, unless it runs there already or cannot be moved.
pub fn pin_client() {
    if env::var_os(PINNED).is_some() || !can_pin() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut command = Command::new("taskset");
    command.arg("-c").arg(CLIENT.to_string()).arg(program);
    // It returns only if it fails, and then the benchmark runs wherever it is.
    let error = command.args(env::args_os().skip(1)).env(PINNED, "yes").exec();
    eprintln!("taskset: {error}");
}

/// A command that runs on this core, where that can be had.
pub fn on_core(core: usize, program: &str) -> Command {
    if env::var_os(PINNED).is_none() {
        return Command::new(program);
    }
    let mut command = Command::new("taskset");
    command.arg("-c").arg(core.to_string()).arg(program);
    command
}

fn can_pin() -> bool {
    let mut version = Command::new("taskset");
    version.arg("--version").stdout(Stdio::null());
    available_parallelism().is_ok_and(|cores| cores.get() > CLIENT)
        && version.status().is_ok_and(|status| status.success())
}

/// The nanoseconds for which this thread had a core, if the system says so.
pub fn client_cpu() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// The processor, the system, and whether client and server have a core each.
pub fn description() -> String {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let pinned = match env::var_os(PINNED) {
        Some(_) => format!("server on core {SERVER}, client on core {CLIENT}"),
        None => "NOT pinned to cores".to_owned(),
    };
    format!("{cpu}, Linux {}, {pinned}", kernel.trim())
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
