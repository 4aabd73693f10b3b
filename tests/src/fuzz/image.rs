//! Damaged or forged image file: changed bytes, with the checks of docs/FORMAT.md unchanged or
//! recomputed, and truncation at any offset.
//!
//! Properties: opening it as `ftld check` does has one of two results. Either the scheme mounts and
//! each page is readable or an error, or one message has the exit code of a damaged image. A write
//! cache has entries for the next start, is lost, or is damaged. The file does not change.

use super::Input;
use crc32c::{crc32c, crc32c_append};
use ftl_core::schemes::{SCHEMES, Scheme};
use ftl_core::{FtlConfig, Lpn, Params, Start};
use ftld_battery::workload::{HostOp, Kind, Workload};
use ftld_device::config::Latency;
use ftld_device::device::BlockDevice;
use ftld_device::stack::{CacheUse, close_stores, logical_pages, open_in_memory, volume_on};
use ftld_device::volume::write_cache::{CacheOptions, Loaded, Model, Opening, peek};
use ftld_kit::failure::Exit;
use nand_model::store::{Access, FileStore};
use nand_model::{CacheSection, Chip, Geometry, ImageInfo, ImageSpec, Pairing, Profile};
use std::path::Path;
use std::sync::OnceLock;
use tempfile::TempDir;

const SIZE: u64 = 64 << 10;
const PAGE: usize = 4096;
/// Identity of every image.
const UUID: [u8; 16] = [7; 16];
/// Boot id and salt of the write cache.
const BOOT_ID: &str = "a boot";
const SALT: u64 = 5;
/// Bytes of the write cache's ring, and of its area before it.
const RING_BYTES: u64 = 64 << 10;
const RING_AT: usize = 2 * PAGE;

/// Undamaged image.
struct Base {
    geometry: Geometry,
    bytes: Vec<u8>,
    /// Where the area of its write cache begins.
    cache: Option<usize>,
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

/// Returns an image with entries of a write cache, as a killed daemon leaves them.
fn with_cache() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let (folder, geometry) = image_of(&SCHEMES[0], true, &torture());
        let path = folder.path().join("image");
        let (stores, _) = FileStore::open_shards(&path, Access::ReadWrite).expect("its own image");
        // The slots end where the file ends.
        let at = std::fs::metadata(&path).expect("its own file").len();
        let cache = CacheUse {
            options: Some(CacheOptions {
                bytes: RING_BYTES,
                model: Model::Any,
                tear: None,
                protected: false,
            }),
            boot_id: BOOT_ID,
        };
        let stack = volume_on(&path, stores, false, Latency::None, cache, |durable| {
            durable
        });
        let volume = stack.expect("an honest image opens").volume;
        for page in 0..8 {
            let written = volume.write(page * 1024, &[page as u8; 2048]);
            drop(written.expect("an honest device works"));
        }
        drop(
            volume
                .trim(16 << 10, 8 << 10)
                .expect("an honest device works"),
        );
        drop(volume);
        let mut bytes = identified(&path);
        let at = usize::try_from(at).expect("a small image");
        fix_cache(&mut bytes[at..]);
        Base {
            geometry,
            bytes,
            cache: Some(at),
        }
    })
}

/// Gives a cache area a fixed identity and salt.
fn fix_cache(area: &mut [u8]) {
    for copy in [0, 2048] {
        area[copy + 16..copy + 32].copy_from_slice(&UUID);
        area[copy + 56..copy + 64].copy_from_slice(&SALT.to_le_bytes());
        seal(&mut area[copy..][..512], 508, 0);
    }
    let mut at = RING_AT;
    while area[at..].starts_with(b"FTLDWCE\0") {
        at += seal_entry(&mut area[at..]);
    }
}

/// Writes the check of an entry of the ring; returns its bytes.
fn seal_entry(entry: &mut [u8]) -> usize {
    let number = |place: usize| {
        let bytes = entry[8 + 8 * place..][..8].try_into().expect("eight bytes");
        usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX)
    };
    let data = if number(2) == 1 {
        number(4).saturating_mul(1024)
    } else {
        0
    };
    let length = data.min(entry.len() - 512);
    let check = crc32c_append(crc32c(&SALT.to_le_bytes()), &entry[..508]);
    let check = crc32c_append(check, &entry[512..][..length]);
    entry[508..512].copy_from_slice(&check.to_le_bytes());
    512 + length
}

fn base(scheme: &'static Scheme, clean: bool, torture: &Profile) -> Base {
    let (folder, geometry) = image_of(scheme, clean, torture);
    Base {
        geometry,
        bytes: identified(&folder.path().join("image")),
        cache: None,
    }
}

/// Returns the bytes of an image. Its identity is random; a fixed one makes runs repeatable.
fn identified(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).expect("its own file");
    for copy in bytes[..2 * PAGE]
        .chunks_exact_mut(PAGE)
        .filter(|copy| copy.starts_with(b"FTLDIMG"))
    {
        copy[16..32].copy_from_slice(&UUID);
        seal(copy, PAGE - 4, 0);
    }
    bytes
}

/// Makes the image of a used device.
fn image_of(scheme: &'static Scheme, clean: bool, torture: &Profile) -> (TempDir, Geometry) {
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
    let chip = Chip::over(layout.profile, store).expect("a new image opens");
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
        close_stores([ftl.into_chip().into_store()]).expect("an honest image closes");
    }
    (folder, layout.profile.geometry)
}

/// Runs one input. The first byte selects the image, 255 that of a device of the user's own, 254
/// the one with a write cache; edits follow.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let base = match input.u8() {
        255 => own_device(),
        254 => with_cache(),
        number => &bases()[usize::from(number) % bases().len()],
    };
    let mut bytes = base.bytes.clone();
    while !input.is_empty() {
        match base.cache.filter(|at| *at + RING_AT + PAGE <= bytes.len()) {
            Some(at) if !input.u8().is_multiple_of(4) => edit_cache(&mut bytes[at..], &mut input),
            _ => edit(&base.geometry, &mut bytes, &mut input),
        }
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
    let (info, ftls) = match open_in_memory(path) {
        Ok(opened) => opened,
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
    look_at_cache(path, &info);
    for mut ftl in ftls {
        let mut page = vec![0; ftl.chip().geometry().page_bytes as usize];
        for lpn in (0..ftl.logical_pages()).map(Lpn::new) {
            let _ = ftl.read(0, lpn, &mut page);
        }
        let _ = ftl.check();
    }
}

fn look_at_cache(path: &Path, info: &ImageInfo) {
    let Some(section) = info.cache_area else {
        return;
    };
    let page_bytes = info.profile.geometry.page_bytes;
    let opening = Opening {
        uuid: info.uuid,
        boot_id: BOOT_ID,
        sync_failed: info.sync_failed,
        page_bytes,
        logical_bytes: u64::from(logical_pages(info)) * u64::from(page_bytes),
    };
    let bytes = section.bytes / u64::from(info.shards());
    for shard in 0..u64::from(info.shards()) {
        let at = section.at + shard * bytes;
        match peek(path, CacheSection { at, bytes }, &opening) {
            Ok(Loaded::Pending(pending)) => {
                let counts = pending.cut.map_or(0, |cut| cut.units());
                assert!(
                    counts <= section.bytes / 512,
                    "{counts} units at a power cut"
                );
                assert!(
                    pending.units <= section.bytes / 512,
                    "{} units",
                    pending.units
                );
            }
            Ok(Loaded::Damaged(why)) => assert!(!why.is_empty(), "a reason"),
            Ok(Loaded::Lost(_)) | Err(_) => {}
        }
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
    /// Bytes of the records of a slot, and of its data.
    slot_records: usize,
    slot_data: usize,
    seals: usize,
    slots: usize,
    /// Where the slot headers, the records and the data begin, and where the part ends.
    heads: usize,
    records: usize,
    data: usize,
    end: usize,
}

impl Map {
    fn of(geometry: &Geometry) -> Map {
        let up = |n: usize, to: usize| n.next_multiple_of(to);
        let (blocks, pages) = (geometry.blocks as usize, geometry.pages_per_block as usize);
        let (page_bytes, oob_bytes) = (geometry.page_bytes as usize, geometry.oob_bytes as usize);
        let record = up(32 + oob_bytes, 32);
        let slots = blocks + (blocks / 8).max(16);
        let slot_records = up(pages * record, PAGE);
        let slot_data = up(pages * page_bytes, PAGE);
        let counts = 2 * PAGE + up(64 * blocks, PAGE);
        let seals = counts + up(blocks * pages, PAGE);
        // The first sector of the seal map has 4,000 slots, more than these images.
        let heads = seals + PAGE;
        let records = heads + up(64 * slots, PAGE);
        let align = slot_data.next_power_of_two().min(128 << 10);
        let data = up(records + slots * slot_records, align);
        Map {
            counts,
            pages,
            page_bytes,
            oob_bytes,
            record,
            slot_records,
            slot_data,
            seals,
            slots,
            heads,
            records,
            data,
            end: data + slots * slot_data,
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
    let whole = bytes.len() >= map.end;
    let (slot, page) = (
        usize::from(input.u8()) % map.slots,
        usize::from(input.u8()) % map.pages,
    );
    let head_at = map.heads + 64 * slot;
    let record_at = map.records + slot * map.slot_records + page * map.record;
    let data_at = map.data + slot * map.slot_data + page * map.page_bytes;
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
            let head = &mut bytes[head_at..][..64];
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

/// Edits a cache area and recomputes its checks: a header copy, the bitmap, or an entry.
fn edit_cache(area: &mut [u8], input: &mut Input) {
    let (kind, place) = (input.u8() % 4, input.u8());
    match kind {
        0 | 1 => {
            let copy = &mut area[usize::from(kind) * 2048..][..512];
            overwrite(&mut copy[usize::from(place)..508], input);
            seal(copy, 508, 0);
        }
        2 => overwrite(&mut area[PAGE + usize::from(place)..RING_AT], input),
        _ => {
            let mut at = RING_AT;
            for _ in 0..place % 8 {
                at = (at + seal_entry(&mut area[at..])).min(area.len() - PAGE);
            }
            let entry = &mut area[at..];
            overwrite(&mut entry[usize::from(input.u8() % 48)..508], input);
            seal_entry(entry);
        }
    }
}

fn overwrite(part: &mut [u8], input: &mut Input) {
    let count = usize::from(input.u8() % 32);
    let new = input.bytes(count);
    let room = new.len().min(part.len());
    part[..room].copy_from_slice(&new[..room]);
}
