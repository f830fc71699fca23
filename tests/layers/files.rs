//! Files stay small, and `lib.rs` holds no logic.

use std::fs;

use super::read::{sources, src, tokens};

const MAX_LINES: usize = 400;

#[test]
fn no_file_is_longer_than_400_lines_without_its_tests() {
    let too_long: Vec<_> = sources()
        .iter()
        .map(|(file, source)| (lines_without_tests(source), file.clone()))
        .filter(|&(lines, _)| lines > MAX_LINES)
        .collect();
    assert!(too_long.is_empty(), "split by role: {too_long:?}");
}

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

fn lines_without_tests(source: &str) -> usize {
    let lines: Vec<_> = source.lines().collect();
    let tests = lines
        .windows(2)
        .position(|pair| pair[0].starts_with("#[cfg(test)]") && pair[1].starts_with("mod "));
    tests.unwrap_or(lines.len())
}

// The rules can fail.

#[test]
fn lines_are_counted_up_to_the_tests() {
    let code = "line\n".repeat(401);
    assert_eq!(lines_without_tests(&code), 401);
    assert_eq!(lines_without_tests(&format!("{code}\n#[cfg(test)]\nmod tests {{\n{code}}}")), 402);
    // An attribute on something small does not hide what comes after it.
    assert_eq!(lines_without_tests(&format!("#[cfg(test)]\nuse std::fmt;\n{code}")), 403);
}

#[test]
fn documentation_and_re_exports_are_not_taken_for_logic() {
    let lib =
        "//! fn f() {}\npub mod quota;\n#[cfg(feature = \"axum\")]\npub use self::quota::Quota;";
    assert_eq!(logic(lib), Vec::<String>::new());
    assert_eq!(logic(&format!("{lib}\npub fn f() {{}}")), ["line 5: `fn`"]);
    assert_eq!(logic(&format!("{lib}\nimpl S {{}}")), ["line 5: `impl`"]);
}
