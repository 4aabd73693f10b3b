//! Checks a request before it reaches the device: flags, length, range.
//!
//! Invariants: the checks depend on the session and the export alone. Power failure has no effect:
//! the checks store nothing.

use super::replies::{Failure, Outcome};
use super::{Engine, STATUS_PAYLOAD};
use crate::transport::nbd::wire::{Errno, Mode, Request, command, command_flag as cf};
use ftld_kit::convert::to_usize;

impl Engine {
    /// Returns the number of payload bytes after the header.
    pub(super) fn payload_of(&self, request: &Request) -> u64 {
        let flagged = self.session.mode == Mode::Extended && request.flags & cf::PAYLOAD_LEN != 0;
        if request.command == command::WRITE || flagged {
            request.length
        } else {
            0
        }
    }

    pub(super) fn check(&self, request: &Request) -> Outcome {
        let Request {
            command,
            flags,
            offset,
            length,
            ..
        } = *request;
        let Some(allowed) = self.allowed_flags(command) else {
            return Err(Failure::new(Errno::Inval, "unknown command"));
        };
        if command == command::DISC {
            return Ok(());
        }
        if self.draining {
            return Err(Failure::new(Errno::Shutdown, "the server is shutting down"));
        }
        if flags & !allowed != 0 {
            return Err(Failure::new(
                Errno::Inval,
                "a flag that this command does not take",
            ));
        }
        if command == command::FLUSH {
            let plain = offset == 0 && length == 0;
            return if plain {
                Ok(())
            } else {
                Err(Failure::new(Errno::Inval, "FLUSH takes no range"))
            };
        }
        let writes = matches!(
            command,
            command::WRITE | command::TRIM | command::WRITE_ZEROES
        );
        if writes && self.read_only {
            return Err(Failure::new(Errno::Perm, "the export is read-only"));
        }
        if command == command::BLOCK_STATUS {
            if !self.session.base_allocation {
                return Err(Failure::new(
                    Errno::Inval,
                    "no metadata context was negotiated",
                ));
            }
            if flags & cf::PAYLOAD_LEN != 0 {
                let fits = to_usize(length) <= STATUS_PAYLOAD && length >= 8 && length % 4 == 0;
                return if fits {
                    Ok(())
                } else {
                    Err(Failure::new(Errno::Inval, "malformed list of contexts"))
                };
            }
        }
        self.check_range(command, offset, length)
    }

    pub(super) fn check_range(&self, command: u16, offset: u64, length: u64) -> Outcome {
        if length == 0 {
            return Err(Failure::new(Errno::Inval, "a length of zero"));
        }
        if command == command::READ && length > u64::from(self.limits.payload) {
            return Err(Failure::new(
                Errno::Inval,
                "a read of more than the maximum payload",
            ));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let grows = matches!(command, command::WRITE | command::WRITE_ZEROES);
            let errno = if grows { Errno::NoSpace } else { Errno::Inval };
            return Err(Failure::new(errno, "beyond the end of the device"));
        }
        Ok(())
    }

    /// Returns the flags that a command may carry; `None` for an unknown command. The protocol
    /// allows FUA for every command.
    fn allowed_flags(&self, command: u16) -> Option<u16> {
        let structured = self.session.mode != Mode::Simple;
        let extended = self.session.mode == Mode::Extended;
        let if_flag = |on: bool, flag: u16| if on { flag } else { 0 };
        Some(match command {
            command::READ => cf::FUA | if_flag(structured, cf::DF),
            command::WRITE => cf::FUA | if_flag(extended, cf::PAYLOAD_LEN),
            command::DISC => u16::MAX,
            command::FLUSH | command::TRIM | command::CACHE => cf::FUA,
            command::WRITE_ZEROES => cf::FUA | cf::NO_HOLE | cf::FAST_ZERO,
            command::BLOCK_STATUS => cf::FUA | cf::REQ_ONE | if_flag(extended, cf::PAYLOAD_LEN),
            _ => return None,
        })
    }
}
