//! vhost-user-blk server: the device for the virtio-blk driver of a guest, in User-Mode Linux or
//! QEMU. Every FLUSH of the guest's kernel arrives as one request.
//!
//! The front-end passes the guest's memory as files. `pread` and `pwrite` on them are coherent with
//! its shared mappings of the same pages, so the server maps nothing and needs no unsafe code. The
//! crates `vhost-user-backend`, `vhost`, `virtio-queue`, `vm-memory` and `vmm-sys-util` map the
//! memory, and leave the requests of virtio-blk to their user.
//!
//! [`messages`] receives messages and descriptors, [`memory`] finds guest addresses, [`ring`] walks
//! the split virtqueue, [`blk`] has the features and requests of virtio-blk, [`connection`] serves
//! one front-end.
//!
//! Sources: "Vhost-user Protocol" of QEMU's documentation; "Virtual I/O Device (VIRTIO) Version
//! 1.2", 2.7 (split virtqueues) and 5.2 (block device).
//!
//! Invariants: one front-end at a time, with one queue; requests are executed one by one, in the
//! order of the ring. Everything in the guest's memory is read once, then checked: rings and
//! descriptors in batches, with a system call for all that is available. A front-end that
//! breaks a rule loses its connection, with one message. A request completes after the device has
//! finished it, and FLUSH only after [`crate::device::Flush::wait`]: the device determines the
//! effect of power failure on it.

mod blk;
mod connection;
mod memory;
mod messages;
mod ring;

use crate::device::BlockDevice;
use connection::Connection;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// Pause after the kernel refused to accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
enum CloseReason {
    /// The daemon stops.
    #[error("the server stops")]
    Stopped,
    /// Closed between two messages.
    #[error("it disconnected")]
    Disconnected,
    /// Closed within a message.
    #[error("it disconnected in the middle of a message")]
    Torn,
    /// Silent within a message, or deaf to a reply.
    #[error("no progress for {0:?} in the middle of a message")]
    Stalled(Duration),
    /// A message that breaks the protocol.
    #[error("message {request}: {what}")]
    Message {
        /// Its number.
        request: u32,
        /// Fault.
        what: &'static str,
    },
    /// An address that is not the guest's memory.
    #[error("{len} bytes at address {address:#x} are outside the memory regions")]
    Outside {
        /// First byte.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A virtqueue that breaks the standard.
    #[error("virtqueue: {0}")]
    Ring(&'static str),
    /// A descriptor of the front-end failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What the server did.
        what: &'static str,
        /// Cause.
        source: io::Error,
    },
}

impl CloseReason {
    fn io(what: &'static str) -> impl Fn(io::Error) -> CloseReason {
        move |source| CloseReason::Io { what, source }
    }
}

/// Serves one front-end after the other until `stop` is written. `listener` is non-blocking;
/// `serial` is the device's name for the guest.
pub(super) fn serve(
    listener: &UnixListener,
    device: &dyn BlockDevice,
    serial: &str,
    stop: &EventFd,
) {
    loop {
        let mut files = [polled(stop), polled(listener)];
        if let Err(error) = wait(&mut files, PollTimeout::NONE) {
            tracing::error!(%error, "cannot wait for a vhost-user front-end");
            return;
        }
        if is_ready(&files[0]) {
            return;
        }
        let Some(front_end) = accept(listener) else {
            continue;
        };
        tracing::debug!("vhost-user front-end connected");
        match Connection::new(front_end, device, serial, stop).run(listener) {
            CloseReason::Stopped => return,
            CloseReason::Disconnected => tracing::debug!("vhost-user front-end left"),
            reason => tracing::warn!("vhost-user front-end dropped: {reason}"),
        }
    }
}

/// Accepts a front-end that waits; `None` if there is none, after a pause if the kernel refuses.
fn accept(listener: &UnixListener) -> Option<UnixStream> {
    match listener.accept() {
        Ok((front_end, _)) => Some(front_end),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => {
            tracing::warn!(%error, "cannot accept a vhost-user front-end; will try again");
            std::thread::sleep(ACCEPT_PAUSE);
            None
        }
    }
}

fn polled(file: &impl AsFd) -> PollFd<'_> {
    PollFd::new(file.as_fd(), PollFlags::POLLIN)
}

/// An entry for `poll` in place of a missing file: that of `other`, without events.
fn unpolled(other: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::new(other, PollFlags::empty())
}

fn is_ready(file: &PollFd<'_>) -> bool {
    file.revents().is_some_and(|events| !events.is_empty())
}

/// Waits for an event on one of the files.
fn wait(files: &mut [PollFd<'_>], timeout: PollTimeout) -> io::Result<()> {
    match poll(files, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests;
