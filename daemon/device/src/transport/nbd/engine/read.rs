//! READ: whole replies, or chunks of data and holes.
//!
//! Invariants: a piece is read before its head is sent, so that the reply can still carry an error
//! where the protocol permits it. Power failure has no effect: reading changes nothing.

use super::replies::Failure;
use super::status::merged;
use super::{Close, EXTENTS, Engine, Held, Job, Parked, ReplyTo, Turn};
use crate::device::{BlockDevice, Completion, DelayedCompletion};
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::wire::{
    Chunk, Errno, Mode, SIMPLE_REPLY_LEN, chunk, chunk_len, encode_chunk, simple_reply,
};
use ftld_kit::convert::{narrow, to_u32, to_u64, to_usize};

/// Size in bytes from which reads are scanned for holes; below, the scan costs more than sending
/// the zeros.
const HOLE_SCAN: usize = 64 << 10;

impl Engine {
    pub(super) fn read_piece(
        &mut self,
        device: &dyn BlockDevice,
        out: &mut Buffer,
    ) -> Option<Turn> {
        let Job::Read {
            to,
            at,
            left,
            begun,
            whole,
        } = self.job
        else {
            unreachable!("the caller matched")
        };
        assert!(
            at + left <= self.size,
            "a read of {left} bytes at {at} on a device of {} bytes",
            self.size
        );
        assert!(
            self.parked.is_none(),
            "a piece at {at} is read while an earlier one is delayed"
        );
        let (length, before) = (self.piece_at(at, left), out.len());
        let whole_room =
            to_u64(length) == left && self.copies.has_room(self.data_head_len() + length);
        if !begun && !whole_room && !self.copies.is_empty() {
            // Until the delayed replies have left.
            return Some(Turn::Room);
        }
        let result = if whole {
            self.send_whole(
                device,
                to,
                at,
                length,
                if begun { None } else { Some(left) },
                out,
            )
        } else {
            self.send_chunks(device, to, at, length, to_u64(length) == left, out)
        };
        match result {
            Ok((sent, hold)) => {
                assert!(
                    sent > 0 && sent <= left,
                    "a piece of a read is empty or exceeds what is left of the request"
                );
                self.tally.read += sent;
                let last = sent == left;
                self.job = if last {
                    Job::None
                } else {
                    Job::Read {
                        to,
                        at: at + sent,
                        left: left - sent,
                        begun: true,
                        whole,
                    }
                };
                match hold {
                    None => self.unsent += usize::from(last),
                    Some(hold) if last && !begun => {
                        let bytes = self.take_back(before, out);
                        self.held.push(hold, Held::Bytes(bytes));
                    }
                    Some(hold) => {
                        self.parked = Some(Parked {
                            hold,
                            bytes: self.take_back(before, out),
                            last,
                        })
                    }
                }
            }
            Err(_) if whole && begun => return self.close(Close::Broken),
            Err(failure) => {
                self.job = Job::None;
                self.reply(to, Err(failure), out);
            }
        }
        None
    }

    /// Removes and returns the output that was appended since it held `before` bytes.
    fn take_back(&mut self, before: usize, out: &mut Buffer) -> Vec<u8> {
        assert!(
            before <= out.len(),
            "more was sent before than is there now"
        );
        let bytes = self.copies.make(&out.filled()[before..]);
        out.retract(bytes.len());
        bytes
    }

    /// Sends one piece of a reply that is a single message; `total` (bytes of the whole reply) is
    /// given with the first piece. The first piece is read before anything is sent, so that the
    /// reply can still carry its error.
    fn send_whole(
        &self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        at: u64,
        length: usize,
        total: Option<u64>,
        out: &mut Buffer,
    ) -> Result<(u64, Completion), Failure> {
        let head = if total.is_some() {
            self.data_head_len()
        } else {
            0
        };
        let space = out.space(head + length);
        let hold = device.read(at, &mut space[head..])?;
        if let Some(total) = total {
            self.encode_data_head(&mut space[..head], to, at, narrow(total), true);
        }
        out.commit(head + length);
        Ok((to_u64(length), hold))
    }

    /// Sends one piece of a structured reply: a data chunk, or several with holes between them.
    fn send_chunks(
        &self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        at: u64,
        length: usize,
        last: bool,
        out: &mut Buffer,
    ) -> Result<(u64, Completion), Failure> {
        if length < HOLE_SCAN {
            return self.send_data(device, to, at, length, last, out);
        }
        let extents = device.extents(at, to_u64(length), EXTENTS)?;
        let (mut sent, mut hold) = (0, None);
        for extent in merged(&extents) {
            let part = extent.len.min(to_u64(length) - sent);
            let done = last && sent + part == to_u64(length);
            if extent.mapped {
                hold = DelayedCompletion::later(
                    hold,
                    self.send_data(device, to, at + sent, to_usize(part), done, out)?
                        .1,
                );
            } else {
                self.send_hole(to, at + sent, narrow(part), done, out);
            }
            sent += part;
            if sent == to_u64(length) {
                break;
            }
        }
        assert!(
            sent <= to_u64(length),
            "{sent} bytes were sent of a piece of {length}"
        );
        if sent == 0 {
            return Err(Failure::new(Errno::Io, "the device returned no extents"));
        }
        Ok((sent, hold))
    }

    fn send_data(
        &self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        at: u64,
        length: usize,
        done: bool,
        out: &mut Buffer,
    ) -> Result<(u64, Completion), Failure> {
        let head = self.data_head_len();
        let space = out.space(head + length);
        let read = device.read(at, &mut space[head..]);
        let hold = read.map_err(|error| Failure {
            at: Some(at),
            ..Failure::from(error)
        })?;
        self.encode_data_head(&mut space[..head], to, at, to_u32(length), done);
        out.commit(head + length);
        Ok((to_u64(length), hold))
    }

    fn send_hole(&self, to: ReplyTo, at: u64, length: u32, done: bool, out: &mut Buffer) {
        assert!(length > 0, "a hole of no bytes at {at}");
        self.push_chunk(
            to,
            chunk::OFFSET_HOLE,
            done,
            &[&at.to_be_bytes(), &length.to_be_bytes()],
            out,
        );
    }

    fn data_head_len(&self) -> usize {
        match self.session.mode {
            Mode::Simple => SIMPLE_REPLY_LEN,
            mode => chunk_len(mode) + 8,
        }
    }

    fn encode_data_head(&self, bytes: &mut [u8], to: ReplyTo, at: u64, length: u32, done: bool) {
        let mode = self.session.mode;
        if mode == Mode::Simple {
            bytes.copy_from_slice(&simple_reply(0, to.cookie));
            return;
        }
        assert_eq!(
            bytes.len(),
            chunk_len(mode) + 8,
            "the head of a data chunk in mode {mode:?}"
        );
        let head = Chunk {
            done,
            kind: chunk::OFFSET_DATA,
            cookie: to.cookie,
            offset: to.offset,
            length: length + 8,
        };
        encode_chunk(bytes, mode, head);
        bytes[chunk_len(mode)..].copy_from_slice(&at.to_be_bytes());
    }
}
