//! The text of `ftld inspect`.

use super::values::{Content, Inspected, LogicalPage, Page, Record, hex};
use ftld_kit::size::show_size;
use nand_model::ImageInfo;

pub(super) fn text(found: &Inspected, info: &ImageInfo, flash: &str) -> String {
    let g = &info.profile.geometry;
    let params: Vec<_> = info.params.lines().collect();
    let mut text = format!(
        "{}: format {}, uuid {}\n  scheme    {}\n  params    {}\n  device    {} on {} of raw {} flash{}\n  \
         geometry  {} blocks of {} pages of {}+{} bytes\n  flash     {}  shutdown  {}\n",
        found.image.image,
        info.version,
        hex(&info.uuid),
        info.scheme,
        params.join(" "),
        show_size(info.size),
        show_size(g.data_bytes() * u64::from(info.shards())),
        info.profile.name,
        chips_text(info),
        g.blocks,
        g.pages_per_block,
        g.page_bytes,
        g.oob_bytes,
        flash.replace("\n  ", "\n            "),
        if info.clean {
            "clean"
        } else {
            "unclean, or in use"
        },
    );
    if let Some(cache) = &found.write_cache {
        text += &format!("  cache     {}\n", cache.text());
    }
    if let Some(of) = &found.page {
        text += &page_text(&of.page);
    }
    if let Some(of) = &found.lpn {
        text += &lpn_text(&of.page);
    }
    for block in found.blocks.iter().flatten() {
        let bad = block
            .bad
            .map_or(String::new(), |bad| format!("  bad ({bad})"));
        text += &format!(
            "block {:>8}  erases {:>6}  programmed {:>4}{bad}\n",
            block.block, block.erases, block.programmed_pages
        );
    }
    text
}

/// Returns the layout of the bytes on several chips; empty for one.
fn chips_text(info: &ImageInfo) -> String {
    info.shard.map_or(String::new(), |shard| {
        let (shards, stripe) = (info.shards(), show_size(shard.striping.stripe_bytes));
        format!(", {shards} chips in stripes of {stripe}")
    })
}

/// Returns a page as text.
fn page_text(page: &Page) -> String {
    let (place, state) = (&page.place, page.state);
    let mut text = format!("page {}:{}: {state}\n", place.block, place.page);
    if let Some(Content {
        record, data_head, ..
    }) = &page.content
    {
        text += &format!("  record    {}\n", record_text(record.as_ref()));
        text += &data_text(data_head.as_deref());
    }
    text
}

/// Returns a logical page and its versions as text.
fn lpn_text(page: &LogicalPage) -> String {
    let state = match (&page.error, page.mapped) {
        (Some(error), _) => error,
        (None, true) => "mapped",
        (None, false) => "not mapped",
    };
    let mut text = format!("logical page {}: {state}\n", page.lpn);
    text += &data_text(page.data_head.as_deref());
    for copy in &page.copies {
        let place = format!("{}:{}", copy.place.block, copy.place.page);
        text += &format!("  {place:<9} {}\n", record_text(Some(&copy.record)));
    }
    text
}

/// Returns a record as text; without one, the reason.
fn record_text(record: Option<&Record>) -> String {
    record.map_or("no readable record".into(), |record| {
        let Record {
            role,
            lpn,
            ver,
            pseq,
            epoch,
        } = record;
        format!("{role} {lpn}, version {ver}, sequence number {pseq}, epoch {epoch}")
    })
}

fn data_text(head: Option<&str>) -> String {
    head.map_or(String::new(), |head| format!("  data      {head}...\n"))
}
