//! The disk of a machine that checks states: the raw image of a state, and what the check writes.
//!
//! The image is only read, so the next state finds it unchanged. What is written goes to a file
//! without a name and is forgotten with the state. A power failure ends the check, too.

use ftld_device::device::{BlockDevice, Completion, Extent, Flush, FlushOf};
use ftld_kit::convert::{to_u64, to_usize};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are written together.
const BLOCK: usize = 4096;

/// A state under check.
pub(super) struct Overlay {
    size: u64,
    state: Mutex<State>,
}

struct State {
    image: File,
    written: File,
    /// Whether a block is in `written`.
    is_written: Vec<bool>,
}

impl Overlay {
    /// Returns the state in a raw image; what is written goes to a file in `folder`.
    ///
    /// # Errors
    /// The host refuses a file.
    pub(super) fn of(image: &Path, folder: &Path) -> io::Result<Overlay> {
        let image = File::open(image)?;
        let size = image.metadata()?.len();
        let state = State {
            image,
            written: tempfile::tempfile_in(folder)?,
            is_written: vec![false; to_usize(size.div_ceil(to_u64(BLOCK)))],
        };
        Ok(Overlay {
            size,
            state: Mutex::new(state),
        })
    }

    /// Replaces the state by that in another image of this size.
    ///
    /// # Errors
    /// The host refuses, or the size is another one.
    pub(super) fn replace(&self, image: &Path) -> io::Result<()> {
        let image = File::open(image)?;
        if image.metadata()?.len() != self.size {
            return Err(io::Error::other("an image of another size"));
        }
        let mut state = self.state.lock();
        state.image = image;
        state.written.set_len(0)?;
        state.is_written.fill(false);
        Ok(())
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// Returns the parts of a range by block: the number of the block, and the bytes in it.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let first = to_usize(offset % to_u64(BLOCK));
    let end = first + len;
    (0..end.div_ceil(BLOCK)).map(move |number| {
        let begin = number * BLOCK;
        let bytes = first.max(begin) - begin..end.min(begin + BLOCK) - begin;
        (offset / to_u64(BLOCK) + to_u64(number), bytes)
    })
}

impl State {
    fn read(&self, number: u64, from: usize, buf: &mut [u8]) -> io::Result<()> {
        let file = match self.is_written[to_usize(number)] {
            true => &self.written,
            false => &self.image,
        };
        file.read_exact_at(buf, number * to_u64(BLOCK) + to_u64(from))
    }

    fn write(&mut self, number: u64, bytes: std::ops::Range<usize>, data: &[u8]) -> io::Result<()> {
        let at = number * to_u64(BLOCK);
        if data.len() < BLOCK && !self.is_written[to_usize(number)] {
            // The last block of an image may be shorter.
            let mut block = [0; BLOCK];
            let mut length = 0;
            while length < BLOCK {
                match self
                    .image
                    .read_at(&mut block[length..], at + to_u64(length))?
                {
                    0 => break,
                    more => length += more,
                }
            }
            block[bytes].copy_from_slice(data);
            self.written.write_all_at(&block, at)?;
        } else {
            self.written.write_all_at(data, at + to_u64(bytes.start))?;
        }
        self.is_written[to_usize(number)] = true;
        Ok(())
    }
}

struct NoSync;

impl Flush for NoSync {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        Ok(None)
    }
}

impl BlockDevice for Overlay {
    fn size(&self) -> u64 {
        self.size
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        512
    }
    fn preferred_block(&self) -> u32 {
        512
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.check(offset, to_u64(buf.len()))?;
        let (state, mut done) = (self.state.lock(), 0);
        for (number, bytes) in parts(offset, buf.len()) {
            let end = done + bytes.len();
            state.read(number, bytes.start, &mut buf[done..end])?;
            done = end;
        }
        Ok(None)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.check(offset, to_u64(data.len()))?;
        let (mut state, mut done) = (self.state.lock(), 0);
        for (number, bytes) in parts(offset, data.len()) {
            let end = done + bytes.len();
            state.write(number, bytes, &data[done..end])?;
            done = end;
        }
        Ok(None)
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.write_zeroes(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.check(offset, len)?;
        let zeros = vec![0; 256 * BLOCK];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let part = to_usize((end - at).min(to_u64(zeros.len())));
            self.write(at, &zeros[..part])?;
            at += to_u64(part);
        }
        Ok(None)
    }
    fn flush(&self, _of: FlushOf) -> io::Result<Box<dyn Flush>> {
        Ok(Box::new(NoSync))
    }
    fn extents(&self, offset: u64, len: u64, _max: usize) -> io::Result<Vec<Extent>> {
        self.check(offset, len)?;
        Ok(vec![Extent { len, mapped: true }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes of all lengths beside a copy in memory; a new state forgets the writes.
    #[test]
    fn what_is_written_is_read_until_the_next_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let image: Vec<u8> = (0..3 * BLOCK + 512)
            .map(|at| (at / 512) as u8 + 1)
            .collect();
        std::fs::write(&path, &image).unwrap();
        let disk = Overlay::of(&path, folder.path()).unwrap();
        for _ in 0..2 {
            let mut copy = image.clone();
            let sectors = copy.len() / 512;
            for begin in 0..sectors {
                for end in begin..=sectors {
                    let (from, len) = (begin * 512, (end - begin) * 512);
                    if (begin + end) % 3 == 0 {
                        let byte = (begin * 16 + end) as u8;
                        copy[from..from + len].fill(byte);
                        disk.write(from as u64, &vec![byte; len]).unwrap();
                    } else if (begin + end) % 7 == 0 {
                        copy[from..from + len].fill(0);
                        disk.trim(from as u64, len as u64).unwrap();
                    }
                    let mut read = vec![0; len];
                    disk.read(from as u64, &mut read).unwrap();
                    assert!(read == copy[from..from + len], "{begin}..{end}");
                }
            }
            assert_eq!(
                std::fs::read(&path).unwrap(),
                image,
                "the image is only read"
            );
            disk.replace(&path).unwrap();
            let mut read = vec![0; image.len()];
            disk.read(0, &mut read).unwrap();
            assert!(read == image, "a new state");
        }
        assert!(disk.read(image.len() as u64, &mut [0]).is_err());
        assert!(disk.write(image.len() as u64, &[0]).is_err());
        std::fs::write(&path, b"short").unwrap();
        assert!(disk.replace(&path).is_err());
    }
}
