//! BLOCK_STATUS: the extents of a range.
//!
//! Invariants: a reply has at least one and at most [`EXTENTS`] extents. Power failure has no
//! effect: the query changes nothing.

use super::replies::Failure;
use super::{EXTENTS, Engine, Job, ReplyTo, STATUS_PAYLOAD, Turn};
use crate::device::{BlockDevice, Extent};
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::wire::{
    BASE_ALLOCATION_ID, Errno, Mode, Request, chunk, command, command_flag as cf, state, u32_at,
    u64_at,
};
use ftld_kit::convert::{index, narrow, to_usize};

impl Engine {
    /// Handles a BLOCK_STATUS with a payload: the range's length, then the client's choice of the
    /// negotiated contexts.
    pub(super) fn status_payload(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
    ) -> Option<Turn> {
        let Job::Status { to, mut request } = self.job else {
            unreachable!("the caller matched")
        };
        let payload = to_usize(request.length);
        assert!(
            (8..=STATUS_PAYLOAD).contains(&payload),
            "a list of contexts of {payload} bytes"
        );
        let Some(bytes) = input.filled().get(..payload) else {
            return Some(Turn::Input(payload));
        };
        request.length = u64_at(bytes, 0);
        let known = bytes.len() == 12 && u32_at(bytes, 8) == BASE_ALLOCATION_ID;
        input.consume(payload);
        self.job = Job::None;
        let outcome = if known {
            self.check_range(command::BLOCK_STATUS, request.offset, request.length)
        } else {
            Err(Failure::new(
                Errno::Inval,
                "the list of contexts must name base:allocation, once",
            ))
        };
        match outcome {
            Ok(()) => self.block_status(device, to, request, out),
            Err(failure) => self.reply(to, Err(failure), out),
        }
        None
    }

    pub(super) fn block_status(
        &mut self,
        device: &dyn BlockDevice,
        to: ReplyTo,
        request: Request,
        out: &mut Buffer,
    ) {
        assert!(
            request.length > 0
                && request.length <= self.size
                && request.offset <= self.size - request.length,
            "block status of {} bytes at {} on a device of {} bytes",
            request.length,
            request.offset,
            self.size
        );
        let max = if request.flags & cf::REQ_ONE != 0 {
            1
        } else {
            EXTENTS
        };
        let extents = match device.extents(request.offset, request.length, max) {
            Ok(extents) if extents.is_empty() => {
                let failure = Failure::new(Errno::Io, "the device returned no extents");
                return self.reply(to, Err(failure), out);
            }
            Ok(extents) => extents,
            Err(error) => return self.reply(to, Err(error.into()), out),
        };
        let extended = self.session.mode == Mode::Extended;
        let mut payload = BASE_ALLOCATION_ID.to_be_bytes().to_vec();
        let mut count = 0u32;
        let mut left = request.length;
        for extent in merged(&extents).take(max) {
            let length = extent.len.min(left);
            let bits = if extent.mapped {
                0
            } else {
                state::HOLE | state::ZERO
            };
            if length == 0 {
                break;
            }
            if extended {
                payload.extend(length.to_be_bytes());
                payload.extend(u64::from(bits).to_be_bytes());
            } else {
                // A compact request is shorter than 4 GiB, and no extent is longer than its
                // request.
                payload.extend(narrow(length).to_be_bytes());
                payload.extend(bits.to_be_bytes());
            }
            left -= length;
            count += 1;
        }
        let extent_bytes = if extended { 16 } else { 8 };
        assert_eq!(
            payload.len(),
            4 + extent_bytes * index(count),
            "the bytes of {count} extents"
        );
        if extended {
            payload.splice(4..4, count.to_be_bytes());
        }
        let kind = if extended {
            chunk::BLOCK_STATUS_EXT
        } else {
            chunk::BLOCK_STATUS
        };
        self.push_chunk(to, kind, true, &[&payload], out);
        self.unsent += 1;
    }
}

/// Merges neighbours in the same state.
pub(super) fn merged(extents: &[Extent]) -> impl Iterator<Item = Extent> + '_ {
    let mut rest = extents.iter().copied().peekable();
    std::iter::from_fn(move || {
        let mut extent = rest.next()?;
        while let Some(next) = rest.next_if(|next| next.mapped == extent.mapped) {
            extent.len += next.len;
        }
        Some(extent)
    })
}
