//! A Chromium that tests drive, by chromedriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use thirtyfour::prelude::*;
use thirtyfour::{ChromiumLikeCapabilities, LoggingPrefsLogLevel};
use tokio::sync::{Mutex, MutexGuard};

/// A browser takes most of a processor while it starts, so one runs at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// How long a page may take for anything. Nothing takes as long unless it never comes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Without those on its background, Chromium looks for updates before it shows a page.
const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,800",
];

/// A browser with one tab and an empty profile.
pub(crate) struct Chromium {
    pub(crate) tab: WebDriver,
    program: Program,
    _turn: MutexGuard<'static, ()>,
}

/// The process of chromedriver.
struct Program {
    process: Child,
    port: u16,
    profile: PathBuf,
    /// Kept open: without a reader, chromedriver ends when it writes.
    _output: BufReader<ChildStdout>,
}

impl Chromium {
    pub(crate) async fn start() -> Self {
        let turn = TURN.lock().await;
        let program = Program::start();
        let mut wanted = DesiredCapabilities::chrome();
        for flag in FLAGS {
            wanted.add_arg(flag).unwrap();
        }
        wanted.add_arg(&format!("--user-data-dir={}", program.profile.display())).unwrap();
        wanted.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
        let tab =
            WebDriver::new(format!("http://127.0.0.1:{}", program.port), wanted).await.unwrap();
        tab.set_script_timeout(DEADLINE).await.unwrap();
        Self { tab, program, _turn: turn }
    }

    /// Closes the browser, on whose console nothing must be.
    pub(crate) async fn stop(self) {
        assert_eq!(self.console().await, [""; 0]);
    }

    pub(crate) async fn open(&self, server: SocketAddr, path: &str) {
        self.tab.goto(format!("http://{server}{path}")).await.unwrap();
    }

    /// The value of a JavaScript expression.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let script = format!("return {expression};");
        self.tab.execute(script, vec![]).await.unwrap().json().clone()
    }

    /// What a function hands to `done`.
    pub(crate) async fn call(&self, script: &str) -> WebDriverResult<Value> {
        let script = format!("const done = arguments[0]; {script}");
        Ok(self.tab.execute_async(script, vec![]).await?.json().clone())
    }

    pub(crate) async fn text(&self, selector: &str) -> String {
        self.tab.find(By::Css(selector)).await.unwrap().text().await.unwrap()
    }

    pub(crate) async fn click(&self, selector: &str) {
        self.tab.find(By::Css(selector)).await.unwrap().click().await.unwrap();
    }

    /// Waits until an expression is true. The page looks at it again after each of its turns.
    pub(crate) async fn until(&self, condition: &str) {
        let look =
            format!("const look = () => ({condition}) ? done() : setTimeout(look, 5); look();");
        if let Err(error) = self.call(&look).await {
            let seen = self.value("document.body.innerText").await;
            let console = self.console().await;
            panic!("`{condition}` does not come: {error}\n{seen:#}\n{console:#?}");
        }
    }

    /// Presses and releases a key.
    pub(crate) async fn press(&self, key: impl Into<char>) {
        let key = key.into();
        let keys = self.tab.action_chain_with_delay(Some(Duration::ZERO), Some(Duration::ZERO));
        keys.key_down(key).key_up(key).perform().await.unwrap();
    }

    /// Shows the page as on a screen of this size, in this theme.
    pub(crate) async fn show(&self, width: u32, height: u32, theme: &str) {
        let mobile = width < 600;
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let theme = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.devtools("Emulation.setEmulatedMedia", theme).await;
    }

    /// A command of the browser's own protocol.
    pub(crate) async fn devtools(&self, command: &str, params: Value) {
        self.tab.cdp().send_raw(command, params).await.unwrap();
    }

    /// What is on the console since the last call, errors of the browser among it.
    pub(crate) async fn console(&self) -> Vec<String> {
        let lines = self.tab.browser_log().await.unwrap();
        lines.iter().map(|line| format!("{}: {}", line.level, line.message)).collect()
    }
}

impl Drop for Chromium {
    /// Ends the session, and the browser with it, also when a test fails. Without waiting for a
    /// runtime, in which the test may have panicked.
    fn drop(&mut self) {
        let path = format!("/session/{}", self.tab.session_id());
        // An error means that the session has ended already.
        let _ = self.tab.clone().leak();
        if let Ok(mut driver) = TcpStream::connect(("127.0.0.1", self.program.port)) {
            let head = format!("DELETE {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            let _ = driver.write_all(head.as_bytes());
            // It answers once the browser is closed, and keeps the connection open.
            let _ = driver.read(&mut [0; 64]);
        }
    }
}

impl Program {
    fn start() -> Self {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap_or_else(|error| {
            panic!(
                "chromedriver cannot be started: {error} (bash scripts/programs --install browser)"
            )
        });
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut lines = output.by_ref().lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            line.strip_suffix('.')?.split_once("successfully on port ")?.1.parse().ok()
        });
        let profile = std::env::temp_dir().join(format!("tollgate-chromium-{}", process.id()));
        Self { process, port: port.expect("chromedriver names its port"), profile, _output: output }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

/// Where `scripts/programs` puts what it installs.
pub(crate) fn installed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("programs").join(file)
}
