//! What the service manager hears: starting, ready, how it goes, what a stop waits for; and the
//! watchdog.
//!
//! What always holds: the watchdog is kicked from the runtime's own thread and only while requests
//! get on ([`Progress`]), so that a daemon that hangs is killed, and its device taken up by the
//! next one, instead of its users hanging with it. Where no service manager listens
//! (`NOTIFY_SOCKET`), nothing here does anything.

use crate::convert::to_f64;
use crate::status::{Observed, View};
use crate::volume::{Op, Queue, WritesFailing};
use sd_notify::NotifyState::{self, ExtendTimeoutUsec, Ready, Status, Stopping, Watchdog};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two lines of status where there is no watchdog.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Between two requests for patience, and how much is asked for.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_FOR: Duration = Duration::from_secs(30);

/// The first request can be served.
pub(crate) fn ready(target: &str) {
    tell(&[Ready, Status(&format!("serving {target}"))]);
}

/// A stop was asked for and waits.
pub(crate) fn waiting(holders: &[String]) {
    tell(&[Status(&waiting_line(holders))]);
}

/// The end has begun: how long it takes is up to the host's storage.
pub(crate) fn stopping() -> Patience {
    tell(&[Stopping, Status("stopping")]);
    Patience::ask("stopping: writing everything to the image".into())
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("telling the service manager: {error}");
    }
}

fn listens() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Keeps the service manager patient while an image is opened or closed, until dropped: how long
/// that takes depends on its size, on how the last daemon ended, and on the disk.
pub(crate) struct Patience {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Patience {
    /// Asks for it, with this status, now and again.
    pub(crate) fn ask(status: String) -> Self {
        let (stop, stopped) = channel();
        let again = move || loop {
            tell(&[
                ExtendTimeoutUsec(u32::try_from(ASK_FOR.as_micros()).unwrap_or(u32::MAX)),
                Status(&status),
            ]);
            if stopped.recv_timeout(ASK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        let start = || {
            std::thread::Builder::new()
                .name("ftld-patience".into())
                .spawn(again)
        };
        let thread = listens().then(start).transpose().unwrap_or_else(|error| {
            tracing::warn!("thread that asks the service manager for patience: {error}");
            None
        });
        Patience {
            thread: thread.map(|thread| (stop, thread)),
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// What shows whether requests get on, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// How often the background thread had the request lock.
    pub(crate) turns: u64,
    /// Requests as the volume sees them.
    pub(crate) volume: Queue,
    /// Requests as the kernel sees them, where the target is a device of its.
    pub(crate) device: Option<Queue>,
    /// Whether somebody waits for the host's storage. How long that takes is not ours, and requests
    /// may wait behind it.
    pub(crate) at_storage: bool,
    /// Whether requests wait because somebody paused the device, for a limited time.
    pub(crate) paused: bool,
}

/// Judges one pulse by the one before.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Pulse,
}

impl Progress {
    /// Says what did not get on since the last look, if anything.
    pub(crate) fn look(&mut self, now: Pulse) -> Result<(), String> {
        let last = std::mem::replace(&mut self.last, now);
        if now.turns == last.turns {
            return Err("nobody else had the request lock".into());
        }
        if now.at_storage || last.at_storage || now.paused || last.paused {
            return Ok(());
        }
        let stuck = |last: Queue, now: Queue| {
            last.under_way > 0 && now.under_way > 0 && now.answered == last.answered
        };
        if stuck(last.volume, now.volume) {
            return Err(format!(
                "none of {} requests was answered",
                now.volume.under_way
            ));
        }
        match (last.device, now.device) {
            (Some(last), Some(now)) if stuck(last, now) => Err(format!(
                "none of the kernel's {} requests was answered",
                now.under_way
            )),
            _ => Ok(()),
        }
    }
}

/// Tells how it goes, and kicks the watchdog if requests get on; until the runtime ends.
pub(crate) async fn watch(observed: Arc<dyn Observed>, pulse: impl Fn() -> Pulse) {
    if !listens() {
        return;
    }
    let every = sd_notify::watchdog_enabled().map_or(TELL_EVERY, |limit| limit / 2);
    let mut progress = Progress { last: pulse() };
    let mut written = observed.view().host.of(Op::Write).bytes;
    loop {
        tokio::time::sleep(every).await;
        let view = observed.view();
        let bytes = std::mem::replace(&mut written, view.host.of(Op::Write).bytes);
        let rate = to_f64(written - bytes) / every.as_secs_f64();
        match progress.look(pulse()) {
            Ok(()) => tell(&[Watchdog, Status(&line(&view, rate))]),
            Err(why) => {
                let stuck = format!("stuck: for {every:?} {why}; the watchdog goes unfed");
                tracing::error!("{stuck}");
                tell(&[Status(&stuck)]);
            }
        }
    }
}

/// One line for `systemctl status`; `rate` is what the host wrote in bytes a second.
fn line(view: &View, rate: f64) -> String {
    if !view.waiting_for.is_empty() {
        return waiting_line(&view.waiting_for);
    }
    let failing = view.writes_failing.filter(|_| view.trouble.is_none());
    let state = match failing.map_or_else(|| view.read_only_reason(), WritesFailing::text) {
        _ if view.paused.is_some() && failing.is_none() => "paused, ".into(),
        why if why.is_empty() => String::new(),
        why => format!("{} ({why}), ", view.state()),
    };
    let amplified = view
        .write_amplification()
        .map_or("-".into(), |ratio| format!("{ratio:.2}"));
    format!(
        "{}: {state}write amplification {amplified}, {} free blocks, {:.1} MB/s written",
        view.facts.scheme,
        view.flash.scheme.blocks.free,
        rate / 1e6
    )
}

fn waiting_line(holders: &[String]) -> String {
    format!("stop asked for, waiting: {}", holders.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(under_way: u64, answered: u64) -> Queue {
        Queue {
            under_way,
            answered,
        }
    }

    /// Two looks, a turn of the background thread between them.
    fn between(first: Pulse, second: Pulse) -> Result<(), String> {
        Progress { last: first }.look(Pulse {
            turns: first.turns + 1,
            ..second
        })
    }

    #[test]
    fn idle_and_busy_devices_get_on() {
        let idle = Pulse {
            volume: queue(0, 9),
            device: Some(queue(0, 9)),
            ..Pulse::default()
        };
        let busy = Pulse {
            volume: queue(3, 10),
            device: Some(queue(64, 10)),
            ..Pulse::default()
        };
        let later = Pulse {
            volume: queue(3, 11),
            device: Some(queue(64, 11)),
            ..Pulse::default()
        };
        // What came since the last look need not have been answered.
        let fresh = Pulse {
            volume: queue(3, 9),
            device: Some(queue(64, 9)),
            ..Pulse::default()
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
        let volume = Pulse {
            volume: queue(1, 9),
            ..Pulse::default()
        };
        assert!(
            between(volume, volume)
                .unwrap_err()
                .contains("none of 1 requests")
        );
        let kernel = Pulse {
            device: Some(queue(2, 9)),
            ..Pulse::default()
        };
        assert!(
            between(kernel, kernel)
                .unwrap_err()
                .contains("kernel's 2 requests")
        );
    }

    #[test]
    fn who_waits_for_the_hosts_storage_is_not_stuck() {
        let stuck = Pulse {
            volume: queue(1, 9),
            device: Some(queue(2, 9)),
            ..Pulse::default()
        };
        let waits = Pulse {
            at_storage: true,
            ..stuck
        };
        assert_eq!(between(waits, stuck), Ok(()));
        assert_eq!(between(stuck, waits), Ok(()));
        assert!(between(stuck, stuck).is_err());
    }

    #[test]
    fn a_paused_device_is_not_stuck_but_one_whose_lock_is_taken_is() {
        let stuck = Pulse {
            volume: queue(1, 9),
            ..Pulse::default()
        };
        let paused = Pulse {
            paused: true,
            ..stuck
        };
        assert_eq!(
            (between(paused, stuck), between(stuck, paused)),
            (Ok(()), Ok(()))
        );
        assert!(Progress { last: paused }.look(paused).is_err());
    }

    #[test]
    fn a_lock_that_nobody_lets_go_is_stuck() {
        let mut progress = Progress::default();
        assert!(
            progress
                .look(Pulse {
                    turns: 0,
                    at_storage: true,
                    ..Pulse::default()
                })
                .is_err()
        );
        assert_eq!(
            progress.look(Pulse {
                turns: 1,
                ..Pulse::default()
            }),
            Ok(())
        );
    }
}
