//! Looking at devices and ending them, from any thread or process.
//!
//! libublk's control ring belongs to a thread, so every function opens its own.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use libublk::ctrl::UblkCtrl;
use libublk::sys as abi;

use super::{Error, Options, present, wait_until};
use crate::device::BlockDevice;
use crate::sys;

const CONTROL: &str = "/dev/ublk-control";

/// Life of a device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No such device.
    Absent,
    /// Served by this process.
    Live {
        /// Who.
        pid: i32,
    },
    /// Its daemon died; requests wait for a new one.
    Quiesced,
    /// Known to the driver but without a block device: being made, or stopped and not yet removed.
    Dead {
        /// Who made it.
        pid: i32,
    },
}

/// Whether ublk can be used here: the driver is loaded and lets us in.
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
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Error::Permission("io_uring is switched off (sysctl kernel.io_uring_disabled)".into()))
        }
        Err(source) => Err(Error::Io { what: "set up io_uring, which ublk needs".into(), source }),
    }
}

/// Numbers of all devices the driver knows, ours or not, in order.
pub fn devices() -> Vec<u32> {
    let entries = fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix("ublkc")?.parse().ok();
    entries.filter_map(|entry| number(entry.file_name())).collect::<BTreeSet<u32>>().into_iter().collect()
}

/// What the driver says of device `n`.
pub fn state(n: u32) -> Result<State, Error> {
    if !present(&char_device(n)) {
        return Ok(State::Absent);
    }
    let ctrl = open(n)?;
    let info = ctrl.dev_info();
    Ok(match u32::from(info.state) {
        abi::UBLK_S_DEV_LIVE => State::Live { pid: info.ublksrv_pid },
        abi::UBLK_S_DEV_QUIESCED => State::Quiesced,
        _ => State::Dead { pid: info.ublksrv_pid },
    })
}

/// The image device `n` was made for, if one of our daemons made it.
pub fn image_of(n: u32) -> Option<String> {
    let state = fs::read(state_file(n)).ok()?;
    let state: serde_json::Value = serde_json::from_slice(&state).ok()?;
    Some(state.get("target_data")?.get("image")?.as_str()?.to_owned())
}

/// Makes number `n` ours: false if it is free, true if it is a device of ours that a dead daemon left.
pub(super) fn claim(n: u32, options: &Options, device: &dyn BlockDevice) -> Result<bool, Error> {
    match settled(n)? {
        State::Absent => Ok(false),
        State::Live { pid } => Err(Error::InUse { n, pid }),
        State::Quiesced => {
            let image = image_of(n);
            if image.as_ref() != Some(&options.image) {
                return Err(Error::Quiesced { n, image });
            }
            same_size(n, device)?;
            Ok(true)
        }
        State::Dead { pid } if sys::process_alive(pid) => Err(Error::InUse { n, pid }),
        State::Dead { .. } => remove(n).map(|()| false),
    }
}

/// The state of `n` once the kernel has noticed that its daemon died, which takes it a moment.
fn settled(n: u32) -> Result<State, Error> {
    let dying = |state: &State| matches!(state, State::Live { pid } if !sys::process_alive(*pid));
    let mut last = state(n)?;
    if dying(&last) {
        wait_until(|| !state(n).is_ok_and(|state| dying(&state)));
        last = state(n)?;
    }
    Ok(last)
}

/// The kernel keeps the size of a quiesced device, and users rely on it.
fn same_size(n: u32, device: &dyn BlockDevice) -> Result<(), Error> {
    let what = format!("read the size of ublk device {n}");
    let mut params = abi::ublk_params { types: abi::UBLK_PARAM_TYPE_BASIC, ..Default::default() };
    open(n)?.get_params(&mut params).map_err(|error| Error::driver(what, error))?;
    let (kernel, image) = (params.basic.dev_sectors * 512, device.size());
    if kernel == image {
        return Ok(());
    }
    let source = io::Error::other(format!("it has {kernel} bytes and its users rely on them, the image has {image}"));
    Err(Error::Io { what: format!("take up /dev/ublkb{n}"), source })
}

/// Stops device `n`, whoever serves it; with `force` even under its users, whose I/O then fails. Everything written to the
/// device before has reached its daemon. The serving [`serve`](super::serve) returns; a quiesced device is removed.
pub fn stop(n: u32, force: bool) -> Result<(), Error> {
    let state = settled(n)?;
    let claim = match state {
        State::Absent => return Err(Error::Absent(n)),
        // Held exclusively, it cannot be mounted from here on.
        State::Live { .. } if !force => Some(exclusive(n)?),
        // Opening this one could wait for a request for ever.
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

/// Removes device `n` as [`stop`] does, and what a dead daemon left of it.
pub fn delete(n: u32, force: bool) -> Result<(), Error> {
    stop(n, force)?;
    remove(n)
}

fn exclusive(n: u32) -> Result<File, Error> {
    no_holders(n)?;
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(node(n));
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Error::Held { n, holders: vec!["claimed by the kernel".into()] },
        _ => Error::Io { what: format!("open {}", node(n).display()), source: error },
    })
}

fn no_holders(n: u32) -> Result<(), Error> {
    let holders = holders(n);
    if holders.is_empty() { Ok(()) } else { Err(Error::Held { n, holders }) }
}

/// Takes a stopped device away, without waiting for those who still have it open.
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

/// Who uses `/dev/ublkbN`: mounts, swap, devices on top, and processes other than this one that have it open.
pub fn holders(n: u32) -> Vec<String> {
    let numbers = device_numbers(n);
    let mut found = mounts_of(&numbers);
    found.extend(swaps_of(n));
    found.extend(names(&block_folder(n).join("holders")).into_iter().map(|name| format!("held by {name}")));
    found.extend(openers_of(&numbers));
    found
}

/// Detaches inherited copies of mounts on device `n`; see [`sys::detach_mount_copies`].
pub fn detach_mount_copies(n: u32) -> io::Result<()> {
    sys::detach_mount_copies(&device_numbers(n))
}

/// `major:minor` of the device and its partitions.
fn device_numbers(n: u32) -> BTreeSet<String> {
    let folder = block_folder(n);
    let parts = names(&folder).into_iter().filter(|name| name.starts_with("ublkb")).map(|name| folder.join(name));
    let all = std::iter::once(folder.clone()).chain(parts);
    all.filter_map(|folder| fs::read_to_string(folder.join("dev")).ok()).map(|dev| dev.trim().to_owned()).collect()
}

/// Every mount namespace has its own table; ours holds copies at most.
fn mounts_of(numbers: &BTreeSet<String>) -> Vec<String> {
    let own = fs::read_link("/proc/self/ns/mnt").ok();
    let mut seen = BTreeSet::new();
    let mut found = BTreeSet::new();
    for pid in processes() {
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/mnt")) else { continue };
        if (pid != 1 && Some(&namespace) == own.as_ref()) || !seen.insert(namespace) {
            continue;
        }
        let table = sys::mounts(Path::new(&format!("/proc/{pid}/mountinfo"))).unwrap_or_default();
        let ours = table.into_iter().filter(|mount| numbers.contains(&mount.device));
        found.extend(ours.map(|mount| format!("mounted on {}", mount.path.display())));
    }
    found.into_iter().collect()
}

fn swaps_of(n: u32) -> Vec<String> {
    let node = node(n).display().to_string();
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let used = table.lines().filter_map(|line| line.split_whitespace().next()).filter(|path| path.starts_with(&node));
    used.map(|path| format!("swap on {path}")).collect()
}

fn openers_of(numbers: &BTreeSet<String>) -> Vec<String> {
    let others = processes().filter(|pid| *pid != std::process::id());
    let opens = others.filter(|pid| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::metadata(file.path()).ok()).any(|file| {
            file.file_type().is_block_device()
                && numbers.contains(&format!("{}:{}", libc::major(file.rdev()), libc::minor(file.rdev())))
        })
    });
    opens.map(|pid| format!("open in process {pid} ({})", name_of(pid))).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    names(Path::new("/proc")).into_iter().filter_map(|name| name.parse().ok())
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn open(n: u32) -> Result<UblkCtrl, Error> {
    UblkCtrl::new_simple(n as i32).map_err(|error| Error::driver(format!("look at ublk device {n}"), error))
}

pub(super) fn node(n: u32) -> PathBuf {
    PathBuf::from(format!("/dev/ublkb{n}"))
}

fn char_device(n: u32) -> PathBuf {
    PathBuf::from(format!("/sys/class/ublk-char/ublkc{n}"))
}

fn block_folder(n: u32) -> PathBuf {
    PathBuf::from(format!("/sys/block/ublkb{n}"))
}

/// Where libublk keeps what it must know of device `n` to take it up again.
pub(super) fn state_file(n: u32) -> PathBuf {
    PathBuf::from(format!("{}/{n:04}.json", UblkCtrl::run_dir()))
}
