//! The formats of a configuration.

use std::path::Path;

use super::origin::ConfigOrigin;
use super::suggestion::{Quote, list};
use super::tree::{ConfigNode, TreeError};
use super::{read_json, read_toml};

/// A format that a text can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Toml,
    Json,
    Yaml,
}

/// The ends of file names, and their formats.
const FORMATS: [(&str, Format); 4] =
    [("toml", Format::Toml), ("json", Format::Json), ("yaml", Format::Yaml), ("yml", Format::Yaml)];

impl Format {
    /// The format that a name tells by its end, or what is wrong with it.
    pub(super) fn of_name(name: &Path) -> Result<Self, String> {
        let end = name.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let end = end.to_ascii_lowercase();
        let format = FORMATS.iter().find(|(known, _)| *known == end).map(|(_, format)| *format);
        match format {
            Some(Self::Yaml) if !cfg!(feature = "yaml") => Err(NO_YAML.to_owned()),
            Some(format) => Ok(format),
            None => {
                let ends = FORMATS.map(|(end, _)| end);
                let ends = list(&ends, Quote::Code);
                Err(format!("its name does not show its format (use one that ends in {ends})"))
            }
        }
    }

    pub(super) fn read(self, origin: &ConfigOrigin) -> Result<ConfigNode, TreeError> {
        match self {
            Self::Toml => read_toml::read(origin),
            Self::Json => read_json::read(origin),
            #[cfg(feature = "yaml")]
            Self::Yaml => super::read_yaml::read(origin),
            #[cfg(not(feature = "yaml"))]
            Self::Yaml => Err(TreeError::new(None, NO_YAML)),
        }
    }
}

const NO_YAML: &str = "YAML needs the feature `yaml` of `tollgate-config` (add it, or write TOML \
                       or JSON)";
