//! A configuration: read, looked up, and checked for what is left over.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error};

use super::configured_limit::ConfiguredLimit;
use super::entry::ConfigEntry;
use super::field_names::{Concern, FieldName};
use super::file_settings::{self, FileSettings};
use super::format::Format;
use super::origin::Origin;
use super::problem::{ConfigError, Mistakes};
use super::read_serde::NodeReader;
use super::suggestion::{Quote, list, way_out};
use super::tree::Node;
use crate::clock::excerpt;
use crate::key::ClientIp;
use crate::limiter::RateLimiter;

/// The limits of a configuration, by their names.
///
/// See the [module docs](super) for examples.
#[derive(Clone)]
pub struct Config {
    pub(super) content: Arc<ConfigContent>,
}

/// What a configuration says.
pub(super) struct ConfigContent {
    pub(super) file: Arc<FileSettings>,
    /// Sorted by name, each name once.
    pub(super) entries: Vec<Arc<ConfigEntry>>,
}

/// Far more than thousands of limits take. It bounds the time and the memory for a hostile file.
const MAX_BYTES: u64 = 1 << 20;

impl Config {
    /// Reads a file of TOML, JSON or YAML; its name tells which.
    ///
    /// It blocks for as long as the file system takes. A file may have a million bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or if anything in it is wrong: the error has all mistakes, each with
    /// its line.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tollgate::config::Config;
    ///
    /// let config = Config::from_file("limits.toml")?;
    /// let login = config.limit("login")?;
    /// # drop(login);
    /// # Ok::<(), tollgate::config::ConfigError>(())
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
            let origin = Origin { name: Some(name.clone()), text };
            let mut mistakes = Mistakes::default();
            mistakes.add(Some(valid), "this is not UTF-8 (save the file as UTF-8)".to_owned());
            mistakes.into_error(&origin)
        })?;
        Self::read(name, text, format)
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
    /// use tollgate::config::Config;
    ///
    /// let config = Config::from_text("limits.json", r#"{"limits": {"login": "5 per hour"}}"#)?;
    /// assert_eq!(config.limit("login")?.quota().to_string(), "5 per hour");
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn from_text(name: impl AsRef<Path>, text: &str) -> Result<Self, ConfigError> {
        let name = name.as_ref();
        let shown = name.to_string_lossy().into_owned();
        let format =
            Format::of_name(name).map_err(|text| ConfigError::whole(Some(&shown), text, None))?;
        Self::read(shown, text.to_owned(), format)
    }

    fn read(name: String, mut text: String, format: Format) -> Result<Self, ConfigError> {
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_BYTES {
            return Err(ConfigError::whole(Some(&name), TOO_LONG.to_owned(), None));
        }
        // Editors of Windows begin a file with it.
        if text.starts_with('\u{feff}') {
            text.drain(..'\u{feff}'.len_utf8());
        }
        let origin = Origin { name: Some(name), text };
        match format.read(&origin) {
            Ok(root) => Self::from_tree(origin, &root),
            Err(error) => {
                let mut mistakes = Mistakes::default();
                mistakes.add(error.at, error.text);
                Err(mistakes.into_error(&origin))
            }
        }
    }

    fn from_tree(origin: Origin, root: &Node) -> Result<Self, ConfigError> {
        let mut mistakes = Mistakes::default();
        let (file, drafts) = file_settings::read(&mut mistakes, origin, root);
        mistakes.into_result(&file.origin)?;
        let file = Arc::new(file);
        let entries = drafts.into_iter().map(|draft| Arc::new(draft.finish(Arc::clone(&file))));
        let entries = entries.collect();
        Ok(Self { content: Arc::new(ConfigContent { file, entries }) })
    }

    /// Looks a limit up by its name.
    ///
    /// # Errors
    ///
    /// If there is no limit of this name. The error lists those that there are.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "limits = { login = '5 per hour', signup = '3 per day' }",
    /// )?;
    /// assert_eq!(config.limit("login")?.name(), "login");
    /// assert_eq!(
    ///     config.limit("logins").unwrap_err().to_string(),
    ///     "limits.toml: there is no limit \"logins\" (did you mean \"login\"?)"
    /// );
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn limit(&self, name: &str) -> Result<ConfiguredLimit, ConfigError> {
        let [limit] = self.limits([name])?;
        Ok(limit)
    }

    /// Looks several limits up by their names.
    ///
    /// # Errors
    ///
    /// If there is no limit of one of the names. The error has all that are missing.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "limits = { login = '5 per hour', signup = '3 per day' }",
    /// )?;
    /// let [login, signup] = config.limits(["login", "signup"])?;
    /// # drop((login, signup));
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn limits<const N: usize>(
        &self,
        names: [&str; N],
    ) -> Result<[ConfiguredLimit; N], ConfigError> {
        let (mut found, mut mistakes) = (Vec::new(), Mistakes::default());
        for name in names {
            match self.content.find(name) {
                Some(entry) => found.push(Arc::clone(entry)),
                None => mistakes.add(None, self.content.missing(name)),
            }
        }
        let found: Result<[_; N], Vec<_>> = found.try_into();
        let found = found.map_err(|_| mistakes.into_error(&self.content.file.origin))?;
        Ok(found.map(ConfiguredLimit::new))
    }

    /// Looks all limits up, by the order of their names.
    ///
    /// Use it where the program does not know the names, such as those of plans.
    pub fn all(&self) -> impl Iterator<Item = ConfiguredLimit> {
        self.content.entries.iter().cloned().map(ConfiguredLimit::new)
    }

    /// Returns a limiter whose calls and layers have what the configuration says for all limits: the
    /// header fields, the words of refusals, what happens while the store fails, and whether anything is
    /// limited at all.
    ///
    /// Layers that are made by [`ConfiguredLimit::layer`] have that anyway. Use this for the calls in
    /// handlers, and for layers that are made of rules.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate::config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "on_failure = 'admit'
    ///      limits.exports = '100 per day'",
    /// )?;
    /// let limiter = config.configure(RateLimiter::in_memory());
    /// # drop(limiter);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn configure(&self, limiter: RateLimiter) -> RateLimiter {
        self.content.file.configure(limiter)
    }

    /// The extractor of the client's address, as `client_address` of the configuration says; that of
    /// the connection if it says nothing.
    ///
    /// Use it for a key that the program combines with the address.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate::config::Config;
    /// use tollgate::key::extension;
    ///
    /// #[derive(Clone)]
    /// struct Tenant(u64); // inserted by the layer that authenticates
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "limits.logins = '5 per hour'
    ///      [client_address]
    ///      from = 'x-forwarded-for'
    ///      trusted_proxies = '10.0.0.0/8'",
    /// )?;
    /// let key = (extension(|tenant: &Tenant| tenant.0), config.client_address());
    /// let layer = config.limit("logins")?.layer_with_key(&RateLimiter::in_memory(), key)?;
    /// # drop(layer);
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn client_address(&self) -> ClientIp {
        self.content.file.use_address();
        self.content.file.address.clone()
    }

    /// Checks that everything in the configuration has an effect. Call it when all layers are made.
    ///
    /// An entry that no code looks up is a limit that an operator believes in and that does not count,
    /// most likely because of a typing mistake on either side.
    ///
    /// # Errors
    ///
    /// Each of these is a mistake in the error:
    ///
    /// * a limit that the program has not looked up;
    /// * fields of a rule or a layer, such as `key` and `queue`, if the program has made neither of the
    ///   limit, but only uses it in calls;
    /// * what is said for all limits, if no limiter and no layer has it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "[limits]
    ///      login = '5 per hour'
    ///      logins = '5 per hour'",
    /// )?;
    /// let login = config.limit("login")?;
    /// # drop(login);
    /// assert_eq!(
    ///     config.finish().unwrap_err().to_string(),
    ///     "limits.toml:3:6: limit \"logins\": it has no effect, since the program looks up no limit of \
    ///      this name (it looks up \"login\")"
    /// );
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    ///
    /// Where several programs share a file, each has entries that it does not know. Then log it:
    ///
    /// ```
    /// # let config = tollgate::config::Config::from_text("limits.toml", "limits.login = '5 per hour'")?;
    /// if let Err(unused) = config.finish() {
    ///     for problem in unused.problems() {
    ///         tracing::warn!("{problem}");
    ///     }
    /// }
    /// # Ok::<(), tollgate::config::ConfigError>(())
    /// ```
    pub fn finish(&self) -> Result<(), ConfigError> {
        let mut mistakes = Mistakes::default();
        for (given, why) in self.content.file.unused() {
            let name = given.field.name();
            let text = format!("`{name}` has no effect: {why} (do so, or leave it out)");
            mistakes.add(given.at, text);
        }
        for entry in &self.content.entries {
            if let Some(text) = self.content.unused(entry) {
                mistakes.add(entry.at, format!("limit \"{}\": {text}", entry.name));
            }
        }
        mistakes.into_result(&self.content.file.origin)
    }
}

impl ConfigContent {
    pub(super) fn find(&self, name: &str) -> Option<&Arc<ConfigEntry>> {
        let place = self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok()?;
        self.entries.get(place)
    }

    fn missing(&self, name: &str) -> String {
        let names: Vec<_> = self.entries.iter().map(|entry| &*entry.name).collect();
        let way_out = way_out(name, &names, Quote::Text);
        format!("there is no limit \"{}\" ({way_out})", excerpt(name))
    }

    /// Why an entry, or a part of it, has no effect.
    fn unused(&self, entry: &ConfigEntry) -> Option<String> {
        if !entry.is_known() {
            let known: Vec<_> = self
                .entries
                .iter()
                .filter(|entry| entry.is_known())
                .map(|entry| &*entry.name)
                .collect();
            return Some(format!(
                "it has no effect, since the program looks up no limit of this name (it looks up {})",
                list(&known, Quote::Text)
            ));
        }
        let fields = entry.fields_about(&[Concern::Rule, Concern::Layer]);
        if entry.has_rule() || fields.is_empty() {
            return None;
        }
        let names: Vec<_> = fields.iter().map(|given| given.field.name()).collect();
        Some(format!(
            "{} would have an effect in a layer only, and the program makes none of this limit (a call \
             names its own key and cost; leave the rest out)",
            list(&names, Quote::Code)
        ))
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
/// use tollgate::config::Config;
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
        Self::from_tree(Origin::default(), &root).map_err(D::Error::custom)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.content.entries.iter();
        let limits = entries.map(|entry| (&entry.name, entry.limit.quota().to_string()));
        f.debug_map().entries(limits).finish()
    }
}
