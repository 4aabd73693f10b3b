//! The header: identity of the image, its flash, and the number of the last synced operation.
//!
//! Two copies are written alternately with a sync between them, so power failing in one write
//! leaves the other intact. The newest copy whose check holds is valid.

use super::fields::{Put, Take};
use super::info::{
    CacheSection, FORMAT_VERSION, ImageInfo, NAME_BYTES_MAX, PARAMS_BYTES_MAX, SHARDS_MAX,
    ShardSection, Striping,
};
use super::layout::{COPY_BYTES, Layout, too_large};
use super::part;
use super::sections::{self, Section};
use crate::convert::to_u32;
use crate::invalid::{Invalid, ensure};
use crc32c::crc32c;

const MAGIC: &[u8; 8] = b"FTLDIMG\0";
const CHECK_AT: usize = COPY_BYTES - 4;
/// The fixed part ends and the sections begin.
const SECTIONS_AT: usize = 64;
const CLEAN: u32 = 1;
const SYNC_FAILED: u32 = 2;
const UNDOING: u32 = 4;
const POWER_CUT: u32 = 8;
/// Smallest unit of a device's size.
const SECTOR_BYTES: u64 = 512;
/// Upper bound of valid numbers; keeps the arithmetic on sequence numbers inside `u64`.
pub(crate) const SEQ_MAX: u64 = 1 << 62;

/// One header copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) info: ImageInfo,
    pub(crate) generation: u64,
    /// Every operation up to this one is on the disk.
    pub(crate) synced_seq: u64,
    pub(crate) spare_slots: u32,
    /// Hours of emulated time since the device was created.
    pub(crate) hour: u32,
    /// The current opening undoes operations, and no sync has covered that yet.
    pub(crate) undoing: bool,
    /// Sections that this build does not know and may pass over: it keeps them.
    pub(crate) unknown: Vec<Section>,
}

/// Reason why no header could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    NotAnImage,
    Version(u32),
    Damaged,
    Contradiction(Invalid),
    /// A section must be known and is not.
    Unknown(Invalid),
}

impl From<Invalid> for HeaderFault {
    fn from(reason: Invalid) -> Self {
        HeaderFault::Contradiction(reason)
    }
}

/// Returns the newest valid copy and its index.
pub(crate) fn choose_header(copies: [&[u8]; 2]) -> Result<(Header, usize), HeaderFault> {
    assert!(
        copies.iter().all(|copy| copy.len() == COPY_BYTES),
        "a header copy has {COPY_BYTES} bytes"
    );
    let decoded = copies.map(Header::decode);
    let mut best: Option<(Header, usize)> = None;
    for (copy, result) in decoded.iter().enumerate() {
        match result {
            Ok(header)
                if best
                    .as_ref()
                    .is_none_or(|(b, _)| header.generation > b.generation) =>
            {
                best = Some((header.clone(), copy));
            }
            // A whole header of another version: another build rewrote the file, and the other copy
            // is obsolete.
            Err(fault @ (HeaderFault::Version(_) | HeaderFault::Unknown(_)))
                if checks(copies[copy]) =>
            {
                return Err(fault.clone());
            }
            _ => {}
        }
    }
    if let Some(best) = best {
        return Ok(best);
    }
    let rank = |fault: &HeaderFault| match fault {
        HeaderFault::NotAnImage => 0,
        HeaderFault::Damaged => 1,
        HeaderFault::Version(_) => 2,
        HeaderFault::Contradiction(_) => 3,
        HeaderFault::Unknown(_) => 4,
    };
    let faults = decoded.into_iter().filter_map(Result::err);
    Err(faults.max_by_key(rank).expect("two copies, none good"))
}

fn checks(copy: &[u8]) -> bool {
    copy[CHECK_AT..] == crc32c(&copy[..CHECK_AT]).to_le_bytes()
}

/// The device as the host sees it.
const DEVICE: u16 = 1;
/// The translation layer and its parameters.
const SCHEME: u16 = 3;
/// The part of a file that has several.
const SHARDS: u16 = 5;
/// The area of a write cache.
const CACHE: u16 = 6;

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Header { info, .. } = self;
        let flags = [
            (info.clean, CLEAN),
            (info.sync_failed, SYNC_FAILED),
            (self.undoing, UNDOING),
            (info.power_cut, POWER_CUT),
        ];
        let mut sections = vec![self.device(), part::section(&info.profile), scheme(info)];
        sections.extend(part::commands(&info.profile));
        sections.extend(info.profile.slc.map(part::slc));
        sections.extend(part::energy(&info.profile));
        sections.extend(info.shard.map(shard));
        sections.extend(info.cache_area.map(cache));
        sections.extend_from_slice(&self.unknown);
        let mut list = Put(Vec::new());
        sections::encode(&sections, &mut list);

        let mut put = Put(Vec::with_capacity(COPY_BYTES));
        put.0.extend_from_slice(MAGIC);
        put.u32(info.version);
        put.u32(flags.iter().map(|(set, flag)| u32::from(*set) * flag).sum());
        put.0.extend_from_slice(&info.uuid);
        put.u64(self.generation);
        put.u64(self.synced_seq);
        put.u32(self.hour);
        put.u32(to_u32(list.0.len()));
        put.u64(0);
        debug_assert_eq!(put.0.len(), SECTIONS_AT, "the fixed part has one length");
        put.0.extend_from_slice(&list.0);
        let mut out = put.0;
        assert!(
            out.len() <= CHECK_AT,
            "{} bytes of sections leave no room for the check",
            out.len()
        );
        out.resize(CHECK_AT, 0);
        let check = crc32c(&out);
        out.extend_from_slice(&check.to_le_bytes());
        debug_assert_eq!(out.len(), COPY_BYTES, "a header copy is one page");
        out
    }

    fn device(&self) -> Section {
        let mut put = Put(Vec::new());
        put.u64(self.info.size);
        put.u32(self.spare_slots);
        Section::needed(DEVICE, put)
    }

    fn decode(copy: &[u8]) -> Result<Header, HeaderFault> {
        let damaged = |_| HeaderFault::Damaged;
        let mut take = Take(copy);
        if take.bytes(8).map_err(damaged)? != MAGIC {
            return Err(HeaderFault::NotAnImage);
        }
        let version = take.u32().map_err(damaged)?;
        if version != FORMAT_VERSION {
            return Err(HeaderFault::Version(version));
        }
        if !checks(copy) {
            return Err(HeaderFault::Damaged);
        }
        let body = Take(&copy[copy.len() - take.0.len()..CHECK_AT]);
        Header::decode_fields(version, body)
    }

    fn decode_fields(version: u32, mut take: Take<'_>) -> Result<Header, HeaderFault> {
        let flags = take.u32()?;
        let uuid = take.array()?;
        let (generation, synced_seq) = (take.u64()?, take.u64()?);
        let hour = take.u32()?;
        let length = take.length()?;
        take.u64()?;
        ensure(
            synced_seq.max(generation) <= SEQ_MAX,
            Invalid::Image,
            || "a sequence number or generation that cannot have been reached".into(),
        )?;
        let mut sections = sections::decode(take.bytes(length)?)?;
        let device = needed_section(&mut sections, DEVICE)?;
        let named = take_section(&mut sections, part::NAMED)?;
        let own = take_section(&mut sections, part::OWN)?;
        let commands = take_section(&mut sections, part::COMMANDS)?;
        let slc = take_section(&mut sections, part::SLC)?;
        let energy = take_section(&mut sections, part::ENERGY)?;
        let scheme = needed_section(&mut sections, SCHEME)?;
        let shard = take_section(&mut sections, SHARDS)?;
        let cache = take_section(&mut sections, CACHE)?;
        if let Some(section) = sections.iter().find(|section| section.is_needed) {
            return Err(HeaderFault::Unknown(section.unknown()));
        }

        let profile = match (named, own) {
            (Some(named), None) => part::named_of(Take(&named))?,
            (None, Some(own)) => part::own_of(Take(&own))?,
            (found, _) => {
                let both = if found.is_some() { "both" } else { "neither" };
                let (named, own) = (part::NAMED, part::OWN);
                Err(Invalid::Image(format!(
                    "of the sections {named} and {own}, one describes the flash: there is {both}"
                )))?
            }
        };
        let profile = match commands {
            Some(commands) => part::with_commands(profile, Take(&commands))?,
            None => profile,
        };
        let profile = match slc {
            Some(fields) => part::with_slc(profile, Take(&fields))?,
            None => profile,
        };
        let profile = match energy {
            Some(energy) => part::with_energy(profile, Take(&energy))?,
            None => profile,
        };
        let mut take = Take(&device);
        let (size, spare_slots) = (take.u64()?, take.u32()?);
        take.end()?;
        let is_size = size > 0 && size.is_multiple_of(SECTOR_BYTES);
        ensure(is_size, Invalid::Image, || {
            format!("a device of {size} bytes; sizes are positive multiples of {SECTOR_BYTES}")
        })?;
        let layout = Layout::new(profile.geometry, profile.nop, spare_slots)?;
        let blocks = profile.geometry.blocks;
        ensure(spare_slots <= blocks / 8 + 65_536, Invalid::Image, || {
            format!("{spare_slots} spare slots for {blocks} blocks")
        })?;
        let mut take = Take(&scheme);
        let (scheme, params) = (take.text(NAME_BYTES_MAX)?, take.text(PARAMS_BYTES_MAX)?);
        take.end()?;
        let shard = shard.map(|fields| shard_of(Take(&fields), profile.geometry.page_bytes));
        let shard = shard.transpose()?;
        let end = slots_end(&layout, shard)?;
        let cache_area = cache.map(|fields| cache_of(Take(&fields), end));
        let cache_area = cache_area.transpose()?;
        let index = shard.map_or(0, |shard| shard.index);
        ensure(index == 0 || cache_area.is_none(), Invalid::Image, || {
            format!("a write cache in part {index}; part 0 alone may have one")
        })?;
        let [clean, sync_failed, undoing, power_cut] =
            [CLEAN, SYNC_FAILED, UNDOING, POWER_CUT].map(|flag| flags & flag != 0);
        let info = ImageInfo {
            uuid,
            profile,
            size,
            scheme,
            params,
            version,
            clean,
            sync_failed,
            power_cut,
            cache_area,
            shard,
        };
        Ok(Header {
            info,
            generation,
            synced_seq,
            spare_slots,
            hour,
            undoing,
            unknown: sections,
        })
    }
}

/// Takes the fields of a section that this build knows in version 1, if it is there.
fn take_section(sections: &mut Vec<Section>, id: u16) -> Result<Option<Vec<u8>>, HeaderFault> {
    let Some(found) = sections.iter().position(|section| section.id == id) else {
        return Ok(None);
    };
    let section = sections.remove(found);
    match section.version {
        1 => Ok(Some(section.bytes)),
        _ => Err(HeaderFault::Unknown(section.unknown())),
    }
}

/// Takes the fields of a section that every image has.
fn needed_section(sections: &mut Vec<Section>, id: u16) -> Result<Vec<u8>, HeaderFault> {
    let found = take_section(sections, id)?;
    Ok(found.ok_or_else(|| Invalid::Image(format!("there is no section {id}")))?)
}

fn cache(area: CacheSection) -> Section {
    let mut put = Put(Vec::new());
    put.u64(area.at);
    put.u64(area.bytes);
    Section::needed(CACHE, put)
}

/// The area begins where the slots of the last part end.
fn cache_of(mut take: Take<'_>, slots_end: u64) -> Result<CacheSection, Invalid> {
    let (at, bytes) = (take.u64()?, take.u64()?);
    take.end()?;
    let end = at
        .checked_add(bytes)
        .filter(|end| i64::try_from(*end).is_ok());
    let fits = at == slots_end && bytes > 0 && end.is_some();
    ensure(fits, Invalid::Image, || {
        format!("a write cache of {bytes} bytes at byte {at}; the slots end at byte {slots_end}")
    })?;
    Ok(CacheSection { at, bytes })
}

fn shard(shard: ShardSection) -> Section {
    let mut put = Put(Vec::new());
    put.u32(shard.index);
    put.u32(shard.striping.count);
    put.u64(shard.striping.stripe_bytes);
    Section::needed(SHARDS, put)
}

fn shard_of(mut take: Take<'_>, page_bytes: u32) -> Result<ShardSection, Invalid> {
    let (index, count, stripe_bytes) = (take.u32()?, take.u32()?, take.u64()?);
    take.end()?;
    let is_possible = (2..=SHARDS_MAX).contains(&count)
        && index < count
        && (1..1 << 48).contains(&stripe_bytes)
        && stripe_bytes.is_multiple_of(u64::from(page_bytes));
    ensure(is_possible, Invalid::Image, || {
        format!(
            "shard {index} of {count} with stripes of {stripe_bytes} bytes; at most {SHARDS_MAX} \
             shards, and whole pages of {page_bytes} bytes, are possible"
        )
    })?;
    Ok(ShardSection {
        index,
        striping: Striping {
            count,
            stripe_bytes,
        },
    })
}

/// Returns where the slots of the last part end.
fn slots_end(layout: &Layout, shard: Option<ShardSection>) -> Result<u64, Invalid> {
    let parts = shard.map_or(1, |shard| shard.striping.count);
    let end = layout.file_bytes.checked_mul(u64::from(parts));
    let end = end.filter(|end| i64::try_from(*end).is_ok());
    end.ok_or_else(too_large)
}

fn scheme(info: &ImageInfo) -> Section {
    let mut put = Put(Vec::new());
    put.text(&info.scheme, NAME_BYTES_MAX);
    put.text(&info.params, PARAMS_BYTES_MAX);
    Section::needed(SCHEME, put)
}

#[cfg(test)]
mod tests;
