//! HTTP, the control socket and signals, from `ready` to the decision to stop.
//!
//! Invariants: a device in use is flushed before its daemon waits for the last close. If power
//! fails here, the image has the state that the volume last made durable.

use super::metrics_port::Http;
use super::served::Served;
use crate::control::ControlCommand;
use crate::live_page::{PageSource, history, neighbours};
use crate::metrics::hosts::Hosts;
use crate::metrics::http;
use crate::{control, notify};
use ftld_device::device::{BlockDevice, FlushOf};
use ftld_device::inject::{Injected, Injection};
use ftld_device::instance::Dirs;
use ftld_device::pause::{PauseAnswer, PauseCommand};
use ftld_device::shutdown::{Action, Event, Shutdown};
use ftld_device::status::InstanceInfo;
use ftld_device::status::StatusSource;
use ftld_device::transport::holders::Users;
use ftld_device::transport::{Service, StopHow};
use ftld_device::volume::Volume;
use ftld_kit::failure::{Failure, panic_text};
use ftld_kit::interrupt;
use ftld_kit::output::print;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// Interval at which a waiting daemon checks whether the device is still open, and any daemon
/// checks its transport.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Serves HTTP, control and signals on a runtime of its own on this thread. Returns the way to end
/// the device.
pub(super) fn run(
    served: &Arc<Served>,
    service: &Arc<dyn Service>,
    (http, hosts): (Http, Arc<Hosts>),
    control: std::os::unix::net::UnixListener,
    dirs: &Dirs,
    ready: impl FnOnce(),
) -> Result<StopHow, Failure> {
    let failed = |error: std::io::Error| Failure::io("runtime", &error);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let signals = (
            signal(SignalKind::terminate()).map_err(failed)?,
            signal(SignalKind::interrupt()).map_err(failed)?,
        );
        // A signal that came while the device was made.
        if interrupt::came() {
            return Ok(StopHow::Remove);
        }
        let observed = served.clone() as Arc<dyn PageSource>;
        if !matches!(http, Http::Off) {
            spawn(served, "history", history::record(observed.clone()));
        }
        if http.is_loopback() {
            let refresh = neighbours::refresh(dirs.clone(), observed.clone());
            spawn(served, "neighbours", refresh);
        }
        match http {
            Http::Off => {}
            Http::Listens(listener) => {
                spawn(served, "http", http::serve(listener, observed, hosts))
            }
            Http::Taken(addr) => {
                spawn(served, "http", http::serve_when_free(addr, observed, hosts))
            }
        }
        let (ask, asked) = mpsc::channel(4);
        let observed = served.clone() as Arc<dyn StatusSource>;
        spawn(served, "control", control::serve(control, observed, ask));
        ready();
        until_end(served, service, signals, asked).await
    })
}

/// Starts a task of the runtime. If it panics, the device fails; otherwise its end would go
/// unnoticed.
fn spawn<T: Send + 'static>(
    served: &Arc<Served>,
    name: &'static str,
    task: impl Future<Output = T> + Send + 'static,
) {
    let (task, volume) = (tokio::spawn(task), served.volume.clone());
    tokio::spawn(async move {
        if let Err(error) = task.await
            && let Ok(panic) = error.try_into_panic()
        {
            volume.note_dead_thread(name, panic_text(&*panic));
        }
    });
}

/// Reports that the device is ready for its first request.
pub(super) fn announce(facts: &InstanceInfo, as_json: bool) {
    let (target, metrics) = (&facts.target, facts.metrics.as_deref());
    let line = match as_json {
        true => {
            let (schema, name) = ("ftld.ready/1", &facts.name);
            json!({"schema": schema, "name": name, "target": target, "metrics": metrics})
                .to_string()
        }
        false => format!("ready {target} metrics={}", metrics.unwrap_or("off")),
    };
    // The log line is first: the ready line returns the caller of a background daemon to its
    // prompt.
    tracing::info!("ready {target}");
    if let Err(failure) = print(&(line + "\n")) {
        tracing::warn!("cannot print the ready line: {failure}");
    }
    notify::ready(target);
}

/// Decides at every signal, command and check whether the device ends, and in which way.
async fn until_end(
    served: &Arc<Served>,
    service: &Arc<dyn Service>,
    (mut terminate, mut interrupt): (Signal, Signal),
    mut asked: mpsc::Receiver<ControlCommand>,
) -> Result<StopHow, Failure> {
    let mut shutdown = Shutdown::default();
    loop {
        let (event, stop) = tokio::select! {
            _ = terminate.recv() => (Event::Signal, None),
            _ = interrupt.recv() => (Event::Signal, None),
            () = served.volume.power_lost() => return Ok(StopHow::Remove),
            Some(asked) = asked.recv() => match asked {
                asked if asked.is_abandoned() => continue,
                ControlCommand::Stop { force, answer } => (if force { Event::ForcedStop } else { Event::Stop }, Some(answer)),
                ControlCommand::Pause { action, answer } => {
                    tokio::spawn(pause(served.volume.clone(), action, answer));
                    continue;
                }
                ControlCommand::Inject { fault, answer } => {
                    inject(served.clone(), fault, answer).await;
                    continue;
                }
            },
            () = tokio::time::sleep(LOOK_EVERY) => (Event::Look, None),
        };
        if let Some(why) = service.ended() {
            return Err(Failure::failed(format!("{}: {why}", service.target())));
        }
        if event == Event::Look && !shutdown.waiting() {
            continue;
        }
        let asking = service.clone();
        let holders = tokio::task::spawn_blocking(move || asking.holders())
            .await
            .unwrap_or_default();
        let action = shutdown.decide(event, !holders.is_empty());
        if action != Action::Serve {
            served.volume.resume();
            served.faults.release();
        }
        served.wait_for(if action == Action::FlushAndWait || event == Event::Look {
            &holders.waiting_for
        } else {
            &[]
        });
        if let Some(stop) = stop {
            let told = if action == Action::FlushAndWait {
                holders.clone()
            } else {
                Users::default()
            };
            let _ = stop.send(told);
        }
        match action {
            Action::Serve => {}
            Action::End(how) => {
                // Lets the answer to `stop` be sent before the runtime ends.
                tokio::task::yield_now().await;
                return Ok(how);
            }
            Action::FlushAndWait => {
                assert!(
                    !holders.is_empty(),
                    "the stop waits for a device that is not open"
                );
                notify::waiting(&holders.waiting_for);
                tracing::warn!("in use: {holders}; flushing; stops after last close");
                flush(served.volume.clone()).await;
            }
        }
    }
}

/// Pauses, steps or resumes; the answer may take as long as a request does.
async fn pause(
    volume: Arc<Volume>,
    command: PauseCommand,
    answer: oneshot::Sender<Result<PauseAnswer, Failure>>,
) {
    let done = tokio::task::spawn_blocking(move || command.apply(&volume)).await;
    let _ = answer.send(done.unwrap_or_else(|_| Err(Failure::failed("internal error"))));
}

/// Injects a fault. The answer is sent before the runtime ends.
async fn inject(
    served: Arc<Served>,
    fault: Injection,
    answer: oneshot::Sender<Result<Injected, Failure>>,
) {
    let run = move || match fault.of_requests() {
        Some(command) => served.faults.run(&command, &*served.volume),
        None => served.volume.inject(&fault),
    };
    let injected = tokio::task::spawn_blocking(run).await;
    let _ = answer.send(injected.unwrap_or_else(|_| Err(Failure::failed("internal error"))));
    tokio::task::yield_now().await;
}

/// Makes everything durable while a user still has the device open.
async fn flush(volume: Arc<Volume>) {
    let flushing = move || volume.flush(FlushOf::Everything)?.wait();
    let flushed = tokio::task::spawn_blocking(flushing).await;
    if !matches!(flushed, Ok(Ok(_))) {
        tracing::error!("the flush before stopping failed");
    }
}
