//! A log of each server, written to the letter of its documentation. The numbers are counted by hand:
//! at 3 a minute a token comes in 20 seconds, at 2 a minute in 30.

use super::process::report;

/// A format and a log in it, the options and the quota; what the report says of lines and keys that were
/// read, of refusals, and in other lines.
type Sample = (&'static str, &'static str, Words, &'static str, &'static str, Words);
type Words = &'static [&'static str];

const SAMPLES: &[Sample] = &[
    (
        // The fourth request of the first client comes 3 s after the first, the fifth after 25 s; those
        // of one IPv6 network count together.
        "nginx",
        include_str!("../data/nginx.log"),
        &["3 per minute"],
        "10 lines, 10 requests of 3 keys",
        "2 of 10",
        &[
            "from 2026-11-27T08:00:00Z to 2026-11-27T08:00:30Z",
            "2001:db8:0:1::/64 4 1",
            "192.0.2.10 5 1",
        ],
    ),
    (
        "nginx",
        include_str!("../data/nginx.log"),
        &["--key", "user", "1 per minute"],
        "10 lines, 2 requests of 2 keys",
        "0 of 2",
        &["not read: 8 lines, the first is line 1: no value in `user`"],
    ),
    (
        // Five cost more than 1,000 bytes: 2048 twice, 9001 twice, 1024.
        "nginx",
        include_str!("../data/nginx.log"),
        &["--cost", "bytes", "--key", "all", "1000 per second"],
        "10 lines, 10 requests of 1 key",
        "5 of 10",
        &["5 cost more than the quota ever grants"],
    ),
    (
        // By the times at which they began, 31, 36, 37, 38 and 55; in the order of the lines, two would
        // be refused.
        "apache",
        include_str!("../data/apache-common.log"),
        &["3 per minute"],
        "9 lines, 9 requests of 3 keys",
        "1 of 9",
        &[
            "from 2026-10-10T20:55:31Z to 2026-10-10T20:55:58Z",
            "host.example.com 5 1",
            "1 of 3 keys",
        ],
    ),
    (
        "apache",
        include_str!("../data/apache-combined.log"),
        &["2 per minute"],
        "8 lines, 8 requests of 4 keys",
        "2 of 8",
        &["198.51.100.1 4 2"],
    ),
    (
        "apache",
        include_str!("../data/apache-combined.log"),
        &["--key", "User-Agent", "2 per minute"],
        "8 lines, 6 requests of 2 keys",
        "2 of 6",
        &["not read: 2 lines, the first is line 6: no value in `User-Agent`", "(1.0) "],
    ),
    (
        "apache",
        include_str!("../data/apache-combined.log"),
        &["--key", "path", "2 per minute"],
        "8 lines, 7 requests of 3 keys",
        "2 of 7",
        &["not read: 1 line, the first is line 7: no value in `path`", "/search 4"],
    ),
    (
        // Debian's `vhost_combined` begins with the name of the server.
        "apache",
        include_str!("../data/apache-vhost.log"),
        &["1 per minute"],
        "4 lines, 4 requests of 3 keys",
        "1 of 4",
        &["192.0.2.1 2 1"],
    ),
    (
        "traefik",
        include_str!("../data/traefik-common.log"),
        &["3 per minute"],
        "8 lines, 8 requests of 3 keys",
        "1 of 8",
        &["192.0.2.1 5 1"],
    ),
    (
        "traefik",
        include_str!("../data/traefik-common.log"),
        &["--key", "router", "3 per minute"],
        "8 lines, 7 requests of 2 keys",
        "1 of 7",
        &["api@docker 5 1", "line 3: no value in `router`"],
    ),
    (
        // The export began at 1.25 s and was written at 6 s: that at 1.5 s is the third.
        "traefik",
        include_str!("../data/traefik.json.log"),
        &["2 per minute"],
        "7 lines, 7 requests of 3 keys",
        "1 of 7",
        &["from 2026-11-27T08:00:00.123456Z to 2026-11-27T08:00:32Z", "192.0.2.1 4"],
    ),
    (
        "traefik",
        include_str!("../data/traefik.json.log"),
        &["--key", "user-agent", "2 per minute"],
        "7 lines, 5 requests of 2 keys",
        "1 of 5",
        &["curl/8.5.0 4 1", "not read: 2 lines, the first is line 5"],
    ),
    (
        // 1,532 bytes each: one GET and one POST fit.
        "traefik",
        include_str!("../data/traefik.json.log"),
        &["--key", "method", "--cost", "bytes", "2000 per minute"],
        "7 lines, 7 requests of 2 keys",
        "5 of 7",
        &["GET 6 5"],
    ),
    (
        // The address behind the proxy; the line of the log that is no request is left out.
        "caddy",
        include_str!("../data/caddy.log"),
        &["2 per minute"],
        "7 lines, 6 requests of 3 keys",
        "1 of 6",
        &[
            "192.0.2.1 3 1",
            "not read: 1 line, the first is line 4: no text or number in `client`",
            "to 2026-11-27T08:00:05Z",
        ],
    ),
    (
        "caddy",
        include_str!("../data/caddy.log"),
        &["--key", "x-api-key", "2 per minute"],
        "7 lines, 3 requests of 1 key",
        "1 of 3",
        &["alpha 3 1"],
    ),
    (
        "caddy",
        include_str!("../data/caddy.log"),
        &["--key", "path", "2 per minute"],
        "7 lines, 6 requests of 3 keys",
        "1 of 6",
        // At 0.5, 4 and 5 s.
        &["/ 3 1"],
    ),
    (
        // The last address of X-Forwarded-For, of the requests at 0.82, 0.95, 1.004 and 31 s. A quote in
        // a header field of the client moves the fields, so such lines are not read.
        "envoy",
        include_str!("../data/envoy.log"),
        &["2 per minute"],
        "9 lines, 6 requests of 3 keys",
        "1 of 6",
        &["198.51.100.4 4 1", "not read: 3 lines, the first is line 5: no value in `client`"],
    ),
    (
        "envoy",
        include_str!("../data/envoy.log"),
        &["--key", "host", "2 per minute"],
        "9 lines, 6 requests of 2 keys",
        // Five at locations within 31 s: at 0.31 and 0.82, and at 31 s.
        "2 of 6",
        &["locations 5 2"],
    ),
    (
        // When they came: the WebSocket at 44.364 s, though it was closed at 50.
        "alb",
        include_str!("../data/alb.log"),
        &["2 per minute"],
        "7 lines, 7 requests of 2 keys",
        "2 of 7",
        &["from 2026-11-27T08:00:00.185000Z to", "192.0.2.131 5 2"],
    ),
    (
        "alb",
        include_str!("../data/alb.log"),
        &["--key", "path", "1 per minute"],
        "7 lines, 7 requests of 3 keys",
        // `/` at 0.185, 4.1 and 45.9 s; `/items` at 0.9, 45.0 and 45.5 s.
        "4 of 7",
        &["/items 3 2", "/ 3 2"],
    ),
    (
        // Sorted by their times; a header line in the middle has fewer fields.
        "cloudfront",
        include_str!("../data/cloudfront.log"),
        &["2 per minute"],
        "10 lines, 6 requests of 2 keys",
        "1 of 6",
        &["from 2026-11-27T08:00:01Z to 2026-11-27T08:00:33Z", "192.0.2.200 4"],
    ),
    (
        "cloudfront",
        include_str!("../data/cloudfront.log"),
        &["--key", "path", "--cost", "cs-bytes", "30 per minute"],
        "10 lines, 4 requests of 3 keys",
        // 23 bytes each; two of `/index.html` within a second.
        "1 of 4",
        &[
            "/index.html 2 1",
            "not read: 2 lines, the first is line 9: no field `cs-bytes` in this format, which has date, \
             time, c-ip,",
        ],
    ),
    (
        "plain",
        include_str!("../data/plain.log"),
        &["3 per minute"],
        "11 lines, 7 requests of 3 keys",
        "1 of 7",
        &[
            "alice 4 1",
            "not read: 2 lines, the first is line 8: no time in `time`",
            "from 2026-11-27T08:00:00Z to 2026-11-27T08:00:21Z",
        ],
    ),
];

#[test]
fn each_sample_has_the_numbers_that_were_counted_by_hand() {
    for (format, log, words, read, refused, others) in SAMPLES {
        let printed = report(words, log);
        let text: Vec<_> = printed.split_whitespace().collect();
        let text = text.join(" ");
        let [read, refused] = [format!("read {read} "), format!("refused {refused} requests")];
        for line in [&*read, &refused].into_iter().chain(others.iter().copied()) {
            assert!(text.contains(line), "{format} {words:?}: `{line}` is not in\n{printed}");
        }
        assert!(!text.contains("out of order"), "{text}");
        // The format that was found is the one that it is.
        assert_eq!(report(&[&["--format", format], *words].concat(), log), printed);
    }
}

/// A log that was cut, or begins with what a server says when it starts.
#[test]
fn the_format_is_found_behind_lines_that_have_none() {
    for (format, log, words, ..) in SAMPLES.iter().filter(|sample| sample.0 != "cloudfront") {
        let rotated = format!("newsyslog: logfile turned over\n\n{log}");
        let text = report(words, &rotated);
        assert!(
            text.contains("the first is line 1: in no format that is known"),
            "{format}: {text}"
        );
        let refused =
            |text: &str| text.lines().find(|line| line.starts_with("refused")).map(String::from);
        assert_eq!(refused(&text), refused(&report(words, log)), "{format}");
    }
}
