//! Each guide is a page of the documentation, its links work there and in the repository, and the
//! tests, files and commands that it names exist.
//!
//! A guide is a file of `docs/`, in the root or in a member of the workspace. Readers of the repository
//! follow its links by the definitions at its end, which are relative paths. On the page of the
//! documentation, a file of its crate stands before the guide and defines the same links first:
//! `src/links.md` and, where it has plots, `src/plots.md`; those of the root are in `src/_guide`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is wrong with the links of a guide.
fn faults(name: &str, guide: &str, links: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_code = false;
    for (number, line) in guide.lines().enumerate() {
        let mut fault = |text: String| faults.push(format!("{name}:{}: {text}", number + 1));
        if line.starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (_, rest) in line.match_indices("](").map(|(at, open)| line.split_at(at + open.len())) {
            if !rest.starts_with("http") && !rest.starts_with('#') {
                fault(format!("`]({rest}` leads nowhere on docs.rs (write `][label]`)"));
            }
        }
        for (_, rest) in line.match_indices("][").map(|(at, open)| line.split_at(at + open.len())) {
            let label = rest.split(']').next().unwrap_or_default();
            if !guide.contains(&format!("\n[{label}]: ")) {
                fault(format!("`[{label}]` has no definition at the end of the guide"));
            }
        }
        if let Some((label, target)) = definition(line) {
            if !target.starts_with("http") && !links.contains_key(label) {
                fault(format!("`[{label}]` has no definition for its page"));
            }
            let path = target.split('#').next().unwrap_or_default();
            if !target.starts_with("http") && !root().join(name).with_file_name(path).exists() {
                fault(format!("`{path}` does not exist"));
            }
        }
    }
    faults
}

/// `[label]: target`
fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn member_folders() -> impl Iterator<Item = PathBuf> {
    fs::read_dir(root().join("crates")).unwrap().map(|member| member.unwrap().path())
}

/// The guides of a crate, by their paths in the repository.
fn guides(docs: &str) -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join(docs)).into_iter().flatten().map(|file| file.unwrap());
    let guides = files.filter(|file| file.path().extension().is_some_and(|end| end == "md"));
    let read = |file: fs::DirEntry| {
        let name = file.file_name().into_string().unwrap();
        (format!("{docs}/{name}"), fs::read_to_string(file.path()).unwrap())
    };
    guides.map(read).collect()
}

/// For each crate: the folder of its guides, the links of their pages, and the file that makes pages
/// of them.
fn crates() -> Vec<(String, String, String)> {
    let members = member_folders().filter(|member| member.join("docs").exists()).map(|member| {
        let path = format!("crates/{}", member.file_name().unwrap().to_str().unwrap());
        let pages = source(&format!("{path}/src/lib.rs"));
        let plots = fs::read_to_string(root().join(format!("{path}/src/plots.md")));
        let links = source(&format!("{path}/src/links.md")) + &plots.unwrap_or_default();
        (format!("{path}/docs"), links, pages)
    });
    let links = source("src/_guide/links.md") + &source("src/_guide/plots.md");
    members.chain([("docs".to_owned(), links, source("src/_guide/mod.rs"))]).collect()
}

fn source(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

#[test]
fn links_of_guides_work_in_the_repository_and_on_docs_rs() {
    let (mut known, mut found) = (0, Vec::new());
    for (docs, links, _) in crates() {
        let links: BTreeMap<_, _> = links.lines().filter_map(definition).collect();
        for (name, guide) in guides(&docs) {
            known += 1;
            found.extend(faults(&name, &guide, &links));
        }
    }
    assert!(known > 10, "{known}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn each_guide_is_a_page_and_is_in_the_index() {
    let index = source(INDEX);
    for (docs, _, pages) in crates() {
        for path in guides(&docs).keys() {
            let name = path.rsplit('/').next().unwrap();
            assert!(pages.contains(&format!("{name}\"")), "{path} is no page of its crate");
            let link = path.strip_prefix("docs/").map_or(format!("../{path}"), str::to_owned);
            let is_linked = path == INDEX || index.contains(&format!("]: {link}\n"));
            assert!(is_linked, "{INDEX} does not link {path}");
        }
    }
}

/// Readers of the repository and of the documentation find guides by it.
const INDEX: &str = "docs/README.md";

#[test]
fn links_of_the_readme_lead_to_files() {
    let readme = source("README.md");
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files: Vec<_> = links.filter(|link| !link.starts_with("http")).collect();
    assert!(files.len() > 15, "{files:?}");
    for file in files {
        let path = file.split('#').next().unwrap_or_default();
        assert!(root().join(path).exists(), "README.md: `{file}` does not exist");
    }
}

/// Settings of other programs, which are written as our tests are.
const SETTINGS: [&str; 2] =
    ["idle_in_transaction_session_timeout", "max_pending_accept_reset_streams"];

/// The tests that a text names: words in backticks of five parts or more, but for metrics.
fn named_tests(text: &str) -> Vec<&str> {
    let words = text.split('`').filter(|word| {
        word.matches('_').count() >= 4
            && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
    });
    words.filter(|word| !word.starts_with("tollgate_") && !SETTINGS.contains(word)).collect()
}

/// The files and folders of the repository that a text names in backticks.
fn named_paths(text: &str) -> Vec<&str> {
    const FOLDERS: [&str; 8] =
        ["benches/", "checks/", "crates/", "docs/", "examples/", "scripts/", "src/", "tests/"];
    let is_path = |word: &&str| FOLDERS.iter().any(|folder| word.starts_with(folder));
    let is_plain = |word: &&str| !word.contains([' ', '*', '{', '<', '\n']);
    text.split('`').filter(is_path).filter(is_plain).collect()
}

/// The test binaries that the commands of a text run, each with its crate; none for that of the root.
fn named_binaries(text: &str) -> Vec<(Option<&str>, &str)> {
    let commands = text.lines().filter(|line| line.contains("cargo test "));
    let commands = commands.filter(|line| !line.contains("--workspace"));
    let of_command = |line| {
        let words = || str::split_whitespace(line).map(|word: &str| word.trim_matches('`'));
        let after = move |word| words().zip(words().skip(1)).filter(move |(one, _)| *one == word);
        let of = after("-p").next().map(|(_, name)| name);
        after("--test").map(move |(_, binary)| (of, binary))
    };
    commands.flat_map(of_command).collect()
}

/// All files of this ending below a folder of the repository.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path, ending) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .collect()
}

#[test]
fn tests_files_and_commands_that_are_named_in_guides_exist() {
    let folders = ["src", "tests", "crates"].map(|folder| root().join(folder));
    let code: String = folders
        .iter()
        .flat_map(|folder| files(folder, "rs"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let pages =
        ["README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| root().join(page));
    let docs = ["docs", "crates"].map(|folder| files(&root().join(folder), "md"));
    let guides = docs.into_iter().flatten().chain(pages);
    let mut known = [0; 3];
    for guide in guides {
        let text = fs::read_to_string(&guide).unwrap();
        for test in named_tests(&text) {
            assert!(code.contains(&format!("fn {test}(")), "{}: `{test}`", guide.display());
            known[0] += 1;
        }
        // The pages of the root itself speak of any crate.
        let is_of_all = guide.parent() == Some(root());
        let folders = member_folders().filter(|folder| is_of_all || guide.starts_with(folder));
        let folders: Vec<_> = folders.chain([root().to_path_buf()]).collect();
        for path in named_paths(&text) {
            let is_there = folders.iter().any(|folder| folder.join(path).exists());
            assert!(is_there, "{}: `{path}` does not exist", guide.display());
            known[1] += 1;
        }
        for (of, binary) in named_binaries(&text) {
            let of =
                of.map(|name| root().join("crates").join(name.trim_start_matches("tollgate-")));
            let tests = of.unwrap_or(root().to_path_buf()).join("tests");
            let is_there = ["/main.rs", ".rs"].map(|end| tests.join(format!("{binary}{end}")));
            let is_there = is_there.iter().any(|file| file.exists());
            assert!(is_there, "{}: `--test {binary}` has no such crate", guide.display());
            known[2] += 1;
        }
    }
    assert!(known[0] > 20 && known[1] > 40 && known[2] > 5, "{known:?}");
}

/// The blocks of code in a text, with their languages.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    blocks.filter_map(|block| block.split_once('\n')).collect()
}

/// Readers of the repository see the lines that rustdoc hides.
#[test]
fn guides_have_no_hidden_lines() {
    for (docs, ..) in crates() {
        for (name, guide) in guides(&docs) {
            for (language, code) in blocks(&guide) {
                let is_hidden = |line: &&str| line.trim() == "#" || line.trim().starts_with("# ");
                let line = code.lines().find(is_hidden);
                let line = line.filter(|_| language.starts_with("rust"));
                assert_eq!(line, None, "{name}: whole blocks only, or a test in tests/guides");
            }
        }
    }
}

#[test]
fn tests_of_guides_begin_with_a_block_of_their_guide() {
    let all: BTreeMap<_, _> = crates().iter().flat_map(|(docs, ..)| guides(docs)).collect();
    let mut known = 0;
    let folders =
        member_folders().chain([root().to_path_buf()]).map(|folder| folder.join("tests/guides"));
    for file in folders.filter(|folder| folder.exists()).flat_map(|folder| files(&folder, "rs")) {
        let folder = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let Some((block, _)) = text.split_once("\nmod tests {") else { continue };
        let page = format!("/{}.md", folder.replace('_', "-"));
        let (_, guide) = all.iter().find(|(name, _)| name.ends_with(&page)).unwrap();
        let same = blocks(guide).iter().any(|(_, code)| *code == block.trim_end());
        assert!(same, "{} differs from {page}", file.display());
        known += 1;
    }
    assert!(known > 20, "{known}");
}

// The rule can fail.

#[test]
fn dead_links_are_reported() {
    let links = BTreeMap::from([("redis", "crate::_guide::redis")]);
    let found = |guide: &str| faults("docs/a.md", &format!("{guide}\n"), &links);
    for (guide, fault) in [
        ("[Redis](redis.md)", "docs/a.md:1: `](redis.md)` leads nowhere on docs.rs"),
        ("[Redis][other]", "docs/a.md:1: `[other]` has no definition at the end"),
        ("[x][other]\n\n[other]: shards.md", "docs/a.md:3: `[other]` has no definition for"),
        ("[x][redis]\n\n[redis]: gone.md#a", "docs/a.md:3: `gone.md` does not exist"),
    ] {
        assert!(matches!(&*found(guide), [only] if only.starts_with(fault)), "{guide}");
    }
    for guide in [
        "[Redis][redis]\n\n[redis]: shards.md#clusters",
        "[tokio](https://docs.rs/tokio), [below](#below)",
        "```rust\nlet x = y[0](redis.md);\n```",
    ] {
        assert_eq!(found(guide), Vec::<String>::new(), "{guide}");
    }
}

#[test]
fn tests_are_told_from_other_words_in_backticks() {
    for (text, tests) in [
        ("see `made_up_keys_do_not_lift_a_penalty`.", &["made_up_keys_do_not_lift_a_penalty"][..]),
        ("`tollgate_request_time_in_queue_seconds`, `idle_in_transaction_session_timeout`", &[]),
        ("`max_waiters_per_key` and `a_test_of_five_parts(x)`", &[]),
    ] {
        assert_eq!(named_tests(text), tests, "{text}");
    }
}

#[test]
fn files_and_commands_are_told_from_other_words() {
    let text = "see `src/lib.rs`, `tests/chaos`, `tests/*.rs` and `docs of src/`";
    assert_eq!(named_paths(text), ["src/lib.rs", "tests/chaos"]);
    let text = "cargo test -p tollgate-redis --test slow\n`cargo test --test queue --test log` --test a\n\
                cargo test --workspace --test b\ncargo run --test c";
    let found = [(Some("tollgate-redis"), "slow"), (None, "queue"), (None, "log"), (None, "a")];
    assert_eq!(named_binaries(text), found);
}
