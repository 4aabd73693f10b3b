//! Small WRITEs that have arrived together are passed to the device together.
//!
//! Invariants: only requests whose payload has arrived, and that [`check`](Engine::check) accepts,
//! are in a batch; all others are executed one by one. Each is counted and answered as if it had
//! been alone, in the order of arrival. If power fails, any of them may have been applied,
//! unacknowledged.

use super::replies::Failure;
use super::{Engine, ReplyTo};
use crate::device::{BlockDevice, FlushOf};
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::wire::{
    Errno, command, command_flag as cf, decode_request, request_len,
};
use ftld_kit::convert::{to_u64, to_usize};

/// Payload bytes from which a WRITE is executed alone: batching would not make it cheaper.
pub(super) const LARGE: usize = 64 << 10;
/// Maximum bytes of input that a batch covers.
const BATCH: usize = 512 << 10;

/// A WRITE in the input: its reply, and the range of its payload.
pub(super) struct Arrived {
    to: ReplyTo,
    from: usize,
    upto: usize,
}

impl Engine {
    /// Executes the small WRITEs at the front of the input together, if there are several. Returns
    /// whether it did.
    pub(super) fn write_batch(
        &mut self,
        device: &dyn BlockDevice,
        input: &mut Buffer,
        out: &mut Buffer,
    ) -> bool {
        // A paused device executes one request and then blocks: each reply leaves before the next.
        // Without a volatile cache, each write is durable before its reply.
        if device.is_paused() || !device.has_volatile_cache() {
            return false;
        }
        let mut arrived = std::mem::take(&mut self.arrived);
        let end = self.find_writes(input.filled(), &mut arrived);
        let several = arrived.len() > 1;
        if several {
            self.write_arrived(&arrived, device, input, out);
            input.consume(end);
        }
        self.arrived = arrived;
        several
    }

    fn write_arrived(
        &mut self,
        arrived: &[Arrived],
        device: &dyn BlockDevice,
        input: &Buffer,
        out: &mut Buffer,
    ) {
        self.large = None;
        let payload = |write: &Arrived| (write.to.offset, &input.filled()[write.from..write.upto]);
        let writes: Vec<_> = arrived.iter().map(payload).collect();
        let mut results = Vec::with_capacity(writes.len());
        device.write_many(&writes, &mut results);
        // The announcement changed during the batch: its writes are flushed here.
        let flushed = match device.has_volatile_cache() {
            true => Ok(None),
            false => (device.flush(FlushOf::Everything)).and_then(|flush| flush.wait()),
        };
        assert_eq!(
            results.len(),
            arrived.len(),
            "a result for each write of a batch"
        );
        for (write, result) in arrived.iter().zip(results) {
            self.tally.count(command::WRITE);
            self.tally.written += to_u64(write.upto - write.from);
            let answer = match &flushed {
                Ok(_) => result.map_err(Failure::from),
                Err(error) => Err(Failure::new(Errno::from_io(error), &error.to_string())),
            };
            self.answer(write.to, answer, out);
        }
    }

    /// Finds the small WRITEs at the front of the input that have arrived in full, and where they
    /// end.
    fn find_writes(&self, input: &[u8], arrived: &mut Vec<Arrived>) -> usize {
        let header = request_len(self.session.mode);
        let room = self.limits.in_flight.saturating_sub(self.replies_due());
        let small = to_u64(LARGE)
            .min(to_u64(self.limits.piece))
            .min(u64::from(self.limits.payload));
        let mut at = 0;
        arrived.clear();
        while arrived.len() < room
            && let Ok(Some(request)) = decode_request(&input[at..], self.session.mode)
        {
            let is_small = request.command == command::WRITE
                && request.flags & cf::FUA == 0
                && request.length < small;
            let from = at + header;
            let upto = from
                + if is_small {
                    to_usize(request.length)
                } else {
                    0
                };
            if !is_small || upto > input.len() || upto > BATCH || self.check(&request).is_err() {
                break;
            }
            arrived.push(Arrived {
                to: ReplyTo {
                    cookie: request.cookie,
                    offset: request.offset,
                    command: request.command,
                },
                from,
                upto,
            });
            at = upto;
        }
        at
    }
}
