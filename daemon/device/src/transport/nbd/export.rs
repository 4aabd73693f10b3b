//! Properties of a device for the handshake.

use super::wire::{Mode, flag};
use crate::device::BlockDevice;

/// Name and description of the export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its name. Clients find it under this name and, as the default export, under the empty one.
    pub name: String,
    /// A human-readable line; may be empty.
    pub description: String,
}

/// A device, as used by the handshake and the checks of requests.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name and description.
    pub info: ExportInfo,
    /// Size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether acknowledged requests may be lost until a FLUSH.
    pub volatile_cache: bool,
    /// Preferred request size in bytes, a power of two.
    pub preferred: u32,
}

impl Export {
    /// Reads the properties from the device; each connection reads them again.
    pub fn of(device: &dyn BlockDevice, info: ExportInfo) -> Self {
        Export {
            info,
            size: device.size(),
            read_only: device.read_only(),
            volatile_cache: device.has_volatile_cache(),
            preferred: device.preferred_block().clamp(512, 1 << 20),
        }
    }

    /// Returns whether a client that requests this name gets this export.
    pub(crate) fn answers_to(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.info.name.as_bytes()
    }

    /// Returns the transmission flags for a connection in this mode; the kernel's netlink interface
    /// takes those of [`Mode::Simple`].
    pub(crate) fn flags(&self, mode: Mode) -> u16 {
        let mut flags = flag::HAS_FLAGS | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
        if self.volatile_cache {
            flags |= flag::SEND_FLUSH;
        }
        if self.read_only {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO;
            if self.volatile_cache {
                flags |= flag::SEND_FUA;
            }
        }
        match mode {
            Mode::Simple => flags,
            Mode::Structured => flags | flag::SEND_DF,
            Mode::Extended => flags | flag::SEND_DF | flag::BLOCK_STATUS_PAYLOAD,
        }
    }
}
