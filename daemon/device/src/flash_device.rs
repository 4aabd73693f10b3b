//! A scheme on a new chip: of a new image, of a simulation, or as a recording names it.

use crate::config::find_scheme;
use crate::record::RECORDED;
use ftl_core::schemes::Scheme;
use ftl_core::{Ftl, FtlConfig, FtlError, Params, Start};
use ftld_kit::failure::Failure;
use ftld_kit::profile_file;
use ftld_traces::recording::Flash;
use nand_model::{Chip, Profile, Store};

/// A scheme and the chip it runs on, without a store.
#[derive(Clone)]
pub struct FlashDevice {
    /// The scheme.
    pub scheme: &'static Scheme,
    /// Profile of the chip, with its number of blocks.
    pub profile: Profile,
    /// Logical pages and parameters of the scheme.
    pub config: FtlConfig,
    /// Seed of the bad blocks from the factory.
    pub seed: u64,
}

impl FlashDevice {
    /// Returns the device of a recording, with its number of blocks.
    ///
    /// # Errors
    /// This program does not know the scheme or the flash, or the device had several chips.
    pub fn recorded(flash: &Flash, recording: &str) -> Result<FlashDevice, Failure> {
        if let Some(shards) = flash.shards {
            return Err(Failure::usage(format!(
                "{recording}: recorded on a device of {shards} shards, and a simulated device has one \
                 chip; record a device with one, or leave the model of the flash out"
            )));
        }
        Ok(FlashDevice {
            scheme: find_scheme(&flash.scheme)?,
            profile: recorded_profile(flash, recording)?.0,
            config: FtlConfig {
                logical_pages: flash.logical_pages,
                params: recorded_params(flash),
            },
            seed: flash.seed,
        })
    }

    /// Starts the scheme on a new chip over an empty store.
    ///
    /// # Errors
    /// The scheme refuses the configuration, or the store fails.
    pub fn format(&self, store: impl Store) -> Result<Box<dyn Ftl>, FtlError> {
        let mut chip = Chip::over(self.profile, store)?;
        chip.mark_factory_bad(self.seed)?;
        let ftl = self.scheme.start(chip, &self.config, Start::Format)?;
        assert_eq!(
            ftl.logical_pages(),
            self.config.logical_pages,
            "logical pages of the new device and of its configuration"
        );
        Ok(ftl)
    }

    /// Starts the scheme as a daemon starts it on a new image: formatted, shut down and mounted.
    /// Equal requests then cause equal flash operations.
    ///
    /// # Errors
    /// As [`FlashDevice::format`].
    pub fn format_and_mount(&self, store: impl Store) -> Result<Box<dyn Ftl>, FtlError> {
        let mut ftl = self.format(store)?;
        ftl.shutdown(0)?;
        self.scheme
            .start(ftl.into_chip(), &self.config, Start::Mount)
    }
}

/// Returns the parameters of a recorded scheme.
pub fn recorded_params(flash: &Flash) -> Params {
    let mut params = Params::default();
    for (key, value) in &flash.params {
        params.set(key, value);
    }
    params
}

/// Returns the recorded flash, and whether its number of blocks followed from its size.
///
/// # Errors
/// The recording describes no flash.
pub fn recorded_profile(flash: &Flash, recording: &str) -> Result<(Profile, bool), Failure> {
    let about = format!("{recording}: its head describes no flash device");
    let failed =
        |why: &dyn std::fmt::Display| Failure::failed(format!("{about}: {why}; record again"));
    let profile = profile_file::from_toml(&flash.profile).map_err(|why| failed(&why))?;
    if profile.geometry.blocks == 0 {
        return Err(failed(&"it has no number of blocks"));
    }
    Ok(match profile.name.strip_prefix(RECORDED) {
        Some(name) => (profile.named(name, profile.source), true),
        None => (profile, false),
    })
}
