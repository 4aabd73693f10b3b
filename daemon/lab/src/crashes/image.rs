//! A raw image that takes one state after the other, and the NBD server of it.
//!
//! The file is sparse, and only units that differ from the last state are written. A check that
//! changed the file costs a whole new image for the next state.

use super::content::{Content, Contents, ZEROS};
use super::models::State;
use super::timeline::Device;
use ftld_device::device::{BlockDevice, Completion, Extent, Flush, FlushOf};
use ftld_kit::convert::{index, to_u64, to_usize};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Bytes written at once at most.
const RUN_BYTES: usize = 1 << 20;

/// A raw image.
pub(super) struct RawImage {
    path: PathBuf,
    file: File,
    size: u64,
    unit: u64,
    /// Number of its first unit, and the slots of its units.
    first: u32,
    slots: Range<u32>,
    /// The unit of each slot.
    written: Arc<Vec<u32>>,
    /// By slot, from the first of its own.
    has: Vec<Content>,
    /// Units without a slot that have data.
    has_extra: BTreeMap<u32, Content>,
    /// Identity and times of the file when the last state was complete.
    stamp: Option<Stamp>,
}

type Stamp = (u64, u64, i64, i64, i64, i64);

fn stamp(of: &Metadata) -> Stamp {
    (
        of.ino(),
        of.len(),
        of.mtime(),
        of.mtime_nsec(),
        of.ctime(),
        of.ctime_nsec(),
    )
}

impl RawImage {
    /// Creates an image of zeros for a device.
    ///
    /// # Errors
    /// The host refuses.
    pub(super) fn create(
        path: PathBuf,
        device: &Device,
        unit_bytes: u32,
        written: Arc<Vec<u32>>,
    ) -> io::Result<RawImage> {
        let file = RawImage::new_file(&path, device.size)?;
        Ok(RawImage {
            path,
            file,
            size: device.size,
            unit: u64::from(unit_bytes),
            first: device.first,
            has: vec![ZEROS; device.slots.len()],
            has_extra: BTreeMap::new(),
            slots: device.slots.clone(),
            written,
            stamp: None,
        })
    }

    fn new_file(path: &Path, size: u64) -> io::Result<File> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(size)?;
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the check changed the length of the image, or removed it.
    pub(super) fn was_resized(&self) -> bool {
        std::fs::metadata(&self.path).map_or(true, |now| now.len() != self.size)
    }

    /// Gives the image this content, `contents` are those of the recording.
    ///
    /// # Errors
    /// The host refuses, for example for lack of space.
    pub(super) fn put(&mut self, state: &State, contents: &Contents) -> io::Result<()> {
        let contents = state.contents.as_deref().unwrap_or(contents);
        let now = std::fs::metadata(&self.path).map(|of| stamp(&of)).ok();
        if now.is_none() || now != self.stamp {
            self.file = RawImage::new_file(&self.path, self.size)?;
            self.has.fill(ZEROS);
            self.has_extra.clear();
        }
        let mut run = Run {
            begin: 0,
            bytes: Vec::with_capacity(RUN_BYTES),
        };
        let mut result = Ok(());
        let unit = to_usize(self.unit);
        state.each_of(self.slots.clone(), |slot, content| {
            let has = &mut self.has[index(slot - self.slots.start)];
            if *has == content || result.is_err() {
                return;
            }
            let at = u64::from(self.written[index(slot)] - self.first) * self.unit;
            result = (|| {
                if run.end() != at || run.bytes.len() + unit > RUN_BYTES {
                    run.write(&self.file)?;
                    run.begin = at;
                }
                let from = run.bytes.len();
                run.bytes.resize(from + unit, 0);
                contents.read(content, &mut run.bytes[from..])
            })();
            *has = content;
        });
        result.and_then(|()| run.write(&self.file))?;
        self.put_extra(state, contents)?;
        // Before Linux 6.13 the times of files tick in milliseconds: a change in the same tick
        // would not show.
        self.file.set_modified(SystemTime::UNIX_EPOCH)?;
        self.stamp = Some(stamp(&std::fs::metadata(&self.path)?));
        Ok(())
    }

    /// Gives the units without a slot their content.
    fn put_extra(&mut self, state: &State, contents: &Contents) -> io::Result<()> {
        let mut wanted: BTreeMap<u32, Content> =
            self.has_extra.keys().map(|unit| (*unit, ZEROS)).collect();
        wanted.extend(state.extra.iter().copied());
        let mut bytes = vec![0; contents.unit_bytes()];
        for (unit, content) in wanted {
            if self.has_extra.get(&unit) == Some(&content) {
                continue;
            }
            contents.read(content, &mut bytes)?;
            let at = u64::from(unit - self.first) * self.unit;
            self.file.write_all_at(&bytes, at)?;
            match content {
                ZEROS => self.has_extra.remove(&unit),
                content => self.has_extra.insert(unit, content),
            };
        }
        Ok(())
    }
}

/// Adjacent bytes to be written.
struct Run {
    begin: u64,
    bytes: Vec<u8>,
}

impl Run {
    fn end(&self) -> u64 {
        self.begin + to_u64(self.bytes.len())
    }

    fn write(&mut self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.bytes, self.begin)?;
        self.bytes.clear();
        Ok(())
    }
}

/// The image as a block device, opened for each request: a check may have replaced the file.
pub(super) struct ImageDevice {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) unit: u32,
}

impl ImageDevice {
    fn open(&self, offset: u64, len: u64) -> io::Result<File> {
        if offset.checked_add(len).is_none_or(|end| end > self.size) {
            return Err(io::Error::from_raw_os_error(22));
        }
        File::options().read(true).write(true).open(&self.path)
    }
}

struct NoSync;

impl Flush for NoSync {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        Ok(None)
    }
}

impl BlockDevice for ImageDevice {
    fn size(&self) -> u64 {
        self.size
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        self.unit
    }
    fn preferred_block(&self) -> u32 {
        self.unit
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.open(offset, to_u64(buf.len()))?
            .read_exact_at(buf, offset)?;
        Ok(None)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.open(offset, to_u64(data.len()))?
            .write_all_at(data, offset)?;
        Ok(None)
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.write_zeroes(offset, len)
    }
    fn write_zeroes(&self, mut offset: u64, mut len: u64) -> io::Result<Completion> {
        let file = self.open(offset, len)?;
        let zeros = vec![0; RUN_BYTES];
        while len > 0 {
            let part = len.min(to_u64(zeros.len()));
            file.write_all_at(&zeros[..to_usize(part)], offset)?;
            (offset, len) = (offset + part, len - part);
        }
        Ok(None)
    }
    fn flush(&self, _of: FlushOf) -> io::Result<Box<dyn Flush>> {
        Ok(Box::new(NoSync))
    }
    fn extents(&self, offset: u64, len: u64, _max: usize) -> io::Result<Vec<Extent>> {
        self.open(offset, len)?;
        Ok(vec![Extent { len, mapped: true }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_by_the_check_never_stays_in_the_next_state() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::new(folder.path(), 512).unwrap();
        let path = folder.path().join("image");
        let device = Device {
            size: 1024,
            first: 0,
            slots: 0..1,
            unreadable: Vec::new(),
        };
        let mut image = RawImage::create(path.clone(), &device, 512, Arc::new(vec![0])).unwrap();
        for byte in 1..=20 {
            let content = contents.id_of(&[byte; 512]).unwrap();
            let state = State {
                durable: Arc::new(vec![content]),
                changed: Vec::new(),
                extra: Vec::new(),
                contents: None,
                sum: 0,
            };
            image.put(&state, &contents).unwrap();
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!(bytes[..], [[byte; 512], [0; 512]].concat());
            // At once, in the same tick of the file system's clock.
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&[99], 600).unwrap();
        }
    }
}
