//! The `impl`s of a type stand in the folder that defines the type or the trait, or below it.

use super::modules::{Impl, MODULES, Modules, Place};

/// What may stand elsewhere.
struct Exception {
    name: &'static str,
    folder: &'static str,
    reason: &'static str,
}

const EXCEPTIONS: [Exception; 7] = [
    Exception {
        name: "RateLimiter",
        folder: "middleware",
        reason: "`limiter.layer(..)` and its defaults are there with the feature `middleware` only",
    },
    Exception {
        name: "RateLimiter",
        folder: "throttle",
        reason: "`limiter.throttle(..)` makes what the limiter itself does not know",
    },
    Exception { name: "RateLimited", folder: "routes", reason: AXUM },
    Exception { name: "Permit", folder: "routes", reason: AXUM },
    Exception { name: "Snapshot", folder: "routes", reason: AXUM },
    Exception { name: "Admission", folder: "routes", reason: AXUM },
    Exception { name: "Meter", folder: "routes", reason: AXUM },
];

/// The trait is axum's, so that only our crate can implement it, and only `routes` knows axum.
const AXUM: &str = "an `impl` of a trait of axum's";

#[test]
fn impls_stand_in_the_folder_of_their_type() {
    let found = faults(&MODULES, &EXCEPTIONS);
    assert!(
        found.is_empty(),
        "{} places (move the `impl`, or the type)\n{}",
        found.len(),
        found.join("\n")
    );
}

/// An `impl` of a type that another folder defines.
pub(crate) struct Stray<'a> {
    name: String,
    defined: &'a str,
    file: &'a str,
    found: &'a Impl,
}

pub(crate) fn strays(modules: &Modules) -> Vec<Stray<'_>> {
    let mut strays = Vec::new();
    for (path, module) in &modules.0 {
        for found in &module.impls {
            let file = &*module.file;
            let defines = |path_of: &[String]| match modules.resolve(path, path_of) {
                Some(Place::Item { module: to, name }) => Some((&*modules.0[&to].file, name)),
                _ => None,
            };
            let Some((defined, name)) = defines(&found.target) else { continue };
            let is_beside = |defined| is_in(file, folder(defined));
            if !is_beside(defined) && !defines(&found.of).is_some_and(|(of, _)| is_beside(of)) {
                strays.push(Stray { name, defined, file, found });
            }
        }
    }
    strays
}

fn faults(modules: &Modules, exceptions: &[Exception]) -> Vec<String> {
    let strays = strays(modules);
    let allows = |exception: &Exception, stray: &Stray<'_>| {
        exception.name == stray.name && is_in(stray.file, exception.folder)
    };
    let faults = strays.iter().filter(|stray| !exceptions.iter().any(|known| allows(known, stray)));
    let faults = faults.map(|Stray { name, defined, file, found }| {
        let of = found.of.last().map_or(String::new(), |of| format!("{of} for "));
        let line = found.line;
        format!("src/{file}:{line}: `impl {of}{name}`, but src/{defined} defines `{name}`")
    });
    let unused = exceptions.iter().filter(|known| !strays.iter().any(|stray| allows(known, stray)));
    let unused = unused.map(|Exception { name, folder, reason }| {
        format!("the exception for `{name}` in `{folder}` is not needed ({reason})")
    });
    faults.chain(unused).collect()
}

fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn is_in(file: &str, directory: &str) -> bool {
    let rest = folder(file).strip_prefix(directory);
    rest.is_some_and(|rest| directory.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

// The rule can fail.

fn found(sources: &[(&str, &str)], exceptions: &[Exception]) -> Vec<String> {
    faults(&Modules::read(sources.iter().copied()), exceptions)
}

#[test]
fn impls_in_other_folders_are_reported() {
    for (source, of) in [
        ("use crate::limiter::Permit; impl Permit {}", ""),
        ("impl crate::limiter::Permit {}", ""),
        ("impl crate::limiter::permit::Permit {}", ""),
        ("use crate::limiter; impl limiter::Permit {}", ""),
        ("use crate::limiter::Permit as Other; impl<'a, T: Fn() -> u8> Other<'a, T> {}", ""),
        ("use crate::limiter::Permit; impl Clone for Permit {}", "Clone for "),
        ("use crate::limiter::Permit; impl<T> From<Vec<T>> for Permit<T> {}", "From for "),
        ("use crate::limiter::Permit; impl fmt::Debug for &'_ mut Permit {}", "Debug for "),
        (
            "use crate::limiter::Permit; impl<F> T for Permit where F: for<'a> Fn(&'a u8) {}",
            "T for ",
        ),
        ("use crate::limiter::Permit; impl T<dyn for<'a> Fn(&'a u8)> for Permit {}", "T for "),
        ("impl dyn for<'a> crate::limiter::Permit<'a> {}", ""),
        ("mod inner { use crate::limiter::Permit; impl Permit {} }", ""),
        ("use crate::limiter::Permit; #[cfg(unix)] impl Permit {}", ""),
        ("fn f() { use crate::limiter::Permit; impl Permit {} }", ""),
        ("use crate::limiter::Permit; macro_rules! m { () => { $(impl Permit {})* } }", ""),
    ] {
        let sources = [
            ("limiter/mod.rs", "mod permit; pub use self::permit::Permit;"),
            ("limiter/permit.rs", "pub struct Permit;"),
            ("middleware/tab.rs", source),
        ];
        let fault = format!(
            "src/middleware/tab.rs:1: `impl {of}Permit`, but src/limiter/permit.rs defines `Permit`"
        );
        assert_eq!(found(&sources, &[]), [fault], "{source}");
    }
}

#[test]
fn the_folder_is_that_of_the_file_that_defines_the_type() {
    const LINE: (&str, &str) = ("limiter/queue/line.rs", "pub enum Line {}");
    for (file, is_fault) in [
        ("limiter/queue/line.rs", false),
        ("limiter/queue/mod.rs", false),
        ("limiter/queue/turns/mod.rs", false),
        ("limiter/call.rs", true),
        ("limiter/mod.rs", true),
        ("limiter/queues/turns.rs", true),
    ] {
        let mut source = "impl Drop for crate::limiter::queue::line::Line {}".to_owned();
        if file == LINE.0 {
            source.push_str(LINE.1);
        }
        let found = found(&[LINE, (file, &source)], &[]);
        assert_eq!(found.len(), usize::from(is_fault), "{file}: {found:?}");
    }
}

#[test]
fn other_impls_are_not_reported() {
    for source in [
        "use crate::limiter::Permit; struct Tab(Permit); impl Tab {} impl From<Permit> for Tab {}",
        "use crate::limiter::Permit; impl From<Permit> for Vec<u8> {}",
        "use crate::limiter::Permit; trait Tell {} impl Tell for Permit {}",
        "use crate::limiter::Permit; impl<T> Tell for T where T: Into<Permit> {}",
        "use crate::limiter::Permit; impl Tell for Box<Permit> {}",
        "use crate::limiter::Permit; fn f(_: impl Into<Permit>) -> impl Into<Permit> {}",
        "use std::Permit; impl Permit {}",
        "#[cfg(test)]\nmod tests { use crate::limiter::Permit; impl Permit {} }",
        "macro_rules! m { ($name:ident) => { impl $name {} impl Tell for ($name,) {} } }",
    ] {
        let sources = [("limiter/mod.rs", "pub struct Permit;"), ("middleware/tab.rs", source)];
        assert_eq!(found(&sources, &[]), Vec::<String>::new(), "{source}");
    }
}

#[test]
fn an_exception_holds_for_its_type_and_folder_while_it_is_needed() {
    const IMPL: &str = "impl crate::limiter::Permit {}";
    const EXCEPTION: [Exception; 1] =
        [Exception { name: "Permit", folder: "middleware", reason: "a reason" }];
    let limiter = ("limiter/mod.rs", "pub struct Permit; pub struct Grant;");
    assert_eq!(found(&[limiter, ("middleware/a.rs", IMPL)], &EXCEPTION), Vec::<String>::new());
    assert_eq!(found(&[limiter, ("middleware/a/b.rs", IMPL)], &EXCEPTION), Vec::<String>::new());
    let unused = "the exception for `Permit` in `middleware` is not needed (a reason)";
    assert_eq!(found(&[limiter], &EXCEPTION), [unused]);
    for (file, source, fault) in [
        (
            "axum/a.rs",
            IMPL,
            "src/axum/a.rs:1: `impl Permit`, but src/limiter/mod.rs defines `Permit`",
        ),
        (
            "middleware/a.rs",
            "impl crate::limiter::Grant {}",
            "src/middleware/a.rs:1: `impl Grant`, but src/limiter/mod.rs defines `Grant`",
        ),
    ] {
        assert_eq!(found(&[limiter, (file, source)], &EXCEPTION), [fault, unused]);
    }
}
