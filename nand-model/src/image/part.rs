//! The sections that describe the flash: a built-in profile by its name and the figures that an
//! image may have of its own, or a whole device.
//!
//! Invariants: a device that fits the first form is written so, because every build of this format
//! reads it; whatever an image describes obeys [`Profile::validate`].

use super::fields::{Put, Take, order_code, order_of, pairing_code, pairing_of};
use super::info::NAME_BYTES_MAX;
use super::sections::Section;
use crate::convert::{index, to_u32};
use crate::decay::{Ecc, ErrorLaw, ErrorModel};
use crate::energy::Energy;
use crate::geometry::{Geometry, MultiPlane};
use crate::invalid::{Invalid, ensure};
use crate::pairing::{Pairing, TABLE_PAGES_MAX};
use crate::profile::{Cache, Capacity, Profile, SOURCE_BYTES_MAX, SlcRegion, Suspend, Timing};
use crate::timing::Nanos;

/// A built-in profile.
pub(super) const NAMED: u16 = 2;
/// A device of the user's own.
pub(super) const OWN: u16 = 4;
/// Commands beyond single operations, if the device has any.
pub(super) const COMMANDS: u16 = 10;
/// Blocks in SLC mode.
pub(super) const SLC: u16 = 11;
/// Energy of operations, if the device has figures. A build that does not know it needs none.
pub(super) const ENERGY: u16 = 12;

/// The section that describes this flash.
pub(super) fn section(profile: &Profile) -> Section {
    // The region has a section of its own.
    let profile = &Profile {
        slc: None,
        ..*profile
    };
    let named = named(profile);
    if named_of(Take(&named.bytes)).as_ref() == Ok(profile) {
        named
    } else {
        own(profile)
    }
}

/// The section of the blocks in SLC mode.
pub(super) fn slc(region: SlcRegion) -> Section {
    let mut put = Put(Vec::new());
    put.u32(region.share);
    put.u32(region.endurance);
    put.u64(region.read_ns);
    put.u64(region.program_ns);
    Section::needed(SLC, put)
}

/// Adds the SLC region of a section to a profile.
pub(super) fn with_slc(profile: Profile, mut take: Take<'_>) -> Result<Profile, Invalid> {
    let (share, endurance) = (take.u32()?, take.u32()?);
    let (read_ns, program_ns) = (take.u64()?, take.u64()?);
    take.end()?;
    let profile = Profile {
        slc: Some(SlcRegion {
            share,
            read_ns,
            program_ns,
            endurance,
        }),
        ..profile
    };
    profile.validate()?;
    Ok(profile)
}

fn put_geometry(put: &mut Put, g: &Geometry, capacity: Capacity) {
    let fixed = match capacity {
        Capacity::BySize => 0,
        Capacity::Blocks(blocks) => blocks,
    };
    for n in [
        g.channels,
        g.ways,
        g.planes,
        g.blocks,
        g.pages_per_block,
        g.page_bytes,
        g.oob_bytes,
        fixed,
    ] {
        put.u32(n);
    }
}

fn take_geometry(take: &mut Take<'_>) -> Result<(Geometry, Capacity), Invalid> {
    let geometry = Geometry {
        channels: take.u32()?,
        ways: take.u32()?,
        planes: take.u32()?,
        multi_plane: MultiPlane::Off,
        blocks: take.u32()?,
        pages_per_block: take.u32()?,
        page_bytes: take.u32()?,
        oob_bytes: take.u32()?,
    };
    let capacity = match take.u32()? {
        0 => Capacity::BySize,
        blocks => Capacity::Blocks(blocks),
    };
    Ok((geometry, capacity))
}

fn named(profile: &Profile) -> Section {
    let t = &profile.timing;
    let mut put = Put(Vec::new());
    put_geometry(&mut put, &profile.geometry, profile.capacity);
    for n in [
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
        t.read_ns[0],
        t.partial_read_ns,
        t.program_ns[0],
        t.program_ns[1],
        t.oob_program_ns,
        t.erase_ns,
        t.bus_ns,
    ] {
        put.u64(n);
    }
    put.text(profile.name, NAME_BYTES_MAX);
    Section::needed(NAMED, put)
}

/// Returns the profile of a section: the built-in one of its name, with the section's figures.
pub(super) fn named_of(mut take: Take<'_>) -> Result<Profile, Invalid> {
    let (geometry, capacity) = take_geometry(&mut take)?;
    let (order, nop, pairing) = (take.u32()?, take.u32()?, take.u32()?);
    let (endurance, factory_bad_permille, max_bad_permille) =
        (take.u32()?, take.u32()?, take.u32()?);
    let (read_ns, partial_read_ns) = (take.u64()?, take.u64()?);
    let (first_ns, later_ns) = (take.u64()?, take.u64()?);
    let timing = Timing {
        read_ns: [read_ns; 4],
        partial_read_ns,
        program_ns: [first_ns, later_ns, later_ns, later_ns],
        oob_program_ns: take.u64()?,
        erase_ns: take.u64()?,
        bus_ns: take.u64()?,
        controller_ns: 0,
        suspend: Suspend::NONE,
        cache: Cache::NONE,
    };
    let name = take.text(NAME_BYTES_MAX)?;
    take.end()?;
    let known = Profile::find(&name)
        .ok_or_else(|| Invalid::Image(format!("no profile {name:?} in this build")))?;
    let is_random = |pairing| matches!(pairing, Pairing::Random { .. });
    let own = pairing_of(pairing, 2, &[])?;
    let is_known = (order, nop) == (order_code(known.order), u32::from(known.nop))
        && (own == known.pairing || is_random(own) && known.pairing.bits() == 2);
    ensure(is_known, Invalid::Image, || {
        format!("its page order, NOP or pairing is not that of profile {name}")
    })?;
    // Times, endurance and shape are those of the image, the NAND rules are the profile's.
    let own = Profile {
        capacity,
        geometry,
        timing,
        pairing: own,
        endurance,
        factory_bad_permille,
        max_bad_permille,
        ..*known
    };
    own.validate()?;
    Ok(own)
}

/// Code of a device's own constants; those of named models are one more than their positions.
const OWN_ERRORS: u32 = 0;

/// Stored value of a device that cannot suspend an operation.
const NO_SUSPEND: u64 = u64::MAX;

fn suspend_of(ns: u64) -> Option<Nanos> {
    (ns != NO_SUSPEND).then_some(ns)
}

fn own(profile: &Profile) -> Section {
    let (t, ecc) = (&profile.timing, &profile.ecc);
    let mut put = Put(Vec::new());
    put_geometry(&mut put, &profile.geometry, profile.capacity);
    for n in [
        profile.dies_per_chip,
        order_code(profile.order),
        u32::from(profile.nop),
        u32::from(profile.bits()),
        pairing_code(profile.pairing),
        profile.endurance,
        profile.factory_bad_permille,
        profile.max_bad_permille,
        ecc.codeword_bytes,
        ecc.bits,
        ecc.retries,
    ] {
        put.u32(n);
    }
    let others = [
        t.partial_read_ns,
        t.oob_program_ns,
        t.erase_ns,
        t.bus_ns,
        t.controller_ns,
    ];
    for n in t.read_ns.into_iter().chain(t.program_ns).chain(others) {
        put.u64(n);
    }
    for ns in [t.suspend.erase_ns, t.suspend.program_ns] {
        put.u64(ns.unwrap_or(NO_SUSPEND));
    }
    put.u64(t.suspend.resume_ns);
    let model = ErrorModel::NAMED
        .iter()
        .position(|(_, model)| *model == profile.error_model);
    put.u32(model.map_or(OWN_ERRORS, |at| to_u32(at) + 1));
    let law = profile.error_model.law();
    for n in [
        law.e,
        law.a,
        law.k,
        law.b,
        law.m,
        law.n,
        law.g,
        law.p,
        law.q,
        law.reads_max,
    ] {
        put.u64(n.to_bits());
    }
    let back = match profile.pairing {
        Pairing::Table { back, .. } => back,
        _ => &[],
    };
    put.u32(to_u32(back.len()));
    // Distances are below 16: two of them share a byte.
    for two in back.chunks(2) {
        put.0.push(two[0] | two.get(1).unwrap_or(&0) << 4);
    }
    put.text(profile.name, NAME_BYTES_MAX);
    put.text(profile.source, SOURCE_BYTES_MAX);
    Section::needed(OWN, put)
}

/// The device that a section describes.
pub(super) fn own_of(mut take: Take<'_>) -> Result<Profile, Invalid> {
    let (geometry, capacity) = take_geometry(&mut take)?;
    let dies_per_chip = take.u32()?;
    let order = order_of(take.u32()?)?;
    let nop = byte(take.u32()?, "programs per page")?;
    let bits = byte(take.u32()?, "bits per cell")?;
    let pairing = take.u32()?;
    let (endurance, factory_bad_permille, max_bad_permille) =
        (take.u32()?, take.u32()?, take.u32()?);
    let ecc = Ecc {
        codeword_bytes: take.u32()?,
        bits: take.u32()?,
        retries: take.u32()?,
    };
    let mut four = || Ok::<_, Invalid>([take.u64()?, take.u64()?, take.u64()?, take.u64()?]);
    let (read_ns, program_ns) = (four()?, four()?);
    let timing = Timing {
        read_ns,
        program_ns,
        partial_read_ns: take.u64()?,
        oob_program_ns: take.u64()?,
        erase_ns: take.u64()?,
        bus_ns: take.u64()?,
        controller_ns: take.u64()?,
        suspend: Suspend {
            erase_ns: suspend_of(take.u64()?),
            program_ns: suspend_of(take.u64()?),
            resume_ns: take.u64()?,
        },
        cache: Cache::NONE,
    };
    let model = take.u32()?;
    let mut real = || take.u64().map(f64::from_bits);
    let law = ErrorLaw {
        e: real()?,
        a: real()?,
        k: real()?,
        b: real()?,
        m: real()?,
        n: real()?,
        g: real()?,
        p: real()?,
        q: real()?,
        reads_max: real()?,
    };
    let error_model = match model.checked_sub(1) {
        None => ErrorModel::Own(law),
        Some(at) => {
            let named = ErrorModel::NAMED.get(index(at));
            named
                .ok_or_else(|| Invalid::Image(format!("model {model} of bit errors is unknown")))?
                .1
        }
    };
    let pages = take.u32()?;
    ensure(pages <= TABLE_PAGES_MAX, Invalid::Image, || {
        format!("word lines of {pages} pages")
    })?;
    let halves = take.bytes(index(pages.div_ceil(2)))?;
    let mut back: Vec<u8> = halves.iter().flat_map(|two| [two & 15, two >> 4]).collect();
    back.truncate(index(pages));
    let (name, source) = (take.text(NAME_BYTES_MAX)?, take.text(SOURCE_BYTES_MAX)?);
    take.end()?;
    let device = Profile {
        name: "device",
        source: "",
        capacity,
        dies_per_chip,
        geometry,
        timing,
        order,
        nop,
        pairing: pairing_of(pairing, bits, &back)?,
        slc: None,
        endurance,
        factory_bad_permille,
        max_bad_permille,
        ecc,
        error_model,
        energy: None,
    };
    // Before its texts are kept for the life of the process.
    device.validate()?;
    ensure(device.bits() == bits, Invalid::Image, || {
        format!(
            "{bits} bits per cell with pairing {}",
            device.pairing.name()
        )
    })?;
    let device = device.named(&name, &source);
    device.validate()?;
    Ok(device)
}

/// Stored values of [`MultiPlane`].
const MULTI_PLANE: [MultiPlane; 3] = [MultiPlane::Off, MultiPlane::SamePage, MultiPlane::AnyPage];

/// The section of the commands beyond single operations.
pub(super) fn commands(profile: &Profile) -> Option<Section> {
    let of = profile.geometry.multi_plane;
    let at = MULTI_PLANE.iter().position(|known| *known == of)?;
    let cache = profile.timing.cache;
    if of == MultiPlane::Off && cache == Cache::NONE {
        return None;
    }
    let mut put = Put(Vec::new());
    put.u32(to_u32(at));
    put.u32(u32::from(cache.program) | u32::from(cache.read) << 1);
    Some(Section::needed(COMMANDS, put))
}

/// The device with the commands that a section describes.
pub(super) fn with_commands(mut profile: Profile, mut take: Take<'_>) -> Result<Profile, Invalid> {
    let (at, cache) = (take.u32()?, take.u32()?);
    take.end()?;
    ensure(cache < 4, Invalid::Image, || {
        format!("cache commands {cache:#x} are unknown")
    })?;
    profile.timing.cache = Cache {
        program: cache & 1 != 0,
        read: cache & 2 != 0,
    };
    let known = MULTI_PLANE.get(index(at));
    profile.geometry.multi_plane = *known
        .ok_or_else(|| Invalid::Image(format!("kind {at} of multi-plane commands is unknown")))?;
    profile.validate()?;
    Ok(profile)
}

/// The section of the energy of operations.
pub(super) fn energy(profile: &Profile) -> Option<Section> {
    let Energy {
        read_pj,
        program_pj,
        erase_pj,
        byte_pj,
    } = profile.energy?;
    let mut put = Put(Vec::new());
    for pj in [read_pj, program_pj, erase_pj, byte_pj] {
        put.u64(pj);
    }
    Some(Section {
        is_needed: false,
        ..Section::needed(ENERGY, put)
    })
}

/// The device with the energy that a section describes.
pub(super) fn with_energy(profile: Profile, mut take: Take<'_>) -> Result<Profile, Invalid> {
    let energy = Some(Energy {
        read_pj: take.u64()?,
        program_pj: take.u64()?,
        erase_pj: take.u64()?,
        byte_pj: take.u64()?,
    });
    take.end()?;
    let profile = Profile { energy, ..profile };
    profile.validate()?;
    Ok(profile)
}

fn byte(n: u32, what: &str) -> Result<u8, Invalid> {
    let fits = u8::try_from(n);
    fits.map_err(|_| Invalid::Image(format!("{n} {what}")))
}
