//! A type name stands for one type.

use std::collections::BTreeMap;

use super::modules::Modules;
use super::read::sources;

/// Names that stand for several types, and why.
const EXCEPTIONS: [(&str, &str); 1] = [(
    "ResponseFuture",
    "the future of a tower service has this name, in `middleware`, `pacing` and `retry`",
)];

#[test]
fn no_type_name_is_defined_twice() {
    let sources = sources();
    let modules = Modules::read(sources.iter().map(|(file, text)| (&**file, &**text)));
    let found = faults(&modules, &EXCEPTIONS);
    assert!(
        found.is_empty(),
        "{} names (rename all but one of each)\n{}",
        found.len(),
        found.join("\n")
    );
}

/// The types of each name, by their places.
pub(crate) fn types(modules: &Modules) -> BTreeMap<&str, Vec<String>> {
    const KINDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
    let mut types: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for module in modules.0.values() {
        // Definitions of one name in one module are for different configurations.
        let mut seen = Vec::new();
        for item in module.items.iter().filter(|item| KINDS.contains(&&*item.kind)) {
            if item.is_local || !seen.contains(&&item.name) {
                let place = format!("src/{}:{}", module.file, item.line);
                types.entry(&item.name).or_default().push(place);
            }
            if !item.is_local {
                seen.push(&item.name);
            }
        }
    }
    types
}

fn faults(modules: &Modules, exceptions: &[(&str, &str)]) -> Vec<String> {
    let types = types(modules);
    let twice = types.iter().filter(|(_, places)| places.len() > 1);
    let is_excepted = |name: &str| exceptions.iter().any(|(known, _)| *known == name);
    let faults = twice.clone().filter(|(name, _)| !is_excepted(name));
    let faults =
        faults.map(|(name, places)| format!("`{name}` is defined in {}", places.join(", ")));
    let unused =
        exceptions.iter().filter(|(name, _)| !twice.clone().any(|(known, _)| known == name));
    let unused = unused.map(|(name, _)| format!("the exception for `{name}` is not needed"));
    faults.chain(unused).collect()
}

// The rule can fail.

fn found(source: &str, other: &str, exceptions: &[(&str, &str)]) -> Vec<String> {
    faults(&Modules::read([("key/a.rs", source), ("http/b.rs", other)]), exceptions)
}

#[test]
fn names_that_are_defined_twice_are_reported() {
    for (source, other) in [
        ("struct Line;", "pub struct Line(u8);"),
        ("pub enum Line { A }", "pub(crate) trait Line {}"),
        ("union Line { a: u8 }", "type Line = u8;"),
        ("struct Line<'a>(&'a str);", "mod inner { struct Line {} }"),
        ("struct Line;", "fn f() { struct Line; }"),
        ("struct Line;", "pin_project! { pub struct Line { x: u8 } }"),
        ("#[derive(Debug)]\nstruct Line;", "#[cfg(unix)]\npub(crate) enum Line {}"),
    ] {
        let fault = found(&format!("\n{source}"), &format!("\n{other}"), &[]);
        assert!(
            matches!(&*fault, [fault] if fault.starts_with("`Line` is defined in src/http/b.rs:")),
            "{source} {other}: {fault:?}"
        );
    }
    let fault = "`Line` is defined in src/key/a.rs:1, src/key/a.rs:2";
    assert_eq!(found("struct Line; fn f() {\nstruct Line; }", "", &[]), [fault]);
}

#[test]
fn names_that_are_defined_once_are_not_reported() {
    for (source, other) in [
        ("struct Line;", "struct Lines;"),
        ("struct Line;", "fn Line() {} const LINE: u8 = 0; mod line {}"),
        ("trait T { type Future; }", "impl S { type Future = u8; }"),
        ("impl Iterator for S { type Item = u8; }", "impl Iterator for Z { type Item = u8; }"),
        ("#[cfg(unix)]\ntype Line = u8;\n#[cfg(not(unix))]\nstruct Line;", ""),
        ("struct Line;", "#[cfg(test)]\nmod tests { struct Line; }"),
        ("struct Line;", "macro_rules! m { () => { const TEXT: &str = \"struct Line;\"; } }"),
        ("struct Line;", "/// struct Line;\nuse super::Line; pub use super::Line as Other;"),
    ] {
        assert_eq!(found(source, other, &[]), Vec::<String>::new(), "{source} {other}");
    }
}

#[test]
fn an_exception_holds_for_its_name_while_it_is_needed() {
    const EXCEPTION: [(&str, &str); 1] = [("Ready", "a reason")];
    let both = "struct Ready; struct Line;";
    assert_eq!(found("struct Ready;", "struct Ready;", &EXCEPTION), Vec::<String>::new());
    let fault = "`Line` is defined in src/http/b.rs:1, src/key/a.rs:1";
    assert_eq!(found(both, both, &EXCEPTION), [fault]);
    let fault = "the exception for `Ready` is not needed";
    assert_eq!(found("struct Ready;", "", &EXCEPTION), [fault]);
}
