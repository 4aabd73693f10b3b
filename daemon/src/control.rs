//! Control of a running instance: JSON lines over a unix socket that only its owner can open.
//!
//! One request per line, one answer per line: `{"command":"status"}`,
//! `{"command":"stop","force":false}`,
//! `{"command":"inject","fault":{"kind":"power-cut","after":100}}`,
//! `{"command":"pause","action":{"pause":30}}`, `{"command":"mark","text":"…"}`. An answer contains the result or `{"error": "…",
//! "exit": 1}`. The server closes connections that send too much or too slowly.

use crate::failure::{Exit, Failure};
use crate::inject::{Injected, Injection};
use crate::instance::Dirs;
use crate::observed::StatusSource;
use crate::pause::PauseCommand;
use crate::sys;
use crate::target::SOCKET_PATH_MAX;
use crate::transport::holders::Users;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

const LINE_MAX: u64 = 4096;
/// Bytes of a status that another instance reads at most.
const STATUS_MAX: u64 = 1 << 20;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
const CONNECTION_DEADLINE: Duration = Duration::from_secs(30);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests to an instance.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
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
        }
    }
}

/// Requests over the socket that change the instance. One whose client has left is not executed.
#[derive(Debug)]
pub enum ControlCommand {
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
        answer: oneshot::Sender<Result<Value, Failure>>,
    },
}

impl ControlCommand {
    /// Returns whether nobody waits for the answer any more.
    pub fn is_abandoned(&self) -> bool {
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
pub fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, Failure> {
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
pub async fn serve(
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
            Ok(request) => handle_request(request, &*observed, &asked)
                .await
                .unwrap_or_else(
                    |failure| json!({"error": failure.message, "exit": failure.exit.code()}),
                ),
            Err(error) => {
                json!({"error": format!("not a request: {error}"), "exit": Exit::Usage.code()})
            }
        };
        write.write_all(format!("{answer}\n").as_bytes()).await?;
        if !line.ends_with('\n') {
            return Ok(());
        }
    }
}

/// Returns whether the client has closed its socket; one that only ended its requests has not.
fn is_closed(socket: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    let is_ready = nix::poll::poll(&mut poll, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    let events = poll[0].revents().unwrap_or(PollFlags::empty());
    is_ready && events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR)
}

async fn handle_request(
    request: Request,
    observed: &dyn StatusSource,
    asked: &mpsc::Sender<ControlCommand>,
) -> Result<Value, Failure> {
    match request {
        Request::Status {} => Ok(observed.view().json()),
        Request::Mark { text } => observed.mark(&text),
        Request::Stop { force } => {
            let (answer, told) = oneshot::channel();
            let holders = pass_on(asked, ControlCommand::Stop { force, answer }, told).await?;
            Ok(json!(holders))
        }
        Request::Pause { action } => {
            let (answer, told) = oneshot::channel();
            pass_on(asked, ControlCommand::Pause { action, answer }, told).await?
        }
        Request::Inject { fault } => {
            let (answer, told) = oneshot::channel();
            let Injected {
                kind,
                count,
                text,
                mut facts,
                ..
            } = pass_on(asked, ControlCommand::Inject { fault, answer }, told).await??;
            facts["kind"] = kind.name().into();
            facts["count"] = count.into();
            facts["text"] = text.into();
            Ok(facts)
        }
    }
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
/// No instance of this name answers, or it refuses the request.
pub fn ask(dirs: &Dirs, name: &str, request: &Request) -> Result<Value, Failure> {
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
    let line =
        serde_json::to_string(request).map_err(|error| Failure::failed(error.to_string()))?;
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
    match answer.get("error").and_then(Value::as_str) {
        None => Ok(answer),
        Some(error) => {
            let exit = answer["exit"]
                .as_i64()
                .and_then(|code| i32::try_from(code).ok())
                .map_or(Exit::Failed, Exit::from_code);
            Err(Failure::new(exit, format!("instance {name:?}: {error}")))
        }
    }
}

/// Returns the status of the instance behind a control socket, without blocking the runtime;
/// `None` if it does not answer.
pub(crate) async fn status(path: &Path) -> Option<Value> {
    let mut stream = UnixStream::connect(path).await.ok()?;
    let request = serde_json::to_string(&Request::Status {}).ok()?;
    stream
        .write_all(format!("{request}\n").as_bytes())
        .await
        .ok()?;
    let mut answer = String::new();
    let mut reader = tokio::io::BufReader::new(stream.take(STATUS_MAX));
    reader.read_line(&mut answer).await.ok()?;
    serde_json::from_str(&answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::Still;

    #[tokio::test]
    async fn every_line_is_counted_by_its_command() {
        let still = Arc::new(Still::default());
        let (asked, mut commands) = mpsc::channel(1);
        drop(tokio::spawn(async move {
            while commands.recv().await.is_some() {}
        }));
        let (server, mut client) = UnixStream::pair().unwrap();
        let served = connection(server, still.clone(), asked);
        let ask = async move {
            for line in [
                r#"{"command":"status"}"#,
                r#"{"command":"pause","action":"resume"}"#,
                r#"{"command":"stop"}"#,
                r#"{"command":"status"}"#,
                r#"{"command":"mark","text":"here"}"#,
                "stop",
            ] {
                client
                    .write_all(format!("{line}\n").as_bytes())
                    .await
                    .unwrap();
            }
            client.shutdown().await.unwrap();
            let mut answers = String::new();
            client.read_to_string(&mut answers).await.unwrap();
            assert_eq!(answers.lines().count(), 6, "{answers}");
        };
        tokio::join!(async { served.await.unwrap() }, ask);
        assert_eq!(still.service.view().control, [2, 1, 0, 1, 1, 1]);
    }

    /// Starts a server on a pair of sockets with one client.
    fn served() -> (
        UnixStream,
        impl Future<Output = std::io::Result<()>>,
        mpsc::Receiver<ControlCommand>,
    ) {
        let (asked, commands) = mpsc::channel(1);
        let (server, client) = UnixStream::pair().unwrap();
        let still: Arc<dyn StatusSource> = Arc::new(Still::default());
        (client, connection(server, still, asked), commands)
    }

    /// A daemon that stood still finds the commands of clients that have given up.
    #[tokio::test]
    async fn a_command_whose_client_has_left_is_not_executed() {
        let (mut client, server, mut commands) = served();
        client.write_all(b"{\"command\":\"stop\"}\n").await.unwrap();
        drop(client);
        let ended = tokio::time::timeout(Duration::from_secs(5), server).await;
        ended.expect("it waits for an answer").unwrap();
        assert!(commands.try_recv().is_err(), "it left before it was read");
        // One that only ended its requests waits for the answer.
        let (mut client, server, mut commands) = served();
        client.write_all(b"{\"command\":\"stop\"}\n").await.unwrap();
        client.shutdown().await.unwrap();
        let (served, command) = tokio::join!(server, async {
            let command = commands.recv().await.unwrap();
            assert!(!command.is_abandoned());
            let ControlCommand::Stop { answer, .. } = command else {
                panic!("a stop")
            };
            answer.send(Users::default()).unwrap();
        });
        let ((), ()) = (served.unwrap(), command);
        // One that leaves while its command waits for its turn.
        let (answer, told) = oneshot::channel();
        let command = ControlCommand::Stop {
            force: false,
            answer,
        };
        assert!(!command.is_abandoned());
        drop(told);
        assert!(command.is_abandoned());
    }

    /// An instance that ends closes the connections that it has not answered yet.
    #[test]
    fn an_instance_that_ends_before_it_answers_is_not_running() {
        let folder = tempfile::tempdir().unwrap();
        let below = |part: &str| folder.path().join(part);
        let dirs = Dirs {
            config: below("etc"),
            state: below("state"),
            runtime: below("run"),
        };
        std::fs::create_dir_all(dirs.of("a")).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dirs.control("a")).unwrap();
        let ends: [fn(std::os::unix::net::UnixStream); 4] = [
            // Before it reads: the client's write or read fails.
            drop,
            // With the request unread: a reset.
            |client| {
                std::thread::sleep(Duration::from_millis(20));
                drop(client);
            },
            |client| drop(BufReader::new(client).read_line(&mut String::new())),
            |mut client| {
                let mut reader = BufReader::new(client.try_clone().unwrap());
                reader.read_line(&mut String::new()).unwrap();
                client.write_all(b"{\"state\":").unwrap();
            },
        ];
        let requests = [
            Request::Status {},
            Request::Stop { force: false },
            Request::Mark { text: "m".into() },
            Request::Pause {
                action: PauseCommand::Resume,
            },
        ];
        for end in ends {
            for request in &requests {
                std::thread::scope(|scope| {
                    scope.spawn(|| end(listener.accept().unwrap().0));
                    let failure = ask(&dirs, "a", request).unwrap_err();
                    assert_eq!(failure.exit, Exit::NotRunning, "{request:?}: {failure}");
                    assert!(failure.message.contains("`ftld list`"), "{failure}");
                });
            }
        }
    }

    /// A misspelt field must not be a command without it.
    #[test]
    fn an_unknown_field_is_refused_in_every_command() {
        for known in [
            r#"{"command":"status"}"#,
            r#"{"command":"stop","force":true}"#,
            r#"{"command":"mark","text":"m"}"#,
            r#"{"command":"pause","action":{"pause":1.0}}"#,
            r#"{"command":"pause","action":{"events":1}}"#,
            r#"{"command":"inject","fault":{"kind":"power-cut","after":1}}"#,
            r#"{"command":"inject","fault":{"kind":"bad-block","block":[1]}}"#,
            r#"{"command":"inject","fault":{"kind":"bit-errors"}}"#,
            r#"{"command":"inject","fault":{"kind":"flush-fails","count":1}}"#,
            r#"{"command":"inject","fault":{"kind":"write-errors","offset":0}}"#,
            r#"{"command":"inject","fault":{"kind":"read-errors","count":1}}"#,
            r#"{"command":"inject","fault":{"kind":"slow","extra":0.1,"offset":0}}"#,
            r#"{"command":"inject","fault":{"kind":"hang","time":1.0,"length":4096}}"#,
            r#"{"command":"inject","fault":{"kind":"clear"}}"#,
        ] {
            serde_json::from_str::<Request>(known)
                .unwrap_or_else(|error| panic!("{known}: {error}"));
            // In the command, and in its innermost part.
            let outer = known.replacen('{', r#"{"sed":1,"#, 1);
            let at = known.rfind('{').unwrap();
            let inner = format!(r#"{}{{"sed":1,{}"#, &known[..at], &known[at + 1..]);
            for wrong in [outer, inner] {
                assert!(serde_json::from_str::<Request>(&wrong).is_err(), "{wrong}");
            }
        }
    }

    #[test]
    fn requests_are_one_json_line_each() {
        let stop = Request::Stop { force: true };
        assert_eq!(
            serde_json::to_string(&stop).unwrap(),
            r#"{"command":"stop","force":true}"#
        );
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"command":"stop"}"#).unwrap(),
            Request::Stop { force: false }
        );
        for wrong in [
            r#"{"command":"format"}"#,
            r#"{"command":"stop","forse":true}"#,
            "stop",
            "",
        ] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong}");
        }
    }
}
