//! Devices that a dead daemon left: their users wait until a daemon reattaches or removes them.

#[cfg(feature = "ublk")]
use super::ublk::ublk_failure;
use crate::target::Target;
use crate::transport::nbd::kernel;
#[cfg(feature = "ublk")]
use crate::transport::ublk;
use ftld_kit::failure::{Exit, Failure};
use std::path::Path;

/// Returns the device of this name (`ublkb0`, `nbd0`) if its daemon died and its users wait.
pub fn orphaned_target(name: &str) -> Option<Target> {
    let target = Target::parse(&format!("/dev/{name}")).ok()?;
    let left = match target {
        #[cfg(feature = "ublk")]
        Target::Ublk(n) => matches!(ublk::state(n), Ok(ublk::State::Quiesced)),
        Target::NbdKernel(n) => matches!(kernel::state(n), kernel::State::Left { .. }),
        _ => false,
    };
    left.then_some(target)
}

/// Returns the kernel's device that is served from this image, or was by a daemon that died.
pub fn device_on(image: &Path) -> Option<Target> {
    let image = std::fs::canonicalize(image).ok()?;
    // The device has the path in this form.
    let image = image.to_string_lossy();
    let entries = std::fs::read_dir("/dev").ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut targets = names.filter_map(|name| Target::parse(&format!("/dev/{name}")).ok());
    targets.find(|target| image_of(target).is_some_and(|text| text == image))
}

/// Returns the image of the kernel's device: of any ublk device of ftld's, of an NBD device that a
/// dead daemon left.
pub fn image_of(target: &Target) -> Option<String> {
    match target {
        #[cfg(feature = "ublk")]
        Target::Ublk(n) => ublk::image_of(*n),
        Target::NbdKernel(n) => match kernel::state(*n) {
            kernel::State::Left { image } => Some(image),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the error for commands to the dead daemon of such a device.
pub fn orphan_error(name: &str, target: &Target) -> Failure {
    let message = format!(
        "{target} is quiesced, its daemon died: reattach with `ftld recover {target}`, or remove it, \
         failing its users' I/O, with `ftld stop --force {name}`"
    );
    Failure::new(Exit::Quiesced, message)
}

/// Stops a device of this name that a dead daemon left. With `force` the device is removed and its
/// pending I/O fails; otherwise the result is an error with the possible commands. Returns `None`
/// if there is no such device.
pub fn stop_left(name: &str, force: bool) -> Option<Result<(), Failure>> {
    if !force {
        return orphaned_target(name).map(|target| Err(orphan_error(name, &target)));
    }
    match Target::parse(&format!("/dev/{name}")).ok()? {
        // Any device of the driver, including one that was never started.
        #[cfg(feature = "ublk")]
        Target::Ublk(n) => Some(ublk::stop(n, true).map_err(ublk_failure)),
        Target::NbdKernel(n) if orphaned_target(name).is_some() => {
            Some(kernel::detach(n).map_err(|error| Failure::io(format!("/dev/nbd{n}"), &error)))
        }
        _ => None,
    }
}
