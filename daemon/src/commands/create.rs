//! `ftld create`: an image without a device.

use ftld_device::aging::{Conditioned, ImageAge};
use ftld_device::config::Config;
use ftld_device::stack;
use ftld_kit::failure::Failure;
use ftld_kit::output::{print, print_json, wrapped_on_terminal};
use ftld_kit::path_json;
use ftld_kit::size::show_size;
use ftld_lab::replay::{SOON, bar, show};
use serde_json::json;
use std::time::Instant;

/// `ftld create`.
///
/// # Errors
/// The image exists, its device is unknown or invalid, or the host refuses to write it.
pub(crate) fn create(config: &Config, age: Option<ImageAge>, as_json: bool) -> Result<(), Failure> {
    let (bar, began) = (bar(), Instant::now());
    let made = stack::create_aged(config, age, &mut |share| {
        if began.elapsed() > SOON {
            show(&bar, share, "ageing");
        }
    });
    bar.finish_and_clear();
    let made = made?;
    let (image, raw) = (config.image.display(), made.raw_bytes());
    let shards = made.shards();
    let effective = made.layout.effective_op_percent(made.bad_blocks / shards);
    let paper: u64 = made.ram.iter().map(|entry| entry.paper_bytes).sum();
    let real: u64 = made.ram.iter().map(|entry| entry.allocated_bytes).sum();
    if as_json {
        let geometry = &made.layout.profile.geometry;
        return print_json(
            "create",
            json!({
                "image": path_json::shown(&config.image), "scheme": made.scheme.name, "profile": made.layout.profile.name,
                "size_bytes": made.size, "raw_bytes": raw, "blocks": geometry.blocks * shards, "shards": shards,
                "stripe_bytes": made.striping.map(|striping| striping.stripe_bytes), "op_percent": made.op_percent,
                "effective_op_percent": effective, "ram_paper_bytes": paper, "ram_allocated_bytes": real,
                "age": made.aged,
            }),
        );
    }
    let aged = made
        .aged
        .as_ref()
        .map_or(String::new(), |aged| aged_text(aged, age));
    print(&wrapped_on_terminal(&format!(
        "{image}: {} ({} bytes) for the host on {} of raw {} flash, scheme {}, over-provisioning {} %, \
         effective {effective:.1} %, RAM {} (paper), {} (allocated){}{aged}\n",
        show_size(made.size),
        made.size,
        show_size(raw),
        made.layout.profile.name,
        made.scheme.name,
        made.op_percent,
        show_size(paper),
        show_size(real),
        made.chips_text()
    )))
}

fn aged_text(aged: &Conditioned, age: Option<ImageAge>) -> String {
    let mut text = format!("\naged: {:.2} drive writes", aged.drive_writes);
    if let Some(amplification) = aged.write_amplification {
        text += &format!(", at the end write amplification {amplification:.2}");
    }
    text += match aged.steady {
        Some(true) => ", steady state",
        Some(false) => ", not steady",
        None => "",
    };
    if age.is_some_and(|age| age.is_worn) {
        text += ", blocks at 97 to 100 % of their rated erases";
    }
    text
}
