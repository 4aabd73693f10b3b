//! Parameters stored in an image, and their check against the configuration.
//!
//! Invariants: reading a label changes nothing. It is written once, with the image, so power
//! failure does not matter.

use crate::config::{Config, ImageRequirements, find_scheme};
use crate::instance::Dirs;
use ftl_core::Params;
use ftl_core::schemes::Scheme;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::profile_file;
use ftld_kit::size::show_size;
use nand_model::{ImageInfo, Profile};
use std::path::Path;

/// Key of the over-provisioning among the image's own parameters; scheme parameters never have this
/// prefix.
const OP_KEY: &str = "image.op_percent";

/// Creation parameters of an image.
pub struct Label {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// Its parameters.
    pub params: Params,
    /// Over-provisioning, percent of the logical size.
    pub op_percent: Option<f64>,
}

pub(super) fn params_text(params: &Params, op_percent: f64) -> String {
    let own = format!("{OP_KEY}={op_percent}\n");
    params
        .iter()
        .fold(own, |text, (key, value)| text + &format!("{key}={value}\n"))
}

/// Reads the scheme, its parameters and the over-provisioning from the image.
///
/// # Errors
/// The scheme is unknown, or a parameter is.
pub fn read_label(image: &Path, info: &ImageInfo) -> Result<Label, Failure> {
    let scheme = Scheme::find(&info.scheme).ok_or_else(|| {
        let why = format!(
            "{}: made for scheme {:?}, which this build does not have",
            image.display(),
            info.scheme
        );
        Failure::new(Exit::Damaged, why)
    })?;
    let mut label = Label {
        scheme,
        params: Params::default(),
        op_percent: None,
    };
    for (key, value) in info.params.lines().filter_map(|line| line.split_once('=')) {
        match key {
            OP_KEY => label.op_percent = value.parse().ok(),
            key => label.params.set(key, value),
        }
    }
    Ok(label)
}

/// Returns a size for people; with its bytes, if it is not round.
fn size_text(bytes: u64) -> String {
    let text = show_size(bytes);
    match text.contains('.') {
        true => format!("{text} ({bytes} bytes)"),
        false => text,
    }
}

/// Checks whether the image can be served with this configuration.
///
/// # Errors
/// The first option that contradicts the image.
pub fn fits(config: &Config, info: &ImageInfo) -> Result<(), Failure> {
    contradiction(
        &config.image,
        &config.requirements,
        info,
        &read_label(&config.image, info)?,
    )
}

/// Returns the command that removes an instance's own image; empty for another image.
fn other_image(image: &Path) -> String {
    let name = image.file_stem().and_then(|name| name.to_str());
    let name = name.filter(|name| Dirs::from_env().image(name) == image);
    name.map_or(String::new(), |name| {
        format!("; `ftld rm {name}` removes it, with its data, for a new one")
    })
}

/// Checks the options against an existing image; a contradicting option is a usage error.
pub(super) fn contradiction(
    image: &Path,
    requirements: &ImageRequirements,
    info: &ImageInfo,
    label: &Label,
) -> Result<(), Failure> {
    let differs = |what: &str, has: String, asked: String| {
        Err(Failure::usage(format!(
            "{}: the image has {what} {has}, not {asked}; leave the option out, or choose another --image{}",
            image.display(),
            other_image(image)
        )))
    };
    if let Some(scheme) = requirements
        .scheme
        .as_deref()
        .filter(|scheme| *scheme != label.scheme.name)
    {
        find_scheme(scheme)?;
        return differs("scheme", label.scheme.name.into(), scheme.into());
    }
    if let Some(profile) = requirements.profile {
        let (has, asked) = (info.profile.name, profile.name);
        if has != asked {
            return differs("profile", has.into(), asked.into());
        }
        if let Some(asked) = profile.slc
            && info.profile.slc.map(|region| region.share) != Some(asked.share)
        {
            let has = info.profile.slc.map_or("none".into(), |region| {
                format!("{} % of the blocks", region.percent())
            });
            return differs("SLC region:", has, format!("{} %", asked.percent()));
        }
        // A built-in profile is known by its name, whatever figures the image was made with.
        if Profile::find(asked).is_none()
            && let Some(key) = profile_file::first_difference(&info.profile, &profile)
        {
            return Err(Failure::usage(format!(
                "{}: the image's profile {has} has another {key} than the one asked for; `ftld inspect \
                 --toml` prints the image's; leave the option out, or choose another --image",
                image.display()
            )));
        }
    }
    if let Some(shards) = requirements
        .shards
        .filter(|shards| *shards != info.shards())
    {
        return differs("shards:", info.shards().to_string(), shards.to_string());
    }
    if let Some(size) = requirements.size.filter(|size| *size != info.size) {
        return differs("size", size_text(info.size), size_text(size));
    }
    if let (Some(asked), Some(has)) = (requirements.op, label.op_percent)
        && asked != has
    {
        return differs("over-provisioning", format!("{has} %"), format!("{asked}"));
    }
    let own: Vec<_> = label.params.iter().collect();
    if let Some((key, value)) = requirements.params.iter().find(|pair| !own.contains(pair)) {
        let has = own
            .iter()
            .find(|(own, _)| *own == key)
            .map_or("its default".into(), |(_, value)| value.to_string());
        return differs(&format!("parameter {key} at"), has, value.into());
    }
    Ok(())
}
