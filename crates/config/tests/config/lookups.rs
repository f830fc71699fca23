//! Lookups at the start: what is missing, what would have no effect, and what a handle is.

use tollgate::key::{extension, header};
use tollgate::{OnFailure, Rule};
use tollgate_config::ConfiguredLimit;
use tollgate_testing::at_once;

use crate::layers::{api, in_memory};
use crate::text::{FORMATS, config};

#[test]
fn a_name_that_is_missing_is_an_error_with_those_that_there_are() {
    for format in FORMATS {
        let config = config(
            "{limits: {api: \"5 per hour\", exports: \"5 per day\", login: \"5 per hour\"}}",
            format,
        );
        for (name, way_out) in [
            ("logn", "did you mean \"login\"?"),
            ("Exports", "did you mean \"exports\"?"),
            ("signup", "there are \"api\", \"exports\" and \"login\""),
            ("", "there are \"api\", \"exports\" and \"login\""),
        ] {
            let error = config.limit(name).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("limits.{format}: there is no limit \"{name}\" ({way_out})")
            );
        }
        let error = config.limits(["api", "x", "logins"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "limits.{format}: there is no limit \"x\" (there are \"api\", \"exports\" and \
                 \"login\")\n\
                 limits.{format}: there is no limit \"logins\" (did you mean \"login\"?)"
            )
        );
    }
}

#[test]
fn a_handle_stands_where_a_limit_does() {
    fn is_static_and_shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let api = api("quota: \"5 per hour\", on_failure: \"admit\"");
    is_static_and_shared(&api);
    assert_eq!(size_of::<ConfiguredLimit>(), size_of::<usize>());
    let limiter = in_memory();
    let permit = at_once(limiter.limit(&api).key("alice").cost(3)).unwrap();
    assert_eq!(permit.remaining(), 2);
    let clone = api.clone();
    assert_eq!(at_once(limiter.peek(&clone).key("alice")).unwrap().remaining(), 2);
    assert_eq!(api.get_on_failure(), Some(OnFailure::Admit));
    assert_eq!(api.as_ref().name(), "api");
    assert_eq!(at_once(limiter.limit(&api.shared()).key("alice")).unwrap().remaining(), 1);
    let shown = format!("{api:?}");
    assert_eq!(
        shown,
        "ConfiguredLimit { name: \"api\", quota: 5 per hour, fields: [\"on_failure\"], .. }"
    );
}

#[test]
fn entries_of_one_name_share_their_buckets() {
    let config = config(
        "{limits: {free: {name: \"tenant\", quota: \"5 per hour\"}, pro: {name: \"tenant\", \
         quota: \"50 per hour\"}}}",
        "yaml",
    );
    let [free, pro] = config.limits(["free", "pro"]).unwrap();
    let limiter = in_memory();
    at_once(limiter.limit(&free).key(7).cost(5)).unwrap();
    assert_eq!(at_once(limiter.peek(&pro).key(7)).unwrap().remaining(), 45);
}

// The key.

#[test]
fn a_limit_without_a_key_makes_no_rule_and_no_layer_by_mistake() {
    let text = "limits.toml:1:11: limit \"api\": it has no `key`, so all clients would share one \
                bucket (name one, such as \"client address\" or \"header x-user\"; if one bucket \
                is meant, \"none\"; or have the program give the key, by `layer_with_key` or \
                `rule_with_key`)";
    let unnamed = api("quota: \"5 per hour\"");
    assert_eq!(unnamed.rule().unwrap_err().to_string(), text);
    assert_eq!(unnamed.layer(&in_memory()).unwrap_err().to_string(), text);
    assert!(unnamed.rule_with_key(header("x-user")).is_ok());
    assert!(unnamed.layer_with_key(&in_memory(), header("x-user")).is_ok());
}

#[test]
fn a_key_of_the_file_is_not_dropped_for_one_of_the_program() {
    let text = "limits.toml:1:40: limit \"api\": `key` would have no effect, since the program \
                gives the key of this limit (leave it out, or have the program call `layer` or \
                `rule`)";
    let named = api("quota: \"5 per hour\", key: \"none\"");
    let error = named.rule_with_key(header("x-user")).unwrap_err();
    assert_eq!(error.to_string(), text);
    let error = named.layer_with_key(&in_memory(), header("x-user")).unwrap_err();
    assert_eq!(error.to_string(), text);
    assert!(named.rule().is_ok() && named.layer(&in_memory()).is_ok());
}

#[test]
fn fields_of_a_layer_make_no_rule() {
    let queued = api("quota: \"5 per hour\", key: \"none\", expose: true, queue: \"30s\"");
    let text = "limits.toml:1:54: limit \"api\": `expose` and `queue` would have no effect on a \
                rule (make the layer by `ConfiguredLimit::layer`, or leave it out)";
    assert_eq!(queued.rule().unwrap_err().to_string(), text);
    assert!(queued.layer(&in_memory()).is_ok());
    let queued = api("quota: \"5 per hour\", jitter: \"1s\"");
    let error = queued.rule_with_key(header("x-user")).unwrap_err().to_string();
    assert!(error.contains("`jitter` would have no effect on a rule"), "{error}");
}

// What has no effect.

#[test]
fn what_no_code_uses_is_told_at_the_end_of_the_set_up() {
    let config = config(
        "{dialects: \"none\", on_failure: \"admit\",\n client_address: {from: \"forwarded\", \
         trusted_hops: 1},\n limits: {\n api: {quota: \"5 per hour\", key: \"none\", cost: 2},\n \
         login: \"5 per hour\",\n logins: {quota: \"5 per hour\", queue: \"1s\"}}}",
        "json",
    );
    let defaults = "the program makes no layer by `ConfiguredLimit::layer`, and no limiter by \
                    `Config::configure` (do one of these, or leave it out)";
    let address = "no limit has the key \"client address\", and the program reads no address by \
                   `Config::client_address` (do one of these, or leave it out)";
    let unknown = "it has no effect, since the program looks up no limit of this name (it looks up";
    let finish = |lines: &[String]| match config.finish() {
        Ok(()) => assert!(lines.is_empty()),
        Err(error) => assert_eq!(error.to_string(), lines.join("\n")),
    };
    let [api, login] = config.limits(["api", "login"]).unwrap();
    let logins = format!("limits.json:6:2: limit \"logins\": {unknown} \"api\" and \"login\")");
    finish(&[
        format!("limits.json:1:2: `dialects` has no effect: {defaults}"),
        format!("limits.json:1:22: `on_failure` has no effect: {defaults}"),
        format!("limits.json:2:2: `client_address` has no effect: {address}"),
        "limits.json:4:2: limit \"api\": `key` and `cost` would have an effect in a layer only, \
         and the program makes none of this limit (leave this out: a call names its own key and \
         cost)"
            .to_owned(),
        logins.clone(),
    ]);
    drop(api.layer(&in_memory()).unwrap());
    let no_address = format!("limits.json:2:2: `client_address` has no effect: {address}");
    finish(&[no_address, logins.clone()]);
    drop(config.client_address());
    finish(&[logins]);
    let logins = config.limit("logins").unwrap();
    let queue = "limits.json:6:2: limit \"logins\": `queue` would have an effect in a layer only, \
                 and the program makes none of this limit (leave this out: a call names its own \
                 key and cost)";
    finish(&[queue.to_owned()]);
    let by_user = extension(|user: &u64| *user);
    drop(logins.layer_with_key(&in_memory(), by_user).unwrap());
    finish(&[]);
    drop((api, login));
}

#[test]
fn a_rule_an_iteration_and_a_limiter_count_as_use() {
    let config = config(
        "{enabled: true, client_address: {ipv6_prefix: 56}, limits: {\
         one: {quota: \"5 per hour\", key: \"client address\"}, two: {quota: \"5 per hour\", \
         key: \"none\", exempt_networks: \"private\"}}}",
        "toml",
    );
    assert_eq!(config.finish().unwrap_err().problems().count(), 4);
    drop(config.configure(in_memory()));
    let rules: Vec<Rule> = config.all().map(|limit| limit.rule().unwrap()).collect();
    assert_eq!(rules.len(), 2);
    assert!(config.finish().is_ok());
    // A clone is the same configuration.
    assert!(config.clone().finish().is_ok());
}

#[test]
fn nothing_is_shown_that_is_long() {
    let config =
        config("{limits: {a: \"5 per hour\", b: {rate: 1, per: \"1h\", key: \"none\"}}}", "toml");
    assert_eq!(format!("{config:?}"), "{\"a\": \"5 per hour\", \"b\": \"1 per hour\"}");
}
