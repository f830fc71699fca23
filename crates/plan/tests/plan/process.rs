//! The program as its users run it: what it prints, and how it ends.

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Runs the program with such words and such a log on standard input.
pub(crate) fn run(words: &[&str], log: impl AsRef<[u8]>) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_tollgate-plan"));
    let mut program = program
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read all of it has closed the pipe.
    let mut input = program.stdin.take().unwrap();
    let log = log.as_ref().to_vec();
    let writer = std::thread::spawn(move || drop(input.write_all(&log)));
    let output = program.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// What the program prints, if it ends well.
#[track_caller]
pub(crate) fn report(words: &[&str], log: impl AsRef<[u8]>) -> String {
    let Output { status, stdout, stderr } = run(words, log);
    assert_eq!((status.code(), text(stderr).as_str()), (Some(0), ""));
    text(stdout)
}

/// What the program complains of, if it ends with 2.
#[track_caller]
fn complaint(words: &[&str], log: impl AsRef<[u8]>) -> String {
    let Output { status, stdout, stderr } = run(words, log);
    assert_eq!((status.code(), text(stdout).as_str()), (Some(2), ""));
    text(stderr)
}

fn text(output: Vec<u8>) -> String {
    String::from_utf8(output).unwrap()
}

/// A file in the directory for temporary files, removed with this.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

const COMMON: &str = r#"192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /a?b HTTP/1.0" 200 2326
192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /a HTTP/1.0" 200 2326
192.0.2.1 - - [10/Oct/2000:14:56:36 -0700] "GET /b HTTP/1.0" 304 -
"#;

#[test]
fn the_report_has_totals_keys_and_times() {
    let expected = "\
quota      1 per minute
format     common or combined (nginx, Apache, Traefik)
read       3 lines, 3 requests of 1 key
           from 2000-10-10T20:55:36Z to 2000-10-10T21:56:36Z
refused    1 of 3 requests (33.33%)
memory     about 50 bytes (1 bucket not full, 0 requests waiting)

by key     1 of 1 key would have been refused or delayed
  key                requests    refused   share  = run # refused
  192.0.2.1                 3          1  33.33%  ===========================#############

by minute
  from (UTC)         requests    refused   share  = run # refused
  2000-10-10 20:55          2          1  50.00%  ====================####################
  2000-10-10 21:56          1          0   0.00%  ====================
";
    assert_eq!(report(&["1 per minute"], COMMON), expected);
}

#[test]
fn a_file_is_read_as_standard_input_is_packed_or_not() {
    let expected = report(&["1 per minute", "-"], COMMON);
    let file = File::new("plan-common.log", COMMON.as_bytes());
    assert_eq!(report(&["1 per minute", file.path()], ""), expected);

    // Packed logs are put together by `cat`.
    let mut packed = Vec::new();
    for part in [&COMMON[..100], &COMMON[100..]] {
        let mut encoder = GzEncoder::new(&mut packed, Compression::default());
        encoder.write_all(part.as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
    assert_eq!(report(&["1 per minute"], &packed), expected);
    let file = File::new("plan-common.log.gz", &packed);
    assert_eq!(report(&["1 per minute", file.path()], ""), expected);

    packed.truncate(packed.len() - 20);
    assert!(complaint(&["1 per minute"], &packed).starts_with("tollgate-plan: "));
}

#[test]
fn check_exits_with_1_if_more_is_refused_than_is_allowed() {
    let code = |words: &[&str]| run(words, COMMON).status.code().unwrap();
    assert_eq!(code(&["1 per minute"]), 0);
    assert_eq!(code(&["--check", "1 per minute"]), 1);
    assert_eq!(code(&["--check", "2 per minute"]), 0);
    assert_eq!(code(&["--check", "--at-most", "33%", "1 per minute"]), 1);
    assert_eq!(code(&["--check", "--at-most", "34%", "1 per minute"]), 0);
    // What is refused is printed all the same.
    let printed = text(run(&["--check", "1 per minute"], COMMON).stdout);
    assert_eq!(printed, report(&["1 per minute"], COMMON));
}

#[test]
fn the_smallest_quota_is_proposed() {
    let text = report(&["--key", "path", "--at-most", "0%", "1 per hour"], COMMON);
    assert!(text.contains("  /a                        2          1  50.00%"), "{text}");
    assert!(text.contains("smallest   2 per hour: refuses 0 of 3 requests (0.00%)"), "{text}");
    assert!(text.contains("too small  1 per hour: refuses 1 of 3 requests (33.33%)"), "{text}");
}

#[test]
fn requests_wait_and_cost_what_the_log_says() {
    let log = r#"{"time":"2026-01-31T12:00:00.25+01:00","key":"alice","cost":2}
{"time":1769857200.25,"key":"alice"}
{"time":"1769857200250","key":7}
"#;
    let text = report(&["--wait", "10s", "2 per minute, max_reserved 1", "-"], log);
    assert!(
        text.contains("from 2026-01-31T11:00:00.250000Z to 2026-01-31T11:00:00.250000Z"),
        "{text}"
    );
    assert!(text.contains("refused    1 of 3"), "{text}");
    let text = report(&["--wait", "30s", "2 per minute, max_reserved 1", "-"], log);
    assert!(text.contains("delayed    1 of 3 requests (33.33%), by 30s at most"), "{text}");
    assert!(
        text.contains("memory     about 614 bytes (2 buckets not full, 1 request waiting)"),
        "{text}"
    );

    let nested = r#"{"ts":0,"user":{"id":"alice"},"tokens":"3"}"#;
    let words = ["--time", "ts", "--key", "/user/id", "--cost", "tokens", "2 per minute"];
    let text = report(&words, nested);
    assert!(text.contains("1 cost more than the quota ever grants"), "{text}");
}

#[test]
fn lines_that_are_not_read_are_counted_and_the_first_is_shown() {
    let long = "x".repeat(100_000);
    let log = format!("{COMMON}\nGET /\x1b[31m\n{long}\n{}", COMMON.lines().next().unwrap());
    let text = report(&["10 per minute"], &log);
    assert!(text.contains("read       7 lines, 4 requests"), "{text}");
    let broken = "not read: 2 lines, the first is line 5: no client and time as `192.0.2.1 - - ";
    assert!(text.contains(broken), "{text}");
    let early = "out of order: 1 line, the first is line 7: \
                 2000-10-10T20:55:36Z is before 2000-10-10T21:56:36Z";
    assert!(!text.contains(early), "it is sorted: {text}");
}

#[test]
fn a_log_without_a_request_is_an_error() {
    assert_eq!(complaint(&["1 per hour"], ""), "tollgate-plan: the log has no requests\n");
    let unknown = "tollgate-plan: none of 2 lines is a request; line 1: in no format that is known \
                   (see --help, or name it with --format)\n";
    assert_eq!(complaint(&["1 per hour"], "abc\ndef\n"), unknown);
    let misnamed = "tollgate-plan: none of 3 lines is a request; line 1: no field `x-api-key` in this \
                    format, which has client, ident, user, time, request, status, bytes, referer, \
                    user-agent, number, router, server, duration\n";
    assert_eq!(complaint(&["--key", "x-api-key", "1 per hour"], COMMON), misnamed);
    let other = complaint(&["--format", "envoy", "1 per hour"], COMMON);
    assert!(other.contains("line 1: 8 fields, but Envoy's default text has 13"), "{other}");
    // It is not read to its end.
    let long = complaint(&["1 per hour"], "abc\n".repeat(20_000));
    assert!(long.contains("none of 10000 lines"), "{long}");
}

#[test]
fn the_page_stands_alone_and_obeys_nothing_in_the_log() {
    let log = "0 <script>alert(1)</script>\n0 <script>alert(1)</script>\n90 b\n";
    let file = File::new("plan.html", b"");
    let words = ["--plot", file.path(), "--at-most", "0%", "1 per minute"];
    report(&words, log);
    let page = fs::read_to_string(&file.0).unwrap();
    for part in [
        "<title>1 per minute: refused 1 of 3 requests (33.33%)</title>",
        "<title>1970-01-01 00:00:00: 2 requests, 1 refused</title>",
        "<td>&lt;script&gt;alert(1)&lt;/script&gt;<td>2<td>1<td>50.00%",
        "prefers-color-scheme: dark",
        "Smallest: 2 per minute",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    for part in ["<script", "http://", "https://", "url(", "src=", "NaN", "inf"] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert!(
        complaint(&["--plot", "/no/such/x.html", "1 per hour"], log).contains("/no/such/x.html")
    );
}

#[test]
fn a_generated_log_is_read_whole() {
    for format in ["nginx", "plain"] {
        let log = report(&["--generate", "1000", "--format", format], "");
        let text = report(&["10 per minute"], &log);
        assert!(text.contains("read       1000 lines, 1000 requests of"), "{text}");
        assert!(!text.contains("not read") && !text.contains("out of order"), "{text}");
    }
    complaint(&["--generate", "1000", "--format", "envoy"], "");
}

#[test]
fn wrong_words_are_errors_that_say_what_is_allowed() {
    for (words, expected) in [
        (&["10 per minute", "--wait", "long"][..], "expected number at 0"),
        (&["10 per minute", "--at-most", "2"], "not a share from 0% to 100%"),
        (&["10 per minute", "--at-most", "100.1%"], "not a share from 0% to 100%"),
        (&["10 per minute", "--top"], "a value is required"),
        (&["10 per minute", "--colour"], "unexpected argument '--colour'"),
        (&["10 per minute", "--format", "iis"], "nginx, apache, traefik, caddy"),
        (&[], "<QUOTA>"),
        (&["10 per minute", "a", "b"], "unexpected argument 'b'"),
        (&["0 per minute"], "a quota of 0 refuses each request"),
        (&["10 per second per minute"], "10 per second per minute"),
        (&["10 per minute", "/no/such/file"], "/no/such/file: No such file"),
    ] {
        let complaint = complaint(words, "");
        assert!(complaint.contains(expected), "{words:?}: {complaint}");
    }
}

#[test]
fn help_teaches() {
    let help = report(&["--help"], "");
    for part in
        ["What would this rate limit have refused?", "Examples:", "Exit codes:", "cloudfront"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(help.lines().all(|line| line.len() <= 110), "{help}");
}

/// The log of all examples: a made-up one.
#[test]
fn the_examples_are_what_the_program_prints() {
    let log = report(&["--generate", "200000"], "");
    let refused = report(&["10 per minute, capacity 20"], &log);
    let words = ["--wait", "30s", "--at-most", "1%", "10 per minute, capacity 20"];
    let proposed = report(&words, &log);

    let pages = [include_str!("../../README.md"), include_str!("../../../../docs/choosing.md")];
    for page in pages {
        let block =
            page.split("```text\nquota ").nth(1).and_then(|rest| rest.split("\n```").next());
        let lines: Vec<_> = block.unwrap().lines().skip(1).filter(|line| *line != "…").collect();
        assert!(lines.len() > 10, "{lines:?}");
        for line in lines {
            assert!(
                proposed.lines().any(|printed| printed == line),
                "{line} is not in\n{proposed}"
            );
        }
    }

    let help = report(&["--help"], "");
    let mut known = 0;
    for line in help.lines().map(str::trim) {
        if ["refused  ", "by key  ", "delayed  ", "smallest  ", "too small  "]
            .iter()
            .any(|begin| line.starts_with(begin))
        {
            let printed = [&refused, &proposed].map(|text| text.lines().any(|other| other == line));
            assert!(printed.contains(&true), "{line} is not in\n{refused}\n{proposed}");
            known += 1;
        }
    }
    assert_eq!(known, 5, "{help}");
}
