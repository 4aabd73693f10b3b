//! Messages to the service manager: starting, ready, status, pending stop; and the watchdog.
//!
//! Invariants: the runtime's own thread feeds the watchdog, and only while requests progress
//! ([`StallDetector`]). So a hung daemon is killed, and the next one reattaches its device, instead
//! of its users hanging with it. Without a service manager (`NOTIFY_SOCKET`) this module does
//! nothing.

use ftld_device::stall::{ProgressSample, StallDetector};
use ftld_device::status::StatusSnapshot;
use ftld_device::status::StatusSource;
use ftld_device::volume::{Op, WritesFailing};
use ftld_kit::convert::to_f64;
use sd_notify::NotifyState::{self, ExtendTimeoutUsec, Ready, Status, Stopping, Watchdog};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between two status lines without a watchdog.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Interval between two requests for a longer timeout, and the length of each extension.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_FOR: Duration = Duration::from_secs(30);

/// Reports that the daemon is ready for requests.
pub(crate) fn ready(target: &str) {
    tell(&[Ready, Status(&format!("serving {target}"))]);
}

/// Reports a stop that waits for holders.
pub(crate) fn waiting(holders: &[String]) {
    tell(&[Status(&waiting_line(holders))]);
}

/// Reports that the stop has begun; its duration depends on the host's storage.
pub(crate) fn stopping() -> TimeoutExtender {
    tell(&[Stopping, Status("stopping")]);
    TimeoutExtender::ask("stopping: flushing to the image".into())
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("telling the service manager: {error}");
    }
}

fn listens() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Extends the service manager's timeout until dropped, while an image is opened or closed. That
/// time depends on the image's size, on the last daemon's shutdown, and on the disk.
pub(crate) struct TimeoutExtender {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl TimeoutExtender {
    /// Starts the extensions, each with this status.
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
            tracing::warn!("thread that extends the service manager's time limit: {error}");
            None
        });
        TimeoutExtender {
            thread: thread.map(|thread| (stop, thread)),
        }
    }
}

impl Drop for TimeoutExtender {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Reports the status, and feeds the watchdog while requests progress, until the runtime ends.
pub(crate) async fn watch(observed: Arc<dyn StatusSource>, pulse: impl Fn() -> ProgressSample) {
    if !listens() {
        return;
    }
    let every = sd_notify::watchdog_enabled().map_or(TELL_EVERY, |limit| limit / 2);
    let mut progress = StallDetector::new(pulse());
    let mut written = observed.view().host.of(Op::Write).bytes;
    loop {
        tokio::time::sleep(every).await;
        let view = observed.view();
        let bytes = std::mem::replace(&mut written, view.host.of(Op::Write).bytes);
        let rate = to_f64(written - bytes) / every.as_secs_f64();
        match progress.look(pulse()) {
            Ok(()) => {
                tell(&[Watchdog, Status(&line(&view, rate))]);
                observed.service().note_watchdog();
            }
            Err(why) => {
                let stuck = format!("stuck: for {every:?} {why}; watchdog keep-alive withheld");
                tracing::error!("{stuck}");
                tell(&[Status(&stuck)]);
            }
        }
    }
}

/// Returns the line for `systemctl status`; `rate` is the host's write rate in bytes/s.
fn line(view: &StatusSnapshot, rate: f64) -> String {
    if !view.waiting_for.is_empty() {
        return waiting_line(&view.waiting_for);
    }
    let failing = view.writes_failing.filter(|_| view.failure.is_none());
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
    format!("stopping; device in use: {}", holders.join("; "))
}
