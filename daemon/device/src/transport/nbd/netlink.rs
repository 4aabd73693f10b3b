//! The kernel's NBD client over generic netlink: the few messages needed, encoded and decoded byte
//! by byte.
//!
//! A message is a netlink header, a generic header, and attributes (length, type, value, padded to
//! 4 bytes), all in the machine's byte order. The kernel answers every command with an error
//! number, 0 for success, and CONNECT also with the device's number.

use ftld_kit::convert::{index, to_u32};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// Family that resolves the name of a family.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const ERROR: u16 = 2;
const REQUEST_AND_ACK: u16 = 1 | 4;
const NESTED: u16 = 0x8000;
const HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;

/// Longest wait for an answer. The kernel answers at once, except that CONNECT reads the partition
/// table first.
const PATIENCE: TimeVal = TimeVal::new(30, 0);

/// Attributes of the family `nbd`.
mod attr {
    pub(super) const INDEX: u16 = 1;
    pub(super) const SIZE_BYTES: u16 = 2;
    pub(super) const BLOCK_SIZE_BYTES: u16 = 3;
    pub(super) const SERVER_FLAGS: u16 = 5;
    pub(super) const SOCKETS: u16 = 7;
    pub(super) const DEAD_CONN_TIMEOUT: u16 = 8;
    pub(super) const BACKEND_IDENTIFIER: u16 = 10;
    pub(super) const SOCK_ITEM: u16 = 1;
    pub(super) const SOCK_FD: u16 = 1;
}

/// Commands of the family `nbd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Command {
    /// Set up a device.
    Connect = 1,
    /// Take a device down; requests in flight are finished first.
    Disconnect = 2,
    /// Give new connections to a device that lost its own.
    Reconfigure = 3,
}

impl Command {
    /// Returns the number in a message.
    const fn code(self) -> u8 {
        self as u8
    }
}

/// Parameters of a device for the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Device<'a> {
    /// Number of `/dev/nbdN`.
    pub(crate) n: u32,
    /// Size in bytes.
    pub(crate) size: u64,
    /// Logical block in bytes, from 512 to the host's page size.
    pub(crate) block: u32,
    /// Transmission flags.
    pub(crate) flags: u16,
    /// Seconds for which requests wait for new connections when all are lost, before they fail.
    pub(crate) dead_seconds: u64,
    /// Identity of the server; RECONFIGURE must use the same.
    pub(crate) backend: &'a str,
}

/// A socket to the kernel.
pub(crate) struct Netlink {
    socket: OwnedFd,
    family: u16,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket to the kernel's NBD client, which the kernel loads by itself if it can.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no NBD client; otherwise the socket cannot be created.
    pub(crate) fn open() -> io::Result<Self> {
        let protocol = SockProtocol::NetlinkGeneric;
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &PATIENCE)?;
        let mut netlink = Self {
            socket,
            family: CONTROL,
            sequence: 0,
        };
        let mut body = Vec::new();
        put(&mut body, FAMILY_NAME, b"nbd\0");
        let answer = netlink.ask(GET_FAMILY, &body)?;
        let id = attributes(&answer)
            .find(|(kind, _)| *kind == FAMILY_ID)
            .and_then(|(_, value)| value.try_into().ok());
        netlink.family = id
            .map(u16::from_ne_bytes)
            .ok_or_else(|| broken("no family number"))?;
        Ok(netlink)
    }

    /// Hands connected `sockets` to the kernel's client, which uses them at once.
    ///
    /// # Errors
    /// The kernel refuses the command.
    pub(crate) fn serve(
        &mut self,
        command: Command,
        device: &Device<'_>,
        sockets: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        assert!(
            !sockets.is_empty(),
            "/dev/nbd{} without a connection",
            device.n
        );
        let fds: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
        self.ask(command.code(), &encode(device, &fds)).map(drop)
    }

    /// Takes device `n` down.
    ///
    /// # Errors
    /// The kernel refuses the command.
    pub(crate) fn disconnect(&mut self, n: u32) -> io::Result<()> {
        let mut body = Vec::new();
        put(&mut body, attr::INDEX, &n.to_ne_bytes());
        self.ask(Command::Disconnect.code(), &body).map(drop)
    }

    /// Sends a command; returns the attributes of the answer that precedes its error number.
    fn ask(&mut self, command: u8, body: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        let message = message(self.family, self.sequence, command, body);
        send(self.socket.as_raw_fd(), &message, MsgFlags::empty())?;
        let mut found = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            let len = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
            for (kind, sequence, payload) in messages(&buffer[..len]) {
                if sequence != self.sequence {
                    continue;
                }
                if kind == ERROR {
                    let code = payload
                        .get(..4)
                        .and_then(|code| code.try_into().ok())
                        .map(i32::from_ne_bytes);
                    return match code.ok_or_else(|| broken("a short answer"))? {
                        0 => Ok(found),
                        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    };
                }
                found = payload.get(GENERIC_HEADER..).unwrap_or_default().to_vec();
            }
        }
    }
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("netlink: {what}"))
}

fn encode(device: &Device<'_>, fds: &[RawFd]) -> Vec<u8> {
    let mut body = Vec::new();
    put(&mut body, attr::INDEX, &device.n.to_ne_bytes());
    put(&mut body, attr::SIZE_BYTES, &device.size.to_ne_bytes());
    put(
        &mut body,
        attr::BLOCK_SIZE_BYTES,
        &u64::from(device.block).to_ne_bytes(),
    );
    put(
        &mut body,
        attr::SERVER_FLAGS,
        &u64::from(device.flags).to_ne_bytes(),
    );
    put(
        &mut body,
        attr::DEAD_CONN_TIMEOUT,
        &device.dead_seconds.to_ne_bytes(),
    );
    put(
        &mut body,
        attr::BACKEND_IDENTIFIER,
        &[device.backend.as_bytes(), b"\0"].concat(),
    );
    let mut sockets = Vec::new();
    for fd in fds {
        let mut item = Vec::new();
        put(&mut item, attr::SOCK_FD, &fd.cast_unsigned().to_ne_bytes());
        put(&mut sockets, attr::SOCK_ITEM | NESTED, &item);
    }
    put(&mut body, attr::SOCKETS | NESTED, &sockets);
    body
}

/// Appends an attribute.
fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    assert!(
        value.len() + 4 <= usize::from(u16::MAX),
        "an attribute of {} bytes exceeds its 16-bit length",
        value.len()
    );
    out.extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn message(family: u16, sequence: u32, command: u8, body: &[u8]) -> Vec<u8> {
    let len = HEADER + GENERIC_HEADER + body.len();
    assert!(body.len().is_multiple_of(4), "attributes are padded");
    let mut out = Vec::with_capacity(len);
    out.extend_from_slice(&to_u32(len).to_ne_bytes());
    out.extend_from_slice(&family.to_ne_bytes());
    out.extend_from_slice(&REQUEST_AND_ACK.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]); // from this socket, with any number
    out.extend_from_slice(&[command, 1, 0, 0]); // version 1 of both families
    out.extend_from_slice(body);
    out
}

/// Splits a datagram into type, sequence number and payload of its messages; omits a malformed
/// rest.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let len = index(u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
        let payload = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, sequence, payload))
    })
}

/// Splits attributes into type and value; omits a malformed rest.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & !NESTED;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_spelled_as_the_kernel_reads_it() {
        let device = Device {
            n: 3,
            size: 1 << 30,
            block: 512,
            flags: 0x6d,
            dead_seconds: 30,
            backend: "image",
        };
        let body = encode(&device, &[7, 9]);
        assert_eq!(body.len() % 4, 0);
        let found: Vec<_> = attributes(&body).collect();
        let number = |kind| {
            found
                .iter()
                .find(|(found, _)| *found == kind)
                .map(|(_, value)| value.to_vec())
                .unwrap()
        };
        assert_eq!(number(attr::INDEX), 3u32.to_ne_bytes());
        assert_eq!(number(attr::SIZE_BYTES), (1u64 << 30).to_ne_bytes());
        assert_eq!(number(attr::BLOCK_SIZE_BYTES), 512u64.to_ne_bytes());
        assert_eq!(number(attr::SERVER_FLAGS), 0x6du64.to_ne_bytes());
        assert_eq!(number(attr::DEAD_CONN_TIMEOUT), 30u64.to_ne_bytes());
        assert_eq!(number(attr::BACKEND_IDENTIFIER), b"image\0");
        let sockets = number(attr::SOCKETS);
        let fds: Vec<_> = attributes(&sockets)
            .flat_map(|(_, item)| attributes(item).map(|(_, fd)| fd.to_vec()))
            .collect();
        assert_eq!(fds, [7u32.to_ne_bytes(), 9u32.to_ne_bytes()]);
    }

    #[test]
    fn cut_off_answers_end_the_walk() {
        let whole = message(5, 1, 2, &[0; 8]);
        assert_eq!(messages(&whole).count(), 1);
        for len in 0..whole.len() {
            assert_eq!(messages(&whole[..len]).count(), 0, "{len} bytes");
        }
        let mut zero = whole.clone();
        zero[..4].fill(0);
        assert_eq!(messages(&zero).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
    }

    #[test]
    fn the_kernel_knows_its_own_control_family() {
        let mut netlink = match Netlink::open() {
            Ok(netlink) => netlink,
            // Without an NBD client, the kernel still parsed and answered the request.
            Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::ENOENT)),
        };
        assert!(netlink.disconnect(u32::MAX).is_err());
    }
}
