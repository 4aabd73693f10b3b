//! The device of a crash test: its image, with the file system in it, and the daemon that records.

use super::file_system::FileSystem;
use crate::control::{self, Request};
use crate::serve;
use ftld_device::config::Config;
use ftld_device::device::{BlockDevice, FlushOf};
use ftld_device::instance::Dirs;
use ftld_device::options::{DeviceArgs, DeviceOptions};
use ftld_device::stack;
use ftld_kit::failure::Failure;
use ftld_kit::interrupt;
use ftld_kit::size::parse_size;
use ftld_kit::sparse;
use ftld_traces::recording::{Kind, Reader};
use nand_model::{PROFILES, Profile};
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Name of the instance of the first device, which has the marks.
pub(super) const NAME: &str = "disk";
/// Longest wait for a daemon that stops, and the time between two looks at it.
pub(super) const STOP_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Smallest unit of atomicity.
const UNIT_MIN: u64 = 4096;
/// Line of the log of a recording that has ended before its device.
const RECORDING_ENDED: &str = "recording has ended";

/// Where the device has its files.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The image.
    pub(super) image: PathBuf,
    /// Name of its instance.
    name: String,
    /// The instances.
    pub(super) dirs: Dirs,
    /// Messages of the daemon.
    log: PathBuf,
}

impl Places {
    /// Returns the places of a device, from 0, in a folder for the image and one for the rest.
    pub(super) fn of(device: usize, of_image: &Path, folder: &Path) -> Places {
        let name = match device {
            0 => NAME.to_owned(),
            _ => format!("{NAME}-{}", device + 1),
        };
        Places {
            image: of_image.join(format!("{name}.ftld")),
            dirs: Dirs {
                config: folder.join("etc"),
                state: folder.join("state"),
                runtime: folder.join("run"),
            },
            log: folder.join(format!("{name}.log")),
            name,
        }
    }

    /// Gives a program the device's folders, and no other option of a device.
    pub(super) fn enter(&self, command: &mut Command) {
        environment(&self.dirs, &mut |name, value| {
            match value {
                None => command.env_remove(name),
                Some(value) => command.env(name, value),
            };
        });
    }

    /// Creates the image, with a new file system in it.
    ///
    /// # Errors
    /// The host has no room, or the file system cannot be made.
    pub(super) fn create(
        &self,
        size: &str,
        atomic_unit: Option<&str>,
        fs: Option<(&FileSystem, &Path)>,
    ) -> Result<(), Failure> {
        let options = DeviceOptions {
            image: Some(self.image.clone()),
            size: Some(size.into()),
            profile: flash(atomic_unit, 0)?.map(str::to_owned),
            atomic_unit: atomic_unit.map(str::to_owned),
            name: Some(self.name.clone()),
            ..DeviceOptions::default()
        };
        let args = DeviceArgs {
            options,
            ..DeviceArgs::default()
        };
        let config = Config::new(&args, &self.dirs)?;
        let volume = stack::open_or_create(&config)?.volume;
        let written = match fs {
            None => Ok(()),
            Some((fs, maker)) => self.write_base(&volume, fs, maker),
        };
        serve::close(&volume, &self.image).and(written)
    }

    /// Makes the file system in a file, and copies it.
    fn write_base(
        &self,
        device: &dyn BlockDevice,
        fs: &FileSystem,
        maker: &Path,
    ) -> Result<(), Failure> {
        let base = self.image.with_extension("base");
        let failed = |error| Failure::io(base.display(), &error);
        let file = File::create_new(&base).map_err(failed)?;
        file.set_len(device.size()).map_err(failed)?;
        fs.make(maker, &base)?;
        let to_image = |error| Failure::io(self.image.display(), &error);
        let write = |at, bytes: &[u8]| device.write(at, bytes).map(drop).map_err(to_image);
        // A program may replace the file.
        let file = File::open(&base).map_err(failed)?;
        sparse::each(&file, 0..device.size(), write, &failed)?;
        let flush = device.flush(FlushOf::Everything).map_err(to_image)?;
        flush.wait().map_err(to_image)?;
        std::fs::remove_file(&base).map_err(failed)
    }
}

/// Returns the flash device whose pages are written as a whole with this unit of atomicity; `None`
/// for the default one. `size` is that of the device.
///
/// # Errors
/// There is none, or the device does not consist of such units.
pub(super) fn flash(unit: Option<&str>, size: u64) -> Result<Option<&'static str>, Failure> {
    let Some(text) = unit else { return Ok(None) };
    let refused = |why: &str| Failure::usage(format!("--atomic-unit {text}: {why}"));
    let unit = parse_size(text).map_err(|why| refused(&why.to_string()))?;
    let has_pages = |of: &&Profile| u64::from(of.geometry.page_bytes).is_multiple_of(unit);
    let is_unit = unit >= UNIT_MIN && unit.is_power_of_two();
    let found = PROFILES.iter().find(|of| is_unit && has_pages(of));
    let found = found.ok_or_else(|| {
        refused(
            "need a power of two from 4KiB to the largest page of `ftld profiles`, such as 16KiB",
        )
    })?;
    match size.is_multiple_of(unit) {
        true => Ok(Some(found.name)),
        false => Err(refused("--size is no multiple of it")),
    }
}

/// Gives the recording, which is the user's result, the rights of other new files.
fn share(recording: &Path) -> Result<(), Failure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok());
    let rights = Permissions::from_mode(0o666 & !umask.unwrap_or(0o077));
    // Who owns the folder may have put a link to another file in its place.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(recording);
    let set = file.and_then(|file| file.set_permissions(rights));
    set.map_err(|error| Failure::io(recording.display(), &error))
}

/// Passes what differs between this environment and the one of a program that uses the device.
pub(super) fn environment(dirs: &Dirs, set: &mut dyn FnMut(&OsStr, Option<&OsStr>)) {
    let names = std::env::vars_os().map(|(name, _)| name);
    for name in names.filter(|name| name.as_encoded_bytes().starts_with(b"FTLD_")) {
        set(&name, None);
    }
    for (name, value) in [
        ("FTLD_CONFIG_DIR", dirs.config.as_os_str()),
        ("FTLD_STATE_DIR", dirs.state.as_os_str()),
        ("FTLD_RUNTIME_DIR", dirs.runtime.as_os_str()),
        ("FTLD_NAME", NAME.as_ref()),
    ] {
        set(name.as_ref(), Some(value));
    }
}

/// A daemon that records.
pub(super) struct Device {
    process: Child,
    name: String,
    dirs: Dirs,
    log: PathBuf,
}

impl Device {
    /// Starts the daemon, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start; the message is its own.
    pub(super) fn start(
        places: &Places,
        target: &str,
        recording: &Path,
        atomic_unit: Option<&str>,
    ) -> Result<Device, Failure> {
        let failed = |error| Failure::io("the device", &error);
        let mut command = Command::new("/proc/self/exe");
        places.enter(&mut command);
        command
            .args(["--name", &places.name, "--metrics", "off", "--image"])
            .arg(&places.image)
            .arg("--record")
            .arg(recording)
            .args(atomic_unit.map(|unit| format!("--atomic-unit={unit}")))
            .arg(target)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&places.log).map_err(failed)?)
            // Ctrl-C is for the crash test, which ends its device.
            .process_group(0);
        let mut process = command.spawn().map_err(failed)?;
        let mut line = String::new();
        let output = process.stdout.take().expect("a pipe");
        let read = BufReader::new(output).read_line(&mut line);
        let device = Device {
            process,
            name: places.name.clone(),
            dirs: places.dirs.clone(),
            log: places.log.clone(),
        };
        match read {
            Ok(_) if line.starts_with("ready ") => share(recording).map(|()| device),
            _ => Err(device.failure("the device did not start")),
        }
    }

    /// Returns its process.
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).expect("a process id"))
    }

    /// Returns whether the daemon has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Stops the daemon; the recording is complete. A daemon whose device is in use waits.
    ///
    /// # Errors
    /// The device or its recording failed meanwhile, or the user interrupts.
    pub(super) fn stop(mut self, is_over: &dyn Fn() -> bool) -> Result<(), Failure> {
        let _ = kill(self.pid(), Signal::SIGTERM);
        let status = loop {
            match self.process.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if is_over() => return Err(super::interrupted()),
                Ok(None) => std::thread::sleep(LOOK_EVERY),
                Err(error) => break Err(error),
            }
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        match status {
            Ok(status) if status.success() && !log.contains(RECORDING_ENDED) => Ok(()),
            _ => Err(self.failure("the device failed while it was recorded")),
        }
    }

    /// Returns why it failed: its own last message, unless it was killed.
    pub(super) fn failure(&self, what: &str) -> Failure {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let message = log
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix("ftld: "));
        Failure::failed(format!("{what}: {}", message.unwrap_or("it was killed")))
    }
}

impl Drop for Device {
    /// Lets the daemon remove its device, even if it is in use; a killed one, or one that gets a
    /// second SIGTERM, would leave a block device.
    fn drop(&mut self) {
        if !self.has_ended() {
            let force = Request::Stop { force: true };
            if control::answer(&self.dirs, &self.name, &force).is_err() {
                let _ = kill(self.pid(), Signal::SIGTERM);
            }
        }
        let end = Instant::now() + STOP_MAX;
        while !self.has_ended() && Instant::now() < end {
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a recording has to agree with.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// FLUSHes, without writes with FUA.
    pub(super) flushes: u64,
    /// Marks.
    pub(super) marks: u64,
}

impl Counts {
    /// Counts the entries of a recording.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub(super) fn of(recording: &Path) -> Result<Counts, Failure> {
        let mut counts = Counts::default();
        for entry in Reader::open(recording, false).map_err(Failure::failed)? {
            if interrupt::came() {
                return Err(super::interrupted());
            }
            let entry = entry.map_err(Failure::failed)?;
            match entry.kind {
                Kind::Flush if !entry.fua => counts.flushes += 1,
                Kind::Mark => counts.marks += 1,
                _ => {}
            }
        }
        Ok(counts)
    }
}

/// Returns how many FLUSHes the kernel has completed on a disk, from its `stat` in sysfs.
///
/// # Errors
/// The kernel does not count them.
pub(super) fn kernel_flushes(disk: &Path) -> Result<u64, Failure> {
    let stat = disk.join("stat");
    let text = std::fs::read_to_string(&stat);
    let text = text.map_err(|error| Failure::io(stat.display(), &error))?;
    let count = text
        .split_whitespace()
        .nth(15)
        .and_then(|word| word.parse().ok());
    count.ok_or_else(|| Failure::failed("this kernel does not count FLUSHes: it is older than 5.5"))
}

/// Returns whether a folder has room for this many bytes.
pub(crate) fn has_room(folder: &Path, bytes: u64) -> bool {
    nix::sys::statvfs::statvfs(folder)
        .is_ok_and(|fs| fs.blocks_available() * fs.fragment_size() >= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_atomicity_gets_a_flash_device_with_such_pages() {
        assert_eq!(flash(None, 1).unwrap(), None);
        let default = flash(Some("4KiB"), 0).unwrap();
        assert_eq!(default, Some(Profile::default_profile().name));
        let name = flash(Some("16KiB"), 1 << 20).unwrap().unwrap();
        let page = Profile::find(name).unwrap().geometry.page_bytes;
        assert!(page.is_multiple_of(16384), "{name}: {page}");
        for (unit, size, why) in [
            ("32KiB", 1 << 20, "such as 16KiB"),
            ("2KiB", 1 << 20, "such as 16KiB"),
            ("12KiB", 1 << 20, "such as 16KiB"),
            ("x", 1 << 20, "--atomic-unit x"),
            ("16KiB", 20480, "--size is no multiple"),
        ] {
            let refused = flash(Some(unit), size).unwrap_err();
            assert!(refused.message.contains(why), "{refused}");
        }
    }
}
