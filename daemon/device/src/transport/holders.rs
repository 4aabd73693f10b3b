//! Users of a block device, which must not be removed under them.

mod host;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Users of a device, and how to release it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    /// One phrase each: mounts, swap, stacked devices, and processes that have it open.
    #[serde(default)]
    pub waiting_for: Vec<String>,
    /// Shell commands that release the device, in this order. Processes have none.
    #[serde(default)]
    pub(crate) release: Vec<String>,
}

impl Users {
    /// Returns whether nobody uses the device.
    pub fn is_empty(&self) -> bool {
        self.waiting_for.is_empty()
    }

    fn unknown(what: String) -> Users {
        Users {
            waiting_for: vec![what],
            release: Vec::new(),
        }
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.waiting_for.join("; "))?;
        let commands: Vec<_> = self.release.iter().map(|c| format!("`{c}`")).collect();
        match commands.is_empty() {
            true => Ok(()),
            false => write!(f, "; release it with {}", commands.join(", then ")),
        }
    }
}

/// Returns the users of `/dev/NAME`, and of all that is stacked on it: partitions, device mapper
/// (LVM, LUKS), md, bcache and loop devices, files on its file systems included.
pub(crate) fn of(name: &str) -> Users {
    host::Host::at("/").users_of(name)
}

/// Returns the users of a device that is being served: it can be opened, which also detects claims
/// of the kernel.
pub(crate) fn of_live(name: &str) -> Users {
    match exclude(name) {
        Ok(excluded) => excluded.err().unwrap_or_default(),
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::ENOENT | libc::ENXIO | libc::ENODEV)
            ) =>
        {
            Users::default()
        }
        Err(error) => Users::unknown(format!("unknown users ({error})")),
    }
}

/// Opens `/dev/NAME` exclusively, so that it cannot be mounted while the file is open; otherwise
/// returns its users. Processes that only have it open are users, too.
///
/// # Errors
/// The device file cannot be opened, for another reason than being in use.
pub(crate) fn exclude(name: &str) -> io::Result<Result<File, Users>> {
    let users = of(name);
    if !users.is_empty() {
        return Ok(Err(users));
    }
    match OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(Path::new("/dev").join(name))
    {
        Ok(file) => Ok(Ok(file)),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Ok(Err(Users::unknown("claimed by the kernel".into())))
        }
        Err(error) => Err(error),
    }
}
