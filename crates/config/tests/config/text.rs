//! One configuration in all formats.
//!
//! A test writes it once, as `{limits: {api: {rate: ¶true}}}`. The mark stands where an error is
//! expected, and is no part of the text.

use tollgate_config::Config;

/// The names of the formats, by which files end.
pub(crate) const FORMATS: [&str; 3] = ["toml", "json", "yaml"];

/// The text in a format, and the line and the column of each mark.
pub(crate) fn render(template: &str, format: &str) -> (String, Vec<(usize, usize)>) {
    let template = match format {
        // The outermost table of TOML has no braces, and its fields are lines.
        "toml" => template.replacen('{', "", 1).strip_suffix('}').unwrap().to_owned(),
        _ => template.to_owned(),
    };
    let (mut text, mut marks) = (String::new(), Vec::new());
    let (mut name, mut is_quoted, mut depth) = (String::new(), false, 0);
    // A name is known by the colon after it.
    let flush = |name: &mut String, text: &mut String, is_name: bool| {
        match (is_name && !name.is_empty(), format) {
            (true, "json") => text.push_str(&format!("\"{name}\"")),
            _ => text.push_str(name),
        }
        name.clear();
    };
    for c in template.chars() {
        match c {
            '¶' => {
                flush(&mut name, &mut text, false);
                let line = text.rsplit('\n').next().unwrap();
                marks.push((text.matches('\n').count() + 1, line.chars().count() + 1));
            }
            '"' => {
                flush(&mut name, &mut text, false);
                is_quoted = !is_quoted;
                text.push(c);
            }
            _ if is_quoted => text.push(c),
            ':' => {
                flush(&mut name, &mut text, true);
                text.push_str(if format == "toml" { " =" } else { ":" });
            }
            c if c.is_alphanumeric() || "_-%.".contains(c) => name.push(c),
            c => {
                flush(&mut name, &mut text, false);
                match c {
                    '{' | '[' => depth += 1,
                    '}' | ']' => depth -= 1,
                    _ => {}
                }
                let is_line = format == "toml" && depth == 0 && c == ',';
                text.push(if is_line { '\n' } else { c });
            }
        }
    }
    flush(&mut name, &mut text, false);
    (text, marks)
}

/// Reads the configuration in a format.
#[track_caller]
pub(crate) fn config(template: &str, format: &str) -> Config {
    let (text, _) = render(template, format);
    Config::from_text(format!("limits.{format}"), &text)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The configuration is an error in all formats: these messages, each at its mark.
#[track_caller]
pub(crate) fn is_wrong(template: &str, messages: &[&str]) {
    for format in FORMATS {
        is_wrong_in(format, template, messages);
    }
}

#[track_caller]
pub(crate) fn is_wrong_in(format: &str, template: &str, messages: &[&str]) {
    let (text, marks) = render(template, format);
    let name = format!("limits.{format}");
    let Err(error) = Config::from_text(&name, &text) else { panic!("{text} was read") };
    assert_eq!(marks.len(), messages.len(), "a mark for each message: {template}");
    let wanted = marks.iter().zip(messages);
    let wanted: Vec<_> = wanted
        .map(|((line, column), message)| format!("{name}:{line}:{column}: {message}"))
        .collect();
    assert_eq!(error.to_string(), wanted.join("\n"), "{text}");
}

/// The messages about a text in a format, without the name of the file.
#[track_caller]
pub(crate) fn error_of(format: &str, text: &str) -> String {
    match Config::from_text(format!("a.{format}"), text) {
        Ok(_) => panic!("{text} was read"),
        Err(error) => error.to_string().replace(&format!("a.{format}:"), ""),
    }
}

#[test]
fn a_text_is_rendered_in_each_format() {
    let template =
        "{limits: {api: {quota: \"10 per: minute\", ¶cost: 5}},\n ¶dialects: [\"none\"]}";
    assert_eq!(
        FORMATS.map(|format| render(template, format)),
        [
            (
                "limits = {api = {quota = \"10 per: minute\", cost = 5}}\n\n dialects = [\"none\"]"
                    .to_owned(),
                vec![(1, 44), (3, 2)]
            ),
            (
                "{\"limits\": {\"api\": {\"quota\": \"10 per: minute\", \"cost\": 5}},\n \
                 \"dialects\": [\"none\"]}"
                    .to_owned(),
                vec![(1, 48), (2, 2)]
            ),
            (
                "{limits: {api: {quota: \"10 per: minute\", cost: 5}},\n dialects: [\"none\"]}"
                    .to_owned(),
                vec![(1, 42), (2, 2)]
            ),
        ]
    );
}
