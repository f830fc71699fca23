//! Types are nouns, as CONTRIBUTING.md says: no name ends in a participle.

use super::modules::Modules;
use super::names::types;
use super::read::sources;

/// Participles that stand for a thing, and why.
const EXCEPTIONS: [(&str, &str); 10] = [
    ("Applied", "public: the answer to `Backend::apply`"),
    ("Charged", "public: the answer to `Bucket::charge`"),
    ("Drained", "the error of a waiter whose limiter was drained, as tokio's `Elapsed`"),
    ("Embedded", "public: the store in a file, as an embedded database is"),
    ("Extracted", "public: what an extractor found"),
    ("IntoExtracted", "public: what becomes an `Extracted`"),
    ("Leasing", "public: the wrapper that leases limits, a noun as `Batching` is"),
    ("MostConstrained", "the most constrained limit, in the words of the drafts"),
    ("RateLimited", "public: the error of a call, as tokio's `Elapsed`"),
    ("Waiting", "public: the waiters of a bucket, as `RateLimiter::waiting` counts them"),
];

/// Words that end as a participle does, and are nouns.
const NOUNS: [&str; 5] = ["Reading", "Shared", "Warning", "Wording", "Setting"];

fn faults(modules: &Modules, exceptions: &[(&str, &str)]) -> Vec<String> {
    let types = types(modules);
    let is_excepted = |name: &str| exceptions.iter().any(|(known, _)| *known == name);
    let participles = types.iter().filter(|(name, _)| is_participle(name) && !is_excepted(name));
    let faults = participles
        .map(|(name, places)| format!("`{name}` is no noun: {} (rename it)", places.join(", ")));
    let unused = exceptions.iter().filter(|(known, _)| !types.contains_key(known));
    let unused = unused.map(|(known, _)| format!("the exception for `{known}` is not needed"));
    faults.chain(unused).collect()
}

fn is_participle(name: &str) -> bool {
    let is_noun = NOUNS.iter().any(|noun| name.ends_with(noun));
    !is_noun && (name.ends_with("ed") || name.ends_with("ing"))
}

#[test]
fn no_type_name_ends_in_a_participle() {
    let sources = sources();
    let modules = Modules::read(sources.iter().map(|(file, text)| (&**file, &**text)));
    let found = faults(&modules, &EXCEPTIONS);
    assert!(found.is_empty(), "{} names\n{}", found.len(), found.join("\n"));
}

// The rule can fail.

#[test]
fn participles_and_unused_exceptions_are_reported() {
    let found = |source: &str, exceptions: &[(&str, &str)]| {
        faults(&Modules::read([("key/a.rs", source)]), exceptions)
    };
    for source in ["struct Stored;", "pub enum KeyPlacing { A }", "type Booked = u8;"] {
        let faults = found(source, &[]);
        assert!(matches!(&*faults, [fault] if fault.contains("src/key/a.rs:1")), "{faults:?}");
    }
    for source in
        ["struct Reading;", "struct SetupWarning;", "enum A { Refused }", "fn stored() {}"]
    {
        assert_eq!(found(source, &[]), Vec::<String>::new(), "{source}");
    }
    assert_eq!(found("struct Stored;", &[("Stored", "a reason")]), Vec::<String>::new());
    let unused = "the exception for `Stored` is not needed";
    assert_eq!(found("struct Store;", &[("Stored", "a reason")]), [unused]);
}
