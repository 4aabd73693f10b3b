//! Damaged or forged image file: changed bytes, with the checks of docs/FORMAT.md unchanged or
//! recomputed, and truncation at any offset.
//!
//! Properties: opening it as `ftld check` does has one of two results. Either the scheme mounts and
//! each page is readable or an error, or one message has the exit code of a damaged image. The file
//! does not change.

use super::Input;
use crc32c::{crc32c, crc32c_append};
use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{FtlConfig, Lpn, Params, Start};
use ftld::failure::Exit;
use ftld::stack::open_in_memory;
use ftld_battery::workload::{HostOp, Kind, Workload};
use nand_model::store::FileStore;
use nand_model::{Chip, Geometry, ImageSpec, Pairing, Profile};
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;

const SIZE: u64 = 64 << 10;
const PAGE: usize = 4096;

/// Undamaged image.
struct Base {
    geometry: Geometry,
    bytes: Vec<u8>,
}

/// Images of every scheme, after a clean and an unclean shutdown.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        SCHEMES
            .iter()
            .flat_map(|scheme| [true, false].map(|clean| base(scheme, clean, &torture())))
            .collect()
    })
}

fn torture() -> Profile {
    *Profile::find("torture").expect("a built-in profile")
}

/// Returns the image of a device that no built-in profile describes.
fn own_device() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let mut device = torture().named("fuzzed", "a device of the user's own");
        device.geometry.pages_per_block = 24;
        let lines: Vec<Vec<u32>> = (0..8)
            .map(|line| (3 * line..3 * line + 3).collect())
            .collect();
        device.pairing = Pairing::from_word_lines(3, &lines).expect("each page once");
        base(&SCHEMES[0], true, &device)
    })
}

fn base(scheme: &'static Scheme, clean: bool, torture: &Profile) -> Base {
    let mut params = Params::default();
    params.set("ckpt.interval", "100");
    params
        .only(scheme.all_params())
        .is_err()
        .then(|| params = Params::default());
    let layout = scheme
        .layout(torture, SIZE, 0.07, &params)
        .expect("a size that fits");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("image");
    let text = params
        .iter()
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect();
    let spec = ImageSpec {
        profile: layout.profile,
        size: SIZE,
        scheme: scheme.name.into(),
        params: text,
    };
    let store = FileStore::create(&path, &spec).expect("room for an image");
    let chip = Chip::open(layout.profile, store).expect("a new image opens");
    let config = FtlConfig {
        logical_pages: layout.logical_pages,
        params,
    };
    let mut ftl = scheme
        .start(chip, &config, Start::Format)
        .expect("a new image formats");
    let page = layout.profile.geometry.page_bytes as usize;
    for (step, op) in Workload::new(Kind::Mixed, layout.logical_pages, 1)
        .take(200)
        .enumerate()
    {
        let filled = |count: u32| vec![step as u8; count as usize * page];
        let done = match op {
            HostOp::Write { lpn, count, .. } => ftl.write(0, Lpn::new(lpn), &filled(count)),
            HostOp::Trim { lpn, count } => ftl.trim(0, Lpn::new(lpn), count),
            HostOp::Flush => ftl.flush(0),
            _ => Ok(0),
        };
        done.expect("an honest device works");
    }
    if clean {
        ftl.shutdown(0).expect("an honest device shuts down");
        ftl.into_chip()
            .into_store()
            .close()
            .expect("an honest image closes");
    }
    let mut bytes = std::fs::read(&path).expect("its own file");
    // The identity is random; a fixed one makes runs repeatable.
    for copy in bytes[..2 * PAGE]
        .chunks_exact_mut(PAGE)
        .filter(|copy| copy.starts_with(b"FTLDIMG"))
    {
        copy[16..32].fill(7);
        seal(copy, PAGE - 4, 0);
    }
    Base {
        geometry: layout.profile.geometry,
        bytes,
    }
}

/// Runs one input. The first byte selects the image, 255 that of a device of the user's own; edits
/// follow.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let base = match input.u8() {
        255 => own_device(),
        number => &bases()[usize::from(number) % bases().len()],
    };
    let mut bytes = base.bytes.clone();
    while !input.is_empty() {
        edit(&base.geometry, &mut bytes, &mut input);
    }
    thread_local!(static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder"));
    FOLDER.with(|folder| {
        let path = folder.path().join("image");
        write_sparse(&path, &bytes).expect("room for an image");
        look(&path);
        assert!(
            std::fs::read(&path).expect("its own file") == bytes,
            "looking changed the image"
        );
    });
}

fn look(path: &Path) {
    let ftls = match open_in_memory(path) {
        Ok((_, ftls)) => ftls,
        Err(failure) => {
            let known = matches!(failure.exit, Exit::Damaged | Exit::Failed | Exit::Usage);
            assert!(
                known && !failure.message.is_empty(),
                "{:?}: {failure}",
                failure.exit
            );
            return;
        }
    };
    for mut ftl in ftls {
        let mut page = vec![0; ftl.chip().geometry().page_bytes as usize];
        for lpn in (0..ftl.logical_pages()).map(Lpn::new) {
            let _ = ftl.read(0, lpn, &mut page);
        }
        let _ = ftl.check();
    }
}

/// Writes a sparse file, with holes as in the daemon's images.
fn write_sparse(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path)?;
    file.set_len(bytes.len() as u64)?;
    for (i, page) in bytes
        .chunks(PAGE)
        .enumerate()
        .filter(|(_, page)| page.iter().any(|b| *b != 0))
    {
        file.write_all_at(page, (i * PAGE) as u64)?;
    }
    Ok(())
}

/// Offsets in the image according to docs/FORMAT.md, for a part without OOB-only programs.
struct Map {
    counts: usize,
    pages: usize,
    page_bytes: usize,
    oob_bytes: usize,
    record: usize,
    meta: usize,
    slot: usize,
    seals: usize,
    slots: usize,
}

impl Map {
    fn of(geometry: &Geometry) -> Map {
        let up = |n: usize, to: usize| n.next_multiple_of(to);
        let (blocks, pages) = (geometry.blocks as usize, geometry.pages_per_block as usize);
        let (page_bytes, oob_bytes) = (geometry.page_bytes as usize, geometry.oob_bytes as usize);
        let record = up(32 + oob_bytes, 32);
        let counts = 2 * PAGE + up(64 * blocks, PAGE);
        let meta = up(512 + pages * record, PAGE);
        let slot = meta + up(pages * page_bytes, PAGE);
        let seals = counts + up(blocks * pages, PAGE);
        Map {
            counts,
            pages,
            page_bytes,
            oob_bytes,
            record,
            meta,
            slot,
            seals,
            // The first sector of the seal map has 4,000 slots, more than these images.
            slots: seals + PAGE,
        }
    }
}

/// Writes the check value of the bytes before `at`.
fn seal(part: &mut [u8], at: usize, seed: u32) {
    let check = if seed == 0 {
        crc32c(&part[..at])
    } else {
        crc32c_append(seed, &part[..at])
    };
    part[at..at + 4].copy_from_slice(&check.to_le_bytes());
}

fn edit(geometry: &Geometry, bytes: &mut Vec<u8>, input: &mut Input) {
    let map = Map::of(geometry);
    let kind = input.u8() % 8;
    if kind == 0 {
        bytes.truncate(input.u32() as usize);
        return;
    }
    let slots = bytes.len().saturating_sub(map.slots) / map.slot;
    let whole = slots > 0;
    let (slot, page) = (
        usize::from(input.u8()) % slots.max(1),
        usize::from(input.u8()) % map.pages,
    );
    let slot_at = map.slots + slot * map.slot;
    let record_at = slot_at + 512 + page * map.record;
    let data_at = slot_at + map.meta + page * map.page_bytes;
    let place = (slot as u32).wrapping_mul(0x9E37_79B1);
    match kind {
        1 => {
            let at = input.u32() as usize % bytes.len().max(1);
            overwrite(&mut bytes[at..], input);
        }
        _ if !whole => {}
        2 if page % 4 == 3 => {
            let sector = &mut bytes[map.seals..][..512];
            let at = usize::from(input.u16()) % 508;
            overwrite(&mut sector[at..508], input);
            seal(sector, 508, crc32c(&0u32.to_le_bytes()));
        }
        2 => {
            let copy = &mut bytes[page % 2 * PAGE..][..PAGE];
            let at = usize::from(input.u16()) % (PAGE - 4);
            overwrite(&mut copy[at..PAGE - 4], input);
            seal(copy, PAGE - 4, 0);
        }
        3 => {
            let block = slot % geometry.blocks as usize;
            let counts = &mut bytes[map.counts + block * map.pages..][..map.pages];
            if input.u8() & 1 == 1 {
                counts[page] = input.u8();
            }
            let counts = crc32c(counts);
            let entry = &mut bytes[2 * PAGE + 64 * block..][..64];
            overwrite(&mut entry[usize::from(input.u8() % 20)..20], input);
            entry[20..24].copy_from_slice(&counts.to_le_bytes());
            let check = crc32c_append(block as u32, &entry[..60]);
            entry[60..].copy_from_slice(&check.to_le_bytes());
        }
        4 => {
            let head = &mut bytes[slot_at..][..64];
            overwrite(&mut head[usize::from(input.u8() % 60)..60], input);
            let check = crc32c_append(place, &head[..60]);
            head[60..].copy_from_slice(&check.to_le_bytes());
        }
        _ => {
            // A record, or the data or OOB area that it describes.
            match kind {
                5 => overwrite(
                    &mut bytes[record_at..][..20][usize::from(input.u8() % 20)..],
                    input,
                ),
                6 => {
                    let at = usize::from(input.u16()) % map.page_bytes;
                    overwrite(&mut bytes[data_at..][..map.page_bytes][at..], input);
                }
                _ => {
                    let at = usize::from(input.u8()) % map.oob_bytes;
                    overwrite(&mut bytes[record_at + 32..][..map.oob_bytes][at..], input);
                }
            }
            let data = crc32c(&bytes[data_at..][..map.page_bytes]);
            let record = &mut bytes[record_at..][..map.record];
            let oob = crc32c(&record[32..][..map.oob_bytes]);
            if kind != 5 {
                record[8..12].copy_from_slice(&data.to_le_bytes());
                record[12..16].copy_from_slice(&oob.to_le_bytes());
            }
            let check = crc32c_append(place ^ page as u32, &record[..20]);
            record[20..24].copy_from_slice(&check.to_le_bytes());
        }
    }
}

fn overwrite(part: &mut [u8], input: &mut Input) {
    let count = usize::from(input.u8() % 32);
    let new = input.bytes(count);
    let room = new.len().min(part.len());
    part[..room].copy_from_slice(&new[..room]);
}
