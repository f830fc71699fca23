//! A limit of a configuration, which the program has looked up.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::entry::ConfigEntry;
use super::field_names::{Concern, FieldName};
use super::problem::{ConfigError, Mistakes};
use super::suggestion::{Quote, list};
use tollgate::key::KeyExtractor;
use tollgate::limiter::{Limit, RateLimiter};
use tollgate::middleware::{IntoChosenLimit, RateLimitLayer, Rule};

/// A limit of a configuration, with all that its entry says; made by [`Config::limit`].
///
/// [`Config::limit`]: super::Config::limit
///
/// Look it up once, at the start, and keep it where it is used: it is one pointer, and a clone is
/// the same limit. Where a [`Limit`] is borrowed, a `ConfiguredLimit` will do, as it dereferences
/// to one:
///
/// ```
/// use tollgate_config::{Config, ConfiguredLimit};
/// use tollgate::{RateLimited, RateLimiter};
///
/// #[derive(Clone)]
/// struct Exports {
///     limiter: RateLimiter,
///     limit: ConfiguredLimit,
/// }
///
/// impl Exports {
///     async fn export(&self, user: u64) -> Result<u64, RateLimited> {
///         let permit = self.limiter.limit(&self.limit).key(user).cost(30).await?;
///         Ok(permit.remaining())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::from_text("limits.toml", "limits.exports = '100 per day'")?;
/// let exports = Exports { limiter: RateLimiter::in_memory(), limit: config.limit("exports")? };
/// assert_eq!(exports.export(7).await?, 70);
/// # Ok(())
/// # }
/// ```
///
/// A call names its own key and cost. So of the entry, it has the numbers, the name and
/// `on_failure`; all other fields are for layers.
///
/// For a layer, call [`layer`](Self::layer) or [`rule`](Self::rule). The [`Limit`] alone, as
/// `limiter.layer(&*limit)` would take it, has one bucket for all requests.
#[derive(Clone)]
pub struct ConfiguredLimit {
    entry: Arc<ConfigEntry>,
}

impl ConfiguredLimit {
    pub(super) fn new(entry: Arc<ConfigEntry>) -> Self {
        entry.mark_known();
        Self { entry }
    }

    /// The limit, as [`Rule::limit_with`] takes it, for the plans of a service.
    ///
    /// # Examples
    ///
    /// Two entries with one `name` share their buckets: a tenant that changes its plan keeps what
    /// it has used.
    ///
    /// ```
    /// use tollgate_config::Config;
    /// use tollgate::key::header;
    /// use tollgate::{RateLimiter, Rule};
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "[limits]
    ///      free = { name = 'per-tenant', quota = '60 per minute' }
    ///      pro = { name = 'per-tenant', quota = '6_000 per minute' }",
    /// )?;
    /// let [free, pro] = config.limits(["free", "pro"])?;
    /// let by_plan = Rule::new(&*free)
    ///     .limit_with(move |head| match head.headers().contains_key("x-pro") {
    ///         true => pro.clone(),
    ///         false => free.clone(),
    ///     })
    ///     .key(header("x-tenant"));
    /// let layer = RateLimiter::in_memory().layer(by_plan);
    /// # drop(layer);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn shared(&self) -> Arc<Limit> {
        Arc::clone(&self.entry.limit)
    }

    /// Makes a rule of the limit and of the fields of its entry, with the key that the entry names.
    ///
    /// For a layer of this limit alone, [`layer`](Self::layer) does the same in one step.
    ///
    /// # Errors
    ///
    /// * If the entry has no `key`. All clients would share one bucket; if that is meant, the key
    ///   is "none". A key that only the program knows is for
    ///   [`rule_with_key`](Self::rule_with_key).
    /// * If the entry has fields that concern a layer as a whole, such as `queue`: a rule has none
    ///   of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "[limits]
    ///      per-client = { quota = '10 per second', key = 'client address' }
    ///      per-user = { quota = '100 per minute', key = 'header x-user', cost = 2 }",
    /// )?;
    /// let [per_client, per_user] = config.limits(["per-client", "per-user"])?;
    /// let layer = RateLimiter::in_memory().layer(per_client.rule()?).and(per_user.rule()?);
    /// # drop(layer);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn rule(&self) -> Result<Rule, ConfigError> {
        self.has_rule_fields_only()?;
        self.rule_for_layer()
    }

    /// Makes a rule as [`rule`](Self::rule) does, with a key that the program gives.
    ///
    /// # Errors
    ///
    /// * If the entry names a `key` as well: it would have no effect.
    /// * If the entry has fields that concern a layer as a whole.
    pub fn rule_with_key(&self, key: impl KeyExtractor) -> Result<Rule, ConfigError> {
        self.has_rule_fields_only()?;
        self.rule_with_key_for_layer(key)
    }

    /// Makes a layer of the limit with all that its entry and the configuration say: the key, the
    /// cost, the conditions, the queue, the header fields.
    ///
    /// What the configuration says for all limits becomes the default of the layer, as if
    /// [`Config::configure`] had been called with the limiter.
    ///
    /// [`Config::configure`]: super::Config::configure
    ///
    /// # Errors
    ///
    /// If the entry has no `key`, as for [`rule`](Self::rule).
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::post};
    /// use tollgate_config::{Config, ConfigError};
    /// use tollgate::{RateLimitExt, RateLimiter};
    ///
    /// fn app(config: &Config, limiter: &RateLimiter) -> Result<Router, ConfigError> {
    ///     let chat = config.limit("chat")?.layer(limiter)?;
    ///     Ok(Router::new().route("/chat", post(async || "hello").rate_limit(chat)))
    /// }
    ///
    /// let config = Config::from_text(
    ///     "limits.toml",
    ///     "[limits.chat]
    ///      quota = '60 per minute, max_reserved 60'
    ///      key = 'header x-user'
    ///      queue = { max_wait = '30s', max_waiters = 500 }",
    /// )?;
    /// let app = app(&config, &RateLimiter::in_memory())?;
    /// # drop(app);
    /// # Ok::<(), ConfigError>(())
    /// ```
    pub fn layer(&self, limiter: &RateLimiter) -> Result<RateLimitLayer, ConfigError> {
        Ok(self.layer_of(limiter, self.rule_for_layer()?))
    }

    /// Makes a layer as [`layer`](Self::layer) does, with a key that the program gives.
    ///
    /// # Errors
    ///
    /// If the entry names a `key` as well: it would have no effect.
    ///
    /// # Examples
    ///
    /// ```
    /// use tollgate::RateLimiter;
    /// use tollgate_config::Config;
    /// use tollgate::key::extension;
    ///
    /// #[derive(Clone)]
    /// struct User(u64); // inserted by the layer that authenticates
    ///
    /// let config = Config::from_text("limits.toml", "limits.chat = '60 per minute'")?;
    /// let limiter = RateLimiter::in_memory();
    /// let by_user = extension(|user: &User| user.0);
    /// let layer = config.limit("chat")?.layer_with_key(&limiter, by_user)?;
    /// # drop(layer);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn layer_with_key(
        &self,
        limiter: &RateLimiter,
        key: impl KeyExtractor,
    ) -> Result<RateLimitLayer, ConfigError> {
        Ok(self.layer_of(limiter, self.rule_with_key_for_layer(key)?))
    }

    fn layer_of(&self, limiter: &RateLimiter, rule: Rule) -> RateLimitLayer {
        let limiter = self.entry.file.configure(limiter.clone());
        self.entry.layer.apply(limiter.layer(rule))
    }

    fn rule_for_layer(&self) -> Result<Rule, ConfigError> {
        match self.entry.rule.key.clone() {
            Some(key) => Ok(self.rule_of(key)),
            None => Err(self.mistake(self.entry.at, NO_KEY.to_owned())),
        }
    }

    fn rule_with_key_for_layer(&self, key: impl KeyExtractor) -> Result<Rule, ConfigError> {
        match self.entry.rule.key {
            None => Ok(self.rule_of(key)),
            Some(_) => {
                let fields = self.entry.fields_about(&[Concern::Rule]);
                let key = fields.iter().find(|given| given.field.name() == "key");
                Err(self.mistake(key.and_then(|key| key.at), TWO_KEYS.to_owned()))
            }
        }
    }

    fn rule_of(&self, key: impl KeyExtractor) -> Rule {
        self.entry.mark_rule();
        if self.entry.rule.has_address {
            self.entry.file.use_address();
        }
        self.entry.rule.rule(&self.entry.limit, key)
    }

    fn has_rule_fields_only(&self) -> Result<(), ConfigError> {
        let fields = self.entry.fields_about(&[Concern::Layer]);
        let Some(first) = fields.first() else { return Ok(()) };
        let names: Vec<_> = fields.iter().map(|given| given.field.name()).collect();
        let names = list(&names, Quote::Code);
        let text = format!(
            "{names} would have no effect on a rule (make the layer by `ConfiguredLimit::layer`, \
             or leave it out)"
        );
        Err(self.mistake(first.at, text))
    }

    fn mistake(&self, at: Option<usize>, text: String) -> ConfigError {
        let mut mistakes = Mistakes::default();
        mistakes.add(at, format!("limit \"{}\": {text}", self.entry.name));
        mistakes.into_error(&self.entry.file.origin)
    }
}

const NO_KEY: &str = "it has no `key`, so all clients would share one bucket (name one, such as \
                      \"client address\" or \"header x-user\"; if one bucket is meant, \"none\"; \
                      or have the program give the key, by `layer_with_key` or `rule_with_key`)";

const TWO_KEYS: &str = "`key` would have no effect, since the program gives the key of this limit \
                        (leave it out, or have the program call `layer` or `rule`)";

impl Deref for ConfiguredLimit {
    type Target = Limit;

    fn deref(&self) -> &Limit {
        &self.entry.limit
    }
}

impl AsRef<Limit> for ConfiguredLimit {
    fn as_ref(&self) -> &Limit {
        self
    }
}

impl IntoChosenLimit for ConfiguredLimit {
    fn into_chosen_limit(self) -> Option<Arc<Limit>> {
        Some(self.shared())
    }
}

impl fmt::Debug for ConfiguredLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<_> = self.entry.fields.iter().map(|given| given.field.name()).collect();
        f.debug_struct("ConfiguredLimit")
            .field("name", &self.entry.name)
            .field("quota", &format_args!("{}", self.quota()))
            .field("fields", &fields)
            .finish_non_exhaustive()
    }
}
