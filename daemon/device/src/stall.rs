//! Detection of a device whose requests no longer progress, from samples of counters.
//!
//! Nothing here takes a request lock, so a hung device cannot hang its detection.

use crate::volume::Queue;

/// Request progress at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgressSample {
    /// Number of times that the background thread got the request lock.
    pub turns: u64,
    /// Requests in the volume.
    pub volume: Queue,
    /// Requests in the kernel, if the target is a kernel device.
    pub device: Option<Queue>,
    /// Whether a request waits for the host's storage. The daemon cannot bound that time, and other
    /// requests may wait behind it.
    pub at_storage: bool,
    /// Whether the device is paused, for a limited time.
    pub paused: bool,
}

/// A part of the device that does not progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stall {
    /// The background thread, which waits for the request lock.
    #[error("nobody else had the request lock")]
    Lock,
    /// This many requests in the volume.
    #[error("none of {0} requests was answered")]
    Volume(u64),
    /// This many requests in the kernel.
    #[error("none of the kernel's {0} requests was answered")]
    Kernel(u64),
}

/// Compares each sample with the previous one.
#[derive(Debug, Default)]
pub struct StallDetector {
    last: ProgressSample,
}

impl StallDetector {
    /// Returns a detector that compares with `first`.
    pub fn new(first: ProgressSample) -> StallDetector {
        StallDetector { last: first }
    }

    /// Compares `now` with the sample before.
    ///
    /// # Errors
    /// Nothing progressed.
    pub fn look(&mut self, now: ProgressSample) -> Result<(), Stall> {
        let last = std::mem::replace(&mut self.last, now);
        if now.turns == last.turns {
            return Err(Stall::Lock);
        }
        if now.at_storage || last.at_storage || now.paused || last.paused {
            return Ok(());
        }
        let stuck = |last: Queue, now: Queue| {
            last.in_flight > 0 && now.in_flight > 0 && now.answered == last.answered
        };
        if stuck(last.volume, now.volume) {
            return Err(Stall::Volume(now.volume.in_flight));
        }
        match (last.device, now.device) {
            (Some(last), Some(now)) if stuck(last, now) => Err(Stall::Kernel(now.in_flight)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(in_flight: u64, answered: u64) -> Queue {
        Queue {
            in_flight,
            answered,
        }
    }

    /// Takes two samples, with a turn of the background thread in between.
    fn between(first: ProgressSample, second: ProgressSample) -> Result<(), Stall> {
        StallDetector { last: first }.look(ProgressSample {
            turns: first.turns + 1,
            ..second
        })
    }

    #[test]
    fn idle_and_busy_devices_get_on() {
        let idle = ProgressSample {
            volume: queue(0, 9),
            device: Some(queue(0, 9)),
            ..ProgressSample::default()
        };
        let busy = ProgressSample {
            volume: queue(3, 10),
            device: Some(queue(64, 10)),
            ..ProgressSample::default()
        };
        let later = ProgressSample {
            volume: queue(3, 11),
            device: Some(queue(64, 11)),
            ..ProgressSample::default()
        };
        // Requests received since the last sample need not be answered yet.
        let fresh = ProgressSample {
            volume: queue(3, 9),
            device: Some(queue(64, 9)),
            ..ProgressSample::default()
        };
        for (first, second) in [
            (idle, idle),
            (idle, busy),
            (busy, later),
            (later, idle),
            (idle, fresh),
        ] {
            assert_eq!(between(first, second), Ok(()));
        }
    }

    #[test]
    fn requests_that_stay_are_stuck_wherever_they_are() {
        let volume = ProgressSample {
            volume: queue(1, 9),
            ..ProgressSample::default()
        };
        let stall = between(volume, volume).unwrap_err().to_string();
        assert_eq!(stall, "none of 1 requests was answered");
        let kernel = ProgressSample {
            device: Some(queue(2, 9)),
            ..ProgressSample::default()
        };
        let stall = between(kernel, kernel).unwrap_err().to_string();
        assert_eq!(stall, "none of the kernel's 2 requests was answered");
    }

    #[test]
    fn who_waits_for_the_hosts_storage_is_not_stuck() {
        let stuck = ProgressSample {
            volume: queue(1, 9),
            device: Some(queue(2, 9)),
            ..ProgressSample::default()
        };
        let waits = ProgressSample {
            at_storage: true,
            ..stuck
        };
        assert_eq!(between(waits, stuck), Ok(()));
        assert_eq!(between(stuck, waits), Ok(()));
        assert!(between(stuck, stuck).is_err());
    }

    #[test]
    fn a_paused_device_is_not_stuck_but_one_whose_lock_is_taken_is() {
        let stuck = ProgressSample {
            volume: queue(1, 9),
            ..ProgressSample::default()
        };
        let paused = ProgressSample {
            paused: true,
            ..stuck
        };
        assert_eq!(
            (between(paused, stuck), between(stuck, paused)),
            (Ok(()), Ok(()))
        );
        assert!(StallDetector { last: paused }.look(paused).is_err());
    }

    #[test]
    fn a_lock_that_nobody_lets_go_is_stuck() {
        let mut progress = StallDetector::default();
        assert!(
            progress
                .look(ProgressSample {
                    turns: 0,
                    at_storage: true,
                    ..ProgressSample::default()
                })
                .is_err()
        );
        assert_eq!(
            progress.look(ProgressSample {
                turns: 1,
                ..ProgressSample::default()
            }),
            Ok(())
        );
    }
}
