//! A configuration: read, looked up, and checked for what is left over.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::configured_limit::ConfiguredLimit;
use super::entry::ConfigEntry;
use super::field_names::{Concern, FieldName};
use super::file_settings::FileSettings;
use super::problem::{ConfigError, Mistakes};
use super::suggestion::{Quote, list, way_out};
use tollgate::key::ClientIp;
use tollgate::kit::excerpt;
use tollgate::limiter::RateLimiter;

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
    /// The file, if it is one.
    pub(super) path: Option<PathBuf>,
    /// Held while numbers are replaced.
    pub(super) applying: Mutex<()>,
}

/// Lookups, and what is left over.
impl Config {
    /// Looks a limit up by its name.
    ///
    /// # Errors
    ///
    /// If there is no limit of this name. The error lists those that there are.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
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
    /// # Ok::<(), tollgate_config::ConfigError>(())
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
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "limits = { login = '5 per hour', signup = '3 per day' }",
    /// )?;
    /// let [login, signup] = config.limits(["login", "signup"])?;
    /// # drop((login, signup));
    /// # Ok::<(), tollgate_config::ConfigError>(())
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

    /// Returns a limiter whose calls and layers have what the configuration says for all limits:
    /// the header fields, the words of refusals, what happens while the store fails, and whether
    /// anything is limited at all.
    ///
    /// Layers that are made by [`ConfiguredLimit::layer`] have that anyway. Use this for the calls
    /// in handlers, and for layers that are made of rules.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "on_failure = 'admit'
    ///      limits.exports = '100 per day'",
    /// )?;
    /// let limiter = config.configure(RateLimiter::in_memory());
    /// # drop(limiter);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn configure(&self, limiter: RateLimiter) -> RateLimiter {
        self.content.file.configure(limiter)
    }

    /// The extractor of the client's address, as `client_address` of the configuration says; that
    /// of the connection if it says nothing.
    ///
    /// Use it for a key that the program combines with the address.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
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
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn client_address(&self) -> ClientIp {
        self.content.file.use_address();
        self.content.file.address.clone()
    }

    /// Checks that everything in the configuration has an effect. Call it when all layers are made.
    ///
    /// An entry that no code looks up is a limit that an operator believes in and that does not
    /// count, most likely because of a typing mistake on either side.
    ///
    /// # Errors
    ///
    /// Each of these is a mistake in the error:
    ///
    /// * a limit that the program has not looked up;
    /// * fields of a rule or a layer, such as `key` and `queue`, if the program has made neither of
    ///   the limit, but only uses it in calls;
    /// * what is said for all limits, if no limiter and no layer has it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate_config::Config;
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
    ///     "limits.toml:3:6: limit \"logins\": it has no effect, since the program looks up no \
    ///      limit of this name (it looks up \"login\")"
    /// );
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    ///
    /// Where several programs share a file, each has entries that it does not know. Then log it:
    ///
    /// ```
    /// # use tollgate_config::Config;
    /// # let config = Config::from_text("limits.toml", "limits.login = '5 per hour'")?;
    /// if let Err(unused) = config.finish() {
    ///     for problem in unused.problems() {
    ///         tracing::warn!("{problem}");
    ///     }
    /// }
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn finish(&self) -> Result<(), ConfigError> {
        let mut mistakes = Mistakes::default();
        for (given, why) in self.content.file.unused() {
            let name = given.field.name();
            let text = format!("`{name}` has no effect: {why} (do one of these, or leave it out)");
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
                "it has no effect, since the program looks up no limit of this name (it looks up \
                 {})",
                list(&known, Quote::Text)
            ));
        }
        let fields = entry.fields_about(&[Concern::Rule, Concern::Layer]);
        if entry.has_rule() || fields.is_empty() {
            return None;
        }
        let names: Vec<_> = fields.iter().map(|given| given.field.name()).collect();
        Some(format!(
            "{} would have an effect in a layer only, and the program makes none of this limit \
             (leave this out: a call names its own key and cost)",
            list(&names, Quote::Code)
        ))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.content.entries.iter();
        let limits = entries.map(|entry| (&entry.name, entry.limit.quota().to_string()));
        f.debug_map().entries(limits).finish()
    }
}
