//! The write cache of an image: entries of an earlier daemon, then an area for this one.
//!
//! Invariants: the entries of an earlier daemon are on the flash and synced before the first
//! request, or they stay in the area and reads find them. An area without a use is removed, so that
//! any build opens the image.

use crate::volume::write_cache::{
    CacheOptions, CutCounts, Loaded, Lost, Opening, Pending, Shape, WriteCache,
};
use crate::volume::{Volume, shard_text};
use ftl_core::FtlError;
use ftld_kit::convert::{to_u64, to_usize};
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::size::show_size;
use nand_model::{CacheArea, CacheSection};
use std::io;
use std::path::Path;

/// Write cache of a start.
#[derive(Clone, Copy, Debug)]
pub struct CacheUse<'a> {
    /// Options of the cache; `None` for none.
    pub options: Option<CacheOptions>,
    /// Boot id of the host: entries of an earlier daemon count only under the same one.
    pub boot_id: &'a str,
}

/// Image whose cache is opened.
pub(super) struct Image<'a> {
    pub(super) path: &'a Path,
    pub(super) area: CacheArea,
    /// The area that the image had when it was opened.
    pub(super) section: Option<CacheSection>,
    pub(super) opening: Opening<'a>,
    pub(super) read_only: bool,
}

/// Returns the boot id of this host: it changes when the host's page cache is lost.
///
/// # Errors
/// The kernel does not report it.
pub fn boot_id() -> Result<String, Failure> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let id = std::fs::read_to_string(PATH).map_err(|error| Failure::io(PATH, &error))?;
    Ok(id.trim().to_owned())
}

impl Image<'_> {
    fn failed(&self, what: &str, error: &io::Error) -> Failure {
        Failure::io(format!("{}: {what}", self.path.display()), error)
    }

    /// Makes the entries of an earlier daemon durable, and gives the volume its cache.
    pub(super) fn open_cache(
        &self,
        volume: &mut Volume,
        options: Option<CacheOptions>,
    ) -> Result<(), Failure> {
        let mut last = vec![None; volume.shards()];
        if let Some(section) = self.section {
            let caches = self.load(section, &mut last)?;
            if caches.iter().any(Option::is_some) {
                volume.set_caches(caches);
                if self.read_only || !self.replay(volume)? {
                    volume.set_last_cut(&last);
                    return Ok(());
                }
                volume.take_caches();
            }
        }
        if !self.read_only {
            self.renew(volume, options)
                .map_err(|error| self.failed("making its write cache", &error))?;
        }
        volume.set_last_cut(&last);
        Ok(())
    }

    /// Reads the caches of an earlier daemon: one for each shard, which have equal parts of the
    /// area. A shard whose entries are void has no cache.
    fn load(
        &self,
        section: CacheSection,
        last: &mut [Option<CutCounts>],
    ) -> Result<Vec<Option<WriteCache>>, Failure> {
        let bytes = section.bytes / to_u64(last.len());
        let count = last.len();
        let mut caches = Vec::new();
        for (number, last) in (0..).zip(last) {
            let area = Box::new(self.area.from(number * bytes));
            let named = shard_text(to_usize(number), count);
            let loaded = WriteCache::load(area, bytes, &self.opening)
                .map_err(|error| self.failed("reading its write cache", &error))?;
            caches.push(match loaded {
                Loaded::Damaged(why) => return Err(damaged(self.path, &named, &why)),
                Loaded::Lost(lost) => {
                    *last = Some(self.note_lost(&named, &lost));
                    None
                }
                Loaded::Pending(pending) => {
                    *last = pending.cut;
                    self.note_pending(&named, &pending);
                    Some(pending.cache)
                }
            });
        }
        Ok(caches)
    }

    fn note_lost(&self, named: &str, lost: &Lost) -> CutCounts {
        tracing::warn!(
            "{}: {named}the write cache is lost, because {}: {} dirty units",
            self.path.display(),
            lost.why,
            lost.units
        );
        CutCounts {
            lost: lost.units,
            ..CutCounts::default()
        }
    }

    fn note_pending(&self, named: &str, pending: &Pending) {
        let image = self.path.display();
        if let Some(cut) = pending.cut {
            tracing::warn!(
                "{image}: {named}write cache after the power cut: {} dirty units: {}",
                cut.units(),
                cut.text()
            );
        }
        if pending.entries > 0 {
            tracing::info!(
                "{image}: {named}{} units of {} entries of the write cache to write back",
                pending.units,
                pending.entries
            );
        }
    }

    /// Writes entries back. Returns false if the flash refuses some: the caches of these shards
    /// then keep them.
    fn replay(&self, volume: &mut Volume) -> Result<bool, Failure> {
        let refused = volume
            .replay_cache()
            .map_err(|error| self.failed("writing its write cache back", &error))?;
        let count = volume.shards();
        for (number, error) in &refused {
            let (image, shard) = (self.path.display(), shard_text(*number, count));
            let why = volume.error_text(*number, error);
            if !matches!(error, FtlError::ReadOnly(_) | FtlError::MediaLost(_)) {
                return Err(Failure::failed(format!(
                    "{image}: {shard}writing its write cache back: {why}; nothing is lost, start \
                     it again"
                )));
            }
            let (whose, rest) = match count {
                1 => ("", ""),
                _ => (
                    " to this shard",
                    "; shards without such entries have no write cache",
                ),
            };
            tracing::warn!(
                "{image}: {shard}the flash does not take the entries of the write cache: {why}; \
                 {} stay in the image, reads find them, and writes{whose} and FLUSH are \
                 refused{rest}",
                show_size(volume.dirty_bytes(*number))
            );
        }
        if refused.is_empty() {
            return Ok(true);
        }
        let refused: Vec<_> = refused.into_iter().map(|(number, _)| number).collect();
        let kept = volume.keep_caches(&refused);
        kept.map_err(|error| self.failed("keeping its write cache", &error))?;
        Ok(false)
    }

    /// Replaces the area by that of a new cache, or removes it.
    fn renew(&self, volume: &mut Volume, options: Option<CacheOptions>) -> io::Result<()> {
        let shards = to_u64(volume.shards());
        let options = options.map(|options| options.share(shards));
        let part = options.map(|options| WriteCache::area_bytes(options.bytes));
        let wanted = part.map(|bytes| bytes * shards);
        let has = self.area.section().map(|section| section.bytes);
        if self.section.is_some() && (has.is_none() || has != wanted) {
            self.area.detach()?;
        }
        let (Some(options), Some(part), Some(bytes)) = (options, part, wanted) else {
            return Ok(());
        };
        let page_bytes = self.opening.page_bytes;
        let shape = Shape {
            options,
            unit: options.unit(page_bytes),
            page_bytes,
            logical_bytes: self.opening.logical_bytes,
        };
        let make = |number| {
            let area = Box::new(self.area.from(number * part));
            let (uuid, boot_id) = (self.opening.uuid, self.opening.boot_id);
            WriteCache::format(area, shape, uuid, boot_id, salt()?).map(Some)
        };
        let make_all = || (0..shards).map(make).collect::<io::Result<Vec<_>>>();
        let caches = if has == wanted {
            let caches = make_all()?;
            self.area.sync()?;
            caches
        } else {
            let mut caches = Vec::new();
            self.area.attach(bytes, |_| {
                caches = make_all()?;
                Ok(())
            })?;
            caches
        };
        volume.set_caches(caches);
        Ok(())
    }
}

/// Returns the failure for a write cache whose header contradicts itself. `named` names the shard
/// in front of the reason; it is empty for a device with one.
pub fn damaged(image: &Path, named: &str, why: &str) -> Failure {
    let message = format!(
        "{}: damaged: {named}the header of its write cache contradicts itself ({why}); restore the \
         image from a copy",
        image.display()
    );
    Failure::new(Exit::Damaged, message)
}

/// Returns a number that nobody else knows. It is from the kernel, not from `/dev/urandom`: a root
/// of this program alone has no devices.
fn salt() -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}
