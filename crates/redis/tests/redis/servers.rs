//! The servers that other tests use work as documented, and end with their tests.

use std::io::{ErrorKind, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate_testing::clock::ServerClock;
use tollgate_testing::redis::{Client, Cluster, Guard, Reply, Sentinels, Server, is_alive, until};

const PATIENCE: Duration = Duration::from_secs(30);

fn pong() -> Reply {
    Reply::Text(b"PONG".to_vec())
}

#[test]
fn a_server_is_killed_with_its_value() {
    let server = Server::start();
    let pid = server.pid();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(Client::tcp(server.port(), PATIENCE).unwrap().call(&["PING"]).unwrap(), pong());
    assert_eq!(server.info("server", "process_id"), pid.to_string());
    assert!(is_alive(pid) && server.is_running());
    drop(server);
    assert!(!is_alive(pid));
}

#[test]
fn a_server_that_is_stopped_is_killed_with_its_value() {
    let server = Server::start();
    let pid = server.pid();
    server.stop();
    assert!(is_alive(pid));
    drop(server);
    assert!(!is_alive(pid));
}

/// The script asks by the same command.
#[test]
fn a_server_tells_the_time_that_is_set() {
    let server = Server::with_clock(&[], Some(ServerClock::new()));
    let told = || -> i64 { server.command(&["TIME"]).list()[0].text().parse().unwrap() };
    let begun = told();
    for ahead in [3_600, -3_600, 0] {
        server.set_clock(ahead);
        assert!((0..600).contains(&(told() - begun - ahead)), "{ahead}");
    }
}

/// It waits for 20 ms in vain.
#[test]
fn a_stopped_server_answers_when_it_is_resumed() {
    let server = Server::start();
    let mut client = server.client();
    server.stop();
    client.send(&["PING"]).unwrap();
    let mut soon = Client::tcp(server.port(), Duration::from_millis(20)).unwrap();
    let error = soon.call(&["PING"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error:?}");
    server.resume();
    assert_eq!(client.receive().unwrap(), pong());
}

#[test]
fn a_killed_server_restarts_empty_on_its_port() {
    let server = Server::start();
    let (port, pid) = (server.port(), server.pid());
    server.command(&["SET", "key", "value"]).ok();
    server.kill();
    assert!(!server.is_running() && !is_alive(pid));
    Client::tcp(port, PATIENCE).unwrap_err();
    server.restart();
    assert_eq!(server.port(), port);
    let mut client = Client::tcp(port, PATIENCE).unwrap();
    assert_eq!(client.call(&["GET", "key"]).unwrap(), Reply::Nil);
}

#[test]
fn a_server_has_the_settings_that_it_is_given() {
    let server = Server::with(&["--maxmemory", "5mb"]);
    let setting = server.command(&["CONFIG", "GET", "maxmemory"]);
    assert_eq!(setting.list()[1].int(), 5 << 20);
}

#[test]
#[should_panic(expected = "a server has not started")]
fn a_server_that_does_not_start_shows_its_log() {
    Server::with(&["--no-such-setting", "yes"]);
}

#[test]
fn keys_and_scripts_are_flushed() {
    let server = Server::start();
    server.command(&["SET", "key", "value"]).ok();
    let script = server.command(&["SCRIPT", "LOAD", "return {1, false, {err = 'no'}}"]);
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(1));
    let answer = server.command(&["EVALSHA", script.text(), "0"]);
    assert_eq!(answer.list()[..2], [Reply::Int(1), Reply::Nil]);
    assert!(matches!(&answer.list()[2], Reply::Error(error) if error.contains("no")));
    server.flush_all();
    server.script_flush();
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
    let answer = server.command(&["EVALSHA", script.text(), "0"]);
    assert!(matches!(&answer, Reply::Error(error) if error.starts_with("NOSCRIPT")), "{answer:?}");
}

#[test]
fn a_server_speaks_tls_with_a_certificate_of_its_authority() {
    let server = Server::tls();
    assert_eq!(server.url(), format!("rediss://localhost:{}", server.port()));
    assert!(server.ca_pem().starts_with(b"-----BEGIN CERTIFICATE-----"));
    let port = server.port().to_string();
    for (name, is_its_own) in [("localhost", true), ("example.com", false)] {
        let mut openssl = Command::new("openssl");
        openssl.args(["s_client", "-quiet", "-verify_return_error", "-verify_hostname", name]);
        openssl.args(["-connect", &format!("127.0.0.1:{port}"), "-CAfile"]).arg(server.ca_file());
        openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut openssl = openssl.spawn().unwrap();
        // The server closes the connection after its answer; a client that has refused is gone already.
        drop(openssl.stdin.as_mut().unwrap().write_all(b"PING\r\nQUIT\r\n"));
        let said = openssl.wait_with_output().unwrap().stdout;
        assert_eq!(said.starts_with(b"+PONG\r\n"), is_its_own, "{name}: {said:?}");
    }
    // It speaks nothing else.
    let plain = Client::tcp(server.port(), PATIENCE).unwrap().call(&["PING"]);
    assert_ne!(plain.ok(), Some(pong()));
}

#[test]
fn a_cluster_moves_slots_while_they_are_used() {
    let cluster = Cluster::start(3);
    assert_eq!(cluster.urls(), cluster.nodes().iter().map(Server::url).collect::<Vec<_>>());
    let slot = cluster.slot_of("{a}1");
    let (from, to) = (cluster.node_of_slot(slot), (cluster.node_of_slot(slot) + 1) % 3);
    let is_told = |node: usize, key: &str, told: &str| {
        let reply = cluster.node(node).command(&["GET", key]);
        assert!(matches!(&reply, Reply::Error(error) if error.starts_with(told)), "{reply:?}");
    };
    for nth in 0..250 {
        cluster.node(from).command(&["SET", &format!("{{a}}{nth}"), "value"]).ok();
    }
    is_told(to, "{a}1", "MOVED");
    cluster.begin_move(slot, from, to);
    assert_eq!(cluster.node(from).command(&["GET", "{a}1"]).text(), "value");
    is_told(from, "{a}new", "ASK");
    is_told(to, "{a}1", "MOVED");
    assert_eq!(cluster.move_some_keys(slot, from, to, 7), 7);
    is_told(from, "{a}new", "ASK");
    cluster.move_keys(slot, from, to);
    is_told(from, "{a}1", "ASK");
    cluster.finish_move(slot, from, to);
    is_told(from, "{a}1", "MOVED");
    assert_eq!(cluster.node_of_slot(slot), to);
    assert_eq!(cluster.node(to).command(&["DBSIZE"]), Reply::Int(250));
    assert_eq!(cluster.node(to).command(&["GET", "{a}1"]).text(), "value");

    cluster.move_slot(slot, to, from);
    assert_eq!(cluster.node(from).command(&["DBSIZE"]), Reply::Int(250));

    // A node that was killed comes back as the one that it was.
    cluster.node(from).restart();
    cluster.until_complete();
    assert_eq!(cluster.node_of_slot(slot), from);
    assert_eq!(cluster.node(from).command(&["DBSIZE"]), Reply::Int(0));

    let pids: Vec<_> = cluster.nodes().iter().map(Server::pid).collect();
    drop(cluster);
    assert!(!pids.into_iter().any(is_alive));
}

#[test]
fn sentinels_replace_a_master_that_runs() {
    let sentinels = Sentinels::start();
    assert_eq!(sentinels.urls().len(), 3);
    assert_eq!(sentinels.master_name(), "tollgate");
    let (first, second) = (sentinels.master_server(), sentinels.other_server());
    first.command(&["SET", "key", "value"]).ok();
    until("the replica has it", || second.command(&["GET", "key"]) != Reply::Nil);
    assert_eq!(sentinels.failover(), first.port());
    assert_eq!(sentinels.master(), second.port());
    assert_eq!(second.command(&["SET", "key", "other"]), Reply::Text(b"OK".to_vec()));
}

#[test]
fn sentinels_replace_a_master_that_is_killed() {
    let sentinels = Sentinels::start();
    let replica = sentinels.other_server().port();
    let killed = sentinels.kill_master();
    sentinels.until_replaced(killed);
    assert_eq!(sentinels.master(), replica);

    let all = [0, 1, 2].map(|nth| sentinels.sentinel(nth));
    let all = all.into_iter().chain([sentinels.master_server(), sentinels.other_server()]);
    let pids: Vec<_> = all.map(Server::pid).collect();
    drop(sentinels);
    assert!(!pids.into_iter().any(is_alive));
}

#[test]
fn a_watched_process_ends_with_its_guard() {
    let directory = std::env::temp_dir().join(format!("tollgate-guard-{}", std::process::id()));
    let guard = Guard::new(&directory);
    let mut sleeps = [(); 2].map(|()| Command::new("sleep").arg("600").spawn().unwrap());
    for sleep in &sleeps {
        guard.watch(sleep.id());
    }
    guard.forget(sleeps[0].id());
    drop(guard);
    assert!(!directory.exists());
    // Killed, and its number is not given to another process before it is waited for.
    assert!(!sleeps[1].wait().unwrap().success());
    assert_eq!(sleeps[0].try_wait().unwrap(), None);
    sleeps[0].kill().unwrap();
    sleeps[0].wait().unwrap();
}
