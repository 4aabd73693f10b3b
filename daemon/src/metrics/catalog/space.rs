//! Space: blocks and pages.

use super::{BY_STATE, Family, Kind, label, page_bytes};
use crate::convert::to_f64;

pub(super) const FAMILIES: &[Family] = &[
    Family {
        name: "ftld_blocks",
        kind: Kind::Gauge,
        labels: BY_STATE,
        help: "Flash blocks by state; the states add up to all blocks.",
        fill: |view, to| {
            view.blocks()
                .iter()
                .for_each(|(state, count)| to.value(&[state], f64::from(*count)))
        },
    },
    Family {
        name: "ftld_pages",
        kind: Kind::Gauge,
        labels: &[label("state", &["valid", "free", "other"])],
        help: "Flash pages: valid, in free blocks, and all others.",
        fill: |view, to| {
            let (geometry, scheme) = (view.facts.geometry(), &view.flash.scheme);
            let free = u64::from(scheme.blocks.free) * u64::from(geometry.pages_per_block);
            to.value(&["valid"], to_f64(scheme.valid_pages));
            to.value(&["free"], to_f64(free));
            to.value(
                &["other"],
                to_f64(view.facts.pages().saturating_sub(free + scheme.valid_pages)),
            );
        },
    },
    Family {
        name: "ftld_logical_mapped_bytes",
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes of logical pages that hold data.",
        fill: |view, to| {
            to.value(
                &[],
                to_f64(view.flash.scheme.mapped_pages) * page_bytes(view),
            )
        },
    },
];
