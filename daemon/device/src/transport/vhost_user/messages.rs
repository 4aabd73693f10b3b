//! Messages of a front-end, with the descriptors that they carry, and replies.
//!
//! Invariants: a message is at most [`PAYLOAD_MAX`] bytes and [`FILES_MAX`] descriptors. From its
//! first byte, a message has [`STALL`] to arrive, as a reply has to leave.

use super::{CloseReason, is_ready, polled, wait};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::EventFd;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Maximum bytes of a payload: a configuration space is the largest.
pub(super) const PAYLOAD_MAX: usize = 12 + CONFIG_MAX;
/// Maximum bytes of a configuration space.
pub(super) const CONFIG_MAX: usize = 256;
/// Maximum descriptors of a message: one for each memory region.
pub(super) const FILES_MAX: usize = 8;
/// Longest time for the rest of a message, or for a reply.
const STALL: Duration = Duration::from_secs(10);

const HEADER: usize = 12;
const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const REPLY: u32 = 1 << 2;

/// A message.
pub(super) struct Message {
    /// Its number.
    pub(super) request: u32,
    payload: Vec<u8>,
    files: Vec<OwnedFd>,
}

impl Message {
    /// Returns the reason for the end of a connection on which this message came.
    pub(super) fn fault(&self, what: &'static str) -> CloseReason {
        CloseReason::Message {
            request: self.request,
            what,
        }
    }

    /// Returns the payload, if it has at least this many bytes.
    pub(super) fn payload(&self, bytes: usize) -> Result<&[u8], CloseReason> {
        match self.payload.len() < bytes {
            true => Err(self.fault("its payload is too short")),
            false => Ok(&self.payload),
        }
    }

    /// Returns the payload of a message that has exactly this many bytes.
    pub(super) fn exactly<const N: usize>(&self) -> Result<[u8; N], CloseReason> {
        let payload = <[u8; N]>::try_from(self.payload.as_slice());
        payload.map_err(|_| self.fault("its payload has another size"))
    }

    /// Checks that there is no payload.
    pub(super) fn no_payload(&self) -> Result<(), CloseReason> {
        self.exactly::<0>().map(|_| ())
    }

    /// Returns the payload as one number.
    pub(super) fn u64(&self) -> Result<u64, CloseReason> {
        Ok(u64::from_le_bytes(self.exactly()?))
    }

    /// Takes the descriptors of a message that carries this many.
    pub(super) fn files(&mut self, count: usize) -> Result<Vec<OwnedFd>, CloseReason> {
        match self.files.len() == count {
            true => Ok(std::mem::take(&mut self.files)),
            false => Err(self.fault("it carries another number of descriptors")),
        }
    }

    /// Takes the only descriptor.
    pub(super) fn file(&mut self) -> Result<OwnedFd, CloseReason> {
        let file = self.files(1)?.pop();
        file.ok_or_else(|| self.fault("it carries no descriptor"))
    }

    /// Returns whether descriptors are left that nobody asked for.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }
}

/// The socket of a front-end.
pub(super) struct Channel<'a> {
    pub(super) socket: UnixStream,
    stop: &'a EventFd,
}

impl<'a> Channel<'a> {
    pub(super) fn new(socket: UnixStream, stop: &'a EventFd) -> Self {
        Channel { socket, stop }
    }

    /// Receives a message that has begun to arrive.
    pub(super) fn receive(&self) -> Result<Message, CloseReason> {
        let deadline = Instant::now() + STALL;
        let (mut header, mut files) = ([0; HEADER], Vec::new());
        self.fill(&mut header, &mut files, deadline, true)?;
        let [request, flags, size] = [0, 4, 8].map(|at| u32::from_le_bytes(le_bytes(&header, at)));
        let mut message = Message {
            request,
            payload: Vec::new(),
            files: Vec::new(),
        };
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(message.fault("its flags are not those of a request of version 1"));
        }
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= PAYLOAD_MAX);
        let size = size.ok_or_else(|| message.fault("its payload is too long"))?;
        message.payload.resize(size, 0);
        self.fill(&mut message.payload, &mut files, deadline, false)?;
        message.files = files;
        Ok(message)
    }

    fn fill(
        &self,
        mut rest: &mut [u8],
        files: &mut Vec<OwnedFd>,
        deadline: Instant,
        mut at_boundary: bool,
    ) -> Result<(), CloseReason> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
        while !rest.is_empty() {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let into = &mut [IoSliceMut::new(rest)];
            let received = match recvmsg(&self.socket, into, &mut control, flags) {
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::POLLIN, deadline)?;
                    continue;
                }
                Err(Errno::INTR) => continue,
                other => other.map_err(|errno| CloseReason::io("receive")(errno.into()))?,
            };
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = part {
                    files.extend(rights);
                }
            }
            if received.bytes == 0 && at_boundary {
                return Err(CloseReason::Disconnected);
            } else if received.bytes == 0 {
                return Err(CloseReason::Torn);
            } else if files.len() > FILES_MAX || received.flags.contains(ReturnFlags::CTRUNC) {
                return Err(CloseReason::Io {
                    what: "receive",
                    source: std::io::Error::other("too many descriptors in one message"),
                });
            }
            at_boundary = false;
            rest = &mut std::mem::take(&mut rest)[received.bytes..];
        }
        Ok(())
    }

    /// Sends the reply to a message.
    pub(super) fn reply(&self, request: u32, payload: &[u8]) -> Result<(), CloseReason> {
        let deadline = Instant::now() + STALL;
        let size = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        for number in [request, VERSION | REPLY, size] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(payload);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match send(
                &self.socket,
                rest,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::AGAIN) => self.wait(PollFlags::POLLOUT, deadline)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(CloseReason::io("reply")(errno.into())),
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> Result<(), CloseReason> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CloseReason::Stalled(STALL));
        }
        let mut files = [polled(self.stop), PollFd::new(self.socket.as_fd(), events)];
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
        wait(&mut files, timeout.unwrap_or(PollTimeout::MAX)).map_err(CloseReason::io("wait"))?;
        match is_ready(&files[0]) {
            true => Err(CloseReason::Stopped),
            false => Ok(()),
        }
    }
}

/// Returns `N` bytes of a longer slice, as the argument of `from_le_bytes`.
///
/// # Panics
/// The slice is shorter: callers have checked its length.
pub(super) fn le_bytes<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}
