//! The exact text of each mistake, at its place, in each format.

use crate::text::is_wrong;

/// A mistake in the fields of the limit `api`.
#[track_caller]
fn is_wrong_in_api(fields: &str, messages: &[&str]) {
    let messages: Vec<_> = messages.iter().map(|text| format!("limit \"api\": {text}")).collect();
    let messages: Vec<_> = messages.iter().map(String::as_str).collect();
    is_wrong(&format!("{{limits: {{api: {{{fields}}}}}}}"), &messages);
}

/// A mistake in a field beside a quota.
#[track_caller]
fn is_wrong_beside_quota(fields: &str, message: &str) {
    is_wrong_in_api(&format!("quota: \"10 per minute\", {fields}"), &[message]);
}

const NO_LIMITS: &str = "write a table `limits` with a name and a quota for each limit, such as \
                         `api` and \"10 per second\"";

#[test]
fn a_configuration_has_limits() {
    is_wrong("¶{}", &[&format!("there are no limits ({NO_LIMITS})")]);
    is_wrong("¶{dialects: \"none\"}", &[&format!("there are no limits ({NO_LIMITS})")]);
    is_wrong("{limits: ¶{}}", &[&format!("`limits` is empty ({NO_LIMITS})")]);
    is_wrong("{limits: ¶[1]}", &[&format!("`limits` is a list ({NO_LIMITS})")]);
    is_wrong("{limits: ¶5}", &[&format!("`limits` is the number 5 ({NO_LIMITS})")]);
}

#[test]
fn a_field_that_is_unknown_names_the_nearest() {
    is_wrong(
        "{¶limit: 5, limits: {a: \"5 per hour\"}}",
        &["there is no field `limit` (did you mean `limits`?)"],
    );
    is_wrong(
        "{limits: {a: \"5 per hour\"}, ¶redis: 5}",
        &["there is no field `redis` (there are `limits`, `client_address`, `dialects`, \
           `on_refusal`, `on_failure` and `enabled`)"],
    );
    is_wrong_beside_quota("¶capcity: 20", "there is no field `capcity` (did you mean `capacity`?)");
    is_wrong_beside_quota("¶Cost: 20", "there is no field `Cost` (did you mean `cost`?)");
    is_wrong_beside_quota(
        "¶burst_size: 20",
        "there is no field `burst_size` (there are `quota`, `kind`, `rate`, `per`, `capacity`, \
         `max_reserved`, `initial`, `start`, `shards`, `name`, `on_failure`, `key`, `missing_key`, \
         `cost`, `methods`, `exempt_paths`, `exempt_networks`, `sample`, `enforce`, `shadow`, \
         `refund_if`, `refund_unless`, `reset_if`, `block_after`, `enabled`, `queue`, `jitter`, \
         `dialects`, `retry_after`, `partition_key`, `on_refusal`, `settle`, `refund_dropped` and `expose`)",
    );
    is_wrong_beside_quota(
        "queue: {max_wait: \"1s\", ¶max_waiter: 5}",
        "there is no field `queue.max_waiter` (did you mean `max_waiters`?)",
    );
    is_wrong(
        "{limits: {a: \"5 per hour\"}, client_address: {¶proxies: 5}}",
        &["there is no field `client_address.proxies` (there are `from`, `trusted_proxies`, \
           `trusted_hops` and `ipv6_prefix`)"],
    );
}

#[test]
fn a_limit_is_a_quota_or_a_table() {
    let text = "(write a quota, such as \"10 per minute\", or a table of fields)";
    for (given, shown) in [("5", "the number 5"), ("true", "true"), ("[\"a\"]", "a list")] {
        let message = format!("limit \"a\": the limit is {shown} {text}");
        is_wrong(&format!("{{limits: {{a: ¶{given}}}}}"), &[&message]);
    }
    is_wrong(
        "{limits: {login: ¶\"5 per fortnight\"}}",
        &["limit \"login\": `5 per fortnight` is not a quota: `fortnight` is not a period (write \
           `minute`, `90 seconds`, `1h 30m` or `30 days`)"],
    );
}

#[test]
fn the_numbers_are_a_text_or_fields() {
    is_wrong_in_api(
        "quota: ¶\"1.5 per second\"",
        &["`1.5 per second` is not a quota: rate `1.5` is not a whole number (write `3 per 2 \
             seconds`)"],
    );
    is_wrong_in_api(
        "quota: ¶\"0 per second, capacity 5\"",
        &[
            "`0 per second, capacity 5` is not a quota: a quota of 0 has no capacity, max_reserved, \
           initial or start (drop them, or use a rate above zero)",
        ],
    );
    is_wrong_in_api(
        "quota: ¶10",
        &["`quota` is the number 10 (write text, such as \"10 per minute, capacity 20\")"],
    );
    is_wrong_in_api(
        "rate: ¶0, per: \"1s\", max_reserved: 5",
        &[
            "a quota of 0 has no capacity, max_reserved, initial or start (drop them, or use a rate \
           above zero)",
        ],
    );
    is_wrong_in_api(
        "rate: ¶10, per: \"0s\"",
        &["quota of 10 per 0 seconds is empty (rate and period must both be more than zero)"],
    );
    is_wrong_in_api(
        "rate: ¶\"10\", per: \"1s\"",
        &["`rate` is the text \"10\" (write a whole number, such as 10)"],
    );
    for number in ["-5", "1.5", "1e3"] {
        let text =
            format!("`rate` is the number {number} (write a whole number from 0 to {})", u64::MAX);
        is_wrong_in_api(&format!("rate: ¶{number}, per: \"1s\""), &[&text]);
    }
    for (period, shown) in [
        ("60", "the number 60"),
        ("\"60\"", "the text \"60\""),
        ("\"month\"", "the text \"month\""),
    ] {
        let text =
            format!("`per` is {shown} (write a time with its unit, such as \"30s\" or \"1h 30m\")");
        is_wrong_in_api(&format!("rate: 5, per: ¶{period}"), &[&text]);
    }
    is_wrong_in_api(
        "rate: 5, per: \"1s\", kind: ¶\"fixed windw\"",
        &["`kind` is the text \"fixed windw\" (did you mean \"fixed window\"?)"],
    );
    is_wrong_in_api(
        "rate: 5, per: \"1s\", kind: ¶\"sliding log\"",
        &["`kind` is the text \"sliding log\" (there are \"token bucket\" and \"fixed window\")"],
    );
    is_wrong_in_api(
        "rate: 5, per: \"1s\", start: ¶\"monday\"",
        &[
            "`start` is the text \"monday\" (write a time in UTC, such as \"2026-01-01T00:00:00Z\", \
             or \"first use\")",
        ],
    );
    is_wrong_in_api(
        "rate: 5, per: \"1s\", shards: ¶0",
        &["`shards` is the number 0 (write a whole number from 1 to 1024)"],
    );
    is_wrong_in_api(
        "rate: ¶5, per: \"1s\", start: \"2026-01-01T00:00:00Z\"",
        &["a token bucket has no start (drop `start`, or use a fixed window)"],
    );
    is_wrong_in_api(
        "rate: ¶5, per: \"1s\", initial: 6",
        &["initial of 6 is above the capacity of 5 (use at most 5, or raise the capacity)"],
    );
    is_wrong_in_api(
        "rate: ¶1, per: \"1 day\", capacity: 10000000000",
        &["capacity of 10000000000 does not fit in 2^53 units: at 1 per day a token counts as \
           86400, and ten times the capacity may be owed (use a capacity of at most 9477271943, or \
           set `max_reserved`)"],
    );
}

#[test]
fn numbers_that_contradict_or_lack_each_other_are_an_error() {
    is_wrong(
        "{limits: {¶api: {cost: 5}}}",
        &["limit \"api\": no numbers (write a `quota`, such as \"10 per minute\")"],
    );
    is_wrong_in_api(
        "quota: \"10 per minute\", ¶capacity: 20",
        &["`capacity` beside `quota` (write all numbers in `quota`, or none)"],
    );
    is_wrong_in_api(
        "¶rate: 5, shards: 4, quota: \"10 per minute\"",
        &["`rate` and `shards` beside `quota` (write all numbers in `quota`, or none)"],
    );
    let way_out = "(write how many tokens a limit gains by `rate`, and in which time by `per`)";
    is_wrong_in_api("¶rate: 5", &[&format!("`rate` without `per` {way_out}")]);
    is_wrong_in_api(
        "¶per: \"1h\", capacity: 5",
        &[&format!("`per` and `capacity` without `rate` {way_out}")],
    );
}

#[test]
fn a_name_is_one_that_a_header_field_can_hold() {
    let long = "x".repeat(65);
    let way_out = "(use 1 to 64 printable ASCII characters)";
    is_wrong(
        &format!("{{limits: {{¶{long}: \"5 per hour\"}}}}"),
        &[&format!("limit \"{}…\": its name of 65 bytes is invalid {way_out}", &long[..60])],
    );
    is_wrong_beside_quota("name: ¶\"\"", &format!("its name of 0 bytes is invalid {way_out}"));
    is_wrong_beside_quota(
        "name: ¶7",
        "`name` is the number 7 (write text, such as \"per-tenant\")",
    );
}

#[test]
fn a_key_is_one_that_a_file_can_name() {
    let all = "write \"client address\", \"header x-user\", \"bearer token\", \"api key \
               x-api-key\", \"cookie session\", \"matched path\" or \"none\"; the \
               program can give any other key";
    let written_by_clients = "any client can write that field, and so choose its bucket; write \
                              \"client address\", and name the field and the proxies in \
                              `client_address`";
    for (given, way_out) in [
        ("\"headr x-user\"", "did you mean \"header\"?"),
        ("\"client adress\"", "did you mean \"client address\"?"),
        ("\"Bearer token\"", "did you mean \"bearer token\"?"),
        ("\"user\"", all),
        ("\"\"", all),
        ("\"header\"", "write the name after it, such as \"header x-user\""),
        ("\"cookie\"", "write the name after it, such as \"cookie session\""),
        ("\"api key\"", "write the name after it, such as \"api key x-api-key\""),
        ("\"header x user\"", "`x user` is not the name of a header field"),
        ("\"api key x:y\"", "`x:y` is not the name of a header field"),
        ("\"cookie a;b\"", "`a;b` is not the name of a cookie"),
        ("\"bearer token jwt\"", "nothing comes after \"bearer token\""),
        (
            "\"header x-user, lower case\"",
            "`lower case` is not an option of \"header\": there are \"ignore case\" and \"max \
             length 256\"",
        ),
        (
            "\"header x-user, max length 0\"",
            "`max length 0` is not an option of \"header\": there are \"ignore case\" and \"max \
             length 256\"",
        ),
        (
            "\"bearer token, ignore case\"",
            "`ignore case` is not an option of \"bearer token\": there are \"max length 256\"",
        ),
        (
            "\"client address, max length 5\"",
            "`max length 5` is not an option: \"client address\" has none",
        ),
        (
            "\"header authorization\"",
            "that would put a secret into the store and the log; write \"bearer token\", which \
             hashes it",
        ),
        (
            "\"header Cookie\"",
            "that would put a secret into the store and the log; write \"cookie session\", which \
             hashes it",
        ),
        ("\"header X-Forwarded-For\"", written_by_clients),
        ("\"bearer token or header forwarded\"", written_by_clients),
        ("\"header cf-connecting-ip, max length 64\"", written_by_clients),
        ("\"bearer token or none\"", "\"none\" stands alone: it is one bucket for all requests"),
        ("\"bearer token or \"", all),
    ] {
        let text = format!("`key` is the text {given} ({way_out})");
        is_wrong_beside_quota(&format!("key: ¶{given}"), &text);
    }
    is_wrong_beside_quota("key: ¶5", &format!("`key` is the number 5 ({all})"));
    is_wrong_beside_quota("key: ¶[]", "`key` is an empty list (leave the field out)");
    is_wrong_beside_quota(
        "key: [\"client address\", ¶\"none\"]",
        "`key` has the text \"none\" (\"none\" stands alone: it is one bucket for all requests)",
    );
    is_wrong_beside_quota(
        "key: ¶[\"header a\", \"header b\", \"header c\", \"header d\", \"header e\"]",
        "`key` has 5 parts (a key is combined of at most 4)",
    );
}

#[test]
fn conditions_are_ones_that_can_apply() {
    is_wrong_beside_quota(
        "methods: [\"GET\", ¶\"PSOT\"]",
        "`methods` has the text \"PSOT\" (did you mean \"POST\"?)",
    );
    is_wrong_beside_quota(
        "methods: ¶\"post\"",
        "`methods` is the text \"post\" (did you mean \"POST\"?)",
    );
    is_wrong_beside_quota(
        "methods: [¶\"PROPFIND\"]",
        "`methods` has the text \"PROPFIND\" (there are \"GET\", \"HEAD\", \"POST\", \"PUT\", \
         \"PATCH\", \"DELETE\", \"OPTIONS\", \"CONNECT\" and \"TRACE\")",
    );
    is_wrong_beside_quota("methods: ¶[]", "`methods` is an empty list (leave the field out)");
    for path in ["health", "/api/*"] {
        let text = format!(
            "`exempt_paths` has the text \"{path}\" (write a whole path that begins with a slash, \
             such as \"/health\")"
        );
        is_wrong_beside_quota(&format!("exempt_paths: [¶\"{path}\"]"), &text);
    }
    is_wrong_beside_quota(
        "exempt_networks: [\"10.0.0.0/8\", ¶\"10.0.0.0/33\"]",
        "`exempt_networks` has the text \"10.0.0.0/33\" (write an address and the length of its \
         prefix, such as \"10.0.0.0/8\", or \"private\" alone for all private networks)",
    );
    is_wrong_beside_quota(
        "exempt_networks: [\"10.0.0.0/8\", ¶\"::/0\"]",
        "`exempt_networks` has the text \"::/0\" (that is each address, so no client would be \
         limited: name some networks, or switch the limit off by `enabled`)",
    );
    is_wrong_beside_quota(
        "¶exempt_networks: \"private\"",
        "`exempt_networks` without `client_address`: behind a proxy, all requests have its address, \
         and all might be exempt (say how the address of a client is found; if no proxy is before \
         the program, `from` is \"connection\")",
    );
    for (given, way_out) in [
        ("\"110%\"", "use 0% to 100%"),
        ("\"0.5%\"", "write whole percent, such as \"10%\"; less than one is \"1 in 1000\""),
        ("\"-1%\"", "write whole percent, such as \"10%\"; less than one is \"1 in 1000\""),
        ("\"1 in 0\"", "write \"10%\" or \"1 in 1000\""),
        ("\"half\"", "write \"10%\" or \"1 in 1000\""),
    ] {
        for field in ["enforce", "sample"] {
            let text = format!("`{field}` is the text {given} ({way_out})");
            is_wrong_beside_quota(&format!("{field}: ¶{given}"), &text);
        }
    }
    is_wrong_beside_quota(
        "enforce: ¶10",
        "`enforce` is the number 10 (write \"10%\" or \"1 in 1000\")",
    );
    is_wrong_beside_quota("shadow: ¶\"yes\"", "`shadow` is the text \"yes\" (write true or false)");
    is_wrong_beside_quota("enabled: ¶1", "`enabled` is the number 1 (write true or false)");
}

#[test]
fn statuses_are_those_of_http() {
    let way_out = "(write a status from 100 to 599, a class such as \"4xx\", or \"success\")";
    for field in ["refund_if", "refund_unless", "reset_if"] {
        for (given, shown) in [
            ("600", "the number 600"),
            ("\"401\"", "the text \"401\""),
            ("\"6xx\"", "the text \"6xx\""),
        ] {
            let text = format!("`{field}` has {shown} {way_out}");
            is_wrong_beside_quota(&format!("{field}: [200, ¶{given}]"), &text);
        }
    }
    let way_out = "(write \"exempt\", \"shared\", or the status of the response, such as 401)";
    for (given, shown) in
        [("200", "the number 200"), ("\"reject\"", "the text \"reject\""), ("true", "true")]
    {
        let text = format!("`missing_key` is {shown} {way_out}");
        is_wrong_beside_quota(&format!("missing_key: ¶{given}"), &text);
    }
}

#[test]
fn a_cost_is_one_that_the_limit_can_grant() {
    is_wrong_beside_quota(
        "cost: ¶0",
        &format!("`cost` is the number 0 (write a whole number from 1 to {})", u64::MAX),
    );
    is_wrong_beside_quota(
        "cost: ¶11",
        "cost of 11 can never fit limit `api` (it holds at most 10: ask for less, or raise its \
         capacity)",
    );
    is_wrong_beside_quota(
        "cost: ¶25, queue: \"1m\"",
        "cost of 25 can never fit limit `api` (it holds at most 10 and reserves for at most 60s: \
         ask for less, wait for longer, or raise its capacity)",
    );
    is_wrong_in_api(
        "quota: \"10 per minute, max_reserved 5\", cost: ¶16, queue: \"1h\"",
        &["cost of 16 can never fit limit `api` (it holds at most 10 and reserves at most 5, for \
           at most 3600s: ask for less, wait for longer, or raise these)"],
    );
}

/// A request costs one token where no cost is written.
#[test]
fn the_cost_that_is_not_written_is_one_that_the_limit_can_grant() {
    let text = "cost of 1 can never fit limit `api` (a request takes from at most two of its 100 \
                shards of 0.1 tokens, 0.2 together: ask for less, use fewer shards, or raise rate and \
                period together)";
    is_wrong_in_api("quota: ¶\"10 per second, shards 100\", key: \"none\"", &[text]);
    is_wrong_in_api("rate: ¶10, per: \"1s\", shards: 100, expose: true", &[text]);
    is_wrong_in_api("quota: \"10 per second, shards 100\", cost: ¶1", &[text]);
}

#[test]
fn a_queue_is_one_in_which_requests_can_wait() {
    is_wrong_beside_quota(
        "queue: ¶30",
        "`queue` is the number 30 (write a time with its unit, such as \"30s\" or \"1h 30m\")",
    );
    is_wrong_beside_quota(
        "queue: ¶\"0s\"",
        "`queue` of 0 lets no request wait (write a longer time, or leave `queue` out)",
    );
    is_wrong_beside_quota(
        "queue: {max_wait: ¶\"0s\"}",
        "`queue.max_wait` of 0 lets no request wait (write a longer time, or leave `queue` out)",
    );
    is_wrong_beside_quota(
        "queue: ¶{max_waiters: 5}",
        "`queue` has no `max_wait` (write a time, such as \"30s\")",
    );
    for field in ["max_waiters", "max_waiters_per_key"] {
        let text = format!(
            "`queue.{field}` is the number 0 (write a whole number from 1 to {})",
            u64::MAX
        );
        is_wrong_beside_quota(&format!("queue: {{max_wait: \"1s\", {field}: ¶0}}"), &text);
    }
    is_wrong_beside_quota(
        "queue: {max_wait: \"1s\", on_full: ¶500}",
        "`queue.on_full` is the number 500 (write the status: 503 or 429)",
    );
    is_wrong_beside_quota(
        "shadow: true, queue: ¶\"1s\"",
        "`queue` beside a shadow, which never waits (leave the queue out)",
    );
    is_wrong_beside_quota(
        "enforce: \"0%\", queue: ¶\"1s\"",
        "`queue` beside a shadow, which never waits (leave the queue out)",
    );
    is_wrong_in_api(
        "quota: \"10 per minute, max_reserved 0\", queue: ¶\"1s\"",
        &["`queue` beside a max_reserved of 0, with which no request can wait (raise \
           max_reserved, or leave the queue out)"],
    );
}

#[test]
fn blocks_have_their_numbers_and_times() {
    is_wrong_beside_quota(
        "block_after: ¶\"1h\"",
        "`block_after` is the text \"1h\" (write a table: refusals = 5, within = \"10m\", time = \
         \"1h\")",
    );
    is_wrong_beside_quota(
        "block_after: ¶{refusals: 5, time: \"1h\"}",
        "`block_after` has no `within` (it needs three: refusals, within, time)",
    );
    is_wrong_beside_quota(
        "block_after: ¶{refusals: 5, within: \"0s\", time: \"1h\"}",
        "`block_after` has a time of zero (write a longer one)",
    );
    is_wrong_beside_quota(
        "block_after: ¶{refusals: 5, within: \"1m\", time: \"1h\", longest: \"1h\"}",
        "`block_after.longest` is not longer than `time` (write a longer time, or leave it out)",
    );
    is_wrong_beside_quota(
        "block_after: {refusals: ¶0, within: \"1m\", time: \"1h\"}",
        &format!(
            "`block_after.refusals` is the number 0 (write a whole number from 1 to {})",
            u64::MAX
        ),
    );
    is_wrong_beside_quota(
        "block_after: ¶{refusals: 18446744073709551615, within: \"1m\", time: \"1h\"}",
        "`block_after` cannot count so many refusals in that time: rate of 18446744073709551615 per \
         minute does not fit in 2^53 units (use a rate of at most 9007199254740992)",
    );
    is_wrong_beside_quota(
        "block_after: ¶{refusals: 5, within: \"1m\", time: \"1h\", longest: \"100000 days\"}",
        "four times `block_after.longest` is too long: period of 34560000000s cannot be counted (use \
         whole microseconds, at most 2^53 of them, which is 285 years)",
    );
}

#[test]
fn settings_of_a_layer_are_words_that_there_are() {
    for (field, given, message) in [
        (
            "jitter",
            "5",
            "is the number 5 (write a time with its unit, such as \"30s\" or \"1h 30m\")",
        ),
        ("dialects", "\"draft11\"", "is the text \"draft11\" (did you mean \"draft-11\"?)"),
        (
            "dialects",
            "\"github\"",
            "is the text \"github\" (there are \"draft-11\", \"draft-7\", \"draft-6\", \
             \"x-ratelimit\" and \"none\")",
        ),
        (
            "dialects",
            "[\"draft-7\", \"draft-11\"]",
            "has \"draft-11\" and \"draft-7\", whose fields have the same names (choose one of \
             the two)",
        ),
        (
            "dialects",
            "[\"none\", \"draft-11\"]",
            "has \"none\" beside others (\"none\" stands alone: no fields)",
        ),
        ("retry_after", "\"dates\"", "is the text \"dates\" (did you mean \"date\"?)"),
        ("retry_after", "5", "is the number 5 (there are \"seconds\" and \"date\")"),
        ("partition_key", "\"secret\"", "is the text \"secret\" (there are \"random\")"),
        (
            "on_refusal",
            "\"json\"",
            "is the text \"json\" (there are \"problem details\" and \"plain text\")",
        ),
        ("on_failure", "\"admitt\"", "is the text \"admitt\" (did you mean \"admit\"?)"),
        ("on_failure", "\"open\"", "is the text \"open\" (there are \"refuse\" and \"admit\")"),
        ("settle", "\"on\"", "is the text \"on\" (write true or false)"),
        ("refund_dropped", "1", "is the number 1 (write true or false)"),
        ("expose", "{}", "is a table (write true or false)"),
    ] {
        is_wrong_beside_quota(&format!("{field}: ¶{given}"), &format!("`{field}` {message}"));
        if ["dialects", "on_refusal", "on_failure"].contains(&field) {
            let template = format!("{{limits: {{a: \"5 per hour\"}}, {field}: ¶{given}}}");
            is_wrong(&template, &[&format!("`{field}` {message}")]);
        }
    }
    is_wrong(
        "{limits: {a: \"5 per hour\"}, enabled: ¶\"no\"}",
        &["`enabled` is the text \"no\" (write true or false)"],
    );
}

#[test]
fn fields_that_contradict_each_other_are_an_error() {
    is_wrong_beside_quota(
        "shadow: true, enforce: ¶\"10%\"",
        "`shadow` beside `enforce` (a shadow enforces nothing: leave one of them out)",
    );
    is_wrong_beside_quota(
        "refund_if: 200, refund_unless: ¶401",
        "`refund_if` beside `refund_unless` (leave one of them out)",
    );
    is_wrong_beside_quota(
        "key: \"none\", missing_key: ¶401",
        "`missing_key` beside the key \"none\", which no request lacks (leave it out)",
    );
    is_wrong_beside_quota(
        "key: \"none\", enforce: ¶\"10%\"",
        "`enforce` chooses by the key, and with the key \"none\" all requests have the same (write \
         0% or 100%, or another key)",
    );
}

#[test]
fn the_address_of_clients_is_one_that_they_cannot_choose() {
    for (fields, message) in [
        (
            "¶5",
            "`client_address` is the number 5 (write a table with `from` and `trusted_proxies`)",
        ),
        (
            "{from: ¶\"x-real-ip\"}",
            "`client_address.from` is the text \"x-real-ip\" (write \"connection\", \
             \"x-forwarded-for\", \"forwarded\", or \"header\" and its name, such as \"header \
             cf-connecting-ip\")",
        ),
        (
            "{from: ¶\"header \"}",
            "`client_address.from` is the text \"header \" (write \"connection\", \
             \"x-forwarded-for\", \"forwarded\", or \"header\" and its name, such as \"header \
             cf-connecting-ip\")",
        ),
        (
            "¶{from: \"x-forwarded-for\"}",
            "`client_address` trusts no proxies, and any client can write that field (name the \
             networks of the proxies by `trusted_proxies`, such as \"10.0.0.0/8\", or their \
             number by `trusted_hops`)",
        ),
        (
            "{trusted_proxies: ¶\"10.0.0.0/8\"}",
            "`client_address` trusts proxies, and the address is that of the connection (name \
             the field that they write: `from` is \"x-forwarded-for\", \"forwarded\" or \
             \"header\" and its name)",
        ),
        (
            "{from: \"connection\", trusted_hops: ¶1}",
            "`client_address` trusts proxies, and the address is that of the connection (name \
             the field that they write: `from` is \"x-forwarded-for\", \"forwarded\" or \
             \"header\" and its name)",
        ),
        (
            "{from: \"forwarded\", trusted_proxies: \"private\", trusted_hops: ¶1}",
            "`client_address.trusted_hops` beside `trusted_proxies` (name the networks of the \
             proxies if you know them, or else their number)",
        ),
        (
            "{from: \"header x-real-ip\", trusted_hops: ¶1}",
            "`client_address.trusted_hops` counts the entries of a list, and a header of one \
             address has none (name the networks of the proxies by `trusted_proxies`)",
        ),
        (
            "{from: \"forwarded\", trusted_hops: ¶0}",
            "`client_address.trusted_hops` is the number 0 (write a whole number from 1 to 100)",
        ),
        (
            "{ipv6_prefix: ¶129}",
            "`client_address.ipv6_prefix` is the number 129 (write a whole number from 1 to 128)",
        ),
        (
            "{from: \"forwarded\", trusted_proxies: ¶\"10.0.0.0/33\"}",
            "`client_address.trusted_proxies` is the text \"10.0.0.0/33\" (write an address and \
             the length of its prefix, such as \"10.0.0.0/8\", or \"private\" alone for all \
             private networks)",
        ),
        (
            "{from: \"forwarded\", trusted_proxies: [\"10.0.0.0/8\", ¶\"0.0.0.0/0\"]}",
            "`client_address.trusted_proxies` has the text \"0.0.0.0/0\" (that is each address, so \
             any client could choose its own: name the networks of the proxies, or their number by \
             `trusted_hops`)",
        ),
    ] {
        is_wrong(
            &format!("{{limits: {{a: \"5 per hour\"}}, client_address: {fields}}}"),
            &[message],
        );
    }
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once_in_the_order_of_the_text() {
    is_wrong(
        "{limits: {\n  api: {quota: ¶\"10 per x\",\n ¶ky: 5, cost: ¶0},\n  login: ¶\"5\"},\n \
         enabled: ¶5,\n ¶x: 1}",
        &[
            "limit \"api\": `10 per x` is not a quota: `x` is not a period (write `minute`, `90 \
             seconds`, `1h 30m` or `30 days`)",
            "limit \"api\": there is no field `ky` (did you mean `key`?)",
            "limit \"api\": `cost` is the number 0 (write a whole number from 1 to \
             18446744073709551615)",
            "limit \"login\": `5` is not a quota: it has no rate per period (write `10 per \
             minute`)",
            "`enabled` is the number 5 (write true or false)",
            "there is no field `x` (there are `limits`, `client_address`, `dialects`, \
             `on_refusal`, `on_failure` and `enabled`)",
        ],
    );
}
