//! Reads a configuration: a file, a text, or a part of another configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error};

use super::file_fields;
use super::format::Format;
use super::lookup::{Config, ConfigContent};
use super::origin::ConfigOrigin;
use super::problem::{ConfigError, Mistakes};
use super::read_serde::NodeReader;
use super::tree::ConfigNode;

/// Far more than thousands of limits take. It bounds the time and the memory for a hostile file.
const MAX_BYTES: u64 = 1 << 20;

/// Reading.
impl Config {
    /// Reads a file of TOML, JSON or YAML; its name tells which.
    ///
    /// It blocks for as long as the file system takes. A file may have a million bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or if anything in it is wrong: the error has all mistakes, each
    /// with its line.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_file("limits.toml")?;
    /// let login = config.limit("login")?;
    /// # drop(login);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.to_string_lossy().into_owned();
        let whole = |text: String, source| ConfigError::whole(Some(&name), text, source);
        let format = Format::of_name(path).map_err(|text| whole(text, None))?;
        let bytes = read_file(path).map_err(|error| whole(UNREADABLE.to_owned(), Some(error)))?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let origin = ConfigOrigin { name: Some(name.clone()), text };
            let mut mistakes = Mistakes::default();
            mistakes.add(Some(valid), "this is not UTF-8 (save the file as UTF-8)".to_owned());
            mistakes.into_error(&origin)
        })?;
        Self::read(name, text, format, Some(path.to_owned()))
    }

    /// Reads a text of TOML, JSON or YAML; `name` tells which, and errors begin with it.
    ///
    /// Use it for a configuration that is compiled in, or that comes from elsewhere than a file.
    ///
    /// # Errors
    ///
    /// If anything in the text is wrong, as for [`from_file`](Self::from_file).
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_text("limits.json", r#"{"limits": {"login": "5 per hour"}}"#)?;
    /// assert_eq!(config.limit("login")?.quota().to_string(), "5 per hour");
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn from_text(name: impl AsRef<Path>, text: &str) -> Result<Self, ConfigError> {
        let name = name.as_ref();
        let shown = name.to_string_lossy().into_owned();
        let format =
            Format::of_name(name).map_err(|text| ConfigError::whole(Some(&shown), text, None))?;
        Self::read(shown, text.to_owned(), format, None)
    }

    fn read(
        name: String,
        mut text: String,
        format: Format,
        path: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_BYTES {
            return Err(ConfigError::whole(Some(&name), TOO_LONG.to_owned(), None));
        }
        // Editors of Windows begin a file with it.
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let origin = ConfigOrigin { name: Some(name), text };
        match format.read(&origin) {
            Ok(root) => Self::from_tree(origin, &root, path),
            Err(error) => {
                let mut mistakes = Mistakes::default();
                mistakes.add(error.at, error.text);
                Err(mistakes.into_error(&origin))
            }
        }
    }

    fn from_tree(
        origin: ConfigOrigin,
        root: &ConfigNode,
        path: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let mut mistakes = Mistakes::default();
        let (file, drafts) = file_fields::read(&mut mistakes, origin, root);
        mistakes.into_result(&file.origin)?;
        let file = Arc::new(file);
        let entries = drafts.into_iter().map(|draft| Arc::new(draft.finish(Arc::clone(&file))));
        let (entries, applying) = (entries.collect(), Mutex::new(()));
        Ok(Self { content: Arc::new(ConfigContent { file, entries, path, applying }) })
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a longer file is seen to be longer.
    File::open(path)?.take(MAX_BYTES.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

const UNREADABLE: &str = "the file cannot be read (name one that this process may read)";

const TOO_LONG: &str = "it is longer than 1048576 bytes (a thousand limits take a tenth of that)";

/// Reads a configuration that is a part of another one, such as a table of the application's own
/// file. Its errors name the fields, and have no lines.
///
/// # Examples
///
/// ```
/// use serde::Deserialize;
/// use tollgate_config::Config;
///
/// #[derive(Deserialize)]
/// struct Application {
///     port: u16,
///     rate_limits: Config,
/// }
///
/// let application: Application = toml::from_str(
///     "port = 3000
///      [rate_limits.limits]
///      login = '5 per hour'",
/// )?;
/// assert_eq!(application.port, 3000);
/// assert_eq!(application.rate_limits.limit("login")?.quota().rate(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let root = NodeReader::root().deserialize(deserializer)?;
        Self::from_tree(ConfigOrigin::default(), &root, None).map_err(D::Error::custom)
    }
}
