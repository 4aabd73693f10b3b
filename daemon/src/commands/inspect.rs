//! `ftld inspect` and `ftld check`: examine an image without changing it, also after a power cut.

use super::choices::profile_json;
use super::recording;
use crate::convert::{index, narrow, to_u32, to_u64};
use crate::failure::{Exit, Failure};
use crate::instance::Dirs;
use crate::output::{counted, print, print_json};
use crate::profile_file;
use crate::size::show_size;
use crate::stack;
use crate::volume::Stripes;
use crate::volume::write_cache::{self, Loaded, Opening};
use ftl_core::format::{OOB_BYTES, Oob};
use ftl_core::{Ftl, Lpn};
use ftld_traces::recording::Reader;
use nand_model::store::{FileStore, peek};
use nand_model::{Bad, CacheSection, Cause, Chip, ImageInfo, Part, Pbn, Ppn};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Options of `ftld inspect`.
#[derive(Clone, Debug, Default)]
pub struct InspectOptions {
    /// Every block.
    pub blocks: bool,
    /// One page as `BLOCK:PAGE`.
    pub page: Option<String>,
    /// One logical page.
    pub lpn: Option<u32>,
    /// The flash device alone, as a TOML file.
    pub toml: bool,
    /// JSON instead of text.
    pub json: bool,
}

/// Returns a path, or the image of an instance by name.
///
/// # Errors
/// There is neither.
pub(super) fn path_of(dirs: &Dirs, image: &str) -> Result<PathBuf, Failure> {
    let (path, of_instance) = (PathBuf::from(image), dirs.image(image));
    if image.contains('/') || path.exists() {
        return Ok(path);
    }
    if of_instance.symlink_metadata().is_ok() {
        return Ok(of_instance);
    }
    Err(Failure::failed(format!(
        "{image}: no such image, neither a file {image} here nor {}; `ftld list --all` shows all",
        of_instance.display()
    )))
}

/// `ftld inspect`.
///
/// # Errors
/// The image is in use, damaged, or not an image; the page or block does not exist.
pub fn inspect(dirs: &Dirs, image: &str, wanted: &InspectOptions) -> Result<(), Failure> {
    let path = path_of(dirs, image)?;
    if path.is_file() && Reader::detects(&path).unwrap_or(false) {
        return recording::inspect(&path, wanted);
    }
    let info = peek(&path).map_err(|error| stack::image_failure(&error))?;
    if wanted.toml {
        return print(&profile_file::to_toml(&info.profile));
    }
    let mut value = header_json(&info);
    value["image"] = json!(path);
    value["write_cache"] = cache_json(&path, &info)?;
    if wanted.blocks || wanted.page.is_some() || wanted.lpn.is_some() {
        let mut chips = Chips::open(&path)?;
        if wanted.blocks {
            let all = chips.ftls.iter().enumerate();
            let blocks = all.flat_map(|(shard, ftl)| blocks_json(shard, ftl.chip()));
            value["blocks"] = blocks.collect();
        }
        if let Some(page) = &wanted.page {
            let (shard, ppn) = parse_page(page, &info)?;
            let numbers = chips.numbers(shard);
            value["page"] = page_json(chips.ftls[shard].chip_mut(), ppn, &numbers);
            value["page"]["shard"] = shard.into();
        }
        if let Some(lpn) = wanted.lpn {
            let (shard, own) = chips.place(lpn)?;
            let numbers = chips.numbers(shard);
            value["lpn"] = lpn_json(&mut *chips.ftls[shard], own, &numbers)?;
            value["lpn"]["shard"] = shard.into();
        }
    }
    if wanted.json {
        print_json("inspect", value)
    } else {
        print(&text(&value, &profile_file::summary(&info.profile)))
    }
}

/// Returns the write cache of an image, null without one: a daemon left it, or uses it now.
fn cache_json(path: &Path, info: &ImageInfo) -> Result<Value, Failure> {
    let Some(section) = info.cache_area else {
        return Ok(Value::Null);
    };
    let page_bytes = info.profile.geometry.page_bytes;
    let opening = Opening {
        uuid: info.uuid,
        boot_id: &stack::boot_id()?,
        sync_failed: info.sync_failed,
        page_bytes,
        logical_bytes: u64::from(stack::logical_pages(info)) * u64::from(page_bytes),
    };
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    let mut value = json!({"area_bytes": section.bytes});
    let mut add = |key: &str, count: u64| {
        value[key] = (value[key].as_u64().unwrap_or(0) + count).into();
    };
    let (mut unit, mut why) = (None, None);
    // Each shard has an equal part of the area.
    let bytes = section.bytes / u64::from(info.shards());
    for shard in 0..u64::from(info.shards()) {
        let at = section.at + shard * bytes;
        match write_cache::peek(path, CacheSection { at, bytes }, &opening).map_err(failed)? {
            Loaded::Pending(pending) => {
                add("pending_entries", pending.entries);
                add("pending_units", pending.units);
                unit = Some(pending.cache.unit());
            }
            Loaded::Lost(lost) => {
                add("lost_units", lost.units);
                why = Some(lost.why);
            }
        }
    }
    if let Some(unit) = unit {
        value["unit_bytes"] = unit.into();
    }
    if let Some(why) = why {
        value["lost_because"] = why.into();
    }
    Ok(value)
}

/// Returns the state of a write cache as text; `None` without one.
fn cache_text(cache: &Value) -> Option<String> {
    let area = show_size(cache["area_bytes"].as_u64()?);
    Some(match cache["pending_entries"].as_u64() {
        Some(entries) => format!(
            "write cache of {area}: {entries} entries pending, {} units; the next start writes them \
             to the flash",
            cache["pending_units"]
        ),
        None => format!(
            "write cache of {area}: lost, because {} ({} units)",
            cache["lost_because"].as_str().unwrap_or("-"),
            cache["lost_units"]
        ),
    })
}

/// The chips of an image, mounted in memory.
struct Chips {
    info: ImageInfo,
    ftls: Vec<Box<dyn Ftl<FileStore>>>,
    stripes: Stripes,
}

impl Chips {
    /// Mounts the scheme in memory. Fails if the image is in use.
    fn open(path: &Path) -> Result<Chips, Failure> {
        let (info, ftls) = stack::open_in_memory(path)?;
        let stripes = Stripes::new(ftls.len(), info.shard.map(|shard| shard.striping));
        Ok(Chips {
            info,
            ftls,
            stripes,
        })
    }

    /// Returns the logical pages of the device.
    fn pages(&self) -> u32 {
        let page = u64::from(self.info.profile.geometry.page_bytes);
        u32::try_from(self.info.size.div_ceil(page)).unwrap_or(u32::MAX)
    }

    /// Returns how the device numbers the blocks and logical pages of a shard.
    fn numbers(&self, shard: usize) -> Numbers {
        let geometry = &self.info.profile.geometry;
        Numbers {
            shard,
            before: to_u32(shard) * geometry.blocks,
            page_bytes: u64::from(geometry.page_bytes),
            stripes: self.stripes,
        }
    }

    /// Returns the shard of a logical page of the device, and its number there.
    fn place(&self, lpn: u32) -> Result<(usize, u32), Failure> {
        if lpn >= self.pages() {
            return Err(Failure::usage(format!(
                "--lpn {lpn}: the device has {} logical pages",
                self.pages()
            )));
        }
        let page = u64::from(self.info.profile.geometry.page_bytes);
        let at = u64::from(lpn) * page;
        let piece = self.stripes.pieces(at..at + page).next();
        let piece = piece.expect("a page is not empty");
        Ok((piece.shard, narrow(piece.at / page)))
    }
}

/// How the device numbers what a shard has: its blocks follow those of the shards before it.
struct Numbers {
    shard: usize,
    /// Blocks of the shards before it.
    before: u32,
    page_bytes: u64,
    stripes: Stripes,
}

impl Numbers {
    fn block(&self, own: Pbn) -> u32 {
        self.before + own.raw()
    }

    fn lpn(&self, own: u32) -> u64 {
        let at = u64::from(own) * self.page_bytes;
        self.stripes.offset_of(self.shard, at) / self.page_bytes
    }
}

/// `ftld check`: compares the tables with the flash, and reads every page.
///
/// # Errors
/// The image cannot be opened or mounted, a table is wrong, or a page cannot be read.
pub fn check(dirs: &Dirs, image: &str, as_json: bool) -> Result<(), Failure> {
    let path = path_of(dirs, image)?;
    let mut chips = Chips::open(&path)?;
    let (info, scheme) = (chips.info.clone(), chips.ftls[0].scheme());
    let cache = cache_json(&path, &info)?;
    let failed = |error: ftl_core::FtlError| {
        Failure::failed(format!("{}: checking: {error}", path.display()))
    };
    let mut findings = Vec::new();
    let (mut scanned, mut discarded) = (0, 0);
    let count = chips.ftls.len();
    for (shard, ftl) in chips.ftls.iter_mut().enumerate() {
        let named = |finding| match count {
            1 => finding,
            _ => format!("shard {shard}: {finding}"),
        };
        findings.extend(ftl.check().map_err(failed)?.into_iter().map(named));
        let mount = ftl.stats().mount;
        scanned += mount.pages_scanned;
        discarded += mount.pages_discarded;
    }
    let unreadable = unreadable(&mut chips)?;
    if !unreadable.is_empty() {
        let page = info.profile.geometry.page_bytes;
        let shown: Vec<_> = unreadable
            .iter()
            .take(RUNS_SHOWN)
            .map(|run| run.text(page))
            .collect();
        let more = if unreadable.len() > RUNS_SHOWN {
            ", and more"
        } else {
            ""
        };
        let pages: u32 = unreadable.iter().map(|run| run.pages).sum();
        findings.push(format!(
            "{} cannot be read: {}{more}",
            counted(pages.into(), "page"),
            shown.join(", ")
        ));
    }
    if as_json {
        let runs: Value = unreadable
            .iter()
            .map(|run| json!([run.first, run.pages]))
            .collect();
        let report = json!({
            "image": path, "scheme": scheme, "clean": info.clean, "pages_scanned": scanned,
            "pages_discarded": discarded, "findings": findings, "unreadable": runs,
            "write_cache": cache,
        });
        print_json("check", report)?;
    } else if findings.is_empty() {
        let stop = if info.clean {
            "clean shutdown"
        } else {
            "unclean shutdown, recovers"
        };
        print(&format!(
            "{}: good ({stop}; scheme {})\n",
            path.display(),
            scheme
        ))?;
        if let Some(text) = cache_text(&cache) {
            print(&format!("{text}\n"))?;
        }
    } else {
        print(
            &findings
                .iter()
                .fold(String::new(), |text, finding| text + finding + "\n"),
        )?;
    }
    match findings.len() {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Damaged,
            format!(
                "{}: {}; save what can be read with --read-only, see \"When an image is damaged\" in docs/RESCUE.md",
                path.display(),
                counted(to_u64(n), "finding")
            ),
        )),
    }
}

/// Maximum of runs of unreadable pages in a message.
const RUNS_SHOWN: usize = 8;

/// A run of adjacent logical pages.
struct Run {
    first: u32,
    pages: u32,
}

impl Run {
    fn text(&self, page_bytes: u32) -> String {
        let (at, bytes) = (
            u64::from(self.first) * u64::from(page_bytes),
            u64::from(self.pages) * u64::from(page_bytes),
        );
        format!("{} at offset {at}", show_size(bytes))
    }
}

/// Returns the mapped logical pages whose data is lost.
fn unreadable(chips: &mut Chips) -> Result<Vec<Run>, Failure> {
    let mut page = vec![0; index(chips.info.profile.geometry.page_bytes)];
    let mut runs: Vec<Run> = Vec::new();
    for lpn in 0..chips.pages() {
        let (shard, own) = chips.place(lpn)?;
        let read = chips.ftls[shard].read(0, Lpn::new(own), &mut page);
        if read.is_ok() {
            continue;
        }
        match runs.last_mut().filter(|run| run.first + run.pages == lpn) {
            Some(run) => run.pages += 1,
            None => runs.push(Run {
                first: lpn,
                pages: 1,
            }),
        }
    }
    Ok(runs)
}

fn header_json(info: &ImageInfo) -> Value {
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
fn blocks_json(shard: usize, chip: &Chip<FileStore>) -> Vec<Value> {
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
fn parse_page(text: &str, info: &ImageInfo) -> Result<(usize, Ppn), Failure> {
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

fn page_json(chip: &mut Chip<FileStore>, ppn: Ppn, numbers: &Numbers) -> Value {
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

/// Returns a record as text; without one, the reason.
fn record_text(record: &Value) -> String {
    match record["role"].as_str() {
        Some(role) => format!(
            "{role} {}, version {}, sequence number {}, epoch {}",
            record["lpn"], record["ver"], record["pseq"], record["epoch"]
        ),
        None => "no readable record".into(),
    }
}

/// Returns a page as text.
fn page_text(page: &Value) -> String {
    let (place, state) = (&page["place"], page["state"].as_str().unwrap_or("-"));
    let mut text = format!("page {}:{}: {state}\n", place["block"], place["page"]);
    if state != "erased" {
        text += &format!("  record    {}\n", record_text(&page["record"]));
    }
    text + &data_text(page)
}

/// Returns a logical page and its versions as text.
fn lpn_text(page: &Value) -> String {
    let state = match (page["error"].as_str(), page["mapped"] == true) {
        (Some(error), _) => error,
        (None, true) => "mapped",
        (None, false) => "not mapped",
    };
    let mut text = format!("logical page {}: {state}\n{}", page["lpn"], data_text(page));
    for copy in page["copies"].as_array().into_iter().flatten() {
        let place = format!("{}:{}", copy["block"], copy["page"]);
        text += &format!("  {place:<9} {}\n", record_text(&copy["record"]));
    }
    text
}

fn data_text(page: &Value) -> String {
    let head = page["data_head"].as_str();
    head.map_or(String::new(), |head| format!("  data      {head}...\n"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn lpn_json(ftl: &mut dyn Ftl<FileStore>, lpn: u32, numbers: &Numbers) -> Result<Value, Failure> {
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
fn copies_of(chip: &mut Chip<FileStore>, lpn: u32, numbers: &Numbers) -> Vec<Value> {
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

/// Returns how the bytes lie on several chips; empty for one.
fn chips_text(value: &Value) -> String {
    let stripe = value["stripe_bytes"].as_u64();
    stripe.map_or(String::new(), |bytes| {
        format!(
            ", {} chips in stripes of {}",
            value["shards"],
            show_size(bytes)
        )
    })
}

fn text(value: &Value, flash: &str) -> String {
    let size = |key: &str| value[key].as_u64().map_or("-".into(), show_size);
    let word = |key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let g = &value["geometry"];
    let params: Vec<_> = value["params"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut text = format!(
        "{}: format {}, uuid {}\n  scheme    {}\n  params    {}\n  device    {} on {} of raw {} flash{}\n  \
         geometry  {} blocks of {} pages of {}+{} bytes\n  flash     {}  shutdown  {}\n",
        word("image"),
        value["version"],
        word("uuid"),
        word("scheme"),
        params.join(" "),
        size("size_bytes"),
        size("raw_bytes"),
        word("profile"),
        chips_text(value),
        g["blocks"],
        g["pages_per_block"],
        g["page_bytes"],
        g["oob_bytes"],
        flash.replace("\n  ", "\n            "),
        if value["clean"] == true {
            "clean"
        } else {
            "unclean, or in use"
        },
    );
    if let Some(cache) = cache_text(&value["write_cache"]) {
        text += &format!("  cache     {cache}\n");
    }
    let shown = [
        ("page", page_text as fn(&Value) -> String),
        ("lpn", lpn_text),
    ];
    for (key, show) in shown.into_iter().filter(|(key, _)| !value[key].is_null()) {
        text += &show(&value[key]);
    }
    for block in value["blocks"].as_array().into_iter().flatten() {
        let bad = block["bad"]
            .as_str()
            .map_or(String::new(), |bad| format!("  bad ({bad})"));
        let (number, erases) = (block["block"].to_string(), block["erases"].to_string());
        text += &format!(
            "block {number:>8}  erases {erases:>6}  programmed {:>4}{bad}\n",
            block["programmed_pages"].to_string()
        );
    }
    text
}
