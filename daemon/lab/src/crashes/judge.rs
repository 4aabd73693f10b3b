//! Who tells a good state from a bad one: the user's command, which finds the state in a raw image.
//! A function in this process is another judge: `in_process.rs`.

use super::args::CrashesArgs;
use super::case::Case;
use super::check::{Check, Checked, Supervisor, Verdict};
use super::group::nth_file;
use super::image::{ImageDevice, RawImage};
use super::models::State;
use super::recovery;
use super::tape::{OnTape, Recovery, Tape};
use super::timeline::Timeline;
use ftld_device::device::BlockDevice;
use ftld_device::transport::nbd::{Endpoint, ExportInfo, Limits, NbdUri, Server};
use ftld_kit::failure::Failure;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tokio::sync::oneshot;

/// Tells a good state from a bad one.
pub(super) trait Judge {
    /// Judges a state; returns `None` once `unwanted` is true.
    ///
    /// # Errors
    /// The state cannot be made, or the check cannot be run.
    fn judge(
        &mut self,
        state: &State,
        mark: Option<&str>,
        case: &Case,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Option<Checked>, Failure>;

    /// Returns what the check did on the last state through a device, if that is kept.
    ///
    /// # Errors
    /// It cannot be read.
    fn recovery(&mut self) -> Result<Recovery, Failure> {
        Ok(Recovery::default())
    }
}

/// The user's command: an image for each device, its NBD server, and a supervisor of the checks.
pub(super) struct Command {
    timeline: Arc<Timeline>,
    check: Check,
    folder: PathBuf,
    /// One for each device, as the servers.
    images: Vec<RawImage>,
    uris: Vec<String>,
    /// What checks do through the NBD server of the first device.
    tape: Arc<Tape>,
    /// Where checks that serve their state themselves keep it; `None` if nobody wants it.
    recovery: Option<PathBuf>,
    /// `None` before the first check, and after one that was ended.
    supervisor: Option<Supervisor>,
    /// End the NBD servers when they are dropped.
    _servers: Vec<oneshot::Sender<()>>,
}

impl Command {
    /// Creates the images and starts their servers.
    ///
    /// # Errors
    /// The host refuses.
    pub(super) fn start(
        args: &CrashesArgs,
        timeline: &Arc<Timeline>,
        scratch: &Path,
        number: u32,
    ) -> Result<Command, Failure> {
        let folder = scratch.join(number.to_string());
        let failed = |error: std::io::Error| Failure::io(folder.display(), &error);
        std::fs::create_dir(&folder).map_err(failed)?;
        let (unit, tape) = (timeline.unit_bytes, Arc::new(Tape::default()));
        let (mut images, mut uris, mut servers) = (Vec::new(), Vec::new(), Vec::new());
        for (number, device) in timeline.devices.iter().enumerate() {
            let path = nth_file(&folder.join("image"), number);
            let image = RawImage::create(path.clone(), device, unit, timeline.written.clone());
            images.push(image.map_err(failed)?);
            let size = device.size;
            let image: Arc<dyn BlockDevice> = Arc::new(ImageDevice { path, size, unit });
            let served = match number {
                0 => Arc::new(OnTape::new(image, tape.clone())),
                _ => image,
            };
            let (uri, server) = serve(served, nth_file(&folder.join("nbd"), number))?;
            uris.push(uri);
            servers.push(server);
        }
        Ok(Command {
            timeline: timeline.clone(),
            check: Check::of(args),
            recovery: recovery::is_kept(args).then(|| folder.join("recovery")),
            folder,
            images,
            uris,
            tape,
            supervisor: None,
            _servers: servers,
        })
    }

    /// Returns the image of each device.
    pub(super) fn images(&self) -> impl Iterator<Item = &Path> {
        self.images.iter().map(RawImage::path)
    }

    /// Brings a state into the images.
    ///
    /// # Errors
    /// An image cannot be written.
    pub(super) fn put(&mut self, state: &State) -> Result<(), Failure> {
        for image in &mut self.images {
            let put = image.put(state, &self.timeline.contents);
            put.map_err(|error| Failure::io(image.path().display(), &error))?;
        }
        Ok(())
    }
}

impl Judge for Command {
    fn judge(
        &mut self,
        state: &State,
        mark: Option<&str>,
        case: &Case,
        unwanted: &dyn Fn() -> bool,
    ) -> Result<Option<Checked>, Failure> {
        self.put(state)?;
        if let Some(path) = self.recovery.as_ref().filter(|_| !case.is_nested()) {
            remove(path)?;
            self.tape.start();
        }
        let recovery = self.recovery.as_deref();
        let mut supervisor = match self.supervisor.take() {
            Some(supervisor) => supervisor,
            None => Supervisor::start(&self.folder, self.images(), &self.uris, recovery)
                .map_err(|error| Failure::io("the supervisor of a check", &error))?,
        };
        let mark = mark.unwrap_or_default();
        let checked = supervisor.run(&self.check, mark, &case.to_string(), unwanted)?;
        let Some(mut checked) = checked else {
            return Ok(None);
        };
        self.supervisor = Some(supervisor);
        if self.images.iter().any(RawImage::was_resized) {
            checked.verdict = Verdict::Resized;
        }
        Ok(Some(checked))
    }

    fn recovery(&mut self) -> Result<Recovery, Failure> {
        let taped = self.tape.take();
        let size = self.timeline.head.size;
        let read = self.recovery.as_ref().map(|path| {
            let read = Recovery::read(path, size)?;
            remove(path).map(|()| read)
        });
        Ok(read.transpose()?.flatten().unwrap_or(taped))
    }
}

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io(path.display(), &error))
        }
        _ => Ok(()),
    }
}

/// Serves the image on a unix socket until the sender is dropped.
fn serve(
    device: Arc<dyn BlockDevice>,
    socket: PathBuf,
) -> Result<(String, oneshot::Sender<()>), Failure> {
    let name = socket.display().to_string();
    let failed = |error: std::io::Error| Failure::io(format!("NBD socket {name}"), &error);
    let (stop, stopped) = oneshot::channel::<()>();
    let (tell, told) = sync_channel(1);
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return drop(tell.send(Err(error))),
        };
        runtime.block_on(async {
            let endpoint = Endpoint::Unix(socket);
            let info = ExportInfo::default();
            let bound = Server::bind(&endpoint, device, info, Limits::default(), None);
            let bound = bound.and_then(|server| Ok((server.uri()?, server)));
            match bound {
                Ok((uri, server)) => {
                    let _ = tell.send(Ok(NbdUri::to_string(&uri)));
                    server.run(async { drop(stopped.await) }).await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
    };
    std::thread::Builder::new()
        .name("ftld-nbd".into())
        .spawn(serve)
        .map_err(failed)?;
    let lost = || Failure::failed(format!("{name}: the server ended before it was ready"));
    let uri = told.recv().map_err(|_| lost())?.map_err(failed)?;
    Ok((uri, stop))
}
