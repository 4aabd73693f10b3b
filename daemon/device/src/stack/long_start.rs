//! Reports during a long start: opening an image and mounting its scheme may read many records.
//!
//! Invariant: no report after the guard is dropped. Nothing here reads or writes the image.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time until the first report, and between two.
pub(super) const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Calls a function at regular intervals until it is dropped.
pub(super) struct LongStart {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LongStart {
    /// Calls `report` with the time since the start, once per `every`. If no thread can be created,
    /// there are no reports.
    pub(super) fn watch(every: Duration, report: impl Fn(Duration) + Send + 'static) -> LongStart {
        let (done, wait) = channel::<()>();
        let begun = Instant::now();
        let watch = move || {
            while wait.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                report(begun.elapsed());
            }
        };
        let thread = std::thread::Builder::new().name("ftld-start".into());
        LongStart {
            done: Some(done),
            thread: thread.spawn(watch).ok(),
        }
    }
}

impl Drop for LongStart {
    fn drop(&mut self) {
        self.done = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    #[test]
    fn a_long_start_is_reported_until_it_ends_and_a_short_one_never() {
        let reports = Arc::<AtomicU32>::default();
        let count = reports.clone();
        drop(LongStart::watch(Duration::from_secs(3600), move |_| {
            count.fetch_add(1, SeqCst);
        }));
        assert_eq!(reports.load(SeqCst), 0);
        let (every, count) = (Duration::from_millis(2), reports.clone());
        let start = LongStart::watch(every, move |since| {
            assert!(since >= every);
            count.fetch_add(1, SeqCst);
        });
        while reports.load(SeqCst) < 3 {
            std::thread::yield_now();
        }
        drop(start);
        let at_end = reports.load(SeqCst);
        std::thread::sleep(10 * every);
        assert_eq!(reports.load(SeqCst), at_end);
    }
}
