//! What the modules of the crate define and import, and where a path leads.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::read::{Token, is_exported_macro, is_word, module_of, sources, text, tokens};

/// The modules of the crate.
pub(crate) static MODULES: LazyLock<Modules> = LazyLock::new(|| {
    let sources = sources();
    Modules::read(sources.iter().map(|(file, text)| (&**file, &**text)))
});

/// The modules by their paths; that of the root is empty.
pub(crate) struct Modules(pub(crate) BTreeMap<Vec<String>, Module>);

#[derive(Default)]
pub(crate) struct Module {
    /// The path in `src`.
    pub(crate) file: String,
    pub(crate) items: Vec<Item>,
    pub(crate) imports: Vec<Import>,
    pub(crate) impls: Vec<Impl>,
    /// The paths and names in the code, without those of imports.
    pub(crate) mentions: Vec<Mention>,
}

pub(crate) struct Item {
    pub(crate) name: String,
    /// Whether it is inside of a function, where no path leads.
    pub(crate) is_local: bool,
}

/// One name that a `use` binds.
pub(crate) struct Import {
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
    /// The last segment or the new name; `*` for all.
    pub(crate) name: String,
    /// Whether others may import it from here.
    pub(crate) is_exported: bool,
}

pub(crate) struct Impl {
    pub(crate) line: usize,
    /// The path of the trait; empty for an inherent `impl`.
    pub(crate) of: Vec<String>,
    /// The path of the type, without references and arguments; empty if it has none.
    pub(crate) target: Vec<String>,
}

pub(crate) struct Mention {
    pub(crate) line: usize,
    pub(crate) path: Vec<String>,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Place {
    /// To an item of the module, or to something in that item.
    Item {
        module: Vec<String>,
        name: String,
    },
    Module(Vec<String>),
    /// Out of the crate.
    Foreign,
}

/// What a brace, a bracket or a parenthesis holds.
#[derive(PartialEq)]
enum Block {
    Module,
    /// The arguments of `pin_project!`, which are items.
    Items,
    Code,
}

impl Modules {
    /// Reads files, given by their paths in `src`.
    pub(crate) fn read<'a>(sources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut modules = Self(BTreeMap::new());
        for (file, source) in sources {
            let path = if file == "lib.rs" { Vec::new() } else { module_of(file) };
            modules.read_file(file, path, &tokens(source));
        }
        modules
    }

    fn read_file(&mut self, file: &str, mut path: Vec<String>, tokens: &[Token]) {
        self.enter(file, &path);
        let mut blocks = Vec::new();
        let mut next = None;
        let mut is_exported = false;
        let mut at = 0;
        while let Some(Token { text: word, line, .. }) = tokens.get(at) {
            let line = *line;
            let is_top = blocks.iter().all(|block| matches!(block, Block::Module | Block::Items));
            let given = std::mem::take(&mut is_exported);
            let module = self.0.get_mut(&path).unwrap();
            let (before, after) = (before(tokens, at, 1), text(tokens, at + 1));
            match &**word {
                "#" if after == "[" || after == "!" => {
                    at = end_of_group(tokens, if after == "!" { at + 2 } else { at + 1 });
                    is_exported = given;
                    continue;
                }
                "{" => blocks.push(next.take().unwrap_or(Block::Code)),
                "(" | "[" => blocks.push(Block::Code),
                "}" | ")" | "]" => {
                    let closed = blocks.pop();
                    if closed == Some(Block::Module) {
                        path.pop();
                    }
                }
                "pub" => {
                    is_exported = true;
                    let is_restricted =
                        matches!(text(tokens, at + 2), "crate" | "super" | "self" | "in");
                    if after == "(" && is_restricted {
                        at = end_of_group(tokens, at + 1);
                        continue;
                    }
                }
                "const" if is_word(after) && after != "_" && text(tokens, at + 2) == ":" => {
                    module.define(tokens, at, is_top);
                    at += 1;
                }
                "mod" if is_top && is_word(after) => {
                    if text(tokens, at + 2) == "{" {
                        path.push(after.to_owned());
                        self.enter(file, &path);
                        blocks.push(Block::Module);
                        at += 1;
                    }
                    at += 2;
                    continue;
                }
                "use" if after != "<" => {
                    let first = module.imports.len();
                    at = follow(tokens, at + 1, &[], &mut module.imports);
                    for import in &mut module.imports[first..] {
                        import.is_exported = given;
                    }
                    continue;
                }
                "impl" if begins_item(tokens, at) => {
                    module.impls.push(header(tokens, at));
                }
                "fn" | "type" | "static" | "union" if is_top && is_word(after) => {
                    module.define(tokens, at, is_top);
                    at += 1;
                }
                "struct" | "enum" | "trait" if is_word(after) => {
                    module.define(tokens, at, is_top);
                    at += 1;
                }
                "macro_rules" if after == "!" => {
                    module
                        .items
                        .push(Item { name: text(tokens, at + 2).to_owned(), is_local: !is_top });
                    at += 2;
                }
                // Macros around items that stand as they are.
                "pin_project" | "field_names" if after == "!" => {
                    next = Some(Block::Items);
                    at += 1;
                }
                "crate" if is_exported_macro(tokens, at) => at += 2,
                word if is_word(word) && !matches!(before, "." | "::") => {
                    let (segments, end) = simple_path(tokens, at);
                    let follows = text(tokens, end);
                    let is_named = segments.len() > 1
                        || word.starts_with(char::is_uppercase)
                        || matches!(follows, "(" | "!");
                    if is_named {
                        module.mention(line, &segments);
                    }
                    at = end;
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn enter(&mut self, file: &str, path: &[String]) {
        for end in 0..path.len() {
            self.0.entry(path[..end].to_vec()).or_default();
        }
        self.0.entry(path.to_vec()).or_default().file = file.to_owned();
    }

    /// Where a path leads that stands in `module`; nowhere if there is nothing of that name.
    pub(crate) fn resolve(&self, module: &[String], path: &[String]) -> Option<Place> {
        self.resolve_within(module, path, 16)
    }

    /// `steps` ends the search where imports lead to each other.
    fn resolve_within(&self, module: &[String], path: &[String], steps: u8) -> Option<Place> {
        let first = path.first()?;
        match &**first {
            "crate" => self.find(&[], &path[1..], steps),
            "self" | "super" => self.find(module, path, steps),
            "" => Some(Place::Foreign),
            _ => self.find(module, path, steps).or(Some(Place::Foreign)),
        }
    }

    /// Where a path leads from `module` on.
    fn find(&self, module: &[String], path: &[String], steps: u8) -> Option<Place> {
        let steps = steps.checked_sub(1)?;
        let Some((first, rest)) = path.split_first() else {
            return Some(Place::Module(module.to_vec()));
        };
        match &**first {
            "self" => return self.find(module, rest, steps),
            "super" => return self.find(module.split_last()?.1, rest, steps),
            _ => {}
        }
        let child = [module, std::slice::from_ref(first)].concat();
        if !rest.is_empty() && self.0.contains_key(&child) {
            return self.find(&child, rest, steps);
        }
        let Module { items, imports, .. } = self.0.get(module)?;
        if items.iter().any(|item| item.name == *first && !item.is_local) {
            return Some(Place::Item { module: module.to_vec(), name: first.clone() });
        }
        let through = |import: &Import| self.resolve_within(module, &import.path, steps);
        let bound = imports.iter().filter(|import| import.name == *first && !import.is_of(first));
        if let Some(place) = bound.filter_map(through).next() {
            return match place {
                Place::Module(found) => self.find(&found, rest, steps),
                place => Some(place),
            };
        }
        if self.0.contains_key(&child) {
            return Some(Place::Module(child));
        }
        let globs = imports.iter().filter(|import| import.name == "*");
        globs.filter_map(through).find_map(|place| match place {
            Place::Module(found) => self.find(&found, path, steps),
            _ => None,
        })
    }
}

impl Module {
    /// Adds the item with its keyword at `at`.
    fn define(&mut self, tokens: &[Token], at: usize, is_top: bool) {
        let name = match text(tokens, at + 1) {
            "mut" => text(tokens, at + 2),
            name => name,
        };
        self.items.push(Item { name: name.to_owned(), is_local: !is_top });
    }

    fn mention(&mut self, line: usize, path: &[String]) {
        self.mentions.push(Mention { line, path: path.to_vec() });
    }
}

impl Import {
    /// Whether it imports a crate or module of the same name, as `use redis;`.
    fn is_of(&self, name: &str) -> bool {
        self.path.first().is_some_and(|first| first == name)
    }
}

/// Reads the tree of a `use`, and returns where it ends.
fn follow(tokens: &[Token], mut at: usize, base: &[String], found: &mut Vec<Import>) -> usize {
    let mut path = base.to_vec();
    if text(tokens, at) == "::" {
        // An empty name stands before the name of a crate.
        path.push(String::new());
        at += 1;
    }
    loop {
        let line = tokens.get(at).map_or(0, |token| token.line);
        match text(tokens, at) {
            "{" => {
                at += 1;
                while !matches!(text(tokens, at), "}" | ";" | "") {
                    at = follow(tokens, at, &path, found);
                    at += usize::from(text(tokens, at) == ",");
                }
                return at + 1;
            }
            segment => {
                if segment != "*" && (segment != "self" || path.is_empty()) {
                    path.push(segment.to_owned());
                }
                at += 1;
                if text(tokens, at) == "::" {
                    at += 1;
                    continue;
                }
                let name = match segment {
                    "*" => "*",
                    _ if text(tokens, at) == "as" => {
                        at += 2;
                        text(tokens, at - 1)
                    }
                    _ => path.last().map_or("", String::as_str),
                };
                let name = name.to_owned();
                found.push(Import { line, path, name, is_exported: false });
                return at;
            }
        }
    }
}

/// Reads what is between `impl` and the brace.
fn header(tokens: &[Token], at: usize) -> Impl {
    let line = tokens[at].line;
    let mut start = at + 1;
    if text(tokens, start) == "<" {
        start = end_of_angles(tokens, start);
    }
    let mut of = Vec::new();
    let mut target = head(tokens, start);
    let mut end = start;
    while !matches!(text(tokens, end), "{" | "where" | "") {
        let is_between =
            text(tokens, end) == "for" && angle_depth(&tokens[start..end]) == 0 && of.is_empty();
        // `for<'a>` is part of a type.
        if is_between && text(tokens, end + 1) != "<" {
            of = std::mem::replace(&mut target, head(tokens, end + 1));
        }
        end += 1;
    }
    Impl { line, of, target }
}

/// The path at the head of a type, behind references and `dyn`.
fn head(tokens: &[Token], mut at: usize) -> Vec<String> {
    while matches!(text(tokens, at), "&" | "mut" | "dyn" | "!" | "const")
        || text(tokens, at).starts_with('\'')
    {
        at += 1;
    }
    if text(tokens, at) == "for" {
        at = end_of_angles(tokens, at + 1);
    }
    match text(tokens, at) {
        "::" => vec![String::new()],
        word if is_word(word) => simple_path(tokens, at).0,
        _ => Vec::new(),
    }
}

/// The segments of a path up to its first arguments, and where it ends.
fn simple_path(tokens: &[Token], mut at: usize) -> (Vec<String>, usize) {
    let mut path = vec![text(tokens, at).to_owned()];
    while text(tokens, at + 1) == "::" && is_word(text(tokens, at + 2)) {
        at += 2;
        path.push(text(tokens, at).to_owned());
    }
    (path, at + 1)
}

/// Whether an `impl` is an item, and not the type of an argument or a result.
fn begins_item(tokens: &[Token], at: usize) -> bool {
    match before(tokens, at, 1) {
        "" | "{" | "}" | ";" | "]" | "unsafe" => true,
        // A repetition in a macro.
        "(" => before(tokens, at, 2) == "$",
        _ => false,
    }
}

fn end_of_group(tokens: &[Token], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match &*token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_angles(tokens: &[Token], at: usize) -> usize {
    let end = (at + 1..tokens.len()).find(|&end| angle_depth(&tokens[at..end]) == 0);
    end.unwrap_or(tokens.len())
}

/// How many of the angle brackets are open; those of arrows are not brackets.
fn angle_depth(tokens: &[Token]) -> isize {
    let signs = tokens.iter().enumerate().map(|(at, token)| match &*token.text {
        "<" => 1,
        ">" if before(tokens, at, 1) != "-" => -1,
        _ => 0,
    });
    signs.sum()
}

fn before(tokens: &[Token], at: usize, back: usize) -> &str {
    at.checked_sub(back).map_or("", |at| text(tokens, at))
}
