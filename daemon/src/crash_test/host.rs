//! COMMAND on the host's own kernel, as root: the device over ublk, the kernel's NBD client, or a
//! loop device on a file of nbdfuse.
//!
//! Mounts are in a namespace of their own, which ends with the last process in it. nbdfuse is in
//! another one: a process that ends unmounts what is in its namespace, and would wait for itself.

use super::agitate::{self, Agitation};
use super::device::{Device, Places, kernel_flushes};
use super::file_system::FileSystem;
use super::guest::{Report, set_mark};
use super::job::{self, Job, Outcome};
use super::programs::{find, output};
use super::{killed, show};
use ftld_device::sys;
use ftld_kit::descendants;
use ftld_kit::failure::{Exit, Failure};
use ftld_lab::crashes::nth_file;
use nix::mount::{MntFlags, MsFlags, mount, umount, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a device file, and for a mount that is in use.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// FLUSHes of nbdfuse itself: one, when its file is closed.
const OF_NBDFUSE: u64 = 1;

/// How the host's kernel gets the device.
#[derive(Debug)]
pub(super) enum Way {
    /// Devices of ublk, or of the kernel's NBD client.
    Driver(Vec<PathBuf>),
    /// nbdfuse and losetup.
    Loop { nbdfuse: PathBuf, losetup: PathBuf },
}

impl Way {
    /// Chooses the first way that this host has for so many devices.
    ///
    /// # Errors
    /// There is none, or this is not root; the message names a way out.
    pub(super) fn find(devices: usize) -> Result<Way, Failure> {
        if !geteuid().is_root() {
            return Err(Failure::new(
                Exit::Permission,
                "--machine host: only root mounts a device; `--machine uml` needs no root",
            ));
        }
        let is_free = |name: &str| !Path::new("/dev").join(name).exists();
        if Path::new("/dev/ublk-control").exists() {
            let free = (0..64).map(|number| format!("ublkb{number}"));
            let free: Vec<_> = free.filter(|name| is_free(name)).take(devices).collect();
            if free.len() == devices {
                return Ok(Way::driver(&free));
            }
        }
        let is_unused = |number: &u32| {
            let disk = PathBuf::from(format!("/sys/block/nbd{number}"));
            disk.exists() && !disk.join("pid").exists()
        };
        let unused = (0..16).filter(is_unused).take(devices);
        let unused: Vec<_> = unused.map(|number| format!("nbd{number}")).collect();
        if unused.len() == devices {
            return Ok(Way::driver(&unused));
        }
        for (file, module) in [("/dev/fuse", "fuse"), ("/dev/loop-control", "loop")] {
            if !Path::new(file).exists() {
                return Err(Failure::new(
                    Exit::DriverMissing,
                    format!(
                        "--machine host: there is no {file}: `modprobe {module}`, or use `--machine uml`"
                    ),
                ));
            }
        }
        Ok(Way::Loop {
            nbdfuse: find("nbdfuse", "libnbd-bin")?,
            losetup: find("losetup", "mount")?,
        })
    }

    fn driver(names: &[String]) -> Way {
        Way::Driver(
            names
                .iter()
                .map(|name| Path::new("/dev").join(name))
                .collect(),
        )
    }

    /// Returns the target of a device, from 0.
    pub(super) fn target(&self, folder: &Path, device: usize) -> String {
        match self {
            Way::Driver(paths) => paths[device].display().to_string(),
            Way::Loop { .. } => uri(folder, device),
        }
    }
}

/// Returns the address of a device, from 0, over NBD.
pub(super) fn uri(folder: &Path, device: usize) -> String {
    let socket = nth_file(&folder.join("nbd.sock"), device);
    format!("nbd+unix:///?socket={}", socket.display())
}

/// Mounts the devices, runs COMMAND, unmounts. Files are in the folder, the mounts at the others.
///
/// # Errors
/// A step fails, COMMAND cannot be run, or the user interrupts.
pub(super) fn run(
    way: &Way,
    (fs, options): (Option<&FileSystem>, &str),
    (folder, mounts): (&Path, &[PathBuf]),
    (job, agitation): (&Job, Option<Agitation<'_>>),
    devices: &[Device],
    places: &Places,
    is_over: &(dyn Fn() -> bool + Sync),
) -> Result<Report, Failure> {
    // A namespace belongs to a thread.
    std::thread::scope(|scope| {
        let inside = scope.spawn(move || {
            let own_mounts = || {
                sys::mounts::own_copy().map_err(|error| Failure::io("a mount namespace", &error))
            };
            own_mounts()?;
            let attached = (0..devices.len()).map(|device| Disk::attach(way, folder, device));
            let disks: Vec<Disk> = attached.collect::<Result<_, _>>()?;
            own_mounts()?;
            let counts = || {
                let names = disks
                    .iter()
                    .map(|disk| disk.path.file_name().unwrap_or_default());
                let counts = names.map(|name| kernel_flushes(&Path::new("/sys/block").join(name)));
                counts.collect::<Result<Vec<u64>, Failure>>()
            };
            // A loop device goes on counting when it gets another file.
            let before = counts()?;
            let mounted = disks.iter().zip(mounts).filter_map(|(disk, mount)| {
                let fs = (fs?, options);
                Some(Mounted::at(&disk.path, fs, mount))
            });
            let mounted: Vec<Mounted> = mounted.collect::<Result<_, _>>()?;
            let of_disks: Vec<_> = disks.iter().map(|disk| disk.path.clone()).collect();
            let command = job.command(if fs.is_some() { mounts } else { &of_disks });
            let mut kept: Vec<Pid> = devices.iter().map(Device::pid).collect();
            kept.extend(
                disks
                    .iter()
                    .filter_map(|disk| disk.nbdfuse.as_ref().map(pid)),
            );
            let (outcome, disturbed) =
                agitate::during(agitation, || run_command(command, places, &kept, is_over))?;
            let unmounted: Vec<_> = mounted.into_iter().map(Mounted::unmount).collect();
            let busy = unmounted.into_iter().find_map(Result::err);
            let own = |disk: &Disk| {
                if disk.nbdfuse.is_some() {
                    OF_NBDFUSE
                } else {
                    0
                }
            };
            let flushes = counts()?.into_iter().zip(before).zip(&disks);
            let flushes = flushes.map(|((now, before), disk)| now - before + own(disk));
            Ok(Report {
                outcome,
                flushes: Some(flushes.collect()),
                busy: busy.map(|failure| failure.message),
                disturbed,
            })
        });
        inside.join().expect("the thread does not panic")
    })
}

/// Runs COMMAND as this user.
pub(super) fn run_command(
    command: Command,
    places: &Places,
    kept: &[Pid],
    is_over: &dyn Fn() -> bool,
) -> Result<Outcome, Failure> {
    let mut mark = |text: &str| set_mark(&places.dirs, text);
    let end_left = || killed(&descendants::end_all(kept).0);
    let outcome = job::run(command, &show, &mut mark, is_over, &end_left)?;
    match is_over() {
        true => Err(super::interrupted()),
        false => Ok(outcome),
    }
}

fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).expect("a process id"))
}

/// The device as the kernel sees it.
struct Disk {
    path: PathBuf,
    nbdfuse: Option<Child>,
    /// The loop device: the kernel detaches it when its last user has closed it, or was killed.
    attached: Option<File>,
    fuse: PathBuf,
}

impl Disk {
    fn attach(way: &Way, folder: &Path, device: usize) -> Result<Disk, Failure> {
        let fuse = nth_file(&folder.join("fuse"), device);
        let (nbdfuse, losetup) = match way {
            Way::Driver(paths) => {
                return Ok(Disk {
                    path: paths[device].clone(),
                    nbdfuse: None,
                    attached: None,
                    fuse,
                });
            }
            Way::Loop { nbdfuse, losetup } => (nbdfuse, losetup),
        };
        let failed = |error| Failure::io(fuse.display(), &error);
        std::fs::create_dir(&fuse).map_err(failed)?;
        let file = fuse.join("disk");
        let mut command = Command::new(nbdfuse);
        command
            .arg(&file)
            .arg(uri(folder, device))
            .stdin(Stdio::null());
        let nbdfuse = command.stdout(Stdio::null()).spawn().map_err(failed)?;
        let mut disk = Disk {
            path: PathBuf::new(),
            nbdfuse: Some(nbdfuse),
            attached: None,
            fuse,
        };
        let end = Instant::now() + PATIENCE;
        while !file.exists() {
            if Instant::now() >= end {
                return Err(Failure::failed("nbdfuse: the device does not appear"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let made = output(
            Command::new(losetup)
                .args(["--find", "--show", "--direct-io=on"])
                .arg(&file),
            "losetup",
        )?;
        disk.path = made.trim().into();
        let opened = File::open(&disk.path);
        // Takes effect at the last close.
        let detached = output(Command::new(losetup).arg("-d").arg(&disk.path), "losetup");
        let failed = |error| Failure::io(disk.path.display(), &error);
        disk.attached = Some(opened.map_err(failed)?);
        detached.map(|_| disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.attached = None;
        if let Some(nbdfuse) = &mut self.nbdfuse {
            let _ = umount2(&self.fuse, MntFlags::MNT_DETACH);
            // It unmounts in its own namespace.
            let _ = kill(pid(nbdfuse), Signal::SIGTERM);
            let end = Instant::now() + PATIENCE;
            while matches!(nbdfuse.try_wait(), Ok(None)) && Instant::now() < end {
                std::thread::sleep(LOOK_EVERY);
            }
            let _ = nbdfuse.kill();
            let _ = nbdfuse.wait();
        }
    }
}

/// A mounted file system.
struct Mounted(PathBuf);

impl Mounted {
    fn at(
        disk: &Path,
        (fs, options): (&FileSystem, &str),
        folder: &Path,
    ) -> Result<Mounted, Failure> {
        mount(
            Some(disk),
            folder,
            Some(fs.name),
            MsFlags::empty(),
            (!options.is_empty()).then_some(options),
        )
        .map_err(|errno| Failure::io(format!("mount of {}", fs.name), &errno.into()))?;
        Ok(Mounted(folder.to_path_buf()))
    }

    fn unmount(self) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        loop {
            match umount(&self.0) {
                Err(nix::errno::Errno::EBUSY) if Instant::now() < end => {
                    std::thread::sleep(LOOK_EVERY);
                }
                done => return done.map_err(|errno| Failure::io("umount", &errno.into())),
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // One that is in use goes with its last user.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
