//! What a daemon does before its device, so that block I/O can depend on it.
//!
//! Nothing here is stored, so power failure does not matter.

use ftld_device::config::Config;
use ftld_device::instance::Dirs;
use ftld_device::sys;
use ftld_device::target::Target;
use ftld_device::transport::nbd::Tls;
use ftld_kit::failure::Failure;
use std::path::PathBuf;

/// Loads TLS, if it is configured.
pub(super) fn load_tls(config: &Config, target: &Target) -> Result<Option<Tls>, Failure> {
    let Some(options) = &config.tls else {
        return Ok(None);
    };
    if !matches!(target, Target::Nbd(_)) {
        return Err(Failure::usage(format!(
            "TLS is for NBD addresses, not for {target}; give one, or leave --tls out"
        )));
    }
    if let Some(ip) = target
        .beyond_this_machine()
        .filter(|_| options.client_ca.is_none())
    {
        tracing::warn!(
            "every client that reaches {ip} may read and write the device; --tls-client-ca requires certificates"
        );
    }
    Tls::load(options).map(Some).map_err(Failure::usage)
}

/// Leaves the caller's working folder: it can be on any file system, even on this device's own. All
/// paths used from here on are absolute, but for NBD sockets.
pub(super) fn leave_folder(target: &Target) {
    if matches!(target, Target::Nbd(_)) {
        return;
    }
    if let Err(error) = std::env::set_current_dir("/") {
        tracing::warn!("stays in the caller's folder: {error}");
    }
}

/// Prepares a process that other processes' block I/O depends on; called before there is a second
/// thread. The result lives as long as the device.
pub(super) fn prepare(target: &Target, config: &Config, dirs: &Dirs) -> sys::Prepared {
    if !target.in_kernel() {
        return sys::Prepared::default();
    }
    let record = config.record.as_ref().map(|record| &record.file);
    // A socket without a path begins with @.
    let manager = std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from);
    let manager = manager.filter(|socket| socket.is_absolute());
    let paths = [&config.image, &dirs.state, &dirs.runtime]
        .into_iter()
        .chain(record)
        .chain(&manager);
    let prepared = sys::prepare_for_block_device(&paths.cloned().collect::<Vec<_>>());
    for refused in &prepared.refused {
        tracing::warn!("continues without {refused}");
    }
    prepared
}
