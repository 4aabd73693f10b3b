//! Options of a shadow: a scheme that follows the device's requests without data.

use super::find_scheme;
use crate::options::{DeviceOptions, percent};
use ftld_kit::failure::Failure;

/// A scheme as `SCHEME[:KEY=VALUE,...]` asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowOptions {
    /// The text, which is its name.
    pub name: String,
    /// Scheme, profile, over-provisioning and parameters; those of the device where it has none.
    pub device: DeviceOptions,
}

impl ShadowOptions {
    /// Reads a shadow; `op` and `profile` are keys of the device, all others of the scheme.
    ///
    /// # Errors
    /// There is no such scheme, or a value is missing or wrong.
    pub fn parse(text: &str) -> Result<ShadowOptions, Failure> {
        let wrong = |why: String| Failure::usage(format!("shadow {text:?}: {why}"));
        let (scheme, pairs) = text.split_once(':').unwrap_or((text, ""));
        let scheme = find_scheme(scheme).map_err(|failure| wrong(failure.message))?;
        let mut device = DeviceOptions {
            scheme: Some(scheme.name.to_owned()),
            ..DeviceOptions::default()
        };
        for pair in pairs.split(',').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("op", value)) => {
                    device.op = Some(percent(value).map_err(|failure| wrong(failure.message))?);
                }
                Some(("profile", value)) => device.profile = Some(value.to_owned()),
                Some(_) => device.set.push(pair.to_owned()),
                None => {
                    return Err(wrong(format!(
                        "{pair:?} is not KEY=VALUE; write op=PERCENT, profile=NAME or a parameter \
                         of `ftld schemes {}`",
                        scheme.name
                    )));
                }
            }
        }
        device
            .requirements()
            .map_err(|failure| wrong(failure.message))?;
        Ok(ShadowOptions {
            name: text.to_owned(),
            device,
        })
    }
}

impl DeviceOptions {
    /// Returns the shadows.
    ///
    /// # Errors
    /// As [`ShadowOptions::parse`]; or one is named twice.
    pub(super) fn shadows(&self) -> Result<Vec<ShadowOptions>, Failure> {
        let mut shadows: Vec<ShadowOptions> = Vec::new();
        for text in &self.shadow {
            let shadow = ShadowOptions::parse(text)?;
            if shadows.contains(&shadow) {
                return Err(Failure::usage(format!("--shadow {text} stands twice")));
            }
            shadows.push(shadow);
        }
        Ok(shadows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_is_a_scheme_with_values_or_one_message() {
        let shadow = ShadowOptions::parse("dftl:op=28%,dftl.cache=4,profile=torture").unwrap();
        let device = shadow.device;
        assert_eq!(device.scheme.as_deref(), Some("dftl"));
        assert_eq!(
            (device.op, device.profile.as_deref()),
            (Some(28.0), Some("torture"))
        );
        assert_eq!(device.set, ["dftl.cache=4"]);
        for (text, part) in [
            ("", "there are lazyftl"),
            ("dftk", "did you mean"),
            ("dftl:op=x", "is not a percentage"),
            ("dftl:op", "is not KEY=VALUE"),
            ("dftl:profile=nowhere", "nowhere"),
        ] {
            let why = ShadowOptions::parse(text).unwrap_err().message;
            assert!(
                why.starts_with(&format!("shadow {text:?}: ")) && why.contains(part),
                "{why}"
            );
        }
    }
}
