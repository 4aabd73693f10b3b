//! The experiments of `ftld`: [`replay`] runs a trace or a workload on a simulated device,
//! [`compare`] does so for several schemes, and [`crashes`] opens the states that a power cut of a
//! recorded run can leave.
//!
//! A simulation stores no data and runs on emulated time. If power fails, rows and states that
//! are complete are kept, and the command continues from them where it says so.

#![warn(clippy::missing_errors_doc)]

pub mod compare;
pub mod crashes;
pub mod replay;
pub mod statistics;

// Their modules keep their short paths in this crate.
use ftld_device::{
    aging, background, config, counters, device, faults, flash_device, inject, instance, method,
    options, pages, pause, preset, record, shutdown, stack, status, sys, target, transport, volume,
};
use ftld_kit::{
    convert, duration, failure, interrupt, output, path_json, private_lock, profile_file, quote,
    size, sparse,
};
