//! SIGINT and SIGTERM of a command that has to clean up.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::signal::unix::{SignalKind, signal};

/// Returns a flag that SIGINT and SIGTERM set from now on; neither ends the process any more.
///
/// # Errors
/// The host refuses a thread or the signals.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    let failed = |error: std::io::Error| Failure::io("signals", &error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        let interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        (interrupt, signal(SignalKind::terminate()).map_err(failed)?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            set.store(true, Relaxed);
        });
    };
    std::thread::Builder::new()
        .name("ftld-signal".into())
        .spawn(wait)
        .map_err(failed)?;
    Ok(flag)
}
