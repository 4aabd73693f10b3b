//! Inspects and stops devices, from any thread or process.
//!
//! libublk's control ring belongs to a thread, so every function opens its own.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use libublk::ctrl::UblkCtrl;
use libublk::sys as abi;
use serde::{Deserialize, Serialize};

use super::{Error, Options, present, wait_until};
use crate::device::BlockDevice;
use crate::sys;
use crate::transport::holders::{self, Users};

const CONTROL: &str = "/dev/ublk-control";

/// State of a device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No such device.
    Absent,
    /// Served by this process.
    Live {
        /// Process number.
        pid: i32,
    },
    /// Its daemon died; requests wait for a new one.
    Quiesced,
    /// Known to the driver but without a block device: not started yet, or stopped and not yet
    /// removed.
    Dead {
        /// Process that created it.
        pid: i32,
    },
}

/// Checks whether ublk can be used here: the driver is loaded and permits access.
///
/// # Errors
/// The driver is missing or refuses this process.
pub fn probe() -> Result<(), Error> {
    match OpenOptions::new().read(true).write(true).open(CONTROL) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::DriverMissing(format!("{CONTROL} does not exist")));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err(Error::Permission(format!("{CONTROL} may not be opened")));
        }
        Err(error) => return Err(Error::DriverMissing(format!("{CONTROL}: {error}"))),
    }
    match io_uring::IoUring::new(2) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::Permission(
            "io_uring is switched off (sysctl kernel.io_uring_disabled)".into(),
        )),
        Err(source) => Err(Error::Io {
            what: "set up io_uring, which ublk needs".into(),
            source,
        }),
    }
}

/// Returns the numbers of all devices of the driver, including other programs', in order.
pub fn devices() -> Vec<u32> {
    let entries = fs::read_dir("/sys/class/ublk-char")
        .into_iter()
        .flatten()
        .flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("ublkc")?.parse().ok();
    entries
        .filter_map(|entry| number(entry.file_name()))
        .collect::<BTreeSet<u32>>()
        .into_iter()
        .collect()
}

/// Returns the driver's state of device `n`.
///
/// # Errors
/// There is no such device, or the driver refuses this process.
pub fn state(n: u32) -> Result<State, Error> {
    if !present(&char_device(n)) {
        return Ok(State::Absent);
    }
    let ctrl = open(n)?;
    let info = ctrl.dev_info();
    Ok(match u32::from(info.state) {
        abi::UBLK_S_DEV_LIVE => State::Live {
            pid: info.ublksrv_pid,
        },
        abi::UBLK_S_DEV_QUIESCED => State::Quiesced,
        _ => State::Dead {
            pid: info.ublksrv_pid,
        },
    })
}

/// Returns the image of device `n`, if an ftld daemon created the device.
pub fn image_of(n: u32) -> Option<String> {
    let state = fs::read(state_file(n)).ok()?;
    let state: StateFile = serde_json::from_slice(&state).ok()?;
    Some(state.target_data.image)
}

/// The part of libublk's file of a device that is read here.
#[derive(Deserialize)]
struct StateFile {
    target_data: TargetData,
}

/// Our part of that file.
#[derive(Deserialize, Serialize)]
pub(super) struct TargetData {
    /// The device's image.
    pub(super) image: String,
}

impl TargetData {
    /// Returns it as libublk takes it.
    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a text is plain data")
    }
}

/// Claims number `n`: returns false if it is free, true if it is a device of this image that a dead
/// daemon left.
pub(super) fn claim(n: u32, options: &Options, device: &dyn BlockDevice) -> Result<bool, Error> {
    match settled(n)? {
        State::Absent => Ok(false),
        State::Live { pid } => Err(Error::InUse { n, pid }),
        State::Quiesced => {
            let image = image_of(n);
            if image.as_ref() != Some(&options.image) {
                return Err(Error::Quiesced { n, image });
            }
            keeps_promises(n, device)?;
            Ok(true)
        }
        State::Dead { pid } if sys::process_alive(pid) => Err(Error::InUse { n, pid }),
        State::Dead { .. } => remove(n).map(|()| false),
    }
}

/// Returns the state of `n` after the kernel has detected the death of its daemon, which takes a
/// moment.
fn settled(n: u32) -> Result<State, Error> {
    let dying = |state: &State| matches!(state, State::Live { pid } if !sys::process_alive(*pid));
    let mut last = state(n)?;
    if dying(&last) {
        wait_until(|| !state(n).is_ok_and(|state| dying(&state)));
        last = state(n)?;
    }
    Ok(last)
}

/// Checks that the device has the properties that the kernel announced to the users of the quiesced
/// one.
fn keeps_promises(n: u32, device: &dyn BlockDevice) -> Result<(), Error> {
    let what = format!("read the parameters of ublk device {n}");
    let mut params = abi::ublk_params {
        types: abi::UBLK_PARAM_TYPE_BASIC,
        ..Default::default()
    };
    open(n)?
        .get_params(&mut params)
        .map_err(|error| Error::driver(what, error))?;
    match broken_promise(n, &params.basic, device) {
        None => Ok(()),
        Some(why) => Err(Error::Io {
            what: format!("reattach /dev/ublkb{n}"),
            source: io::Error::other(why),
        }),
    }
}

/// Returns the announced property that this device does not have.
pub(super) fn broken_promise(
    n: u32,
    kernel: &abi::ublk_param_basic,
    device: &dyn BlockDevice,
) -> Option<String> {
    let (bytes, image) = (kernel.dev_sectors * 512, device.size());
    if bytes != image {
        return Some(format!(
            "it has {bytes} bytes and its users rely on them, the image has {image}"
        ));
    }
    // A cache that the kernel does not know of is no problem: the device follows the kernel's file.
    let (unit, ours) = (1u64 << kernel.physical_bs_shift, device.physical_block());
    (unit > u64::from(ours)).then(|| {
        format!(
            "its users rely on a unit of {unit} bytes that no power cut tears, with these options it has {ours}; \
             start it with the options of before, or remove it, failing its users' I/O, with `ftld stop --force ublkb{n}`"
        )
    })
}

/// Stops device `n`, even if another process serves it; with `force` even if in use, which makes
/// its users' I/O fail. Everything written to the device before has reached its daemon. The serving
/// [`serve`](super::serve) returns; a quiesced device is removed.
///
/// # Errors
/// The device is in use, or the driver refuses the command.
pub fn stop(n: u32, force: bool) -> Result<(), Error> {
    let state = settled(n)?;
    let claim = match state {
        State::Absent => return Err(Error::Absent(n)),
        // Exclusive access prevents mounts from here on.
        State::Live { .. } if !force => Some(exclusive(n)?),
        // Opening this one could wait for a request forever.
        State::Quiesced if !force => no_holders(n).map(|()| None)?,
        _ => None,
    };
    let stopped = open(n)?.kill_dev();
    stopped.map_err(|error| Error::driver(format!("stop /dev/ublkb{n}"), error))?;
    drop(claim);
    match state {
        // Its own daemon removes it.
        State::Live { .. } => Ok(()),
        _ => remove(n),
    }
}

/// Removes device `n` as [`stop`] does, including the remains of a dead daemon.
///
/// # Errors
/// The device is in use, or the driver refuses the command.
pub fn delete(n: u32, force: bool) -> Result<(), Error> {
    stop(n, force)?;
    remove(n)
}

fn exclusive(n: u32) -> Result<File, Error> {
    let claim = holders::exclude(&name(n));
    let claim = claim.map_err(|source| Error::Io {
        what: format!("open {}", node(n).display()),
        source,
    })?;
    claim.map_err(|holders| Error::Held { n, holders })
}

fn no_holders(n: u32) -> Result<(), Error> {
    let holders = holders(n);
    if holders.is_empty() {
        Ok(())
    } else {
        Err(Error::Held { n, holders })
    }
}

/// Removes a stopped device without waiting for processes that still have it open.
pub(super) fn remove(n: u32) -> Result<(), Error> {
    if !present(&char_device(n)) {
        return Ok(());
    }
    if let Err(error) = open(n)?.del_dev_async()
        && present(&char_device(n))
    {
        return Err(Error::driver(format!("remove ublk device {n}"), error));
    }
    let _ = fs::remove_file(state_file(n));
    wait_until(|| !present(&char_device(n)) || !holders(n).is_empty());
    Ok(())
}

/// Returns the users of `/dev/ublkbN`.
pub fn holders(n: u32) -> Users {
    holders::of(&name(n))
}

/// Returns the users of a device that is being served.
pub(super) fn live_holders(n: u32) -> Users {
    holders::of_live(&name(n))
}

fn open(n: u32) -> Result<UblkCtrl, Error> {
    UblkCtrl::new_simple(n as i32)
        .map_err(|error| Error::driver(format!("query ublk device {n}"), error))
}

pub(super) fn node(n: u32) -> PathBuf {
    Path::new("/dev").join(name(n))
}

fn char_device(n: u32) -> PathBuf {
    PathBuf::from(format!("/sys/class/ublk-char/ublkc{n}"))
}

fn name(n: u32) -> String {
    format!("ublkb{n}")
}

/// Returns the path of libublk's state of device `n`, which is needed to reattach it.
pub(super) fn state_file(n: u32) -> PathBuf {
    PathBuf::from(format!("{}/{n:04}.json", UblkCtrl::run_dir()))
}
