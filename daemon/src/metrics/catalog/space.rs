//! Space: blocks and pages.

use super::{Family, gauge, gauges, label, list, page_bytes};
use ftld_device::status::BlockState;
use ftld_kit::convert::to_f64;
use strum::VariantNames;

pub(super) const FAMILIES: &[Family] = &[
    gauges(
        "ftld_blocks",
        &[label("state", BlockState::VARIANTS)],
        "Flash blocks by state; the states add up to all blocks.",
        |view| list(view.blocks().map(u64::from)),
    ),
    gauges(
        "ftld_pages",
        &[label("state", &["valid", "free", "other"])],
        "Flash pages: valid, in free blocks, and all others.",
        |view| {
            let (geometry, scheme) = (view.facts.geometry(), &view.flash.scheme);
            let free = u64::from(scheme.blocks.free) * u64::from(geometry.pages_per_block);
            let others = view.facts.pages().saturating_sub(free + scheme.valid_pages);
            list([scheme.valid_pages, free, others])
        },
    ),
    gauge(
        "ftld_logical_mapped_bytes",
        "Bytes of logical pages that hold data.",
        |view| to_f64(view.flash.scheme.mapped_pages) * page_bytes(view),
    ),
];
