//! The end of a daemon: device, background work, image, in this order.
//!
//! Always true: the image is marked clean only after everything is on it. If power fails before
//! that, the next mount recovers what was flushed.

use super::served::Served;
use crate::background::Background;
use crate::failure::{Exit, Failure};
use crate::stack::DaemonStore;
use crate::transport::{Service, StopHow};
use crate::volume::Volume;
use crate::{notify, stack};
use std::path::Path;

/// Lets go in reverse order: device, background work, image.
pub(super) fn end(
    served: &Served,
    service: &dyn Service,
    background: Background,
    how: StopHow,
) -> Result<(), Failure> {
    // A device that waits for its next daemon has lost nothing, and must not lose anything on the
    // way out.
    let how = if how == StopHow::Leave && !served.volume.keep_power() {
        StopHow::Remove
    } else {
        how
    };
    served.volume.resume();
    let _patience = notify::stopping();
    let stopped = service.stop(how);
    drop(background);
    let closed = close(&served.volume, &served.facts.image);
    stopped?;
    closed?;
    tracing::info!("stopped, everything is on the image");
    Ok(())
}

/// Ends with everything on the image.
pub(super) fn close(volume: &Volume<DaemonStore>, image: &Path) -> Result<(), Failure> {
    let closed = volume
        .close()
        .map_err(|error| Failure::io(format!("{}: closing", image.display()), &error));
    if volume.is_powerless() {
        stack::leave_store(closed?, image)?;
        let message = format!(
            "{}: power cut injected; a restart mounts what the chip kept",
            image.display()
        );
        return Err(Failure::new(Exit::PowerCut, message));
    }
    if let Some(why) = volume.trouble() {
        return Err(Failure::failed(format!(
            "{}: ended after a failure: {why}",
            image.display()
        )));
    }
    stack::close_store(closed?)
}
