//! The files of a room do not import each other in circles.
//!
//! An import or a path leads from its file to the file that defines the item, also where a `mod.rs`
//! re-exports it: `use super::Permit` leads to `permit.rs`. A `mod.rs` that only re-exports an item
//! of its children leads nowhere; one that also mentions the item leads to its file. An import of a
//! module leads where the paths through it lead. Calls of methods are not followed.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{MODULES, Mention, Module, Modules, Place};
use super::read::room;

#[test]
fn files_of_a_room_do_not_import_each_other_in_circles() {
    let found = circles(&MODULES);
    let shown: Vec<_> = found.iter().map(Circle::shown).collect();
    assert!(
        found.is_empty(),
        "{} circles (move what they share into a file below them)\n\n{}",
        found.len(),
        shown.join("\n\n")
    );
}

/// A path that leads nowhere is of an item that a macro has made; an arrow may hide in it.
#[test]
fn every_path_is_followed() {
    let lost = lost(&MODULES);
    assert!(lost.is_empty(), "the checker does not find\n{}", lost.join("\n"));
}

/// Files that all lead to each other.
pub(crate) struct Circle {
    pub(crate) files: Vec<String>,
    /// From each of them to others of them: one line for each pair.
    arrows: Vec<String>,
}

impl Circle {
    fn shown(&self) -> String {
        let (count, room) = (self.files.len(), room(&self.files[0]));
        format!("{count} files of `{room}` import each other:\n{}", self.arrows.join("\n"))
    }
}

/// Where one file leads to another: the line, and the path that stands there.
type Arrows = BTreeMap<(String, String), (usize, String)>;

pub(crate) fn circles(modules: &Modules) -> Vec<Circle> {
    let arrows = arrows(modules);
    let files: BTreeSet<_> = arrows.keys().flat_map(|(from, to)| [from, to]).collect();
    let mut reached: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        let mut ways = vec![&**file];
        while let Some(from) = ways.pop() {
            let next = arrows.keys().filter(|(start, _)| start == from);
            let ends = reached.entry(file).or_default();
            ways.extend(next.map(|(_, to)| &**to).filter(|to| ends.insert(to)));
        }
    }
    let mut circles = Vec::new();
    let mut done = BTreeSet::new();
    for (file, ends) in &reached {
        let is_mutual = |other: &&str| reached[other].contains(file);
        let members: BTreeSet<&str> = ends.iter().copied().filter(is_mutual).collect();
        if members.contains(file) && done.insert(members.clone()) {
            let inside = arrows
                .iter()
                .filter(|((from, to), _)| [from, to].iter().all(|end| members.contains(&***end)));
            circles.push(Circle {
                files: members.iter().map(|&file| file.to_owned()).collect(),
                arrows: inside
                    .map(|((from, to), (line, path))| {
                        format!("  src/{from}:{line}: `{path}` is in src/{to}")
                    })
                    .collect(),
            });
        }
    }
    circles
}

fn arrows(modules: &Modules) -> Arrows {
    let mut found = Arrows::new();
    for (path, module) in &modules.0 {
        for Mention { line, path: written } in leads(modules, path, module) {
            let Some(Place::Item { module: to, .. }) = modules.resolve(path, &written) else {
                continue;
            };
            let (from, to) = (&module.file, &modules.0[&to].file);
            if from != to && room(from) == room(to) {
                let shown = (line, written.join("::"));
                let first =
                    found.entry((from.clone(), to.clone())).or_insert_with(|| shown.clone());
                *first = shown.min(first.clone());
            }
        }
    }
    found
}

fn lost(modules: &Modules) -> Vec<String> {
    let mut lost = Vec::new();
    for (path, module) in &modules.0 {
        for Mention { line, path: written } in leads(modules, path, module) {
            if modules.resolve(path, &written).is_none() {
                lost.push(format!("src/{}:{line}: `{}`", module.file, written.join("::")));
            }
        }
    }
    lost
}

/// The imports and paths of a module that lead somewhere.
fn leads(modules: &Modules, path: &[String], module: &Module) -> Vec<Mention> {
    let mut found = Vec::new();
    for import in &module.imports {
        let place = modules.resolve(path, &import.path);
        let is_of_children = match &place {
            Some(Place::Item { module, .. }) => module.starts_with(path),
            _ => false,
        };
        let is_re_export = import.is_exported && is_of_children;
        let line = import.line;
        match place {
            // A glob import can mean each item of the module.
            Some(Place::Module(all)) if import.name == "*" => {
                let Module { items, imports, .. } = &modules.0[&all];
                let names = items.iter().filter(|item| !item.is_local).map(|item| &item.name);
                let names = names.chain(imports.iter().map(|import| &import.name));
                found.extend(names.map(|name| Mention {
                    line,
                    path: [&*import.path, std::slice::from_ref(name)].concat(),
                }));
            }
            _ if is_re_export => {}
            _ => found.push(Mention { line, path: import.path.clone() }),
        }
    }
    found.extend(
        module.mentions.iter().map(|mention| Mention { path: mention.path.clone(), ..*mention }),
    );
    found
}

// The rule can fail.

/// The files of each circle, and the arrows in them.
fn found(sources: &[(&str, &str)]) -> Vec<(String, String)> {
    let circles = circles(&Modules::read(sources.iter().copied()));
    circles.iter().map(|circle| (circle.files.join(" "), circle.arrows.join("\n"))).collect()
}

#[test]
fn a_circle_is_reported_with_a_line_for_each_arrow() {
    let found = found(&[
        ("key/mod.rs", "mod a;\nmod b;\nmod c;\npub use self::a::A;"),
        ("key/a.rs", "use std::fmt;\nuse super::b::B;\npub struct A(B);"),
        ("key/b.rs", "pub(super) struct B;\n\nfn f(_: crate::key::c::C) {}"),
        ("key/c.rs", "use super::{b, A};\npub(super) struct C;"),
        ("key/d.rs", "use super::A;"),
    ]);
    let arrows = "  src/key/a.rs:2: `super::b::B` is in src/key/b.rs\n  \
                  src/key/b.rs:3: `crate::key::c::C` is in src/key/c.rs\n  \
                  src/key/c.rs:1: `super::A` is in src/key/a.rs";
    assert_eq!(found, [("key/a.rs key/b.rs key/c.rs".to_owned(), arrows.to_owned())]);
}

#[test]
fn each_circle_is_reported_once() {
    let circles = found(&[
        ("key/a.rs", "use super::b::B; pub struct A;"),
        ("key/b.rs", "use super::a::A; use super::c::C; pub struct B;"),
        ("key/c.rs", "use super::d::D; pub struct C;"),
        ("key/d.rs", "use super::c::C; pub struct D;"),
        ("http/a.rs", "use super::b::B; pub struct A;"),
        ("http/b.rs", "use super::a::A; pub struct B;"),
        ("quota.rs", "use crate::clock::Clock; pub struct Quota;"),
        ("clock.rs", "use crate::quota::Quota; pub struct Clock;"),
    ]);
    let files: Vec<_> = circles.iter().map(|(files, _)| &**files).collect();
    assert_eq!(files, ["http/a.rs http/b.rs", "key/a.rs key/b.rs", "key/c.rs key/d.rs"]);
}

#[test]
fn arrows_of_all_forms_are_found() {
    const MOD: &str = "mod a; mod b; const _: () = { struct B; }; mod inner { pub(super) use super::b::B; } \
                       pub(crate) use self::b::{B, b}; use self::b::T; pub use self::b::B as New;";
    for source in [
        "use super::B;",
        "use super::{B as Other};",
        "use super::New;",
        "use super::inner::B;",
        "use super::*;",
        "use super::b::*;",
        "use super::b::{self, B};",
        "use super::super::key::B;",
        "use crate::{clock::Clock, key::{b::B}};",
        "use super::b::B::{One, Two};",
        "use super::T as _;",
        "pub use super::B;",
        "use super::b; fn f(_: b::B) {}",
        "use super::b; fn f() { let x = b::b(); }",
        "fn f() { use super::B; }",
        "fn f() { super::b(1) }",
        "fn f() { super::B::new() }",
        "impl super::T for A {}",
        "struct Y<X>(X) where X: super::T;",
        "impl<X: super::T> A<X> {}",
        "pub(in crate::key) struct Y(super::B);",
        "mod more { use super::super::B; }",
        "macro_rules! m { () => { $crate::key::B } }",
        "pin_project! { struct Y { #[pin] b: super::B } }",
    ] {
        let found = found(&[
            ("key/mod.rs", MOD),
            ("key/a.rs", &format!("{source}\npub struct A;")),
            ("key/b.rs", "use super::a::A; pub enum B { One } pub trait T {} pub fn b() {}"),
        ]);
        assert!(
            matches!(&*found, [(files, _)] if files == "key/a.rs key/b.rs"),
            "{source}: {found:?}"
        );
    }
}

#[test]
fn a_room_that_uses_its_child_is_in_a_circle_with_it() {
    for source in [
        "mod a; use self::a::A; pub struct M;",
        "mod a; pub use self::a::A; pub struct M(A);",
        "mod a; pub use self::a::A; pub struct M; impl M { fn f(&self) -> A { A::new() } }",
        "mod a; pub(crate) use self::a::f; pub struct M; fn g() { f() }",
        "mod a; pub struct M(a::A);",
        "mod a; pub struct M; fn f() { self::a::f() }",
        "mod a; pub struct M; pub use self::a::A; impl Clone for A {}",
    ] {
        let found = found(&[
            ("key/mod.rs", source),
            ("key/a.rs", "use super::M; pub struct A(M); pub fn f() {}"),
        ]);
        assert!(
            matches!(&*found, [(files, _)] if files == "key/a.rs key/mod.rs"),
            "{source}: {found:?}"
        );
    }
}

#[test]
fn re_exports_comments_and_tests_make_no_circle() {
    for (mod_rs, a, b) in [
        // Declared and re-exported only.
        ("mod a; pub use self::a::A; pub struct M;", "use super::M; pub struct A(M);", ""),
        (
            "mod a; pub(crate) use self::a::{A, f}; pub struct M;",
            "use super::M; pub struct A(M); pub fn f() {}",
            "",
        ),
        (
            "mod a; pub use self::a::f; pub struct M; fn g(x: X) { x.f(); <X>::f() }",
            "use super::M; pub fn f() {}",
            "",
        ),
        // A module of which only items outside of the circle are used.
        ("", "use super::b; pub struct A;", "use super::a::A;"),
        // Other names in other places.
        ("", "use std::b::B; use ::key::b::B; pub struct A;", "use super::a::A; pub struct B;"),
        (
            "",
            "pub struct A { b: u8 } fn f(x: X) { x.b(); X::b() }",
            "use super::a::A; pub fn b() {}",
        ),
        ("use std::fmt;", "use super::fmt; pub struct A;", "use super::a::A; pub struct B;"),
        ("", "pub(in super::b) struct A;", "use super::a::A; pub struct B;"),
        // Only in tests, or only in a comment.
        ("", "#[cfg(test)]\nuse super::b::B;\npub struct A;", "use super::a::A; pub struct B;"),
        ("", "/// See [`super::b::B`].\npub struct A;", "use super::a::A; pub struct B;"),
    ] {
        let found = found(&[("key/mod.rs", mod_rs), ("key/a.rs", a), ("key/b.rs", b)]);
        assert_eq!(found, [], "{mod_rs} {a} {b}");
    }
}

#[test]
fn imports_that_lead_to_each_other_end() {
    let found = found(&[
        ("key/mod.rs", "pub use self::a::X; use redis; use key::X;"),
        ("key/a.rs", "pub use super::X; pub use super::b::*;"),
        ("key/b.rs", "pub use super::a::*;"),
    ]);
    assert_eq!(found, []);
}

#[test]
fn paths_that_lead_nowhere_are_reported() {
    let modules = Modules::read([
        ("key/mod.rs", "use std::fmt; pub struct A; makes! { B }"),
        ("key/a.rs", "use super::{A, fmt};\nfn f(_: super::B) {}"),
    ]);
    assert_eq!(lost(&modules), ["src/key/a.rs:2: `super::B`"]);
}
