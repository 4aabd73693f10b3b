//! End of a daemon: device, background work, image, in this order.
//!
//! Invariants: the image is marked clean only after everything is on it. If power fails before
//! that, the next mount recovers the flushed data.

use super::served::Served;
use crate::notify;
use ftld_device::background::Background;
use ftld_device::stack;
use ftld_device::transport::{Service, StopHow};
use ftld_device::volume::Volume;
use ftld_kit::failure::{Exit, Failure};
use std::path::Path;

/// Releases device, background work and image, in this order.
pub(super) fn end(
    served: &Served,
    service: &dyn Service,
    background: Background,
    how: StopHow,
) -> Result<(), Failure> {
    // A device that is kept for its next daemon has lost no data; cancelling a pending power cut
    // keeps it so.
    let how = if how == StopHow::Leave && !served.volume.keep_power() {
        StopHow::Remove
    } else {
        how
    };
    served.volume.resume();
    served.faults.release();
    if let Some(load) = served.load.get() {
        load.end();
    }
    let _patience = notify::stopping();
    let stopped = service.stop(how);
    drop(background);
    let closed = close(&served.volume, &served.facts.image);
    // The device has ended well, whatever became of its recording.
    if let Some(Err(failure)) = served.recorder.as_ref().map(|recorder| recorder.finish()) {
        tracing::error!("{failure}");
    }
    stopped?;
    closed?;
    tracing::info!("clean shutdown");
    Ok(())
}

/// Closes the volume with everything on the image.
pub(crate) fn close(volume: &Volume, image: &Path) -> Result<(), Failure> {
    let closed = volume
        .close()
        .map_err(|error| Failure::io(format!("{}: closing", image.display()), &error));
    if volume.is_powerless() {
        stack::leave_stores(closed?, image)?;
        let message = format!(
            "{}: power cut injected; restart to recover",
            image.display()
        );
        return Err(Failure::new(Exit::PowerCut, message));
    }
    if let Some(why) = volume.failure() {
        return Err(Failure::failed(format!(
            "{}: ended after a failure: {why}",
            image.display()
        )));
    }
    stack::close_stores(closed?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftld_device::config::Config;
    use ftld_device::instance::Dirs;
    use ftld_device::options::{DeviceArgs, DeviceOptions};

    #[test]
    fn a_daemon_that_ends_after_a_failure_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let dirs = Dirs {
            config: folder.path().join("etc"),
            state: folder.path().join("state"),
            runtime: folder.path().join("run"),
        };
        let options = DeviceOptions {
            size: Some("16MiB".into()),
            ..DeviceOptions::default()
        };
        let args = DeviceArgs {
            options,
            ..DeviceArgs::default()
        };
        let config = Config::new(&args, &dirs).unwrap();
        let volume = stack::open_or_create(&config).unwrap().volume;
        volume.note_dead_thread("ftld-x", "planted");
        let failure = close(&volume, &config.image).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        let part = "ended after a failure: internal error: thread ftld-x";
        assert!(failure.message.contains(part), "{failure}");
    }
}
