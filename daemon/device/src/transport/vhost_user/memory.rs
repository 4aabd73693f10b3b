//! The guest's memory: regions of files.
//!
//! Invariants: an access is within one region, which its file covered when it came. If the file was
//! truncated since, the access is an error, never a signal: nothing is mapped.

use super::CloseReason;
use super::messages::{FILES_MAX, Message, le_bytes};
use ftld_kit::convert::to_u64;
use std::fs::File;
use std::os::unix::fs::FileExt;

const HEAD: usize = 8;
const REGION: usize = 32;

/// Whose addresses: the guest's physical ones, or the front-end's own, which messages carry.
#[derive(Clone, Copy, Debug)]
pub(super) enum Space {
    Guest,
    FrontEnd,
}

/// A part of the guest's memory, in a file.
struct Region {
    guest: u64,
    front_end: u64,
    len: u64,
    offset: u64,
    file: File,
}

/// The guest's memory.
#[derive(Default)]
pub(super) struct Memory(Vec<Region>);

impl Memory {
    /// Takes the regions of a message.
    pub(super) fn from_message(message: &mut Message) -> Result<Memory, CloseReason> {
        let head = message.payload(HEAD)?;
        let count = usize::try_from(u32::from_le_bytes(le_bytes(head, 0))).unwrap_or(usize::MAX);
        if count > FILES_MAX {
            return Err(message.fault("it has more than 8 memory regions"));
        }
        let payload = message.payload(HEAD + count * REGION)?.to_owned();
        let files = message.files(count)?.into_iter().map(File::from);
        let mut regions = Vec::with_capacity(count);
        for (file, bytes) in files.zip(payload[HEAD..].chunks_exact(REGION)) {
            let [guest, len, front_end, offset] =
                [0, 8, 16, 24].map(|at| u64::from_le_bytes(le_bytes(bytes, at)));
            let meta = file
                .metadata()
                .map_err(CloseReason::io("inspect a memory region"))?;
            if !meta.is_file() {
                return Err(message.fault("a memory region is not a file"));
            }
            let ends = [guest, front_end, offset].map(|start| start.checked_add(len));
            if ends.contains(&None) || ends[2].is_some_and(|end| end > meta.len()) {
                return Err(message.fault("a memory region is beyond the end of its file"));
            }
            regions.push(Region {
                guest,
                front_end,
                len,
                offset,
                file,
            });
        }
        Ok(Memory(regions))
    }

    /// Returns the file and the offset in it.
    fn find(&self, space: Space, address: u64, len: u64) -> Result<(&File, u64), CloseReason> {
        let within = |region: &Region| {
            let start = match space {
                Space::Guest => region.guest,
                Space::FrontEnd => region.front_end,
            };
            let at = address.checked_sub(start)?;
            (at.checked_add(len)? <= region.len).then_some(region.offset + at)
        };
        let mut found = self
            .0
            .iter()
            .filter_map(|region| Some((&region.file, within(region)?)));
        found.next().ok_or(CloseReason::Outside { address, len })
    }

    /// Reads `into.len()` bytes.
    pub(super) fn read(
        &self,
        space: Space,
        address: u64,
        into: &mut [u8],
    ) -> Result<(), CloseReason> {
        let (file, at) = self.find(space, address, to_u64(into.len()))?;
        file.read_exact_at(into, at)
            .map_err(CloseReason::io("read the guest's memory"))
    }

    /// Writes `bytes`.
    pub(super) fn write(
        &self,
        space: Space,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), CloseReason> {
        let (file, at) = self.find(space, address, to_u64(bytes.len()))?;
        file.write_all_at(bytes, at)
            .map_err(CloseReason::io("write the guest's memory"))
    }
}
