//! Configuration of a scheme, validated once at start.

use crate::error::FtlError;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Scheme parameters by key (`gc.free_threshold`, `lazy.buffer_blocks` …), as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Sets one parameter.
    pub fn set(&mut self, key: &str, value: &str) {
        self.0.insert(key.into(), value.into());
    }

    /// Returns the value of `key`, or `default` if it is not set.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the text is not a value of this type.
    pub fn get<T: FromStr>(&self, key: &str, default: T) -> Result<T, FtlError> {
        match self.0.get(key) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| {
                FtlError::Config(format!("parameter {key}: {text:?} is not {}", kind::<T>()))
            }),
        }
    }

    /// Returns the value of `key`, or `default` if it is not set.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the text is not a value of this type, or the value is outside the
    /// range.
    pub fn within<T: FromStr + PartialOrd + Display + Clone>(
        &self,
        key: &str,
        default: T,
        range: RangeInclusive<T>,
    ) -> Result<T, FtlError> {
        let value = self.get(key, default);
        if let Some(value) = value.as_ref().ok().filter(|value| range.contains(*value)) {
            return Ok(value.clone());
        }
        let (least, most) = range.into_inner();
        Err(match value {
            Ok(value) => FtlError::Config(format!(
                "parameter {key}: {value} is not within {least} to {most}"
            )),
            Err(error) => FtlError::Config(format!("{error}, from {least} to {most}")),
        })
    }

    /// Returns whether `key` is `default` (or not set) rather than `other`.
    ///
    /// # Errors
    /// [`FtlError::Config`] if the value is neither.
    pub fn choice(&self, key: &str, default: &str, other: &str) -> Result<bool, FtlError> {
        match self.0.get(key).map_or(default, String::as_str) {
            value if value == default => Ok(true),
            value if value == other => Ok(false),
            value => Err(FtlError::Config(format!(
                "parameter {key}: {value:?} is neither {default} nor {other}"
            ))),
        }
    }

    /// Rejects keys that are not in the list.
    ///
    /// # Errors
    /// [`FtlError::Config`] with the first unknown key, the nearest known key, and all known keys.
    pub fn only<'a>(&self, known: impl IntoIterator<Item = &'a ParamDoc>) -> Result<(), FtlError> {
        let keys: Vec<_> = known.into_iter().map(|param| param.key).collect();
        match self.0.keys().find(|key| !keys.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let hint = near_miss(key, keys.iter().copied());
                Err(FtlError::Config(format!(
                    "no parameter {key:?}{hint}; this scheme has {}",
                    keys.join(", ")
                )))
            }
        }
    }

    /// Iterates over all `key=value` pairs, in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// Returns the kind of values of a parameter of this type.
fn kind<T>() -> &'static str {
    match std::any::type_name::<T>() {
        "f32" | "f64" => "a number",
        "bool" => "true or false",
        _ => "a whole number in range",
    }
}

/// Returns a "did you mean" suffix for messages about an unknown name, or an empty string if no
/// known name is similar.
pub fn near_miss<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = known
        .into_iter()
        .map(|name| {
            let near = strsim::jaro_winkler(&word.to_lowercase(), &name.to_lowercase());
            (near, name)
        })
        .filter(|(score, _)| *score > 0.8);
    let best = near.max_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or(String::new(), |(_, name)| {
        format!(" (did you mean {name:?}?)")
    })
}

/// One parameter of a scheme, for help texts and validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamDoc {
    /// Key on the command line (`--set KEY=VALUE`).
    pub key: &'static str,
    /// Meaning, unit and default in one line.
    pub help: &'static str,
}

/// Configuration of a scheme.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FtlConfig {
    /// Pages visible to the host.
    pub logical_pages: u32,
    /// The scheme's own parameters.
    pub params: Params,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found_in_any_case() {
        assert_eq!(
            near_miss("LazyFTL", ["pagemap", "lazyftl"]),
            " (did you mean \"lazyftl\"?)"
        );
        assert_eq!(near_miss("zzz", ["pagemap", "lazyftl"]), "");
    }

    #[test]
    fn a_wrong_value_names_what_would_be_right() {
        let mut params = Params::default();
        params.set("k", "abc");
        let message = |error: FtlError| error.to_string();
        let number = params.within("k", 3, 1..=8).unwrap_err();
        assert_eq!(
            message(number),
            "parameter k: \"abc\" is not a whole number in range, from 1 to 8"
        );
        let yes = message(params.get("k", true).unwrap_err());
        assert!(yes.ends_with("is not true or false"), "{yes}");
        params.set("k", "9");
        let much = message(params.within("k", 3, 1..=8).unwrap_err());
        assert!(much.ends_with("9 is not within 1 to 8"), "{much}");
    }
}
