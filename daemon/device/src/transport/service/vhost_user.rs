//! The service of a vhost-user socket.

use super::worker::Worker;
use super::{Context, Service, StopHow};
use crate::device::BlockDevice;
use crate::target::Target;
use crate::transport::holders::Users;
use crate::transport::unix_socket;
use crate::transport::vhost_user::serve;
use ftld_kit::failure::Failure;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Front-ends that wait to be accepted: one is served, the others are turned away.
const BACKLOG: u16 = 8;

/// A vhost-user-blk server on a socket. When it stops, it answers the requests in flight and then
/// disconnects its front-end.
pub(super) struct VhostUser {
    target: String,
    stop: Arc<EventFd>,
    worker: Worker,
}

impl VhostUser {
    pub(super) fn start(
        path: &Path,
        device: Arc<dyn BlockDevice>,
        context: Context<'_>,
    ) -> Result<Self, Failure> {
        let target = Target::VhostUser(path.to_owned()).to_string();
        let failed = |error: io::Error| Failure::io(&target, &error);
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let stop = Arc::new(EventFd::from_flags(flags).map_err(|errno| failed(errno.into()))?);
        let (file, listener) = unix_socket::bind(path, BACKLOG).map_err(failed)?;
        let (stopped, serial) = (stop.clone(), context.name.to_owned());
        let work = move || {
            serve(&listener, &*device, &serial, &stopped);
            // The file goes first: no front-end connects in vain.
            drop((file, listener));
        };
        let worker = Worker::spawn("ftld-vhost", work).map_err(failed)?;
        Ok(VhostUser {
            target,
            stop,
            worker,
        })
    }
}

impl Service for VhostUser {
    fn target(&self) -> String {
        self.target.clone()
    }
    fn holders(&self) -> Users {
        Users::default()
    }
    fn ended(&self) -> Option<String> {
        self.worker
            .finished()
            .then(|| "the vhost-user server ended".into())
    }
    fn stop(&self, _how: StopHow) -> Result<(), Failure> {
        self.stop
            .write(1)
            .map_err(|errno| Failure::io(&self.target, &errno.into()))?;
        self.worker.join(&self.target)
    }
}
