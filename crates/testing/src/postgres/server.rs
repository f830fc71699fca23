//! The server.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::account::Account;
use super::programs;
use crate::certificates::{CA, make_certificates};
use crate::clock::ServerClock;

/// Waits until its input is closed, which is when the server is dropped or the test binary has ended in
/// whatever way. Then stops the server by its id, a frozen one too, and removes its directory.
///
/// A line says that the server has ended: another process may have its id by then.
const GUARD: &str = r#"
if ! read -r ended; then
    kill -s QUIT "$1"
    kill -s CONT "$1"
    while kill -s 0 "$1"; do sleep 0.02; done
fi
cat >/dev/null
[ -z "$2" ] || rm -rf "$2"
"#;

/// A server that begins empty, on a free port of 127.0.0.1 and a socket, and stops with the process.
#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    port: u16,
    account: Option<Account>,
    settings: Vec<&'static str>,
    clock: Option<ServerClock>,
    running: Mutex<Running>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let running = self.running.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        running.end(&["QUIT", "CONT"]);
    }
}

/// The process of a server.
#[derive(Debug)]
struct Running {
    child: Child,
    /// Closed by the end of this process. A guard removes the directory, so that of a process that
    /// was restarted stays as well.
    guards: Vec<Guard>,
}

impl Running {
    /// Ends the server by these signals, and waits until it is gone.
    fn end(&mut self, signals: &[&str]) {
        if let Ok(None) = self.child.try_wait() {
            let pid = self.child.id().to_string();
            signals.iter().for_each(|signal| send(signal, &pid));
        }
        drop(self.child.wait());
        self.guards.iter_mut().for_each(Guard::has_ended);
    }
}

impl Server {
    /// The server of this test binary.
    #[track_caller]
    pub fn shared() -> &'static Self {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(Self::start)
    }

    /// A server of its own, for a test that stops it or asks much of it.
    #[track_caller]
    pub fn start() -> Self {
        Self::with(false, None)
    }

    /// A server that takes only connections with TLS on its port.
    #[track_caller]
    pub fn tls() -> Self {
        Self::with(true, None)
    }

    /// A server of its own, with a clock that [can be moved](Self::set_clock).
    #[track_caller]
    pub fn with_clock(clock: ServerClock) -> Self {
        Self::with(false, Some(clock))
    }

    #[track_caller]
    fn with(tls: bool, clock: Option<ServerClock>) -> Self {
        let account = Account::choose();
        let directory = new_directory(account);
        let data = directory.join("data");
        copy(template(), &data);

        let mut settings = SETTINGS.to_vec();
        if tls {
            make_certificates(&directory);
            let key = directory.join("server.key");
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
            if let Some(account) = account {
                account.own(&key);
            }
            settings.extend([
                "ssl=on",
                "ssl_cert_file=../server.pem",
                "ssl_key_file=../server.key",
            ]);
            let only_tls = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";
            fs::write(data.join("pg_hba.conf"), only_tls).unwrap();
        }
        let mut log = String::new();
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            match launch(port, &directory, account, &settings, clock.as_ref()) {
                Ok(child) => {
                    let guard = watch(child.id(), &directory);
                    let running = Mutex::new(Running { child, guards: vec![guard] });
                    return Self { directory, port, account, settings, clock, running };
                }
                Err(said) => log = said,
            }
            // Another process was quicker.
            if !log.contains("Address already in use") {
                break;
            }
        }
        panic!("a server has not started:\n{log}");
    }

    /// Where the server is, by its socket: settings as clients are given them.
    pub fn settings(&self) -> String {
        let (host, port) = (self.directory.display(), self.port);
        format!("host={host} port={port} user=app dbname=postgres")
    }

    /// The port of 127.0.0.1 on which the server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.running.lock().unwrap().child.id()
    }

    /// Where the server is, by its port: settings as clients are given them.
    pub fn settings_at(&self, port: u16) -> String {
        format!("host=127.0.0.1 port={port} user=app dbname=postgres")
    }

    /// The certificate of the authority that has signed the server's.
    pub fn ca_pem(&self) -> Vec<u8> {
        fs::read(self.directory.join(CA)).unwrap()
    }

    /// The account that the server runs as, and its directory.
    pub(super) fn place(&self) -> (Option<Account>, &Path) {
        (self.account, &self.directory)
    }

    /// Shuts the server down at once, as a crash does, and waits until it is gone.
    pub fn crash(&self) {
        self.running.lock().unwrap().end(&["QUIT"]);
    }

    /// Shuts the server down in order, and waits until it is gone.
    pub fn shut_down(&self) {
        self.running.lock().unwrap().end(&["INT"]);
    }

    /// Starts the server again, on the same port and with its data.
    #[track_caller]
    pub fn restart(&self) {
        let clock = self.clock.as_ref();
        let child =
            launch(self.port, &self.directory, self.account, &self.settings, clock).unwrap();
        let guard = watch(child.id(), &self.directory);
        let mut running = self.running.lock().unwrap();
        running.child = child;
        running.guards.push(guard);
    }

    /// Moves the clock of the server so many seconds ahead of that of the system.
    #[track_caller]
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("a server with a clock").set(seconds);
    }

    /// Freezes the server and all its connections.
    pub fn stop(&self) {
        self.each("STOP");
    }

    /// Goes on after [`Server::stop`].
    pub fn resume(&self) {
        self.each("CONT");
    }

    /// Sends a signal to the server and to the processes that it has started. Each of these has a
    /// session of its own.
    fn each(&self, signal: &str) {
        for pid in self.processes() {
            send(signal, &pid);
        }
    }

    /// Lets no file of the server grow beyond so many bytes, as a full disk does; `None` ends that.
    #[track_caller]
    pub fn limit_files(&self, bytes: Option<u64>) {
        let size = bytes.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string());
        for pid in self.processes() {
            let size = format!("--fsize={size}:unlimited");
            let mut prlimit = Command::new("prlimit");
            prlimit.args(["--pid", &pid, &size]);
            // Where this process is root's, it may still lack the right to limit those of others.
            if let Some(account) = self.account {
                account.run(&mut prlimit);
            }
            let is_set = prlimit.status().unwrap().success();
            assert!(is_set || !Path::new("/proc").join(&pid).exists(), "{pid} is not limited");
        }
    }

    /// The ids of the server and of the processes that it has started.
    fn processes(&self) -> Vec<String> {
        let pid = self.pid().to_string();
        let list = Command::new("pgrep").args(["-P", &pid]).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        std::iter::once(pid).chain(list.split_whitespace().map(str::to_owned)).collect()
    }

    /// What a query answers, as text.
    #[track_caller]
    pub fn query(&self, query: &str) -> String {
        let answer = self.psql().args(["-At", "-c", query]).output().unwrap();
        assert!(answer.status.success(), "{query}: {}", String::from_utf8_lossy(&answer.stderr));
        String::from_utf8(answer.stdout).unwrap().trim().to_owned()
    }

    /// A name that no other test of this binary has, for a schema or a role.
    pub fn unused_name(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// A new role that may create schemas and log in.
    ///
    /// One at a time: a grant on a database changes its only row, and fails beside another.
    #[track_caller]
    pub fn new_role(&self) -> String {
        let role = self.unused_name();
        self.query(&format!(
            "SELECT pg_advisory_xact_lock(1); CREATE ROLE {role} LOGIN; \
             GRANT CREATE ON DATABASE postgres TO {role}"
        ));
        role
    }

    /// The arguments of `psql` for this server.
    pub fn psql(&self) -> Command {
        let mut psql = Command::new(programs::directory().join("psql"));
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-U", "app", "-d", "postgres"]);
        psql.arg("-h").arg(&self.directory).arg("-p").arg(self.port.to_string());
        psql
    }
}

/// The files of an empty database, which each server has a copy of: making them takes a second of a
/// processor. They stay beside the test binaries, and serve all of them.
#[track_caller]
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let account = Account::choose();
        let version =
            Command::new(programs::directory().join("postgres")).arg("--version").output();
        let mut made_by = DefaultHasher::new();
        (version.unwrap().stdout, INITDB, ONE_DATABASE, account).hash(&mut made_by);
        let binary = std::env::current_exe().unwrap();
        let kept = binary.with_file_name(format!("empty-postgres-{:x}", made_by.finish()));
        if !kept.exists() {
            let directory = new_directory(account);
            make_template(&directory, account);
            let draft = kept.with_extension(std::process::id().to_string());
            copy(&directory.join("data"), &draft);
            // Another process may have been quicker.
            if fs::rename(&draft, &kept).is_err() {
                fs::remove_dir_all(&draft).unwrap();
            }
            fs::remove_dir_all(&directory).unwrap();
        }
        kept
    })
}

#[track_caller]
fn make_template(directory: &Path, account: Option<Account>) {
    let data = directory.join("data");
    let mut initdb = command("initdb", account, directory);
    let made = initdb.args(INITDB).arg("-D").arg(&data).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut alone = command("postgres", account, directory);
    alone.args(["--single", "-F", "-D"]).arg(&data).arg("postgres").stdin(Stdio::piped());
    let mut alone = alone.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    alone.stdin.take().unwrap().write_all(ONE_DATABASE).unwrap();
    let made = alone.wait_with_output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[track_caller]
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
}

/// A server that is thrown away keeps nothing safe, and compiles no query.
const SETTINGS: [&str; 5] = [
    "listen_addresses=127.0.0.1",
    "max_connections=200",
    "fsync=off",
    "full_page_writes=off",
    "jit=off",
];

/// Two thirds of the files are those of databases to make others of.
const ONE_DATABASE: &[u8] = b"UPDATE pg_database SET datistemplate = false;\n\
    DROP DATABASE template0;\nDROP DATABASE template1;\n";

/// The log of a server keeps to files of 1 MB, so that there is less to copy.
const INITDB: [&str; 8] =
    ["--no-sync", "--wal-segsize=1", "-A", "trust", "-U", "app", "--locale=C", "--encoding=UTF8"];

/// A directory that no other server has, and that belongs to its account.
fn new_directory(account: Option<Account>) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = format!("tollgate-postgres-{}-{nth}", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    // A former process with the same id may have left it.
    drop(fs::remove_dir_all(&directory));
    fs::create_dir_all(&directory).unwrap();
    if let Some(account) = account {
        account.own(&directory);
    }
    directory
}

/// Sends a signal to a process. One that is gone gets none.
fn send(signal: &str, pid: &str) {
    drop(Command::new("kill").args(["-s", signal, pid]).stderr(Stdio::null()).status());
}

/// A program, run as an account in a directory that the account may enter.
fn command(program: &str, account: Option<Account>, directory: &Path) -> Command {
    let mut command = Command::new(programs::directory().join(program));
    command.current_dir(directory).stdin(Stdio::null());
    if let Some(account) = account {
        account.run(&mut command);
    }
    command
}

/// Starts a server and waits until it is ready; else, what it has logged.
fn launch(
    port: u16,
    directory: &Path,
    account: Option<Account>,
    settings: &[&str],
    clock: Option<&ServerClock>,
) -> Result<Child, String> {
    let (data, log) = (directory.join("data"), directory.join("log"));
    let output = File::create(&log).unwrap();
    let mut server = command("postgres", account, directory);
    server.arg("-D").arg(&data).arg("-k").arg(directory).arg("-p").arg(port.to_string());
    if let Some(clock) = clock {
        clock.load_into(&mut server);
    }
    for setting in settings {
        server.args(["-c", setting]);
    }
    let mut child = server.stderr(output.try_clone().unwrap()).stdout(output).spawn().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        let status = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        if status.lines().nth(7).is_some_and(|state| state.trim() == "ready") {
            return Ok(child);
        }
        sleep(Duration::from_millis(2));
    }
    drop(child.kill());
    child.wait().unwrap();
    Err(fs::read_to_string(&log).unwrap_or_default())
}

/// What [watches](watch) a server: a process with its input.
#[derive(Debug)]
pub(super) struct Guard(ChildStdin);

impl Guard {
    /// Says that the server has ended.
    pub(super) fn has_ended(&mut self) {
        drop(self.0.write_all(b"ended\n"));
    }
}

/// Stops a server when this process ends, and removes its directory, if it has one.
pub(super) fn watch(pid: u32, directory: &Path) -> Guard {
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "guard", &pid.to_string()]).arg(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A signal that interrupts the tests does not interrupt the guard.
    let command = std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Guard(command.spawn().unwrap().stdin.take().unwrap())
}
