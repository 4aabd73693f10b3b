//! The header: identity of the image, its flash, and the number of the last synced operation.
//!
//! Two copies are written alternately with a sync between them, so power failing in one write
//! leaves the other intact. The newest copy whose check holds is valid.

use super::fields::{Put, Take, order_code, pairing_code, pairing_of};
use super::layout::{COPY_BYTES, Layout};
use super::sections::{self, Section};
use super::{FORMAT_VERSION, ImageInfo, NAME_BYTES_MAX, PARAMS_BYTES_MAX};
use crate::convert::to_u32;
use crate::geometry::Geometry;
use crate::pairing::Pairing;
use crate::profile::{Capacity, Profile, Timing};
use crc32c::crc32c;

const MAGIC: &[u8; 8] = b"FTLDIMG\0";
const CHECK_AT: usize = COPY_BYTES - 4;
/// The fixed part ends and the sections begin.
const SECTIONS_AT: usize = 64;
const CLEAN: u32 = 1;
const SYNC_FAILED: u32 = 2;
const UNDOING: u32 = 4;
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
    Contradiction(String),
    /// A section must be known and is not.
    Unknown(String),
}

impl From<String> for HeaderFault {
    fn from(reason: String) -> Self {
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

/// What the host sees of the device.
const DEVICE: u16 = 1;
/// The flash part.
const PART: u16 = 2;
/// The translation layer and its parameters.
const SCHEME: u16 = 3;

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let Header { info, .. } = self;
        let flags = [
            (info.clean, CLEAN),
            (info.sync_failed, SYNC_FAILED),
            (self.undoing, UNDOING),
        ];
        let mut sections = vec![self.device(), part(&info.profile), scheme(info)];
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
        if synced_seq > SEQ_MAX || generation > SEQ_MAX {
            return Err(HeaderFault::Contradiction(
                "a sequence number or generation that cannot have been reached".into(),
            ));
        }
        let mut sections = sections::decode(take.bytes(length)?)?;
        let mut known = |id| take_section(&mut sections, id);
        let (device, part, scheme) = (known(DEVICE)?, known(PART)?, known(SCHEME)?);
        if let Some(section) = sections.iter().find(|section| section.is_needed) {
            return Err(HeaderFault::Unknown(section.unknown()));
        }

        let profile = profile_of(Take(&part))?;
        let mut take = Take(&device);
        let (size, spare_slots) = (take.u64()?, take.u32()?);
        take.end()?;
        Layout::new(profile.geometry, profile.nop, spare_slots)?;
        if spare_slots > profile.geometry.blocks / 8 + 65_536 {
            return Err(HeaderFault::Contradiction(format!(
                "{spare_slots} spare slots for {} blocks",
                profile.geometry.blocks
            )));
        }
        let mut take = Take(&scheme);
        let (scheme, params) = (take.text(NAME_BYTES_MAX)?, take.text(PARAMS_BYTES_MAX)?);
        take.end()?;
        let [clean, sync_failed, undoing] =
            [CLEAN, SYNC_FAILED, UNDOING].map(|flag| flags & flag != 0);
        let info = ImageInfo {
            uuid,
            profile,
            size,
            scheme,
            params,
            version,
            clean,
            sync_failed,
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

/// Takes the fields of a section that this build knows in version 1.
fn take_section(sections: &mut Vec<Section>, id: u16) -> Result<Vec<u8>, HeaderFault> {
    let found = sections.iter().position(|section| section.id == id);
    let found = found.ok_or_else(|| format!("there is no section {id}"))?;
    let section = sections.remove(found);
    match section.version {
        1 => Ok(section.bytes),
        _ => Err(HeaderFault::Unknown(section.unknown())),
    }
}

fn part(profile: &Profile) -> Section {
    let (g, t) = (&profile.geometry, &profile.timing);
    let mut put = Put(Vec::new());
    for n in [
        g.channels,
        g.ways,
        g.planes,
        g.blocks,
        g.pages_per_block,
        g.page_bytes,
        g.oob_bytes,
        match profile.capacity {
            Capacity::BySize => 0,
            Capacity::Blocks(blocks) => blocks,
        },
        order_code(profile.order),
        u32::from(profile.nop),
        pairing_code(profile.pairing),
        profile.endurance,
        profile.factory_bad_permille,
        profile.max_bad_permille,
    ] {
        put.u32(n);
    }
    for n in [
        t.read_ns,
        t.partial_read_ns,
        t.program_ns,
        t.program_msb_ns,
        t.oob_program_ns,
        t.erase_ns,
        t.bus_ns,
    ] {
        put.u64(n);
    }
    put.text(profile.name, NAME_BYTES_MAX);
    Section::needed(PART, put)
}

fn scheme(info: &ImageInfo) -> Section {
    let mut put = Put(Vec::new());
    put.text(&info.scheme, NAME_BYTES_MAX);
    put.text(&info.params, PARAMS_BYTES_MAX);
    Section::needed(SCHEME, put)
}

/// The profile that a section describes, over the one of its name.
fn profile_of(mut take: Take<'_>) -> Result<Profile, String> {
    let geometry = Geometry {
        channels: take.u32()?,
        ways: take.u32()?,
        planes: take.u32()?,
        blocks: take.u32()?,
        pages_per_block: take.u32()?,
        page_bytes: take.u32()?,
        oob_bytes: take.u32()?,
    };
    let capacity = match take.u32()? {
        0 => Capacity::BySize,
        blocks => Capacity::Blocks(blocks),
    };
    let (order, nop, pairing) = (take.u32()?, take.u32()?, take.u32()?);
    let (endurance, factory_bad_permille, max_bad_permille) =
        (take.u32()?, take.u32()?, take.u32()?);
    let timing = Timing {
        read_ns: take.u64()?,
        partial_read_ns: take.u64()?,
        program_ns: take.u64()?,
        program_msb_ns: take.u64()?,
        oob_program_ns: take.u64()?,
        erase_ns: take.u64()?,
        bus_ns: take.u64()?,
    };
    let name = take.text(NAME_BYTES_MAX)?;
    take.end()?;
    let known = Profile::find(&name).ok_or_else(|| format!("no profile {name:?} in this build"))?;
    let pairing = pairing_of(pairing)?;
    let is_random = matches!(pairing, Pairing::Random { .. }) && known.pairing != Pairing::None;
    if (order, nop) != (order_code(known.order), u32::from(known.nop))
        || !(is_random || pairing == known.pairing)
    {
        return Err(format!(
            "its page order, NOP or pairing is not that of profile {name}"
        ));
    }
    // Times, endurance and shape stay those the image was made with, the law is the profile's.
    let own = Profile {
        capacity,
        geometry,
        timing,
        pairing,
        endurance,
        factory_bad_permille,
        max_bad_permille,
        ..*known
    };
    own.check_bounds()?;
    Ok(own)
}

impl Profile {
    /// Rejects figures that no part has, so that emulated time cannot overflow on a hostile image.
    fn check_bounds(&self) -> Result<(), String> {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let Timing {
            read_ns,
            partial_read_ns,
            program_ns,
            program_msb_ns,
            oob_program_ns,
            erase_ns,
            bus_ns,
        } = self.timing;
        let times = [
            read_ns,
            partial_read_ns,
            program_ns,
            program_msb_ns,
            oob_program_ns,
            erase_ns,
            bus_ns,
        ];
        if times.into_iter().any(|ns| ns > HOUR_NS) {
            return Err("an operation of more than an hour".into());
        }
        if self.factory_bad_permille > 500 || self.max_bad_permille > 1000 {
            return Err("more bad blocks than blocks".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
