//! Life of a daemon: take the name, the metrics port, the image, the device; print `ready`; serve;
//! release in reverse order.
//!
//! If power fails anywhere in here, the image has the state that the volume last made durable. If
//! only this process dies, everything it acknowledged is in the image; the next start takes over
//! the name and the image.

mod end;
mod metrics_port;
mod prepare;
mod served;
mod until_stop;

use crate::activation::InheritedSockets;
use crate::live_page::kept::Keeper;
use crate::live_page::{PageState, history};
use crate::load::{Load, Setting};
use crate::metrics::hosts::Hosts;
use crate::notify::TimeoutExtender;
use crate::shadows::Shadows;
use crate::{control, demo, detach, notify, start};
pub(crate) use end::close;
use end::end;
use ftld_device::background::Background;
use ftld_device::config::Config;
use ftld_device::device::BlockDevice;
use ftld_device::faults::{Faults, Faulty};
use ftld_device::instance::{Dirs, Instance};
use ftld_device::options::DeviceArgs;
use ftld_device::record::{NewRecording, Recorded, Recorder, head_of};
use ftld_device::service_counters::ServiceCounters;
use ftld_device::shadow::{Shadowed, Tap};
use ftld_device::stall::ProgressSample;
use ftld_device::status::{InstanceInfo, StatusSource};
use ftld_device::target::Target;
use ftld_device::transport::nbd::{Listening, Tls};
use ftld_device::transport::{Context, Service, StopHow};
use ftld_device::volume::Volume;
use ftld_device::{stack, sys, transport};
use ftld_kit::convert::to_u32;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output;
use ftld_traces::recording::{Head, WriteCache};
use metrics_port::Http;
use nand_model::Profile;
use parking_lot::Mutex;
use prepare::{leave_folder, load_tls, prepare};
use served::Served;
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use until_stop::{announce, run};

/// Start options of a daemon.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// Requires an orphaned device of a killed daemon.
    pub(crate) recover: bool,
    /// Runs in the background once it is ready.
    pub(crate) detached: bool,
    /// The ready line is JSON.
    pub(crate) json: bool,
    /// A load of its own.
    pub(crate) load: Option<Setting>,
    /// Shows the live page in a browser.
    pub(crate) opens_page: bool,
}

/// Serves until a signal or command ends the device. `typed` are options that `ftld start` repeats.
///
/// # Errors
/// A step failed; the steps before it are undone, and the image is closed. A device kept for its
/// next daemon is an error as well, with [`Exit::Quiesced`].
pub(crate) fn serve(
    config: &Config,
    dirs: &Dirs,
    how: How,
    typed: Option<&DeviceArgs>,
) -> Result<(), Failure> {
    leave_caller(how);
    let target = choose_target(config, dirs, how.recover)?;
    if let Some(record) = &config.record {
        output::writable("--record", &record.file)?;
    }
    let passed = InheritedSockets::take(&target)?;
    transport::probe(&target, how.recover)?;
    let tls = load_tls(config, &target)?;
    let _prepared = prepare(&target, config, dirs);
    control::check_path(&dirs.control(&config.name))?;
    let instance = Instance::take(dirs, &config.name)?;
    if passed.nbd.is_none() {
        transport::probe_address(&target)?;
    }
    let log = how
        .detached
        .then(|| detach::open_log(&dirs.log(&config.name)))
        .flatten();
    let http = Http::take(passed.metrics, config.metrics, &instance)?;
    let metrics = http.url()?;
    let recording = config.record.as_ref().map(|record| &record.file);
    let recording = recording
        .map(|file| NewRecording::create(file))
        .transpose()?;
    let patience = TimeoutExtender::ask(format!("recovering: opening {}", config.image.display()));
    refuse_new_image_below(&target, config)?;
    let opened = open_image(config)?;
    let recorder = recording
        .as_ref()
        .map(|file| start_recording(config, file, &opened));
    let started = recorder.transpose().and_then(|recorder| {
        let device = (&opened, recorder);
        start_device(config, dirs, &target, passed.nbd, tls.as_ref(), device)
    });
    drop(patience);
    let Started {
        control,
        service,
        recorder,
        faults,
        shadows,
        device,
    } = close_unless_started(started, &opened)?;
    if let Some(recording) = recording {
        recording.keep();
    }
    if let Some(typed) = typed {
        start::keep(dirs, config, typed);
    }
    let served = describe(
        config,
        &target,
        &*service,
        metrics,
        opened,
        (recorder, faults, shadows),
    );
    leave_folder(&target);
    let running = start_background(served, service)?;
    let stop = start_load(&running.served, how, device).and_then(|()| {
        let dirs = (config, dirs);
        serve_until_told(dirs, how, log.as_ref(), &running, http, control)
    });
    end_as_told(stop, running)
}

/// Starts the load of a demo.
fn start_load(served: &Served, how: How, device: Arc<dyn BlockDevice>) -> Result<(), Failure> {
    let Some(setting) = how.load else {
        return Ok(());
    };
    let load = Load::start(setting, device);
    let load = load.map_err(|error| Failure::io("the thread of the load", &error))?;
    served.load.get_or_init(|| load);
    Ok(())
}

/// Sets a private umask, and leaves the caller's session if `how` is detached.
fn leave_caller(how: How) {
    sys::private_umask();
    if how.detached {
        detach::leave_session();
    }
}

/// Returns the target of the configuration, or the default one.
///
/// # Errors
/// The default target cannot be reattached.
fn choose_target(config: &Config, dirs: &Dirs, recover: bool) -> Result<Target, Failure> {
    if let Some(target) = &config.target {
        return Ok(target.clone());
    }
    let target = transport::default_target(&dirs.of(&config.name));
    if recover && matches!(target, Target::Nbd(_)) {
        return Err(Failure::usage(
            "the device is missing: `ftld recover /dev/ublkbN` or `ftld recover /dev/nbdN`; `ftld list` shows those that are left",
        ));
    }
    tracing::info!("no target given: serving {target}");
    Ok(target)
}

/// Refuses a device that a dead daemon left if its image is missing: on a new one its users would
/// read zeros.
fn refuse_new_image_below(target: &Target, config: &Config) -> Result<(), Failure> {
    let name = target.to_string();
    let left = name
        .strip_prefix("/dev/")
        .and_then(transport::orphaned_target);
    if left.is_none() || config.image.exists() {
        return Ok(());
    }
    let had = transport::image_of(target).unwrap_or_else(|| "unknown".into());
    let image = config.image.display();
    Err(Failure::new(
        Exit::Quiesced,
        format!(
            "{target} is quiesced with image {had}, and {image} does not exist; give the --image or --name that it was started with"
        ),
    ))
}

/// An image with its scheme mounted.
struct Opened {
    volume: Arc<Volume>,
    image: PathBuf,
    scheme: &'static str,
    profile: Profile,
    logical_bytes: u64,
    was_clean: bool,
    power_cut: bool,
    uuid: [u8; 16],
    /// Whether this start created the image.
    is_new: bool,
    opened_in: Duration,
}

/// Opens or creates the image and mounts its scheme.
fn open_image(config: &Config) -> Result<Opened, Failure> {
    let opening = Instant::now();
    let stack = stack::open_or_create(config)?;
    let opened_in = opening.elapsed();
    let volume = Arc::new(stack.volume);
    let image = std::fs::canonicalize(&config.image)
        .map_err(|error| Failure::io(config.image.display(), &error))?;
    Ok(Opened {
        volume,
        image,
        scheme: stack.scheme,
        profile: stack.profile,
        logical_bytes: stack.logical_bytes,
        was_clean: stack.was_clean,
        power_cut: stack.power_cut,
        uuid: stack.uuid,
        is_new: stack.is_new,
        opened_in,
    })
}

/// A device that takes requests, and the control socket of its owner.
struct Started {
    control: UnixListener,
    service: Arc<dyn Service>,
    recorder: Option<Arc<Recorder>>,
    faults: Arc<Faults>,
    shadows: Shadows,
    /// The device as its users have it.
    device: Arc<dyn BlockDevice>,
}

/// Starts the recording with the content that the device has.
fn start_recording(
    config: &Config,
    file: &NewRecording,
    opened: &Opened,
) -> Result<Arc<Recorder>, Failure> {
    let failed = |error: std::io::Error| Failure::io(file.path().display(), &error);
    let device = &*opened.volume;
    let has_data = config.record.as_ref().is_some_and(|record| record.data);
    let write_cache = config.write_cache.map(|cache| WriteCache {
        bytes: cache.bytes,
        model: match cache.protected {
            true => "plp".into(),
            false => cache.model.name().into(),
        },
    });
    let head = Head {
        write_cache,
        ..head_of(device, Some(&opened.image), has_data)?
    };
    let recorder = Recorder::start(file.handle()?, file.path(), &head).map_err(failed)?;
    recorder.record_content(device).map_err(failed)?;
    Ok(recorder)
}

/// Binds the control socket and starts the transport.
fn start_device(
    config: &Config,
    dirs: &Dirs,
    target: &Target,
    passed: Option<Listening>,
    tls: Option<&Tls>,
    (opened, recorder): (&Opened, Option<Arc<Recorder>>),
) -> Result<Started, Failure> {
    assert!(
        opened.image.is_absolute(),
        "{}: a device that is left is found again by the absolute path of its image",
        opened.image.display()
    );
    assert!(
        matches!(target, Target::Nbd(_)) || (tls.is_none() && passed.is_none()),
        "{target} has TLS or an inherited socket"
    );
    let context = Context {
        name: &config.name,
        image: &opened.image.to_string_lossy(),
        tls,
    };
    let control = control::bind(&dirs.control(&config.name))?;
    let volume = opened.volume.clone();
    if !config.announces_cache || was_left_without_flush(target) {
        volume.announce_no_cache();
    }
    // The snapshots of the mount do not have the write cache. No request holds a lock yet.
    volume.publish(true);
    let faults = Arc::<Faults>::default();
    let mut device: Arc<dyn BlockDevice> = Arc::new(Faulty::new(volume, faults.clone()));
    if let Some(recorder) = &recorder {
        device = Arc::new(Recorded::new(device, recorder.clone()));
    }
    let tap = Arc::<Tap>::default();
    let head = head_of(&*opened.volume, Some(&opened.image), false)?;
    let shadows = Shadows::new(tap.clone(), opened.volume.clone(), head, config.latency);
    shadows.add(&config.shadows)?;
    device = Arc::new(Shadowed::new(device, tap));
    let service = transport::start(target, passed, device.clone(), context)?;
    Ok(Started {
        control,
        service,
        recorder,
        faults,
        shadows,
        device,
    })
}

/// Closes the image if the device did not start, and removes one that this start created.
fn close_unless_started(
    started: Result<Started, Failure>,
    opened: &Opened,
) -> Result<Started, Failure> {
    if started.is_err() {
        // Removed while it is locked: nobody else can have begun to use it.
        let is_removed = opened.is_new && std::fs::remove_file(&opened.image).is_ok();
        let closed = close(&opened.volume, &opened.image);
        if is_removed {
            tracing::info!("removed {}: no device was started", opened.image.display());
        } else if let Err(failure) = closed {
            tracing::error!("{failure}");
        }
    }
    started
}

/// Builds the state that HTTP and the control socket report.
fn describe(
    config: &Config,
    target: &Target,
    service: &dyn Service,
    metrics: Option<String>,
    opened: Opened,
    (recorder, faults, shadows): (Option<Arc<Recorder>>, Arc<Faults>, Shadows),
) -> Arc<Served> {
    assert!(
        opened.volume.size() <= opened.logical_bytes,
        "a device of {} bytes on {} logical bytes",
        opened.volume.size(),
        opened.logical_bytes
    );
    let facts = InstanceInfo {
        name: config.name.clone(),
        target: service.target(),
        transport: target.transport(),
        image: opened.image,
        scheme: opened.scheme,
        profile: opened.profile,
        shards: to_u32(opened.volume.shards()),
        size: opened.volume.size(),
        logical_bytes: opened.logical_bytes,
        metrics,
        read_only: config.read_only,
        latency: config.latency,
        verify: config.verify,
        started: SystemTime::now(),
        opened_in: opened.opened_in,
        was_clean: opened.was_clean,
        power_cut: opened.power_cut,
        uuid: opened.uuid,
    };
    let (history, keeper) = Keeper::start(&facts);
    let page = PageState {
        history: Mutex::new(history),
        keeper,
        ..PageState::default()
    };
    Arc::new(Served {
        facts: Arc::new(facts),
        volume: opened.volume,
        nbd: service.nbd_stats(),
        service: ServiceCounters::default(),
        waiting_for: Mutex::default(),
        page,
        recorder,
        faults,
        load: OnceLock::new(),
        shadows,
    })
}

/// A device in service.
struct Running {
    served: Arc<Served>,
    service: Arc<dyn Service>,
    background: Background,
}

/// Returns the kernel's file with the write cache of a device that the kernel serves.
fn kernel_write_cache(target: &str) -> Option<PathBuf> {
    let name = target.strip_prefix("/dev/")?;
    Some(PathBuf::from(format!(
        "/sys/block/{name}/queue/write_cache"
    )))
}

/// Returns whether a dead daemon left this device as one without a volatile cache: the kernel keeps
/// that, and sends no FLUSH to the next daemon either.
fn was_left_without_flush(target: &Target) -> bool {
    let target = target.to_string();
    let is_left = || {
        let name = target.strip_prefix("/dev/")?;
        transport::orphaned_target(name)
    };
    let says = kernel_write_cache(&target).and_then(|file| std::fs::read_to_string(file).ok());
    says.is_some_and(|text| text.trim() == "write through") && is_left().is_some()
}

/// Starts the background work.
fn start_background(served: Arc<Served>, service: Arc<dyn Service>) -> Result<Running, Failure> {
    let write_through = kernel_write_cache(&service.target());
    let background = Background::start(&served.volume, write_through)
        .map_err(|error| Failure::io("background thread", &error))?;
    Ok(Running {
        served,
        service,
        background,
    })
}

/// Prints `ready`, then answers HTTP, the control socket and signals until the device ends.
fn serve_until_told(
    (config, dirs): (&Config, &Dirs),
    how: How,
    log: Option<&File>,
    device: &Running,
    http: Http,
    control: UnixListener,
) -> Result<StopHow, Failure> {
    let (served, service) = (&device.served, &device.service);
    let hosts = Arc::new(Hosts::new(&config.metrics_hosts));
    let pulse = {
        let (volume, service, turns, faults) = (
            served.volume.clone(),
            service.clone(),
            device.background.turns(),
            served.faults.clone(),
        );
        move || ProgressSample {
            turns: turns.load(Relaxed),
            volume: volume.queue(),
            device: service.kernel_queue(),
            at_storage: volume.waits_for_storage(),
            paused: volume.paused().is_some() || faults.is_hanging(),
        }
    };
    let ready = || {
        announce(&served.facts, how.json);
        if how.load.is_some() {
            demo::show_page(&served.facts, how.opens_page);
        }
        if let Some(log) = log {
            detach::leave_terminal(log);
        }
        tokio::spawn(notify::watch(
            served.clone() as Arc<dyn StatusSource>,
            pulse,
        ));
    };
    run(served, service, (http, hosts), control, dirs, ready)
}

/// Ends the device in the requested way; after a failure it is removed.
fn end_as_told(stop: Result<StopHow, Failure>, device: Running) -> Result<(), Failure> {
    let Running {
        served,
        service,
        background,
    } = device;
    let how = *stop.as_ref().unwrap_or(&StopHow::Remove);
    // While the image is locked: the next daemon reads it.
    history::leave(&*served);
    end(&served, &*service, background, how)?;
    match stop? {
        StopHow::Remove => Ok(()),
        StopHow::Leave => Err(Failure::new(
            Exit::Quiesced,
            format!(
                "{} is flushed and quiesced; reattach with `ftld recover {0}`",
                service.target()
            ),
        )),
    }
}
