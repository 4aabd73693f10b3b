//! The simulated device: a scheme on a chip without data.
//!
//! Invariants: a device that does not fit into memory is refused before it is created. Nothing of
//! it outlives the job, so power failure does not matter.

use super::sim::Sim;
use ftl_core::schemes::Layout;
use ftl_core::{FtlConfig, FtlError, Params};
use ftld_device::config::NewDevice;
use ftld_device::flash_device::FlashDevice;
use ftld_device::method::ResponseUnit;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use nand_model::store::OobOnlyStore;

/// Minimum of memory per simulated page: its stored OOB bytes, and its map entry.
const BYTES_PER_PAGE: u64 = 32 + 4;

/// A scheme and the chip that it runs on.
pub(super) struct SimulatedDevice {
    pub(super) flash: FlashDevice,
    /// Bytes that the host sees.
    pub(super) size: u64,
    /// Requested over-provisioning; `None` if the raw flash was requested.
    pub(super) op_percent: Option<f64>,
    /// Parameters that follow from the requested RAM, each as KEY=VALUE.
    pub(super) fitted: Vec<String>,
    /// Whether it was mounted before its first request, as a recorded device was.
    is_mounted: bool,
}

impl SimulatedDevice {
    /// Returns the device of a recording.
    pub(super) fn recorded(flash: FlashDevice, size: u64) -> SimulatedDevice {
        SimulatedDevice {
            flash,
            size,
            op_percent: None,
            fitted: Vec::new(),
            is_mounted: true,
        }
    }

    /// Returns a new device with these parameters, and the seed of its bad blocks.
    pub(super) fn new(device: NewDevice, params: Params, seed: u64) -> SimulatedDevice {
        SimulatedDevice {
            flash: FlashDevice {
                scheme: device.scheme,
                profile: device.layout.profile,
                config: FtlConfig {
                    logical_pages: device.layout.logical_pages,
                    params,
                },
                seed,
            },
            size: device.size,
            op_percent: Some(device.op_percent),
            fitted: Vec::new(),
            is_mounted: false,
        }
    }

    /// Returns the shape of the device.
    pub(super) fn layout(&self) -> Layout {
        Layout {
            profile: self.flash.profile,
            logical_pages: self.flash.config.logical_pages,
        }
    }

    /// Checks that the scheme fits into this RAM.
    pub(super) fn check_ram(&self, ram: u64) -> Result<(), Failure> {
        let FlashDevice { scheme, config, .. } = &self.flash;
        let checked = scheme.check_ram(&self.layout(), &config.params, ram);
        checked.map_err(Failure::usage)
    }

    /// Fits the parameters into this RAM. This creates devices, so it needs the memory of one.
    pub(super) fn fit_ram(&mut self, ram: u64) -> Result<(), Failure> {
        let FlashDevice { scheme, config, .. } = &self.flash;
        let fitted = scheme.fit_ram(&self.layout(), &config.params, ram);
        let fitted = fitted.map_err(Failure::usage)?;
        let given = std::mem::replace(&mut self.flash.config.params, fitted);
        let is_new = |(key, _): &(&str, &str)| given.iter().all(|(given, _)| given != *key);
        let new = self.flash.config.params.iter().filter(is_new);
        self.fitted = new.map(|(key, value)| format!("{key}={value}")).collect();
        Ok(())
    }

    /// Returns the least memory that the device takes, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        to_u64(self.flash.profile.geometry.page_slots()) * BYTES_PER_PAGE
    }

    /// Refuses a device larger than the available memory: the out-of-memory killer would end this
    /// program, or another, without a message.
    pub(super) fn fits_memory(&self, available: Option<u64>) -> Result<(), Failure> {
        let needed = self.memory_bytes();
        match available.filter(|available| *available < needed) {
            None => Ok(()),
            Some(available) => Err(Failure::failed(format!(
                "a device of {} of flash takes at least {} of memory, {} are available; choose a \
                 smaller --size",
                show_size(self.flash.profile.geometry.data_bytes()),
                show_size(needed),
                show_size(available)
            ))),
        }
    }

    /// Creates the device.
    pub(super) fn format(&self, response_unit: ResponseUnit) -> Result<Sim, Failure> {
        let store = OobOnlyStore::new(self.flash.profile.geometry);
        let ftl = match self.is_mounted {
            true => self.flash.format_and_mount(store),
            false => self.flash.format(store),
        };
        let failed = |error| match error {
            FtlError::Config(why) => Failure::usage(why),
            other => Failure::failed(format!("{}: formatting: {other}", self.flash.scheme.name)),
        };
        Ok(Sim::new(ftl.map_err(failed)?, response_unit))
    }
}
