//! The machine that was measured on, in a line.

use std::fs;
use std::thread::available_parallelism;

/// The processor and its cores, the system, the memory.
pub fn description() -> String {
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .map_or_else(String::new, |kib| format!(", {} GiB", kib >> 20));
    let virtual_machine =
        fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("hypervisor"));
    let machine = if virtual_machine { ", a virtual machine" } else { "" };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = available_parallelism().map_or(0, usize::from);
    format!("{cores} cores ({cpu}){memory}{machine}, Linux {}", kernel.trim())
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// How often this thread was taken off its core although it had work, so far.
pub fn preemptions() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
