//! Lines as attackers write them, or as a disk keeps them: none ends the program.

use clap::ValueEnum;
use proptest::prelude::*;

use super::program::format::Name;
use super::program::line::{Fields, Lines};
use super::program::log;

/// Pieces of which the formats are made, and what does not belong there.
const PIECES: [&str; 40] = [
    " ",
    "  ",
    "\t",
    "\"",
    "\\",
    "\\\"",
    "[",
    "]",
    "-",
    "#",
    "#Fields:",
    "#Fields: date time c-ip",
    "{",
    "}",
    ":",
    ",",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "ä",
    "192.0.2.1",
    "192.0.2.1:80",
    "[::1]:80",
    "::1",
    "::",
    "10/Oct/2000:13:55:36 -0700",
    "[10/Oct/2000:13:55:36 -0700]",
    "[2026-11-27T08:00:00.310Z]",
    "2026-11-27T08:00:00Z",
    "2026-11-27T08:00:00.999999999999999999999+23:59",
    "2026-11-27",
    "08:00:00",
    "99999999999999999999999",
    "9223372036854775807",
    "\"GET /a?b HTTP/1.1\"",
    "\"GET ://\"",
    "200",
    "http",
    "date",
    "{\"ts\":1e308,\"request\":{\"uri\":[[[]]],\"client_ip\":[]}}",
];

fn fields() -> impl Strategy<Value = Fields> {
    let name = prop::option::of(prop_oneof![
        prop::sample::select(vec![
            "client",
            "path",
            "method",
            "user",
            "all",
            "time",
            "bytes",
            "host",
            "user-agent",
            "cost",
            "/",
            "/a/b",
        ])
        .prop_map(str::to_owned),
        ".{0,8}",
    ]);
    (name.clone(), name.clone(), name).prop_map(|(key, time, cost)| Fields { key, time, cost })
}

/// Each format that can be named, and none.
fn names() -> Vec<Option<Name>> {
    Name::value_variants().iter().copied().map(Some).chain([None]).collect()
}

proptest! {
    #[test]
    fn any_log_is_read_to_its_end(
        fields in fields(),
        name in prop::sample::select(names()),
        lines in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)
                    .prop_map(|pieces| pieces.concat().into_bytes()),
                prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)
                    .prop_map(|pieces| pieces.join(" ").into_bytes()),
                prop::collection::vec(any::<u8>(), 0..60),
            ],
            0..12,
        ),
    ) {
        let log = lines.join(&b'\n');
        let mut requests = 0;
        let mut lines = Lines::new(fields, name);
        let counts = log::read(&log[..], &mut lines, |_, _| {
            requests += 1;
            Ok(())
        }).unwrap();
        let broken = counts.broken.map_or(0, |fault| fault.lines);
        prop_assert!(requests + broken <= counts.lines);
    }

    /// Mutants of lines that are read.
    #[test]
    fn lines_of_the_samples_may_be_cut_and_damaged(
        name in prop::sample::select(names()),
        fields in fields(),
        sample in prop::sample::select(vec![
            include_str!("../data/nginx.log"), include_str!("../data/apache-combined.log"),
            include_str!("../data/traefik-common.log"), include_str!("../data/traefik.json.log"),
            include_str!("../data/caddy.log"), include_str!("../data/envoy.log"),
            include_str!("../data/alb.log"), include_str!("../data/cloudfront.log"),
            include_str!("../data/plain.log"),
        ]),
        (at, length) in (any::<prop::sample::Index>(), 0..40_usize),
        other in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut log = sample.as_bytes().to_vec();
        let at = at.index(log.len());
        let end = log.len().min(at + length);
        log.splice(at..end, other);
        let mut lines = Lines::new(fields, name);
        log::read(&log[..], &mut lines, |_, _| Ok(())).unwrap();
    }
}

#[test]
fn a_line_that_is_too_long_is_not_kept() {
    let log = vec![b'x'; 65_537];
    let mut lines = Lines::new(Fields::default(), None);
    let counts = log::read(&log[..], &mut lines, |_, _| unreachable!()).unwrap();
    let broken = counts.broken.unwrap();
    assert_eq!((broken.lines, broken.reason.as_str()), (1, "longer than 65536 bytes"));
}

#[test]
fn times_that_do_not_exist_are_broken_lines() {
    for time in [
        "31/Feb/2000:13:55:36 -0700",
        "10/oct/2000:13:55:36 -0700",
        "10/Oct/2000:25:55:36 -0700",
        "10/Oct/2000:13:55:36 -0760",
        "10/Oct/2000:13:55:36",
        "1/Oct/2000:13:55:36 +0000",
    ] {
        let line = format!("192.0.2.1 - - [{time}] \"GET / HTTP/1.1\" 200 5");
        let read = Lines::new(Fields::default(), Some(Name::Nginx)).read(&line).map(|_| ());
        assert!(read.is_err(), "{time}");
    }
    for time in ["2026-02-30T00:00:00Z", "2026-01-31T12:00:00", "-1", "1e9", "", "12 o'clock"] {
        let line = format!(r#"{{"time":"{time}","key":"a"}}"#);
        let read = Lines::new(Fields::default(), None).read(&line).map(|_| ());
        assert!(read.is_err(), "{time}");
    }
}

/// A client chooses the name that it logs in by, and with it chose the time of its line.
#[test]
fn names_of_users_set_no_time() {
    let names =
        ["[01/Jan/1970:00:00:00 +0000]", "a [01/Jan/1970:00:00:00 +0000] \\x22GET / HTTP/1.1\\x22"];
    for name in names {
        let line =
            format!(r#"192.0.2.1 - {name} [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.1" 401 9"#);
        let fields = Fields { key: Some("user".to_owned()), ..Fields::default() };
        let mut lines = Lines::new(fields, None);
        let entry = lines.read(&line).unwrap().unwrap();
        assert_eq!((entry.at.to_string().as_str(), &*entry.key), ("2000-10-10T20:55:36Z", name));
    }
}
