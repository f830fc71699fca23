//! `lib.rs` holds no logic.

use std::fs;

use super::read::{src, tokens};

#[test]
fn lib_rs_only_declares_and_re_exports() {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    assert_eq!(logic(&lib), Vec::<String>::new(), "in src/lib.rs");
}

/// The items of a file that are more than declarations of modules and re-exports.
fn logic(source: &str) -> Vec<String> {
    const LOGIC: [&str; 4] = ["fn", "impl", "trait", "macro_rules"];
    tokens(source)
        .iter()
        .filter(|token| LOGIC.contains(&&*token.text))
        .map(|token| format!("line {}: `{}`", token.line, token.text))
        .collect()
}

// The rule can fail.

#[test]
fn documentation_and_re_exports_are_not_taken_for_logic() {
    let lib =
        "//! fn f() {}\npub mod quota;\n#[cfg(feature = \"axum\")]\npub use self::quota::Quota;";
    assert_eq!(logic(lib), Vec::<String>::new());
    assert_eq!(logic(&format!("{lib}\npub fn f() {{}}")), ["line 5: `fn`"]);
    assert_eq!(logic(&format!("{lib}\nimpl S {{}}")), ["line 5: `impl`"]);
}
