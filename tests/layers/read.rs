//! Reads the sources as tokens.

use std::fs;
use std::path::{Path, PathBuf};

/// A word, a sign or a literal without its prefix; comments are none of these.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
    /// Whether there is a space before it.
    pub(crate) spaced: bool,
}

/// The tokens of a source, without the code that is compiled for tests only.
pub(crate) fn tokens(source: &str) -> Vec<Token> {
    without_tests(lex(source))
}

fn lex(source: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = source;
    let (mut line, mut spaced) = (1, true);
    while let Some(first) = rest.chars().next() {
        let (len, shown) = if first.is_whitespace() {
            (rest.len() - rest.trim_start().len(), None)
        } else if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), None)
        } else if rest.starts_with("/*") {
            (comment(rest), None)
        } else if let Some(len) = begins_literal(first).then(|| literal(rest)).flatten() {
            (len, Some(rest[..len].trim_start_matches(['b', 'c', 'r'])))
        } else if is_word(rest) {
            let len = rest.find(|c| !is_word_char(c)).unwrap_or(rest.len());
            (len, Some(&rest[..len]))
        } else if rest.starts_with("::") {
            (2, Some("::"))
        } else {
            (first.len_utf8(), Some(&rest[..first.len_utf8()]))
        };
        if let Some(shown) = shown {
            tokens.push(Token { text: shown.to_owned(), line, spaced });
        }
        spaced = shown.is_none();
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// Whether a text, bytes, a character, a lifetime or its prefix may begin so: most words do not.
fn begins_literal(first: char) -> bool {
    matches!(first, '"' | '\'' | 'b' | 'c' | 'r')
}

/// The length of a block comment, which may hold others.
fn comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of the text, the bytes, the character or the lifetime that this begins with.
fn literal(text: &str) -> Option<usize> {
    let (prefix, rest) = ["br", "cr", "b", "c", "r", ""].into_iter().find_map(|prefix| {
        let rest = text.strip_prefix(prefix)?;
        let opens = match prefix {
            "br" | "cr" | "r" => rest.trim_start_matches('#').starts_with('"'),
            "c" => rest.starts_with('"'),
            _ => rest.starts_with(['"', '\'']),
        };
        opens.then_some((prefix, rest))
    })?;
    let length = if prefix.ends_with('r') {
        let hashes = rest.find('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let content = &rest[hashes + 1..];
        hashes + 1 + content.find(&end)? + end.len()
    } else if let Some(content) = rest.strip_prefix('"') {
        1 + escaped(content, '"')? + 1
    } else if let Some(content) = rest.strip_prefix('\'') {
        let is_char = content.starts_with('\\') || content.chars().nth(1) == Some('\'');
        let word = content.find(|c| !is_word_char(c)).unwrap_or(content.len());
        if is_char { 1 + escaped(content, '\'')? + 1 } else { 1 + word }
    } else {
        return None;
    };
    Some(prefix.len() + length)
}

/// Where the quote is that ends a text.
fn escaped(content: &str, quote: char) -> Option<usize> {
    let mut chars = content.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(at),
            _ => {}
        }
    }
    None
}

fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if token.text != "#" || tokens.peek().is_none_or(|next| next.text != "[") {
            kept.push(token);
            continue;
        }
        let attribute: Vec<_> = std::iter::once(token).chain(group(&mut tokens)).collect();
        if !is_for_tests(&attribute) {
            kept.extend(attribute);
            continue;
        }
        // The item ends at its semicolon or behind its braces; other groups are a part of it.
        while let Some(next) = tokens.peek() {
            match &*next.text {
                "{" => {
                    group(&mut tokens);
                    break;
                }
                "(" | "[" => drop(group(&mut tokens)),
                ";" => {
                    tokens.next();
                    break;
                }
                // It was the last of what it stands in, which ends here too.
                "}" => break,
                _ => drop(tokens.next()),
            }
        }
    }
    kept
}

/// Whether an attribute is `#[cfg(test)]`, or that and more.
fn is_for_tests(attribute: &[Token]) -> bool {
    let has = |word| attribute.iter().any(|token| token.text == word);
    text(attribute, 2) == "cfg" && has("test") && !has("not") && !has("any")
}

/// Takes a group in brackets of any kind, which is next.
fn group(tokens: &mut impl Iterator<Item = Token>) -> Vec<Token> {
    let mut taken = Vec::new();
    let mut depth = 0_usize;
    for token in tokens {
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        taken.push(token);
        if depth == 0 {
            break;
        }
    }
    taken
}

pub(crate) fn text(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| &token.text)
}

/// Whether `crate` begins the path of an exported macro: `crate::name!`. Rust puts these at the root,
/// wherever their file is. A macro that another one calls may have its name in a variable.
pub(crate) fn is_exported_macro(tokens: &[Token], at: usize) -> bool {
    text(tokens, at) == "crate"
        && text(tokens, at + 1) == "::"
        && (text(tokens, at + 2) == "$" || text(tokens, at + 3) == "!")
}

pub(crate) fn is_word(text: &str) -> bool {
    text.starts_with(is_word_char)
}

fn is_word_char(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The room that a file in `src` is in: `key` for `key/header.rs`, `clock` for `clock.rs`.
pub(crate) fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// The modules that lead to a file: `key`, `header` for `key/header.rs`.
pub(crate) fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs");
    path.split('/').filter(|name| *name != "mod").map(str::to_owned).collect()
}

pub(crate) fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The files of all rooms but those with nothing but tests, by their paths in `src`; `lib.rs` is in none.
pub(crate) fn sources() -> Vec<(String, String)> {
    let all = all_sources();
    for (file, _) in all.iter().filter(|(file, _)| is_tests(file)) {
        let (room, _) = file.split_once("/tests").unwrap();
        let parent = format!("{room}/mod.rs");
        let (_, parent) = all.iter().find(|(file, _)| *file == parent).unwrap();
        let (above, _) = parent.split_once("mod tests;").unwrap();
        let mut attributes = above.lines().rev().take_while(|line| line.starts_with("#["));
        assert!(attributes.any(|line| line == "#[cfg(test)]"), "{file} is not for tests only");
    }
    all.into_iter().filter(|(file, _)| !is_tests(file)).collect()
}

/// Whether a file is the tests of a room.
fn is_tests(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/")
}

fn all_sources() -> Vec<(String, String)> {
    let mut sources = Vec::new();
    let mut directories = vec![src()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let file = path.strip_prefix(src()).unwrap().to_str().unwrap().replace('\\', "/");
                if file != "lib.rs" {
                    sources.push((file, fs::read_to_string(path).unwrap()));
                }
            }
        }
    }
    sources.sort();
    sources
}
