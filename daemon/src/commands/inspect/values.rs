//! The answer of `ftld inspect` as JSON: header, blocks, a page, a logical page and its versions.

use super::cache::CacheArea;
use super::chips::Numbers;
use crate::commands::choices::profile_json;
use ftl_core::format::{OOB_BYTES, Oob};
use ftl_core::{Ftl, Lpn};
use ftld_kit::convert::{index, to_u32};
use ftld_kit::failure::Failure;
use ftld_kit::path_json::ImagePath;
use nand_model::{Bad, Cause, Chip, ImageInfo, Part, Pbn, Ppn};
use serde::Serialize;
use serde_json::{Value, json};

/// Answer of `ftld inspect`: the header of an image, and what else was asked for.
#[derive(Serialize)]
pub(super) struct Inspected {
    #[serde(flatten)]
    pub(super) image: ImagePath,
    #[serde(flatten)]
    pub(super) header: Value,
    pub(super) write_cache: Option<CacheArea>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<Vec<Block>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) page: Option<OfShard<Page>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lpn: Option<OfShard<LogicalPage>>,
}

/// A page, and the shard that it is in.
#[derive(Serialize)]
pub(super) struct OfShard<T> {
    pub(super) shard: usize,
    #[serde(flatten)]
    pub(super) page: T,
}

/// A block of the device.
#[derive(Serialize)]
pub(super) struct Block {
    pub(super) block: u32,
    shard: usize,
    pub(super) erases: u32,
    pub(super) programmed_pages: u32,
    pub(super) bad: Option<&'static str>,
}

/// Place of a page.
#[derive(Serialize)]
pub(super) struct Place {
    pub(super) block: u32,
    pub(super) page: u32,
}

/// A flash page.
#[derive(Serialize)]
pub(super) struct Page {
    pub(super) place: Place,
    pub(super) state: &'static str,
    /// `None` if it is erased.
    #[serde(flatten)]
    pub(super) content: Option<Content>,
}

/// Content of a programmed page.
#[derive(Serialize)]
pub(super) struct Content {
    lost: Vec<String>,
    oob: Option<String>,
    pub(super) record: Option<Record>,
    pub(super) data_head: Option<String>,
}

/// The record in a page's OOB area.
#[derive(Serialize)]
pub(super) struct Record {
    pub(super) role: String,
    pub(super) lpn: u64,
    pub(super) ver: u64,
    pub(super) pseq: u64,
    pub(super) epoch: u64,
}

/// A logical page.
#[derive(Serialize)]
pub(super) struct LogicalPage {
    pub(super) lpn: u64,
    pub(super) mapped: bool,
    pub(super) error: Option<String>,
    pub(super) data_head: Option<String>,
    /// Every version of it on flash.
    pub(super) copies: Vec<Copy>,
}

/// A version of a logical page.
#[derive(Serialize)]
pub(super) struct Copy {
    #[serde(flatten)]
    pub(super) place: Place,
    oob: String,
    pub(super) record: Record,
}

/// Returns the header of an image.
pub(super) fn header_json(info: &ImageInfo) -> Value {
    let g = &info.profile.geometry;
    let params: Vec<_> = info.params.lines().collect();
    json!({
        "version": info.version, "uuid": hex(&info.uuid), "scheme": info.scheme, "params": params,
        "profile": info.profile.name, "size_bytes": info.size, "shards": info.shards(),
        "raw_bytes": g.data_bytes() * u64::from(info.shards()), "clean": info.clean,
        "stripe_bytes": info.shard.map(|shard| shard.striping.stripe_bytes),
        "sync_failed": info.sync_failed,
        "geometry": {
            "channels": g.channels, "ways": g.ways, "planes": g.planes, "blocks": g.blocks,
            "pages_per_block": g.pages_per_block, "page_bytes": g.page_bytes,
            "oob_bytes": g.oob_bytes,
        },
        "device": profile_json(&info.profile),
    })
}

/// Returns the blocks of a shard, numbered behind those of the shards before it.
pub(super) fn blocks_of(shard: usize, chip: &Chip) -> Vec<Block> {
    let before = to_u32(shard) * chip.geometry().blocks;
    let block = |block: Pbn| {
        let bad = chip.bad(block).map(|bad| match bad {
            Bad::Factory => "factory",
            Bad::FailedProgram | Bad::FailedErase => "grown",
        });
        Block {
            block: before + block.raw(),
            shard,
            erases: chip.erase_count(block),
            programmed_pages: chip.frontier(block),
            bad,
        }
    };
    chip.geometry().all_blocks().map(block).collect()
}

/// Returns the shard of a page, and the page there. Blocks are numbered shard by shard.
pub(super) fn parse_page(text: &str, info: &ImageInfo) -> Result<(usize, Ppn), Failure> {
    let geometry = &info.profile.geometry;
    let blocks = geometry.blocks * info.shards();
    let parts = text
        .split_once(':')
        .and_then(|(block, page)| Some((block.parse().ok()?, page.parse().ok()?)));
    let inside = |&(block, page): &(u32, u32)| block < blocks && page < geometry.pages_per_block;
    let (block, page) = parts.filter(inside).ok_or_else(|| {
        let pages = geometry.pages_per_block;
        Failure::usage(format!(
            "--page {text:?} is not BLOCK:PAGE with {blocks} blocks of {pages} pages"
        ))
    })?;
    let ppn = geometry.page(Pbn::new(block % geometry.blocks), page);
    Ok((index(block / geometry.blocks), ppn))
}

pub(super) fn page_at(chip: &mut Chip, ppn: Ppn, numbers: &Numbers) -> Page {
    let geometry = *chip.geometry();
    let place = Place {
        block: numbers.block(geometry.block_of(ppn)),
        page: geometry.offset_of(ppn),
    };
    if !chip.is_programmed(ppn) {
        return Page {
            place,
            state: "erased",
            content: None,
        };
    }
    let (mut data, mut oob) = (
        vec![0; index(geometry.page_bytes)],
        vec![0; index(geometry.oob_bytes)],
    );
    let data_ok = chip.read(0, ppn, &mut data, &mut [], Cause::Host).is_ok();
    let oob_ok = chip.read(0, ppn, &mut [], &mut oob, Cause::Host).is_ok();
    let tag = oob_ok
        .then(|| Oob::decode(&oob[..OOB_BYTES.min(oob.len())]))
        .flatten();
    let lost: Vec<_> = [(Part::Data, data_ok), (Part::Oob, oob_ok)]
        .iter()
        .filter(|(_, ok)| !ok)
        .map(|(part, _)| format!("{part:?}"))
        .collect();
    let state = if lost.is_empty() {
        "readable"
    } else {
        "damaged"
    };
    let content = Content {
        lost,
        oob: tag.map(|tag| format!("{tag:?}")),
        record: tag.map(|tag| Record::of(&tag, numbers)),
        data_head: data_ok.then(|| hex(&data[..32.min(data.len())])),
    };
    Page {
        place,
        state,
        content: Some(content),
    }
}

impl Record {
    /// Returns the record in a page's OOB area, with the device's number of a logical page.
    fn of(oob: &Oob, numbers: &Numbers) -> Record {
        Record {
            role: format!("{:?}", oob.tag.role).to_lowercase(),
            lpn: match oob.tag.role.is_host_data() {
                true => numbers.lpn(oob.tag.lpn),
                false => oob.tag.lpn.into(),
            },
            ver: oob.tag.ver,
            pseq: oob.pseq,
            epoch: oob.epoch,
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn logical_page(
    ftl: &mut dyn Ftl,
    lpn: u32,
    numbers: &Numbers,
) -> Result<LogicalPage, Failure> {
    let named = numbers.lpn(lpn);
    let failed =
        |error: ftl_core::FtlError| Failure::failed(format!("logical page {named}: {error}"));
    let mapped = ftl.is_mapped(Lpn::new(lpn)).map_err(failed)?;
    let mut page = vec![0; index(ftl.chip().geometry().page_bytes)];
    let read = ftl.read(0, Lpn::new(lpn), &mut page);
    let copies = copies_of(ftl.chip_mut(), lpn, numbers);
    Ok(LogicalPage {
        lpn: named,
        mapped,
        error: read.as_ref().err().map(ToString::to_string),
        data_head: read.is_ok().then(|| hex(&page[..32.min(page.len())])),
        copies,
    })
}

/// Returns every readable page with data of the host whose OOB area names this logical page, valid
/// and invalid, wherever it is stored.
fn copies_of(chip: &mut Chip, lpn: u32, numbers: &Numbers) -> Vec<Copy> {
    let geometry = *chip.geometry();
    let mut oob = vec![0; OOB_BYTES.min(index(geometry.oob_bytes))];
    let mut copies = Vec::new();
    for block in geometry.all_blocks() {
        for ppn in (0..chip.frontier(block)).map(|offset| geometry.page(block, offset)) {
            if !chip.is_programmed(ppn) || chip.read_oob(0, ppn, &mut oob, Cause::Host).is_err() {
                continue;
            }
            // Mapping pages and checkpoints have numbers of their own.
            let is_wanted = |oob: &Oob| oob.tag.role.is_host_data() && oob.tag.lpn == lpn;
            if let Some(tag) = Oob::decode(&oob).filter(is_wanted) {
                copies.push(Copy {
                    place: Place {
                        block: numbers.block(block),
                        page: geometry.offset_of(ppn),
                    },
                    oob: format!("{tag:?}"),
                    record: Record::of(&tag, numbers),
                });
            }
        }
    }
    copies
}
