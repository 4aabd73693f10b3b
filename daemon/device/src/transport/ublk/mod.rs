//! `/dev/ublkbN`: a block device whose requests the kernel's ublk driver passes to this process.
//!
//! Invariants: a request is answered exactly once, on the queue thread that received it. A panic
//! while executing it results in `EIO`. Reads and writes continue while a FLUSH waits for the
//! host's storage. If this process dies, the kernel keeps the device and holds its requests back
//! (*quiesced*). It passes them again to the process that reattaches the device. Acknowledged
//! writes must therefore outlive the process, and repeated ones must be harmless. libublk's state
//! file contains the image of a device.

mod control;
mod queue;
mod served;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use libublk::ctrl::{UblkCtrl, UblkCtrlBuilder};
use libublk::io::UblkDev;
use libublk::{UblkFlags, sys as abi};
use parking_lot::Mutex;

pub use control::{State, delete, devices, holders, image_of, probe, state, stop};
pub(crate) use served::Served;

use crate::device::BlockDevice;
use crate::transport::holders::Users;
use queue::{Gate, Helpers};

/// The kernel keeps the device of a dead daemon, and passes its requests in flight to the next
/// daemon.
const RECOVERY: u64 = (abi::UBLK_F_USER_RECOVERY | abi::UBLK_F_USER_RECOVERY_REISSUE) as u64;

/// Longest time for the kernel to create or remove a device node.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// Reason why a device could not be served, stopped or inspected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver is missing.
    #[error(
        "this kernel offers no ublk ({0}): load it with `modprobe ublk_drv` (Linux 6.0 or later with CONFIG_BLK_DEV_UBLK; \
         Debian 12's 6.1 kernel lacks it, its linux-image-6.12-cloud-amd64 has it), or serve NBD instead: \
         `ftld 'nbd+unix:///?socket=ftld.sock'`"
    )]
    DriverMissing(String),
    /// The driver refuses this user.
    #[error(
        "{0}: run ftld as root, or serve NBD instead, which needs no rights: `ftld 'nbd+unix:///?socket=ftld.sock'`"
    )]
    Permission(String),
    /// Another process serves the device.
    #[error(
        "/dev/ublkb{n} is served by process {pid}: choose another number, or stop that one first"
    )]
    InUse {
        /// Device number.
        n: u32,
        /// Process that serves it.
        pid: i32,
    },
    /// The device is quiesced and belongs to another image.
    #[error(
        "/dev/ublkb{n} is quiesced with image {}, its daemon died: start ftld with that image to reattach it, \
         or remove it, failing its users' I/O, with `ftld stop --force ublkb{n}`", .image.as_deref().unwrap_or("of another program")
    )]
    Quiesced {
        /// Device number.
        n: u32,
        /// Image it belongs to, if an ftld daemon left it.
        image: Option<String>,
    },
    /// The device is in use.
    #[error("/dev/ublkb{n} is in use: {holders}")]
    Held {
        /// Device number.
        n: u32,
        /// Its users.
        holders: Users,
    },
    /// There is no such device.
    #[error("there is no ublk device {0}")]
    Absent(u32),
    /// An error of the driver or the file system.
    #[error("{what}: {source}")]
    Io {
        /// Failed operation.
        what: String,
        /// Cause.
        source: io::Error,
    },
}

impl Error {
    /// Returns the exit code, which determines a script's next step.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Self::Io { .. } => 1,
            Self::Absent(_) => 3,
            Self::Quiesced { .. } => 4,
            Self::DriverMissing(_) => 5,
            Self::Permission(_) => 6,
            Self::InUse { .. } | Self::Held { .. } => 7,
        }
    }

    fn driver(what: impl Into<String>, error: libublk::UblkError) -> Self {
        let source = match error {
            libublk::UblkError::IOError(source) => source,
            libublk::UblkError::OtherError(code) | libublk::UblkError::UringIOError(code) => {
                io::Error::from_raw_os_error(code.saturating_abs())
            }
            other => io::Error::other(other),
        };
        Self::Io {
            what: what.into(),
            source,
        }
    }
}

/// Settings of a new device. A quiesced device keeps the settings that it was created with.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Identity of the image: only a daemon with the same image reattaches the device.
    pub(crate) image: String,
    /// Hardware queues, each with a thread.
    pub(crate) queues: u16,
    /// Requests in flight per queue.
    pub(crate) depth: u16,
    /// Largest request in bytes, a multiple of the host's page; every slot of every queue has a
    /// buffer of this size.
    pub(crate) buffer_bytes: u32,
}

impl Options {
    /// Returns one queue of 64 requests with 256 KiB each, 16 MiB in total. The volume answers one
    /// request at a time, and more queues would only wait for each other.
    pub(crate) fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            queues: 1,
            depth: 64,
            buffer_bytes: 256 << 10,
        }
    }
}

/// A device that accepts requests.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    /// Its number.
    pub(crate) n: u32,
    /// Its node.
    pub(crate) path: PathBuf,
    /// Whether it was reattached after its daemon died.
    pub(crate) recovered: bool,
}

/// Serves `device` as `/dev/ublkbN` until the gate closes, or until the device is stopped, by
/// [`stop`] or by another program.
/// `None` for `n` takes the first free number. Blocks; `on_ready` runs once the first request can
/// be served. The caller's thread and those of the queues should be [I/O
/// flushers](crate::sys::io_flusher).
///
/// A quiesced device `n` of the same image is reattached, with its requests. Exiting the process
/// without [`stop`], or after an error while serving, leaves the device quiesced.
///
/// # Errors
/// The device cannot be created, or its queues ended with an error.
fn serve(
    gate: Arc<Gate>,
    n: Option<u32>,
    device: Arc<dyn BlockDevice>,
    options: &Options,
    on_ready: impl FnOnce(Ready) + Send + Sync + 'static,
) -> Result<(), Error> {
    probe()?;
    secure_state_folder()?;
    let recover = n.map_or(Ok(false), |n| control::claim(n, options, device.as_ref()))?;
    let ctrl = if recover {
        reattach(n.unwrap_or_default())?
    } else {
        add(n, options)?
    };
    // `control::remove` below removes the node, even while it is open; libublk's own removal would
    // wait.
    ctrl.disown();
    let served = Arc::new(AtomicBool::new(recover));
    let ready = {
        let served = served.clone();
        move |ready: Ready| {
            served.store(true, Ordering::Relaxed);
            on_ready(ready);
        }
    };
    let result = run(&ctrl, device, gate, options, recover, ready);
    let n = ctrl.dev_info().dev_id;
    drop(ctrl);
    if result.is_err() && served.load(Ordering::Relaxed) {
        // No acknowledged write is lost: once this process has exited, the device waits for the
        // next one.
        return result;
    }
    result.and(control::remove(n))
}

/// Secures libublk's folder: libublk makes it writable for all, and root would follow links that
/// others create in it.
fn secure_state_folder() -> Result<(), Error> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let folder = UblkCtrl::run_dir();
    let context = |source| Error::Io {
        what: format!("state folder {folder}"),
        source,
    };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&folder)
        .map_err(context)?;
    let found = fs::symlink_metadata(&folder).map_err(context)?;
    if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
        return Err(context(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "not a folder of this user's",
        )));
    }
    if found.mode() & 0o022 != 0 {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).map_err(context)?;
    }
    Ok(())
}

fn add(n: Option<u32>, options: &Options) -> Result<UblkCtrl, Error> {
    assert!(
        options.queues > 0 && options.depth > 0,
        "a ublk device of {} queues with {} requests each",
        options.queues,
        options.depth
    );
    assert!(
        options.buffer_bytes > 0 && options.buffer_bytes.is_multiple_of(4096),
        "buffers of {} bytes are not whole pages of the host",
        options.buffer_bytes
    );
    if let Some(n) = n {
        // A state file of an earlier boot or of another owner is replaced, not followed.
        let _ = fs::remove_file(control::state_file(n));
    }
    builder(
        n.map_or(-1, |n| n as i32),
        options.queues,
        options.depth,
        options.buffer_bytes,
        RECOVERY,
    )
    .dev_flags(UblkFlags::UBLK_DEV_F_ADD_DEV)
    .build()
    .map_err(|error| {
        Error::driver(
            n.map_or("add a ublk device".into(), |n| {
                format!("add ublk device {n}")
            }),
            error,
        )
    })
}

fn reattach(n: u32) -> Result<UblkCtrl, Error> {
    let context = |error| Error::driver(format!("reattach ublk device {n}"), error);
    let old = UblkCtrl::new_simple(n as i32).map_err(context)?;
    old.start_user_recover().map_err(context)?;
    let info = old.dev_info();
    // Newer drivers add flags of their own, which libublk rejects.
    builder(
        n as i32,
        info.nr_hw_queues,
        info.queue_depth,
        info.max_io_buf_bytes,
        info.flags & RECOVERY,
    )
    .dev_flags(UblkFlags::UBLK_DEV_F_RECOVER_DEV)
    .build()
    .map_err(context)
}

fn builder(
    id: i32,
    queues: u16,
    depth: u16,
    buffer_bytes: u32,
    flags: u64,
) -> UblkCtrlBuilder<'static> {
    UblkCtrlBuilder::default()
        .name("ftld")
        .id(id)
        .nr_queues(queues)
        .depth(depth)
        .io_buf_bytes(buffer_bytes)
        .ctrl_flags(flags)
}

/// Runs the queues until all have ended.
fn run(
    ctrl: &UblkCtrl,
    device: Arc<dyn BlockDevice>,
    gate: Arc<Gate>,
    options: &Options,
    recovered: bool,
    on_ready: impl FnOnce(Ready) + Send + Sync + 'static,
) -> Result<(), Error> {
    let info = ctrl.dev_info();
    let n = info.dev_id;
    let helpers = (0..info.nr_hw_queues)
        .map(|_| Helpers::start())
        .collect::<io::Result<Vec<_>>>();
    let helpers = helpers.map_err(|source| Error::Io {
        what: "start a flush thread".into(),
        source,
    })?;
    let helpers = Arc::new(Mutex::new(helpers));
    let broken = Arc::new(AtomicBool::new(false));
    let (queue_device, queue_broken) = (device.clone(), broken.clone());
    let queue = move |id: u16, dev: &UblkDev| {
        let helpers = helpers.lock().pop();
        if !helpers
            .is_some_and(|helpers| queue::run(id, dev, queue_device.as_ref(), &gate, helpers))
        {
            queue_broken.store(true, Ordering::Relaxed);
        }
    };
    let target = control::TargetData {
        image: options.image.clone(),
    };
    let describe = move |dev: &mut UblkDev| {
        set_parameters(dev, device.as_ref())?;
        dev.set_target_json(target.json());
        Ok(())
    };
    let ready = move |_: &UblkCtrl| {
        let path = control::node(n);
        wait_until(|| path.exists());
        on_ready(Ready { n, path, recovered });
    };
    ctrl.run_target(describe, queue, ready)
        .map_err(|error| Error::driver(format!("start /dev/ublkb{n}"), error))?;
    if broken.load(Ordering::Relaxed) {
        let source = io::Error::other("a queue thread ended unexpectedly; see the log");
        return Err(Error::Io {
            what: format!("serve /dev/ublkb{n}"),
            source,
        });
    }
    Ok(())
}

/// Sets the limits of requests, and the values that users see in `/sys/block/ublkbN/queue`.
fn set_parameters(dev: &mut UblkDev, device: &dyn BlockDevice) -> Result<(), libublk::UblkError> {
    let (logical, physical) = (
        shift(device.logical_block())?,
        shift(device.physical_block())?,
    );
    let preferred = shift(device.preferred_block())?.max(physical);
    assert!(
        logical <= physical,
        "logical blocks of 2^{logical} bytes in physical ones of 2^{physical}"
    );
    dev.set_default_params(device.size());
    // Every slot's command, the flusher's wake-up and the alarm may complete at once.
    dev.tgt.cq_depth = dev.tgt.cq_depth.saturating_mul(2);
    let params = &mut dev.tgt.params;
    params.basic.attrs = match device.has_volatile_cache() {
        true => abi::UBLK_ATTR_VOLATILE_CACHE | abi::UBLK_ATTR_FUA,
        false => 0,
    };
    params.basic.logical_bs_shift = logical;
    params.basic.physical_bs_shift = physical;
    params.basic.io_min_shift = physical;
    params.basic.io_opt_shift = preferred;
    if device.read_only() {
        params.basic.attrs |= abi::UBLK_ATTR_READ_ONLY;
        return Ok(());
    }
    params.types |= abi::UBLK_PARAM_TYPE_DISCARD;
    params.discard = abi::ublk_param_discard {
        discard_granularity: device.physical_block(),
        // The maximum of a request: few requests discard the whole device.
        max_discard_sectors: u32::MAX >> 9,
        max_write_zeroes_sectors: u32::MAX >> 9,
        max_discard_segments: 1,
        ..Default::default()
    };
    Ok(())
}

fn shift(block: u32) -> Result<u8, libublk::UblkError> {
    if block.is_power_of_two() && block >= 512 {
        return Ok(block.trailing_zeros() as u8);
    }
    Err(libublk::UblkError::OtherError(-libc::EINVAL))
}

/// Polls until `done`, because the kernel creates and removes nodes asynchronously.
fn wait_until(done: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > NODE_TIMEOUT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Returns whether a path exists, even as a dangling link.
fn present(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}
