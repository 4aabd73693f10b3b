//! Reads bytes of a file through a shared, read-only map, without a system call.
//!
//! Invariants: bytes leave a map only as copies ([`MappedFile::read_at`]), so no reference into it
//! exists. A map that has lost a page (its file was cut off, or its disk failed) reports [`Lost`]
//! from then on: the page reads as zeros, and every read that could have copied them is refused. A
//! SIGBUS at any other address has the effect that it had without this crate. A thread that blocks
//! SIGBUS must not read: the kernel then kills the process.
//!
//! [`extents`] asks the kernel where a file is on its device. Nothing is written, so a power
//! failure has no effect here.
#![cfg(target_os = "linux")]

pub mod extents;
mod sigbus;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

/// The map has lost a page of its file. A `pread` of the same bytes returns the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// Bytes that [`MappedFile::prefetch`] fetches: from there on, the processor does so itself.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: usize = 512;

/// A shared, read-only map of the first bytes of a file.
#[derive(Debug)]
pub struct MappedFile {
    base: NonNull<u8>,
    bytes: usize,
    /// Record of this map for the handler of SIGBUS.
    watch: &'static sigbus::Watch,
}

// SAFETY: the map is read-only, and its address and length do not change.
unsafe impl Send for MappedFile {}
// SAFETY: as above; concurrent copies out of the same bytes are no race of this process.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps the first `bytes` bytes of a file. They are not locked into RAM, whatever the process
    /// has asked for its future mappings.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::InvalidInput`]: no bytes, or more than an address space has.
    /// - [`io::ErrorKind::ResourceBusy`]: the process has as many maps as the handler can watch.
    /// - The kernel's, if it cannot map the file.
    pub fn new(file: &File, bytes: u64) -> io::Result<MappedFile> {
        let length = usize::try_from(bytes).ok().filter(|&length| {
            // The end of the map has to be a valid address.
            length > 0 && length <= isize::MAX.unsigned_abs() - (1 << 30)
        });
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        sigbus::install()?;
        // SAFETY: a new map at an address that the kernel chooses; no memory of this process
        // changes.
        let base = unsafe {
            // Without access at first: after mlockall(MCL_FUTURE), the kernel would otherwise read
            // the whole file.
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_NONE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::Other)?;
        let watched = open(map, length).and_then(|()| {
            sigbus::watch(map.as_ptr().addr(), length)
                .ok_or_else(|| io::ErrorKind::ResourceBusy.into())
        });
        match watched {
            Ok(watch) => Ok(MappedFile {
                base: map,
                bytes: length,
                watch,
            }),
            Err(error) => {
                unmap(map, length);
                Err(error)
            }
        }
    }

    /// Returns the number of mapped bytes.
    pub fn len(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns whether the map has no bytes; it never has.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns whether all these bytes are inside the map.
    #[inline]
    pub fn covers(&self, at: u64, bytes: usize) -> bool {
        usize::try_from(at)
            .ok()
            .and_then(|at| at.checked_add(bytes))
            .is_some_and(|end| end <= self.bytes)
    }

    /// Copies the bytes from `at` on. Bytes that another process changes meanwhile are their old or
    /// their new ones.
    ///
    /// # Errors
    ///
    /// [`Lost`] if the map has lost a page, now or earlier; the buffer's content is then undefined.
    ///
    /// # Panics
    ///
    /// If the map does not cover the bytes.
    #[inline]
    pub fn read_at(&self, at: u64, buf: &mut [u8]) -> Result<(), Lost> {
        assert!(
            self.covers(at, buf.len()),
            "{} bytes at {at} of a map of {}",
            buf.len(),
            self.bytes
        );
        if self.watch.is_lost() {
            return Err(Lost);
        }
        // SAFETY: the range is inside the map (asserted), the map lives as long as `self`, and
        // `buf` is memory of this process, which is not part of a read-only map.
        unsafe {
            let from = self.base.as_ptr().add(at as usize);
            ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len());
        }
        // The handler sets the flag before the page reads as zeros.
        fence(Ordering::Acquire);
        if self.watch.is_lost() {
            return Err(Lost);
        }
        Ok(())
    }

    /// Begins to fetch the bytes from `at` on into the processor's cache, if they are mapped.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
        #[cfg(target_arch = "x86_64")]
        if self.covers(at, PREFETCHED) {
            for line in (0..PREFETCHED).step_by(64) {
                // SAFETY: the address is inside the map (asserted above); a prefetch reads nothing
                // that the program sees, and never faults.
                unsafe {
                    let line = self.base.as_ptr().add(at as usize + line);
                    std::arch::x86_64::_mm_prefetch(line.cast(), std::arch::x86_64::_MM_HINT_T0);
                }
            }
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.watch.end();
        unmap(self.base, self.bytes);
    }
}

/// Unlocks a new map and makes it readable.
fn open(map: NonNull<u8>, length: usize) -> io::Result<()> {
    // SAFETY: the range is the map that the caller has just made; unlocking changes no content.
    if unsafe { libc::munlock(map.as_ptr().cast(), length) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; nobody else knows the range.
    if unsafe { libc::mprotect(map.as_ptr().cast(), length, libc::PROT_READ) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn unmap(map: NonNull<u8>, length: usize) {
    // SAFETY: the range is a map of this crate, and its only owner is about to forget it.
    let result = unsafe { libc::munmap(map.as_ptr().cast(), length) };
    debug_assert_eq!(result, 0, "a map that cannot be removed");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn a_map_reads_what_was_written_before_and_since() {
        let file = file(&[1; 10_000]);
        let map = MappedFile::new(&file, 10_000).unwrap();
        file.write_all_at(&[2; 5], 4_094).unwrap();
        let mut buf = [0; 8];
        map.read_at(4_093, &mut buf).unwrap();
        assert_eq!(buf, [1, 2, 2, 2, 2, 2, 1, 1]);
        assert!(map.covers(9_999, 1) && !map.covers(9_999, 2) && !map.covers(u64::MAX, 1));
        assert_eq!((map.len(), map.is_empty()), (10_000, false));
    }

    #[test]
    fn a_map_of_nothing_or_of_everything_is_refused() {
        let file = file(b"x");
        for bytes in [0, u64::MAX] {
            let error = MappedFile::new(&file, bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bytes}");
        }
    }

    #[test]
    fn a_read_beyond_the_map_panics() {
        let map = MappedFile::new(&file(&[1; 10]), 10).unwrap();
        assert!(std::panic::catch_unwind(|| map.read_at(9, &mut [0; 2])).is_err());
    }

    #[test]
    fn a_file_that_is_cut_off_loses_its_map_alone() {
        let (short, whole) = (file(&[3; 1 << 16]), file(&[4; 1 << 16]));
        let [lost, well] = [&short, &whole].map(|file| MappedFile::new(file, 1 << 16).unwrap());
        let mut buf = [0; 4096];
        lost.read_at(0, &mut buf).unwrap();
        well.prefetch(61_440);
        well.prefetch(u64::MAX);
        short.set_len(8192).unwrap();
        // Bytes that are still there may be read until the loss is seen.
        assert_eq!(lost.read_at(0, &mut buf), Ok(()));
        assert_eq!(lost.read_at(1 << 15, &mut buf), Err(Lost));
        assert_eq!(lost.read_at(0, &mut buf), Err(Lost), "for good");
        assert_eq!(well.read_at(1 << 15, &mut buf), Ok(()));
        assert_eq!(buf, [4; 4096]);
        // A new map of what is left works.
        let again = MappedFile::new(&short, 8192).unwrap();
        assert_eq!(again.read_at(4096, &mut buf), Ok(()));
        assert_eq!(buf, [3; 4096]);
    }

    #[test]
    fn readers_in_many_threads_see_the_loss_or_the_bytes() {
        let file = file(&[5; 1 << 20]);
        let map = MappedFile::new(&file, 1 << 20).unwrap();
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4u64)
                .map(|reader| {
                    let map = &map;
                    scope.spawn(move || {
                        let mut buf = vec![0; 64 << 10];
                        for round in 0..100_000u64 {
                            let at = (reader + round * 7) % 16 * (64 << 10);
                            match map.read_at(at, &mut buf) {
                                // Zeros of a lost page never get out.
                                Ok(()) => assert!(buf.iter().all(|&byte| byte == 5)),
                                Err(Lost) => return true,
                            }
                        }
                        false
                    })
                })
                .collect();
            file.set_len(0).unwrap();
            assert!(readers.into_iter().all(|reader| reader.join().unwrap()));
        });
    }

    #[test]
    fn maps_work_and_are_not_populated_where_all_memory_is_locked() {
        // SAFETY: locking changes no content; where it is not permitted, it has no effect.
        let locks = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0;
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        let map = MappedFile::new(&file, 64 << 20).unwrap();
        let resident = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", map.base.as_ptr().addr());
        let entry = resident.split_once(&start).expect("the map is listed").1;
        let kb: u64 = entry
            .lines()
            .find_map(|line| line.strip_prefix("Rss:"))
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(kb, 0, "pages of the file in RAM; locked: {locks}");
        if locks {
            // SAFETY: undoes the call above.
            unsafe { libc::munlockall() };
        }
    }
}
