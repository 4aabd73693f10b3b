//! Progress of a job on the terminal.
//!
//! Invariants: it is drawn on standard error only. Power failure does not matter here.

use ftld_kit::convert::{to_f64, whole};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// Progress callback: the share done, and the current activity.
pub(crate) type Tick<'a> = &'a mut dyn FnMut(f64, &'static str);

/// Requests between two ticks.
pub(super) const TICK: u64 = 4096;

/// Duration below which a job has no progress bar.
pub const SOON: Duration = Duration::from_secs(1);
const STEPS: u64 = 1000;

/// Creates a progress bar on standard error, drawn only if that is a terminal.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::new(STEPS);
    let style = ProgressStyle::with_template(
        "{msg:16} {bar:40} {percent:>3} %  {elapsed} (about {eta} left)",
    );
    bar.set_style(style.expect("the template is right"));
    bar
}

/// Shows the share that is done and the current activity.
pub fn show(bar: &ProgressBar, share: f64, doing: &'static str) {
    assert!(
        (0.0..=1.0).contains(&share),
        "{doing}: {share} of the work is done"
    );
    if bar.message() != doing {
        bar.set_message(doing);
        bar.reset();
    }
    bar.set_position(whole(share * to_f64(STEPS)));
}
