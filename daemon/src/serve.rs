//! A daemon's life: take the name, the metrics port, the image, the device; say `ready`; serve; let
//! go in reverse order.
//!
//! If power fails anywhere in here, the image is what the volume last made durable; if only this
//! process dies, what it acknowledged is in the image and the next start takes the name and the
//! image over.

use crate::activation::Passed;
use crate::background::Background;
use crate::config::Config;
use crate::control::{self, Asked};
use crate::detach;
use crate::device::BlockDevice;
use crate::failure::{Exit, Failure};
use crate::instance::{Dirs, Instance};
use crate::metrics::{hosts::Hosts, http};
use crate::notify::{self, Patience, Pulse};
use crate::output::print;
use crate::shutdown::{Action, Event, Shutdown};
use crate::stack::{self, DaemonStore};
use crate::status::{Facts, Observed, View};
use crate::sys;
use crate::target::Target;
use crate::transport::nbd::{NbdStats, Tls};
use crate::transport::{self, Context, Service, StopHow};
use crate::volume::{BlockMap, EventsView, Volume};
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// How often a waiting daemon looks whether the holder is gone, and any daemon whether its
/// transport is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How a daemon is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Insists on taking over what a killed daemon left.
    pub recover: bool,
    /// Goes on without its caller once it is ready.
    pub detached: bool,
    /// The ready line is JSON.
    pub json: bool,
}

/// Serves until told to stop.
pub fn serve(config: &Config, dirs: &Dirs, how: How) -> Result<(), Failure> {
    sys::private_umask();
    if how.detached {
        detach::leave_session();
    }
    let target = config.target.clone().unwrap_or_else(|| {
        let target = transport::default_target(&dirs.of(&config.name));
        tracing::info!("no target given: serving {target}");
        target
    });
    let passed = Passed::take(&target)?;
    transport::probe(&target, how.recover)?;
    let tls = load_tls(config, &target)?;
    prepare(&target);
    let instance = Instance::take(dirs, &config.name)?;
    let http = match passed.metrics {
        Some(listener) => Http::Listens(listener),
        None => Http::bind(config.metrics, &instance)?,
    };
    let metrics = http.url()?;
    let patience = Patience::ask(format!("recovering: opening {}", config.image.display()));
    let opening = Instant::now();
    let stack = stack::open_or_create(config)?;
    let opened_in = opening.elapsed();
    let volume = Arc::new(stack.volume);
    let image = std::fs::canonicalize(&config.image)
        .map_err(|error| Failure::io(config.image.display(), &error))?;
    let context = Context {
        name: &config.name,
        image: &image.to_string_lossy(),
        tls: tls.as_ref(),
    };
    let started = control::bind(&dirs.control(&config.name)).and_then(|control| {
        Ok((
            control,
            transport::start(&target, passed.nbd, volume.clone(), context)?,
        ))
    });
    drop(patience);
    let (control, service) = match started {
        Ok(started) => started,
        Err(failure) => {
            close(&volume, &image)?;
            return Err(failure);
        }
    };
    let facts = Facts {
        name: config.name.clone(),
        target: service.target(),
        transport: target.transport(),
        image,
        scheme: stack.scheme,
        profile: stack.profile,
        size: volume.size(),
        logical_bytes: stack.logical_bytes,
        metrics: metrics.clone(),
        read_only: config.read_only,
        latency: config.latency,
        started: SystemTime::now(),
        opened_in,
        was_clean: stack.was_clean,
    };
    let served = Arc::new(Served {
        facts: Arc::new(facts),
        volume,
        nbd: service.nbd_stats(),
        waiting_for: Mutex::default(),
    });
    let background = Background::start(&served.volume)
        .map_err(|error| Failure::io("background thread", &error))?;
    let hosts = Arc::new(Hosts::new(&config.metrics_hosts));
    let pulse = {
        let (volume, service, turns) = (served.volume.clone(), service.clone(), background.turns());
        move || Pulse {
            turns: turns.load(Relaxed),
            volume: volume.queue(),
            device: service.kernel_queue(),
            at_storage: volume.waits_for_storage(),
            paused: volume.paused().is_some(),
        }
    };
    let ready = || {
        announce(&served.facts, how.json);
        if how.detached {
            detach::leave_terminal(&dirs.log(&config.name));
        }
        tokio::spawn(notify::watch(served.clone() as Arc<dyn Observed>, pulse));
    };
    let how = match run(&served, &service, (http, hosts), control, ready) {
        Ok(how) => how,
        Err(failure) => {
            end(&served, &*service, background, StopHow::Remove)?;
            return Err(failure);
        }
    };
    end(&served, &*service, background, how)?;
    match how {
        StopHow::Remove => Ok(()),
        StopHow::Leave => Err(Failure::new(
            Exit::Quiesced,
            format!(
                "{} stays and waits: everything is flushed; take it up again with `ftld recover {0}`",
                service.target()
            ),
        )),
    }
}

/// Where HTTP is served.
enum Http {
    Off,
    Listens(std::net::TcpListener),
    /// Another process has the address: served when it is free.
    Taken(SocketAddr),
}

impl Http {
    /// Any user can take a port while no daemon has it. So one that is taken stops a first start,
    /// which somebody looks at, but not the successor of a daemon that died, whose users wait.
    fn bind(addr: Option<SocketAddr>, instance: &Instance) -> Result<Http, Failure> {
        let Some(addr) = addr else {
            return Ok(Http::Off);
        };
        match http::bind(addr) {
            Ok(listener) => Ok(Http::Listens(listener)),
            Err(failure) if failure.exit == Exit::InUse && instance.taken_over() => {
                tracing::warn!(
                    "{failure}; taking over from a dead daemon without metrics, until the address is free"
                );
                Ok(Http::Taken(addr))
            }
            Err(failure) => Err(failure),
        }
    }

    fn url(&self) -> Result<Option<String>, Failure> {
        let Http::Listens(listener) = self else {
            return Ok(None);
        };
        let addr = listener
            .local_addr()
            .map_err(|error| Failure::io("metrics socket", &error))?;
        Ok(Some(format!("http://{addr}/metrics")))
    }
}

/// TLS, if it is wanted.
fn load_tls(config: &Config, target: &Target) -> Result<Option<Tls>, Failure> {
    let Some(options) = &config.tls else {
        return Ok(None);
    };
    if !matches!(target, Target::Nbd(_)) {
        return Err(Failure::usage(format!(
            "TLS is for NBD addresses, not for {target}; give one, or leave --tls out"
        )));
    }
    if let Some(ip) = target
        .beyond_this_machine()
        .filter(|_| options.client_ca.is_none())
    {
        tracing::warn!(
            "anybody who reaches {ip} may read and write the device; --tls-client-ca asks for certificates"
        );
    }
    Tls::load(options)
        .map(Some)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// What a process needs that others' block I/O depends on; before there is a second thread.
fn prepare(target: &Target) {
    if matches!(target, Target::Nbd(_)) {
        return;
    }
    for refused in sys::prepare_for_block_device() {
        tracing::warn!("goes without {refused}");
    }
}

/// What HTTP and control see of a running instance.
struct Served {
    facts: Arc<Facts>,
    volume: Arc<Volume<DaemonStore>>,
    nbd: Option<Arc<NbdStats>>,
    waiting_for: Mutex<Vec<String>>,
}

impl Observed for Served {
    fn view(&self) -> View {
        View {
            facts: self.facts.clone(),
            host: self.volume.host(),
            flash: self.volume.flash(),
            injected: self.volume.injected(),
            nbd: self
                .nbd
                .as_ref()
                .map(|stats| stats.snapshot())
                .unwrap_or_default(),
            trouble: self.volume.trouble(),
            writes_failing: self.volume.writes_failing(),
            paused: self.volume.paused(),
            waiting_for: self
                .waiting_for
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    fn watch(&self) {
        self.volume.watch();
    }

    fn blocks(&self) -> Arc<BlockMap> {
        self.volume.blocks()
    }

    fn events(&self, from: u64, most: usize) -> EventsView {
        self.volume.events(from, most)
    }
}

/// HTTP, control and signals, on a runtime of their own on this thread. Returns what shall become
/// of the device.
fn run(
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
fn announce(facts: &Facts, as_json: bool) {
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
                    let volume = served.volume.clone();
                    tokio::spawn(async move {
                        let done = tokio::task::spawn_blocking(move || turn.apply(&volume)).await;
                        let _ = answer.send(done.unwrap_or_else(|_| Err(Failure::failed("internal error"))));
                    });
                    continue;
                }
                Asked::Inject { fault, answer } => {
                    let volume = served.volume.clone();
                    let injected = tokio::task::spawn_blocking(move || volume.inject(&fault)).await;
                    let _ = answer.send(injected.unwrap_or_else(|_| Err(Failure::failed("internal error"))));
                    // The answer goes out before the runtime does.
                    tokio::task::yield_now().await;
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
                let volume = served.volume.clone();
                let flushed = tokio::task::spawn_blocking(move || {
                    volume.flush().and_then(|flush| flush.wait())
                })
                .await;
                if !matches!(flushed, Ok(Ok(_))) {
                    tracing::error!("the flush before stopping failed");
                }
            }
        }
    }
}

impl Served {
    fn wait_for(&self, holders: &[String]) {
        *self
            .waiting_for
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = holders.to_vec();
    }
}

/// Lets go in reverse order: device, background work, image.
fn end(
    served: &Served,
    service: &dyn Service,
    background: Background,
    how: StopHow,
) -> Result<(), Failure> {
    // A device that waits for its next daemon has lost nothing, and must not lose anything on the
    // way out.
    let how = if how == StopHow::Leave && !served.volume.keep_power() {
        StopHow::Remove
    } else {
        how
    };
    served.volume.resume();
    let _patience = notify::stopping();
    let stopped = service.stop(how);
    drop(background);
    let closed = close(&served.volume, &served.facts.image);
    stopped?;
    closed?;
    tracing::info!("stopped, everything is on the image");
    Ok(())
}

/// Ends with everything on the image.
fn close(volume: &Volume<DaemonStore>, image: &Path) -> Result<(), Failure> {
    let closed = volume
        .close()
        .map_err(|error| Failure::io(format!("{}: closing", image.display()), &error));
    if volume.is_powerless() {
        stack::leave_store(closed?, image)?;
        let message = format!(
            "{}: power cut injected; a restart mounts what the chip kept",
            image.display()
        );
        return Err(Failure::new(Exit::PowerCut, message));
    }
    if let Some(why) = volume.trouble() {
        return Err(Failure::failed(format!(
            "{}: ended after a failure: {why}",
            image.display()
        )));
    }
    stack::close_store(closed?)
}
