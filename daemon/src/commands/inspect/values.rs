//! The answer of `ftld inspect` as JSON: header, blocks, a page, a logical page and its versions.

use super::chips::Numbers;
use crate::commands::choices::profile_json;
use crate::convert::{index, to_u32};
use crate::failure::Failure;
use ftl_core::format::{OOB_BYTES, Oob};
use ftl_core::{Ftl, Lpn};
use nand_model::{Bad, Cause, Chip, ImageInfo, Part, Pbn, Ppn};
use serde_json::{Value, json};

pub(super) fn header_json(info: &ImageInfo) -> Value {
    let g = &info.profile.geometry;
    let uuid: String = info.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let params: Vec<_> = info.params.lines().collect();
    json!({
        "version": info.version, "uuid": uuid, "scheme": info.scheme, "params": params, "profile": info.profile.name,
        "size_bytes": info.size, "raw_bytes": g.data_bytes() * u64::from(info.shards()), "shards": info.shards(),
        "stripe_bytes": info.shard.map(|shard| shard.striping.stripe_bytes), "clean": info.clean, "sync_failed": info.sync_failed,
        "geometry": {
            "channels": g.channels, "ways": g.ways, "planes": g.planes, "blocks": g.blocks,
            "pages_per_block": g.pages_per_block, "page_bytes": g.page_bytes, "oob_bytes": g.oob_bytes,
        },
        "device": profile_json(&info.profile),
    })
}

/// Returns the blocks of a shard, numbered behind those of the shards before it.
pub(super) fn blocks_json(shard: usize, chip: &Chip) -> Vec<Value> {
    let before = to_u32(shard) * chip.geometry().blocks;
    let block = |block: Pbn| {
        let bad = chip.bad(block).map(|bad| match bad {
            Bad::Factory => "factory",
            Bad::Grown => "grown",
        });
        json!({
            "block": before + block.raw(), "shard": shard, "erases": chip.erase_count(block), "programmed_pages": chip.frontier(block), "bad": bad,
        })
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

pub(super) fn page_json(chip: &mut Chip, ppn: Ppn, numbers: &Numbers) -> Value {
    let geometry = *chip.geometry();
    let place =
        json!({"block": numbers.block(geometry.block_of(ppn)), "page": geometry.offset_of(ppn)});
    if !chip.is_programmed(ppn) {
        return json!({"place": place, "state": "erased"});
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
    json!({
        "place": place, "state": if lost.is_empty() { "readable" } else { "damaged" }, "lost": lost,
        "oob": tag.map(|tag| format!("{tag:?}")), "record": tag.map(|tag| record_json(&tag, numbers)), "data_head": data_ok.then(|| hex(&data[..32.min(data.len())])),
    })
}

/// Returns the record in a page's OOB area, with the device's number of a logical page.
fn record_json(oob: &Oob, numbers: &Numbers) -> Value {
    let role = format!("{:?}", oob.tag.role).to_lowercase();
    let lpn = match oob.tag.role.is_host_data() {
        true => numbers.lpn(oob.tag.lpn),
        false => oob.tag.lpn.into(),
    };
    json!({"role": role, "lpn": lpn, "ver": oob.tag.ver, "pseq": oob.pseq, "epoch": oob.epoch})
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn lpn_json(ftl: &mut dyn Ftl, lpn: u32, numbers: &Numbers) -> Result<Value, Failure> {
    let named = numbers.lpn(lpn);
    let failed =
        |error: ftl_core::FtlError| Failure::failed(format!("logical page {named}: {error}"));
    let mapped = ftl.is_mapped(Lpn::new(lpn)).map_err(failed)?;
    let mut page = vec![0; index(ftl.chip().geometry().page_bytes)];
    let read = ftl.read(0, Lpn::new(lpn), &mut page);
    let copies = copies_of(ftl.chip_mut(), lpn, numbers);
    Ok(json!({
        "lpn": named, "mapped": mapped, "error": read.as_ref().err().map(ToString::to_string),
        "data_head": read.is_ok().then(|| hex(&page[..32.min(page.len())])), "copies": copies,
    }))
}

/// Returns every readable page with data of the host whose OOB area names this logical page, valid
/// and invalid, wherever it is stored.
fn copies_of(chip: &mut Chip, lpn: u32, numbers: &Numbers) -> Vec<Value> {
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
                let (block, page) = (numbers.block(block), geometry.offset_of(ppn));
                let (oob, record) = (format!("{tag:?}"), record_json(&tag, numbers));
                copies.push(json!({"block": block, "page": page, "oob": oob, "record": record}));
            }
        }
    }
    copies
}
