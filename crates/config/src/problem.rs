//! What is wrong with a configuration: all mistakes of a file at once, each with its place.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use super::origin::{ConfigOrigin, Position};

/// The error of a configuration: each mistake in it, on a line of its own.
///
/// A line begins with the file, the line and the column, as editors and terminals read them. It
/// says what was given, what is allowed, and the way out:
///
/// ```
/// use tollgate_config::Config;
///
/// let error = Config::from_text(
///     "limits.toml",
///     "[limits.api]
///      quota = '10 per secnd'
///      methds = ['POST']",
/// )
/// .unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "limits.toml:2:14: limit \"api\": `10 per secnd` is not a quota: `secnd` is not a period \
///      (write `minute`, `90 seconds`, `1h 30m` or `30 days`)\n\
///      limits.toml:3:6: limit \"api\": there is no field `methds` (did you mean `methods`?)"
/// );
/// ```
///
/// `Debug` shows the same, since that is what a `main` prints which returns the error.
pub struct ConfigError(Box<ConfigErrorInner>);

struct ConfigErrorInner {
    problems: Vec<ConfigProblem>,
    /// Mistakes beyond the first [`MAX_SHOWN`].
    omitted: usize,
    source: Option<io::Error>,
}

/// Enough to repair a file in one go. A file of another format is wrong in each line.
const MAX_SHOWN: usize = 20;

impl ConfigError {
    /// An error without a place, such as a file that is missing.
    pub(super) fn whole(file: Option<&str>, text: String, source: Option<io::Error>) -> Self {
        let problem = ConfigProblem { file: file.map(Arc::from), position: None, text };
        Self(Box::new(ConfigErrorInner { problems: vec![problem], omitted: 0, source }))
    }

    /// The mistakes, in the order of the text.
    pub fn problems(&self) -> std::slice::Iter<'_, ConfigProblem> {
        self.0.problems.iter()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        match self.0.omitted {
            0 => Ok(()),
            omitted => write!(f, "\nand {omitted} more like these"),
        }
    }
}

/// What [`Display`](fmt::Display) shows, and the cause.
impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Error for ConfigError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref().map(|source| -> &(dyn Error + 'static) { source })
    }
}

/// One mistake in a configuration, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    file: Option<Arc<str>>,
    position: Option<Position>,
    text: String,
}

impl ConfigProblem {
    pub(super) fn new(origin: &ConfigOrigin, at: Option<usize>, text: String) -> Self {
        let position = at.map(|at| origin.position(at));
        Self { file: origin.name.as_deref().map(Arc::from), position, text }
    }

    /// The line, from 1; `None` if the mistake is not at one place, such as a limit that is
    /// missing.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.position.map(|position| position.line)
    }

    /// The column in characters, from 1.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.position.map(|position| position.column)
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            match self.position {
                Some(position) => write!(f, "{position}: ")?,
                None => f.write_str(" ")?,
            }
        }
        f.write_str(&self.text)
    }
}

/// The mistakes that were found so far.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    found: Vec<Mistake>,
    omitted: usize,
}

#[derive(Debug)]
struct Mistake {
    at: Option<usize>,
    text: String,
}

/// A bound on memory: a file of a million bytes can have as many mistakes as it has fields.
const MAX_KEPT: usize = 1_000;

impl Mistakes {
    pub(super) fn add(&mut self, at: Option<usize>, text: String) {
        match self.is_full() {
            true => self.omitted = self.omitted.saturating_add(1),
            false => self.found.push(Mistake { at, text }),
        }
    }

    /// Whether more are only counted: their texts are not needed.
    pub(super) const fn is_full(&self) -> bool {
        self.found.len() >= MAX_KEPT
    }

    /// `Ok` if there is none.
    pub(super) fn into_result(self, origin: &ConfigOrigin) -> Result<(), ConfigError> {
        if self.found.is_empty() { Ok(()) } else { Err(self.into_error(origin)) }
    }

    /// All of them as one error, in the order of the text.
    pub(super) fn into_error(mut self, origin: &ConfigOrigin) -> ConfigError {
        // Stable, so that mistakes of one place stay in the order in which they were found.
        self.found.sort_by_key(|mistake| mistake.at.unwrap_or(usize::MAX));
        let omitted = self.found.len().saturating_sub(MAX_SHOWN).saturating_add(self.omitted);
        let shown = self.found.into_iter().take(MAX_SHOWN);
        let problems =
            shown.map(|Mistake { at, text }| ConfigProblem::new(origin, at, text)).collect();
        ConfigError(Box::new(ConfigErrorInner { problems, omitted, source: None }))
    }
}
