//! A server whose limits are reloaded: a process of its own, real signals, a real file, real
//! requests.
//!
//! This program is the server as well: with an argument that says so. So it has a `main` of its
//! own, as `embedded_crash` has.

#[allow(dead_code, reason = "the test drives the parts, not `main`")]
#[path = "../examples/reload.rs"]
mod reload;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode, DataChange, ModifyKind, RemoveKind, RenameMode};
use notify::{Event, EventKind};
use reload::Trigger;
use tokio::runtime::{Builder, Runtime};
use tollgate_testing::web::{Reply, get};

/// A machine may be slow. A server that has not answered by then is killed, and its test fails.
const DEADLINE: Duration = Duration::from_secs(120);

type Test = fn(&Runtime);

static TESTS: [(&str, Test); 4] = [
    ("only_events_that_may_change_the_file_concern_it", events),
    ("a_hangup_brings_the_numbers_of_the_file_and_no_refill", on_hangup),
    ("a_file_that_is_written_or_put_in_place_brings_its_numbers", on_change),
    ("a_broken_file_leaves_the_numbers_and_says_why", on_broken_file),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let [first, path] = args.as_slice()
        && first.starts_with("--serve-")
    {
        let triggers: &[Trigger] = match &**first {
            "--serve-hangup" => &[Trigger::Hangup],
            "--serve-change" => &[Trigger::Change],
            _ => &[Trigger::Hangup, Trigger::Change],
        };
        return runtime.block_on(reload::run(Path::new(path), 0, triggers)).unwrap();
    }
    if args.iter().any(|arg| arg == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    for (name, test) in &TESTS {
        if names.is_empty() || names.iter().any(|part| name.contains(part.as_str())) {
            test(&runtime);
            println!("test {name} ... ok");
        }
    }
}

/// A server in a process, and its file in a directory of its own.
struct Server {
    process: Child,
    lines: BufReader<ChildStdout>,
    path: PathBuf,
    address: SocketAddr,
}

impl Server {
    fn start(name: &str, mode: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("reload-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("limits.toml");
        fs::write(&path, limits("2 per hour")).unwrap();
        let program = std::env::current_exe().unwrap();
        let mut process =
            Command::new(program).arg(mode).arg(&path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        // A server that hangs would let the test wait for its next line.
        let id = process.id();
        std::thread::spawn(move || {
            std::thread::sleep(DEADLINE);
            signal("KILL", id);
        });
        let line = read(&mut lines);
        let (_, address) = line.split_once(" listens on ").unwrap_or_else(|| panic!("{line}"));
        let address = address.parse().unwrap();
        Self { process, lines, path, address }
    }

    /// The next line that it prints.
    #[track_caller]
    fn line(&mut self) -> String {
        read(&mut self.lines)
    }

    /// Waits for a line. A watcher may see a file that is not yet written, or the same one twice.
    #[track_caller]
    fn until(&mut self, wanted: &str) {
        let mut others = Vec::new();
        loop {
            let line = self.line();
            if line == wanted {
                return;
            }
            others.push(line);
            assert!(others.len() < 100, "{wanted} is not among {others:#?}");
        }
    }

    fn hang_up(&self) {
        signal("HUP", self.process.id());
    }

    /// Writes the file in place.
    fn write(&self, quota: &str) {
        fs::write(&self.path, limits(quota)).unwrap();
    }

    /// Puts another file in the place of the file, as editors do.
    fn put(&self, text: &str) {
        let other = self.path.with_extension("new");
        fs::write(&other, text).unwrap();
        fs::rename(other, &self.path).unwrap();
    }

    fn get(&self, runtime: &Runtime) -> Reply {
        runtime.block_on(get(self.address, "/"))
    }

    /// The numbers that it tells clients, and the status.
    fn told(&self, runtime: &Runtime) -> (u16, String) {
        let reply = self.get(runtime);
        (reply.status.as_u16(), reply.field("ratelimit-policy").unwrap().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(self.path.parent().unwrap());
    }
}

#[track_caller]
fn read(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.ends_with('\n'), "the server has ended: {line:?}");
    line.trim_end().to_owned()
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {process}")]).status();
    // The process may have ended by itself.
    assert!(sent.is_ok());
}

fn limits(quota: &str) -> String {
    format!("[limits.per-client]\nquota = \"{quota}\"\nkey = \"client address\"\n")
}

fn events(_: &Runtime) {
    let path = Path::new("/etc/service/limits.toml");
    let read = EventKind::Access(AccessKind::Close(AccessMode::Read));
    let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
    let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    for (kind, file, wanted) in [
        (written, "limits.toml", true),
        (renamed, "limits.toml", true),
        (EventKind::Remove(RemoveKind::File), "limits.toml", true),
        (renamed, "..data", true),
        (read, "limits.toml", false),
        (written, "limits.log", false),
        (renamed, "limits.toml~", false),
    ] {
        let event = Event::new(kind).add_path(path.with_file_name(file));
        assert_eq!(reload::concerns(path, &event), wanted, "{event:?}");
    }
}

fn on_hangup(runtime: &Runtime) {
    let mut server = Server::start("hangup", "--serve-hangup");
    let two = (200, "\"per-client\";q=2;w=3600".to_owned());
    assert_eq!([server.told(runtime), server.told(runtime)], [two.clone(), two]);
    assert_eq!(server.told(runtime).0, 429);
    server.write("4 per hour");
    server.hang_up();
    assert_eq!(server.line(), "limit \"per-client\": 4 per hour (it was 2 per hour)");
    // Two of four are used.
    let four = (200, "\"per-client\";q=4;w=3600".to_owned());
    assert_eq!([server.told(runtime), server.told(runtime)], [four.clone(), four]);
    assert_eq!(server.told(runtime).0, 429);
    server.hang_up();
    assert_eq!(server.line(), "nothing has changed");
    let other = limits("5 per hour").replace("client address", "header x-user");
    server.put(&format!("{other}cost = 2\n"));
    server.hang_up();
    assert_eq!(server.line(), "limit \"per-client\": 5 per hour (it was 4 per hour)");
    let restart = server.line();
    assert!(
        restart.ends_with(
            "limits.toml:3:1: limit \"per-client\": `key` and `cost` have changed (this takes \
             effect after a restart)"
        ),
        "{restart}"
    );
    assert_eq!(server.told(runtime), (200, "\"per-client\";q=5;w=3600".to_owned()));
}

fn on_change(runtime: &Runtime) {
    let mut server = Server::start("change", "--serve-change");
    assert_eq!(server.told(runtime).1, "\"per-client\";q=2;w=3600");
    server.write("10 per minute");
    server.until("limit \"per-client\": 10 per minute (it was 2 per hour)");
    assert_eq!(server.told(runtime).1, "\"per-client\";q=10;w=60");
    server.put(&limits("20 per minute"));
    server.until("limit \"per-client\": 20 per minute (it was 10 per minute)");
    assert_eq!(server.told(runtime).1, "\"per-client\";q=20;w=60");
}

fn on_broken_file(runtime: &Runtime) {
    let mut server = Server::start("broken", "--serve-both");
    let path = server.path.clone();
    for (text, wanted) in [
        (
            limits("20 per secnd"),
            ":2:9: limit \"per-client\": `20 per secnd` is not a quota: `secnd` is not a period \
             (write `minute`, `90 seconds`, `1h 30m` or `30 days`)",
        ),
        ("[limits.per-client".to_owned(), ":1:19: this is not TOML: unclosed table, expected `]`"),
        (
            limits("20 per second") + "\n[limits.other]\n",
            ":5:9: limit \"other\": no numbers (write a `quota`, such as \"10 per minute\")",
        ),
    ] {
        server.put(&text);
        server.until("the limits stay as they are:");
        server.until(&format!("{}{wanted}", path.display()));
        assert_eq!(server.told(runtime).1, "\"per-client\";q=2;w=3600");
    }
    fs::remove_file(&path).unwrap();
    let unreadable = "the file cannot be read (name one that this process may read)";
    server.until(&format!("{}: {unreadable}", path.display()));
    assert_eq!(server.told(runtime).1, "\"per-client\";q=2;w=3600");
    server.put(&limits("20 per minute"));
    server.until("limit \"per-client\": 20 per minute (it was 2 per hour)");
    assert_eq!(server.told(runtime).1, "\"per-client\";q=20;w=60");
    server.hang_up();
    server.until("nothing has changed");
}
