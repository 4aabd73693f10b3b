//! Extents of a file: which bytes of its block device hold it, as the file system reports them
//! (Linux, Documentation/filesystems/fiemap.rst).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `FS_IOC_FIEMAP`, of include/uapi/linux/fs.h.
const FIEMAP: u32 = 0xC020_660B;
/// Have the file written back before its extents are listed.
const SYNC: u32 = 1;
/// Extents of one call.
const BATCH: usize = 64;

const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const DELAYED: u32 = 0x4;
const ENCODED: u32 = 0x8;
const INLINE: u32 = 0x200;
const TAIL: u32 = 0x400;
const UNWRITTEN: u32 = 0x800;

/// State of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its bytes are on the device as the file has them.
    Written,
    /// Reserved; reads as zeros.
    Unwritten,
    /// Among the metadata of the file system, which may move it at will.
    Inline,
    /// Compressed or encrypted: the bytes of the device are not those of the file.
    Encoded,
    /// Without a place on the device, such as data that are not written back yet.
    Unplaced,
}

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// First byte on the block device, if it has a place there.
    pub at: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// State.
    pub state: State,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_more: [u32; 3],
}

/// `struct fiemap` with room for its extents.
#[repr(C)]
struct Call {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [RawExtent; BATCH],
}

/// Returns the extents of a file in the order of its bytes, at most `most` of them. Its data are
/// written back before.
///
/// # Errors
///
/// The kernel's: `EOPNOTSUPP` or `ENOTTY` from a file system that does not report extents, and the
/// error of a failed write-back.
pub fn extents(file: &File, most: usize) -> io::Result<Vec<Extent>> {
    let (mut found, mut start) = (Vec::new(), 0);
    loop {
        let mut call = Call {
            start,
            length: u64::MAX - start,
            flags: SYNC,
            mapped: 0,
            count: u32::try_from(BATCH).expect("a small number"),
            reserved: 0,
            extents: [RawExtent::default(); BATCH],
        };
        // SAFETY: the kernel writes the fixed part of the argument, and at most `count` extents
        // behind it, for which there is room.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP as _, &raw mut call) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = usize::try_from(call.mapped).map_or(BATCH, |mapped| mapped.min(BATCH));
        let batch = &call.extents[..mapped];
        found.extend(batch.iter().map(of));
        let Some(last) = batch.last() else { break };
        let end = last.logical.saturating_add(last.length);
        // A file that grows meanwhile, or a file system that repeats itself, ends here, too.
        if last.flags & LAST != 0 || found.len() >= most || end <= start {
            break;
        }
        start = end;
    }
    found.truncate(most);
    Ok(found)
}

fn of(raw: &RawExtent) -> Extent {
    let has = |flags: u32| raw.flags & flags != 0;
    let state = if has(INLINE | TAIL) {
        State::Inline
    } else if has(ENCODED) {
        State::Encoded
    } else if has(UNKNOWN | DELAYED) {
        State::Unplaced
    } else if has(UNWRITTEN) {
        State::Unwritten
    } else {
        State::Written
    };
    Extent {
        offset: raw.logical,
        at: raw.physical,
        bytes: raw.length,
        state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn the_structures_are_those_of_the_kernel() {
        assert_eq!(size_of::<RawExtent>(), 56);
        assert_eq!(size_of::<Call>(), 32 + 56 * BATCH);
    }

    #[test]
    fn flags_give_the_state_and_the_least_certain_one_counts() {
        let state = |flags| {
            let raw = RawExtent {
                flags,
                ..RawExtent::default()
            };
            of(&raw).state
        };
        assert_eq!(state(LAST), State::Written);
        assert_eq!(state(UNWRITTEN | LAST), State::Unwritten);
        assert_eq!(state(DELAYED | UNKNOWN), State::Unplaced);
        assert_eq!(state(INLINE | 0x100), State::Inline);
        assert_eq!(state(ENCODED | 0x80), State::Encoded);
    }

    /// More pieces than one call returns, with holes between them; or the file system of the
    /// temporary folder reports none, and says so.
    #[test]
    fn the_pieces_of_a_file_are_found_across_calls() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let pieces = 3 * u64::try_from(BATCH).unwrap();
        for piece in 0..pieces {
            file.write_all_at(&[1; 4096], piece * (64 << 10)).unwrap();
        }
        let found = match extents(&file, 1000) {
            Ok(found) => found,
            Err(error) => {
                let error = error.raw_os_error();
                assert!(
                    matches!(error, Some(libc::EOPNOTSUPP | libc::ENOTTY)),
                    "{error:?}"
                );
                return;
            }
        };
        for piece in 0..pieces {
            let at = piece * (64 << 10);
            let holds = |extent: &&Extent| extent.offset <= at && at < extent.offset + extent.bytes;
            assert!(found.iter().any(|extent| holds(&extent)), "byte {at}");
        }
        assert!(found.is_sorted_by(|a, b| a.offset + a.bytes <= b.offset));
        assert_eq!(extents(&file, 2).unwrap(), found[..2]);
    }
}
