//! Logs go to stderr; standard output is for answers.

use tracing::level_filters::LevelFilter;

/// Starts logging at the level of `FTLD_LOG` (error, warn, info, debug, trace); `info` if unset or
/// invalid.
pub fn start() {
    let level = std::env::var("FTLD_LOG")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(LevelFilter::INFO);
    let journald = std::env::var_os("JOURNAL_STREAM").is_some();
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level);
    // The journal adds its own timestamps. A second start, as in tests, keeps the first.
    let _ = if journald {
        builder.without_time().try_init()
    } else {
        builder.try_init()
    };
}
