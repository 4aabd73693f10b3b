//! A front-end with its guest's driver.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The guest's memory: its address for the guest and for the front-end, its length.
pub(super) const GUEST: u64 = 0x1000_0000;
pub(super) const OWN: u64 = 0x7f00_0000_0000;
pub(super) const LEN: u64 = 4 << 20;
/// Offsets in it.
pub(super) const DESCRIPTORS: u64 = 0;
pub(super) const AVAILABLE: u64 = 0x1000;
pub(super) const USED: u64 = 0x2000;
pub(super) const HEADER: u64 = 0x3000;
pub(super) const STATUS: u64 = 0x3800;
pub(super) const DATA: u64 = 0x10000;
/// Entries of the queue.
pub(super) const SIZE: u16 = 64;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;

/// A message: its number, its payload, and how many descriptors it carries.
pub(super) type Sent = (u32, Vec<u8>, usize);

pub(super) struct FrontEnd {
    pub(super) socket: UnixStream,
    pub(super) memory: File,
    pub(super) kick: EventFd,
    pub(super) call: EventFd,
    /// Next entries of the available and of the used ring.
    pub(super) next: u16,
    pub(super) seen: u16,
}

pub(super) fn u64s(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

pub(super) fn u32s(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

/// The messages of a front-end that starts its queue.
pub(super) fn start(features: u64) -> Vec<Sent> {
    let memory = [u32s(&[1, 0]), u64s(&[GUEST, LEN, OWN, 0])].concat();
    let rings = [OWN + DESCRIPTORS, OWN + USED, OWN + AVAILABLE, 0];
    vec![
        (3, vec![], 0),
        (16, u64s(&[1 << 9 | 1 << 5]), 0),
        (21, u64s(&[0]), 1),
        (2, u64s(&[features]), 0),
        (5, memory, 1),
        (8, u32s(&[0, u32::from(SIZE)]), 0),
        (10, u32s(&[0, 0]), 0),
        (9, [u32s(&[0, 0]), u64s(&rings)].concat(), 0),
        (13, u64s(&[0]), 1),
        (12, u64s(&[0]), 1),
        (18, u32s(&[0, 1]), 0),
    ]
}

impl FrontEnd {
    pub(super) fn over(socket: UnixStream) -> Self {
        let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(LEN).unwrap();
        let event = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        FrontEnd {
            socket,
            memory,
            kick: event(),
            call: event(),
            next: 0,
            seen: 0,
        }
    }

    /// One with a running queue, and all features that it is offered.
    pub(super) fn ready(path: &Path) -> Self {
        let front_end = FrontEnd::over(UnixStream::connect(path).unwrap());
        front_end.start();
        front_end
    }

    pub(super) fn start(&self) {
        let features = self.ask(1, &[]);
        self.start_with(u64::from_le_bytes(features.try_into().unwrap()));
    }

    pub(super) fn start_with(&self, features: u64) {
        for message in start(features) {
            self.send(&message);
        }
        // Answered after all of them are.
        self.ask(1, &[]);
    }

    /// The descriptor that this message carries.
    pub(super) fn file(&self, request: u32) -> BorrowedFd<'_> {
        match request {
            12 => self.kick.as_fd(),
            13 | 14 => self.call.as_fd(),
            _ => self.memory.as_fd(),
        }
    }

    pub(super) fn send(&self, (request, payload, files): &Sent) {
        let files = vec![self.file(*request); *files];
        self.send_files(*request, payload, &files);
    }

    pub(super) fn send_files(&self, request: u32, payload: &[u8], files: &[BorrowedFd<'_>]) {
        let header = u32s(&[request, 1, payload.len() as u32]);
        self.send_bytes(&[&header, payload].concat(), files);
    }

    /// An error is that the server has closed the connection.
    pub(super) fn send_bytes(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let _ = sendmsg(
            &self.socket,
            &[IoSlice::new(bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        );
    }

    /// Sends a message, and returns the payload of its reply.
    pub(super) fn ask(&self, request: u32, payload: &[u8]) -> Vec<u8> {
        self.send_files(request, payload, &[]);
        let mut header = [0; 12];
        (&self.socket).read_exact(&mut header).unwrap();
        assert_eq!(header[..8], u32s(&[request, 5]));
        let mut reply = vec![0; u32::from_le_bytes(header[8..].try_into().unwrap()) as usize];
        (&self.socket).read_exact(&mut reply).unwrap();
        reply
    }

    /// Whether the server has closed the connection, or closes it now.
    pub(super) fn is_closed(&self) -> bool {
        matches!((&self.socket).read(&mut [0]), Ok(0) | Err(_))
    }

    pub(super) fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, at).unwrap();
    }

    pub(super) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn get_u16(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.get(at, 2).try_into().unwrap())
    }

    pub(super) fn descriptor(&self, number: u16, address: u64, len: u32, flags: u16, next: u16) {
        let bytes = [u64s(&[address]), u32s(&[len])].concat();
        let tail = [flags.to_le_bytes(), next.to_le_bytes()].concat();
        self.put(
            DESCRIPTORS + 16 * u64::from(number),
            &[bytes, tail].concat(),
        );
    }

    /// Writes a chain from descriptor `head` on: offset in the memory, length, whether the device
    /// writes it.
    pub(super) fn chain(&self, head: u16, segments: &[(u64, u32, bool)]) {
        for (number, (at, len, is_written)) in (head..).zip(segments) {
            let is_last = usize::from(number - head) + 1 == segments.len();
            let flags = if *is_written { WRITE } else { 0 } | if is_last { 0 } else { NEXT };
            self.descriptor(number, GUEST + at, *len, flags, number + 1);
        }
    }

    /// Makes a chain available, without a kick.
    pub(super) fn offer(&mut self, head: u16) {
        self.offer_all(&[head]);
    }

    /// Makes chains available at once, without a kick.
    pub(super) fn offer_all(&mut self, heads: &[u16]) {
        for head in heads {
            let entry = AVAILABLE + 4 + 2 * u64::from(self.next % SIZE);
            self.put(entry, &head.to_le_bytes());
            self.next = self.next.wrapping_add(1);
        }
        self.put(AVAILABLE + 2, &self.next.to_le_bytes());
    }

    /// Waits for an interrupt; it stays.
    pub(super) fn is_interrupted(&self, within: Duration) -> bool {
        let mut polled = [PollFd::new(self.call.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(within).unwrap();
        poll(&mut polled, timeout).unwrap() == 1
    }

    /// Waits for an interrupt, and takes it.
    pub(super) fn interrupted(&self, within: Duration) -> bool {
        let is = self.is_interrupted(within);
        if is {
            self.call.read().unwrap();
        }
        is
    }

    /// Waits for an interrupt, or the end of the connection: `Some(false)`.
    pub(super) fn outcome(&self, within: Duration) -> Option<bool> {
        let mut polled = [
            PollFd::new(self.call.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.socket.as_fd(), PollFlags::POLLHUP),
        ];
        poll(&mut polled, PollTimeout::try_from(within).unwrap()).unwrap();
        let [interrupted, closed] = polled.map(|file| file.any().unwrap());
        (interrupted || closed).then_some(interrupted)
    }

    /// Returns the next finished request: its descriptor and the bytes written.
    pub(super) fn used(&mut self) -> Option<(u32, u32)> {
        if self.get_u16(USED + 2) == self.seen {
            return None;
        }
        let entry = self.get(USED + 4 + 8 * u64::from(self.seen % SIZE), 8);
        self.seen = self.seen.wrapping_add(1);
        let [head, written] =
            [0, 4].map(|at| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap()));
        Some((head, written))
    }

    /// Writes a request's header; returns its segment.
    pub(super) fn header(&self, kind: u32, sector: u64) -> (u64, u32, bool) {
        self.put(HEADER, &[u32s(&[kind, 0]), u64s(&[sector])].concat());
        self.put(STATUS, &[0xff]);
        (HEADER, 16, false)
    }

    /// Executes one request: status, data of the device, bytes written.
    pub(super) fn request(
        &mut self,
        kind: u32,
        sector: u64,
        out: &[u8],
        read: u32,
    ) -> (u8, Vec<u8>, u32) {
        let mut segments = vec![self.header(kind, sector)];
        self.put(DATA, out);
        if !out.is_empty() {
            segments.push((DATA, out.len() as u32, false));
        }
        if read > 0 {
            segments.push((DATA, read, true));
        }
        segments.push((STATUS, 1, true));
        self.chain(0, &segments);
        self.offer(0);
        self.kick.write(1).unwrap();
        assert!(
            self.interrupted(Duration::from_secs(10)),
            "no interrupt for request {kind}"
        );
        let (head, written) = self.used().expect("a used entry");
        assert_eq!((head, self.used()), (0, None));
        (
            self.get(STATUS, 1)[0],
            self.get(DATA, read as usize),
            written,
        )
    }
}
