//! Processes that are killed while they save, disks that are full, and folders that cannot be
//! persisted.
//!
//! The process is this test again, with a variable that says so.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use tollgate_testing::cases::times;
use tollgate_testing::dice::Dice;
use tollgate_testing::{START, admitted, store};

use super::{Folder, HOARD, taken};
use tollgate::HOUR;
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;

/// Makes a test the process that it starts, and names the file.
const ROLE: &str = "TOLLGATE_DUMP_OF_CHILD";

/// Keys that have taken a token more in each generation, and keys that fill the dump.
const COUNTED: u64 = 40;
const ALL: u64 = 1_000;

/// The command that runs one test of this file.
fn program(test: &str) -> Vec<String> {
    let (_, module) = module_path!().split_once("::").unwrap();
    let exe = std::env::current_exe().unwrap();
    let test = format!("{module}::{test}");
    [exe.to_str().unwrap(), "--exact", &test, "--nocapture"].map(str::to_owned).to_vec()
}

fn start(command: &[String], path: &Path) -> Child {
    let mut child = Command::new(&command[0]);
    child.args(&command[1..]).env(ROLE, path).stdout(Stdio::piped()).spawn().unwrap()
}

/// Tells the parent one thing, in one write.
fn say(line: &str) {
    // The parent may have stopped listening, when it kills this process.
    let _ = std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes());
}

/// Saves one generation after the other: in the nth, each counted key has taken n tokens.
fn save_without_end(path: &OsStr) -> ! {
    let clock = ManualClock::new(START);
    let memory = Memory::new().max_keys(10_000).load_or_empty(path).unwrap();
    let (memory, limiter) = store(memory, &clock);
    if memory.is_empty() {
        (COUNTED..ALL).for_each(|key| assert!(admitted(&limiter, &HOARD, key, 1)));
    }
    loop {
        (0..COUNTED).for_each(|key| assert!(admitted(&limiter, &HOARD, key, 1)));
        memory.save_to(path).unwrap();
        say(&format!("saved {}", taken(&limiter, 0)));
    }
}

/// The generation of a dump: all keys have to be of the same.
fn generation(path: &Path) -> u64 {
    let memory = Memory::new().max_keys(10_000).load_from(path).unwrap();
    let (memory, limiter) = store(memory, &ManualClock::new(START));
    let generation = taken(&limiter, 0);
    assert!((0..COUNTED).all(|key| taken(&limiter, key) == generation));
    assert_eq!(memory.len(), usize::try_from(ALL).unwrap());
    generation
}

/// Kills one process after the other while they save the same file. Returns how many left a draft.
fn kill_while_saving(command: &[String], seeds: Range<u64>) -> usize {
    let (folder, mut last, mut drafts) = (Folder::new(), 0, 0);
    for seed in seeds {
        let mut dice = Dice(seed);
        let mut child = start(command, &folder.file());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let (mut text, saves) = (String::new(), 1 + dice.below(3));
        while text.matches("saved ").count() < usize::try_from(saves).unwrap() {
            assert!(output.read_line(&mut text).unwrap() > 0, "the process ended: {text}");
        }
        // Some instant of the next save, on any machine.
        (0..1 << dice.below(24)).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        output.read_to_string(&mut text).unwrap();
        child.wait().unwrap();
        let told = text.lines().filter_map(|line| line.strip_prefix("saved ")?.parse::<u64>().ok());
        let told = told.max().unwrap();
        let found = generation(&folder.file());
        // The last save may have ended before the process could tell.
        assert!((told..=told + 1).contains(&found) && told > last, "{last}, {told}, {found}");
        last = found;
        let names = folder.names();
        assert!(
            names.len() <= 2,
            "a kill leaves one draft, and a save long after it removes it: {names:?}"
        );
        for draft in names.iter().filter(|name| name.ends_with(".draft")) {
            folder.age(draft, HOUR);
            drafts += 1;
        }
    }
    Memory::new().save_to(folder.file()).unwrap();
    assert_eq!(folder.names(), ["limits.dump"]);
    drafts
}

/// In four folders at once, as a save mostly waits for the disk. 504 kills with 2,048 cases.
#[test]
fn a_process_that_is_killed_while_it_saves_leaves_one_of_its_dumps() {
    if let Some(path) = std::env::var_os(ROLE) {
        save_without_end(&path);
    }
    let command = program("a_process_that_is_killed_while_it_saves_leaves_one_of_its_dumps");
    let kills = times(126, 4);
    // Some kills have to be in the midst of a save. On most machines half of them are.
    let in_the_midst = (0..20).any(|round| {
        thread::scope(|scope| {
            let folders = [0, 1, 2, 3].map(|folder| {
                let first = (4 * round + folder) * kills;
                let command = &command;
                scope.spawn(move || kill_while_saving(command, first..first + kills))
            });
            folders.map(|folder| folder.join().unwrap()).iter().sum::<usize>() > 0
        })
    });
    assert!(in_the_midst, "no kill was in the midst of a save");
}

/// A process whose files cannot grow beyond 16 KiB.
#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_and_leaves_the_old_dump() {
    if let Some(path) = std::env::var_os(ROLE) {
        let memory = Memory::new().max_keys(10_000).load_from(&path).unwrap();
        let (memory, limiter) = store(memory, &ManualClock::new(START));
        (0..ALL).for_each(|key| assert!(admitted(&limiter, &HOARD, key, 1)));
        say(&memory.save_to(&path).unwrap_err().to_string());
        return;
    }
    let folder = Folder::new();
    let (memory, limiter) = store(Memory::new().max_keys(10_000), &ManualClock::new(START));
    assert!(admitted(&limiter, &HOARD, 0, 7));
    memory.save_to(folder.file()).unwrap();
    let before = fs::read(folder.file()).unwrap();
    // In units of 512 bytes. Without the trap, the system would end the process.
    let limited = ["sh", "-c", "trap '' XFSZ; ulimit -f 32; exec \"$0\" \"$@\""].map(str::to_owned);
    let test = program("a_full_disk_is_an_error_and_leaves_the_old_dump");
    let child = start(&[limited.to_vec(), test].concat(), &folder.file());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = format!(
        "cannot write the dump `{}`: File too large (os error 27) (the dump before it is unchanged)",
        folder.file().display()
    );
    assert!(output.status.success() && text.lines().any(|line| line == wanted), "{text}");
    assert_eq!(fs::read(folder.file()).unwrap(), before);
    assert_eq!(folder.names(), ["limits.dump"]);
}

/// Of a process that may open one file more, the draft takes that one. So the folder cannot be
/// opened once the draft has its new name.
#[cfg(target_os = "linux")]
#[test]
fn a_dump_whose_folder_cannot_be_persisted_is_said_to_be_in_place() {
    if let Some(path) = std::env::var_os(ROLE) {
        let (memory, limiter) = store(Memory::new(), &ManualClock::new(START));
        assert!(admitted(&limiter, &HOARD, 0, 7));
        let mut open = Vec::new();
        while let Ok(file) = fs::File::open("/dev/null") {
            open.push(file);
        }
        open.pop().unwrap();
        let error = memory.save_to(&path).unwrap_err();
        drop(open);
        assert!(!matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::NotFound), "{error:?}");
        say(&error.to_string());
        return;
    }
    let folder = Folder::new();
    Memory::new().save_to(folder.file()).unwrap();
    let limited = ["sh", "-c", "ulimit -n 32; exec \"$0\" \"$@\""].map(str::to_owned);
    let test = program("a_dump_whose_folder_cannot_be_persisted_is_said_to_be_in_place");
    let child = start(&[limited.to_vec(), test].concat(), &folder.file());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = format!(
        "the dump `{}` is written, but its folder could not be synced: Too many open files (os \
         error 24) (save again: until then, a crash of the machine may restore the dump before it)",
        folder.file().display()
    );
    assert!(output.status.success() && text.lines().any(|line| line == wanted), "{text}");
    let memory = Memory::new().load_from(folder.file()).unwrap();
    assert_eq!(taken(&store(memory, &ManualClock::new(START)).1, 0), 7);
    assert_eq!(folder.names(), ["limits.dump"]);
}
