//! HTTP, the control socket and signals, from `ready` to the decision to stop.
//!
//! Always true: a device that is in use is flushed before its daemon waits for the user to let go.
//! If power fails here, what the volume last made durable is left.

use super::metrics_port::Http;
use super::served::Served;
use crate::control::Asked;
use crate::device::BlockDevice;
use crate::failure::Failure;
use crate::inject::{Injected, Injection};
use crate::metrics::hosts::Hosts;
use crate::metrics::http;
use crate::output::print;
use crate::pause::Turn;
use crate::shutdown::{Action, Event, Shutdown};
use crate::stack::DaemonStore;
use crate::status::{Facts, Observed};
use crate::transport::{Service, StopHow};
use crate::volume::Volume;
use crate::{control, notify};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

/// How often a waiting daemon looks whether the holder is gone, and any daemon whether its
/// transport is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// HTTP, control and signals, on a runtime of their own on this thread. Returns what shall become
/// of the device.
pub(super) fn run(
    served: &Arc<Served>,
    service: &Arc<dyn Service>,
    (http, hosts): (Http, Arc<Hosts>),
    control: std::os::unix::net::UnixListener,
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
        let observed = served.clone() as Arc<dyn Observed>;
        match http {
            Http::Off => {}
            Http::Listens(listener) => drop(tokio::spawn(http::serve(listener, observed, hosts))),
            Http::Taken(addr) => drop(tokio::spawn(http::serve_when_free(addr, observed, hosts))),
        }
        let (ask, asked) = mpsc::channel(4);
        tokio::spawn(control::serve(
            control,
            served.clone() as Arc<dyn Observed>,
            ask,
        ));
        ready();
        until_end(served, service, signals, asked).await
    })
}

/// The first request can be served.
pub(super) fn announce(facts: &Facts, as_json: bool) {
    let (target, metrics) = (&facts.target, facts.metrics.as_deref());
    let line = match as_json {
        true => {
            let (schema, name) = ("ftld.ready/1", &facts.name);
            json!({"schema": schema, "name": name, "target": target, "metrics": metrics})
                .to_string()
        }
        false => format!("ready {target} metrics={}", metrics.unwrap_or("off")),
    };
    if let Err(failure) = print(&(line + "\n")) {
        tracing::warn!("could not say ready: {failure}");
    }
    notify::ready(target);
    tracing::info!("ready {target}");
}

/// Decides at every signal, command and look whether the device ends, and in which way.
async fn until_end(
    served: &Arc<Served>,
    service: &Arc<dyn Service>,
    (mut terminate, mut interrupt): (Signal, Signal),
    mut asked: mpsc::Receiver<Asked>,
) -> Result<StopHow, Failure> {
    let mut shutdown = Shutdown::default();
    loop {
        let (event, stop) = tokio::select! {
            _ = terminate.recv() => (Event::Signal, None),
            _ = interrupt.recv() => (Event::Signal, None),
            () = served.volume.power_lost() => return Ok(StopHow::Remove),
            Some(asked) = asked.recv() => match asked {
                Asked::Stop { force, answer } => (if force { Event::ForcedStop } else { Event::Stop }, Some(answer)),
                Asked::Pace { turn, answer } => {
                    tokio::spawn(pace(served.volume.clone(), turn, answer));
                    continue;
                }
                Asked::Inject { fault, answer } => {
                    inject(served.volume.clone(), fault, answer).await;
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
        }
        served.wait_for(if action == Action::FlushAndWait || event == Event::Look {
            &holders
        } else {
            &[]
        });
        if let Some(stop) = stop {
            let told = if action == Action::FlushAndWait {
                holders.clone()
            } else {
                Vec::new()
            };
            let _ = stop.send(told);
        }
        match action {
            Action::Serve => {}
            Action::End(how) => {
                // The answer to `stop` goes out before the runtime does.
                tokio::task::yield_now().await;
                return Ok(how);
            }
            Action::FlushAndWait => {
                notify::waiting(&holders);
                tracing::warn!(
                    "held by {}; flushing, and stopping when they let go",
                    holders.join(", ")
                );
                flush(served.volume.clone()).await;
            }
        }
    }
}

/// Pauses, steps or resumes; the answer may take as long as a request does.
async fn pace(
    volume: Arc<Volume<DaemonStore>>,
    turn: Turn,
    answer: oneshot::Sender<Result<Value, Failure>>,
) {
    let done = tokio::task::spawn_blocking(move || turn.apply(&volume)).await;
    let _ = answer.send(done.unwrap_or_else(|_| Err(Failure::failed("internal error"))));
}

/// Injects a fault. The answer goes out before the runtime does.
async fn inject(
    volume: Arc<Volume<DaemonStore>>,
    fault: Injection,
    answer: oneshot::Sender<Result<Injected, Failure>>,
) {
    let injected = tokio::task::spawn_blocking(move || volume.inject(&fault)).await;
    let _ = answer.send(injected.unwrap_or_else(|_| Err(Failure::failed("internal error"))));
    tokio::task::yield_now().await;
}

/// Makes everything durable while somebody still has the device open.
async fn flush(volume: Arc<Volume<DaemonStore>>) {
    let flushed =
        tokio::task::spawn_blocking(move || volume.flush().and_then(|flush| flush.wait())).await;
    if !matches!(flushed, Ok(Ok(_))) {
        tracing::error!("the flush before stopping failed");
    }
}
