//! `ftld create`: an image without a device.

use crate::config::Config;
use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::size::show_size;
use crate::stack;
use serde_json::json;

/// `ftld create`.
///
/// # Errors
/// The image exists, its device is unknown or invalid, or the host refuses to write it.
pub fn create(config: &Config, as_json: bool) -> Result<(), Failure> {
    let made = stack::create(config)?;
    let (image, raw) = (
        config.image.display(),
        made.layout.profile.geometry.data_bytes(),
    );
    let effective = made.layout.effective_op_percent(made.bad_blocks);
    let paper: u64 = made.ram.iter().map(|entry| entry.paper_bytes).sum();
    let real: u64 = made.ram.iter().map(|entry| entry.allocated_bytes).sum();
    if as_json {
        let geometry = &made.layout.profile.geometry;
        return print_json(
            "create",
            json!({
                "image": config.image, "scheme": made.scheme.name, "profile": made.layout.profile.name,
                "size_bytes": made.size, "raw_bytes": raw, "blocks": geometry.blocks, "op_percent": made.op_percent,
                "effective_op_percent": effective, "ram_paper_bytes": paper, "ram_allocated_bytes": real,
            }),
        );
    }
    print(&format!(
        "{image}: {} ({} bytes) for the host on {} of raw {} flash, scheme {}, over-provisioning {} %, \
         effective {effective:.1} %, RAM {} (paper), {} (allocated)\n",
        show_size(made.size),
        made.size,
        show_size(raw),
        made.layout.profile.name,
        made.scheme.name,
        made.op_percent,
        show_size(paper),
        show_size(real)
    ))
}
