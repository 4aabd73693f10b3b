//! Control of a running instance: JSON lines over a unix socket that only its owner can open.
//!
//! One request per line, one answer per line: `{"command":"status"}`,
//! `{"command":"stop","force":false}`,
//! `{"command":"inject","fault":{"kind":"power-cut","after":100}}`,
//! `{"command":"pause","action":{"pause":30}}`, `{"command":"mark","text":"…"}`,
//! `{"command":"shadow","action":{"add":"dftl"}}`, `{"command":"where","extents":"0+4096"}`. An
//! answer contains the result or `{"error": "…", "exit": 1}`. The server closes connections that
//! send too much or too slowly.

#[cfg(test)]
mod tests;

use ftld_device::inject::{Injected, Injection};
use ftld_device::instance::Dirs;
use ftld_device::pause::{PauseAnswer, PauseCommand};
use ftld_device::shadow::ShadowCommand;
use ftld_device::status::{Status, StatusSource};
use ftld_device::sys;
use ftld_device::target::SOCKET_PATH_MAX;
use ftld_device::transport::holders::Users;
use ftld_device::volume::parse_ranges;
use ftld_kit::failure::{Exit, Failure};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

/// Maximum bytes of a request.
pub(crate) const LINE_MAX: u64 = 4096;
/// Bytes of a status that another instance reads at most.
const STATUS_MAX: u64 = 1 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
const CONNECTION_DEADLINE: Duration = Duration::from_secs(30);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a look at places: less than clients wait.
const LOOK: Duration = Duration::from_secs(7);

/// Requests to an instance.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Request {
    /// Return the status.
    Status {},
    /// Stop the instance.
    Stop {
        /// Remove the device even if open.
        #[serde(default)]
        force: bool,
    },
    /// Inject a flash fault.
    Inject {
        /// Fault to inject.
        fault: Injection,
    },
    /// Pause, step or resume.
    Pause {
        /// Command to run.
        action: PauseCommand,
    },
    /// Put a mark into the recording.
    Mark {
        /// Text of the mark.
        text: String,
    },
    /// Let schemes follow the requests, or no longer.
    Shadow {
        /// Command to run.
        action: ShadowCommand,
    },
    /// Return the places of logical pages.
    Where {
        /// Bytes of the device, as in `/api/where`.
        extents: String,
    },
}

impl Request {
    /// Returns the name of the command, as in the JSON and in metric labels.
    fn name(&self) -> &'static str {
        match self {
            Request::Status {} => "status",
            Request::Stop { .. } => "stop",
            Request::Inject { .. } => "inject",
            Request::Pause { .. } => "pause",
            Request::Mark { .. } => "mark",
            Request::Shadow { .. } => "shadow",
            Request::Where { .. } => "where",
        }
    }
}

/// Answer to a failed request, or to bytes that are no request.
#[derive(Debug, Deserialize, Serialize)]
struct Refusal {
    error: String,
    exit: i32,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal {
            exit: failure.exit.code().into(),
            error: failure.message,
        }
    }
}

/// Requests over the socket that change the instance. One whose client has left is not executed.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// Stop the instance.
    Stop {
        /// Remove the device even if open.
        force: bool,
        /// Receives the users that keep the device open.
        answer: oneshot::Sender<Users>,
    },
    /// Inject a flash fault.
    Inject {
        /// Fault to inject.
        fault: Injection,
        /// Receives the result of the injection.
        answer: oneshot::Sender<Result<Injected, Failure>>,
    },
    /// Pause, step or resume.
    Pause {
        /// Command to run.
        action: PauseCommand,
        /// Receives the result of the command.
        answer: oneshot::Sender<Result<PauseAnswer, Failure>>,
    },
}

impl ControlCommand {
    /// Returns whether the client no longer waits for the answer.
    pub(crate) fn is_abandoned(&self) -> bool {
        match self {
            ControlCommand::Stop { answer, .. } => answer.is_closed(),
            ControlCommand::Inject { answer, .. } => answer.is_closed(),
            ControlCommand::Pause { answer, .. } => answer.is_closed(),
        }
    }
}

/// Checks that a control socket can have this path.
///
/// # Errors
/// It is longer than the system allows.
pub(crate) fn check_path(path: &Path) -> Result<(), Failure> {
    let bytes = path.as_os_str().len();
    match bytes <= SOCKET_PATH_MAX {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "control socket {}: {bytes} bytes, the system allows {SOCKET_PATH_MAX}; choose a shorter folder with FTLD_RUNTIME_DIR",
            path.display()
        ))),
    }
}

/// Creates the socket, replacing a file left by a killed daemon. The caller holds the instance's
/// name.
///
/// # Errors
/// The socket cannot be created.
pub(crate) fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, Failure> {
    let failed =
        |error: std::io::Error| Failure::io(format!("control socket {}", path.display()), &error);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    sys::listen_privately(path, BACKLOG).map_err(failed)
}

/// Handles requests until the runtime ends.
///
/// # Errors
/// The runtime rejects the listener.
pub(crate) async fn serve(
    listener: std::os::unix::net::UnixListener,
    observed: Arc<dyn StatusSource>,
    asked: mpsc::Sender<ControlCommand>,
) -> std::io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (observed, asked) = (observed.clone(), asked.clone());
                tokio::spawn(tokio::time::timeout(
                    CONNECTION_DEADLINE,
                    connection(stream, observed, asked),
                ));
            }
            Err(error) => {
                tracing::warn!("control socket: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    mut stream: UnixStream,
    observed: Arc<dyn StatusSource>,
    asked: mpsc::Sender<ControlCommand>,
) -> std::io::Result<()> {
    let descriptor = stream.as_fd().try_clone_to_owned();
    let (read, mut write) = stream.split();
    let mut read = tokio::io::BufReader::new(read);
    let file = descriptor?;
    loop {
        let mut line = String::new();
        if (&mut read).take(LINE_MAX).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        // A client that closed its socket does not wait for this command.
        if is_closed(&file) {
            return Ok(());
        }
        let request = serde_json::from_str::<Request>(&line);
        let command = request.as_ref().map_or("invalid", Request::name);
        observed.service().note_control(command);
        let answer = match request {
            Ok(request) => handle_request(request, &observed, &asked).await,
            Err(error) => Err(Failure::usage(format!("not a request: {error}"))),
        };
        let answer = answer.unwrap_or_else(|failure| json(Refusal::from(failure)));
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        if !line.ends_with('\n') {
            return Ok(());
        }
    }
}

/// Returns whether the client has closed its socket; ending its requests alone is not a close.
fn is_closed(socket: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let is_ready = nix::poll::poll(&mut poll, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    let events = poll[0].revents().unwrap_or(PollFlags::empty());
    is_ready && events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
}

async fn handle_request(
    request: Request,
    observed: &Arc<dyn StatusSource>,
    asked: &mpsc::Sender<ControlCommand>,
) -> Result<Value, Failure> {
    match request {
        Request::Status {} => Ok(observed.view().status().json()),
        Request::Mark { text } => observed.mark(&text).map(json),
        Request::Shadow { action } => {
            let observed = observed.clone();
            let done = tokio::task::spawn_blocking(move || observed.shadow(&action));
            done.await.map_err(Failure::failed)?.map(json)
        }
        Request::Where { extents } => {
            let (ranges, observed) = (parse_ranges(&extents)?, observed.clone());
            // A look waits for requests.
            let look = tokio::task::spawn_blocking(move || observed.places(&ranges, LOOK));
            look.await.map_err(Failure::failed)?.map(json)
        }
        Request::Stop { force } => {
            let (answer, told) = oneshot::channel();
            let stop = ControlCommand::Stop { force, answer };
            Ok(json(pass_on(asked, stop, told).await?))
        }
        Request::Pause { action } => {
            let (answer, told) = oneshot::channel();
            let pause = ControlCommand::Pause { action, answer };
            pass_on(asked, pause, told).await?.map(json)
        }
        Request::Inject { fault } => {
            let (answer, told) = oneshot::channel();
            let inject = ControlCommand::Inject { fault, answer };
            Ok(json(pass_on(asked, inject, told).await??))
        }
    }
}

fn json(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer is plain data")
}

/// Sends a command to the instance's main loop and waits for the answer.
async fn pass_on<T>(
    asked: &mpsc::Sender<ControlCommand>,
    what: ControlCommand,
    told: oneshot::Receiver<T>,
) -> Result<T, Failure> {
    let stopping = || Failure::new(Exit::NotRunning, "already stopping");
    asked.send(what).await.map_err(|_| stopping())?;
    told.await.map_err(|_| stopping())
}

/// Returns the failure for an instance of another user.
pub(crate) fn not_permitted(dirs: &Dirs, name: &str) -> Failure {
    let path = dirs.control(name);
    let message = format!(
        "{}: Permission denied; only the user who started instance {name:?} controls it",
        path.display()
    );
    Failure::new(Exit::Permission, message)
}

/// Sends a request to a running instance. Exit 3 if there is none, or if it ends before it answers.
///
/// # Errors
/// No instance of this name answers, it refuses the request, or it is of another version.
pub(crate) fn ask<A: DeserializeOwned>(
    dirs: &Dirs,
    name: &str,
    request: &Request,
) -> Result<A, Failure> {
    let answer = answer(dirs, name, request)?;
    serde_json::from_value(answer).map_err(|error| {
        Failure::failed(format!(
            "instance {name:?} is of another version of ftld, its answer has another form: {error}; use its \
             version, or start it again with this one"
        ))
    })
}

/// Sends a request to a running instance and returns its answer in any form.
pub(crate) fn answer(dirs: &Dirs, name: &str, request: &Request) -> Result<Value, Failure> {
    let path = dirs.control(name);
    let not_running = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => not_permitted(dirs, name),
        _ => Failure::new(
            Exit::NotRunning,
            format!("instance {name:?} is not running; `ftld list` shows those that are"),
        ),
    };
    let mut stream = std::os::unix::net::UnixStream::connect(&path).map_err(not_running)?;
    let ended = || {
        Failure::new(
            Exit::NotRunning,
            format!("instance {name:?} ended before it answered; `ftld list` shows those that run"),
        )
    };
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => ended(),
        _ => Failure::io(format!("instance {name:?} does not answer"), &error),
    };
    stream
        .set_read_timeout(Some(CLIENT_TIMEOUT))
        .map_err(failed)?;
    stream
        .set_write_timeout(Some(CLIENT_TIMEOUT))
        .map_err(failed)?;
    let line = serde_json::to_string(request).map_err(Failure::failed)?;
    stream
        .write_all(format!("{line}\n").as_bytes())
        .map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(stream)
        .read_line(&mut answer)
        .map_err(failed)?;
    if !answer.ends_with('\n') {
        return Err(ended());
    }
    let answer: Value = serde_json::from_str(&answer).map_err(|error| {
        Failure::failed(format!(
            "instance {name:?} gave no sensible answer: {error}"
        ))
    })?;
    match Refusal::deserialize(&answer) {
        Err(_) => Ok(answer),
        Ok(Refusal { error, exit }) => {
            let exit = Exit::from_code(exit);
            Err(Failure::new(exit, format!("instance {name:?}: {error}")))
        }
    }
}

/// Returns the status of the instance behind a control socket, without blocking the runtime;
/// `None` if it does not answer, or is of another version.
pub(crate) async fn status(path: &Path) -> Option<Status> {
    let mut stream = UnixStream::connect(path).await.ok()?;
    let request = serde_json::to_string(&Request::Status {}).ok()?;
    stream
        .write_all(format!("{request}\n").as_bytes())
        .await
        .ok()?;
    let mut answer = String::new();
    let mut reader = tokio::io::BufReader::new(stream.take(STATUS_MAX));
    reader.read_line(&mut answer).await.ok()?;
    // As `ask` reads it: a second reader of the whole status would be 90 KB of code.
    let answer = serde_json::from_str::<Value>(&answer).ok()?;
    serde_json::from_value(answer).ok()
}
