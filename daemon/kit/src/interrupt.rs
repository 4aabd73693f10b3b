//! SIGINT and SIGTERM of a command that has to clean up.

use crate::failure::Failure;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::signal::unix::{SignalKind, signal};

/// The flag of this process: a signal between two parts of a command is for both.
static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Returns whether a signal has set the flag; false if nobody has asked for one.
pub fn came() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Relaxed))
}

/// Returns the flag that every SIGINT and SIGTERM sets from the first call on; neither ends the
/// process any more.
///
/// # Errors
/// The host refuses a thread or the signals.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    if let Some(flag) = FLAG.get() {
        return Ok(flag.clone());
    }
    let flag = FLAG.get_or_init(Arc::default).clone();
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
        assert!(Arc::ptr_eq(&flag, &super::flag().unwrap()) && !came());
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
