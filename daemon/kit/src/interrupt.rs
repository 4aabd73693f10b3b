//! SIGINT and SIGTERM of a command that has to clean up.

use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::signal::unix::{SignalKind, signal};

/// Returns a flag that every SIGINT and SIGTERM sets from now on; neither ends the process any
/// more.
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
            loop {
                let came = tokio::select! {
                    came = interrupt.recv() => came,
                    came = terminate.recv() => came,
                };
                if came.is_none() {
                    return;
                }
                set.store(true, Relaxed);
            }
        });
    };
    std::thread::Builder::new()
        .name("ftld-signal".into())
        .spawn(wait)
        .map_err(failed)?;
    Ok(flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::{Signal, raise};
    use std::time::{Duration, Instant};

    #[test]
    fn every_signal_sets_the_flag_anew() {
        let flag = flag().unwrap();
        for signal in [Signal::SIGTERM, Signal::SIGTERM, Signal::SIGINT] {
            raise(signal).unwrap();
            let end = Instant::now() + Duration::from_secs(10);
            while !flag.swap(false, Relaxed) {
                assert!(Instant::now() < end, "no flag for {signal}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
