//! Control of a running instance: JSON lines over a unix socket that only its owner can reach.
//!
//! One request per line, one answer per line: `{"command":"status"}`,
//! `{"command":"stop","force":false}`,
//! `{"command":"inject","fault":{"kind":"power-cut","after":100}}`,
//! `{"command":"pace","turn":{"pause":30}}`. An answer has either what was asked for or `{"error":
//! "…", "exit": 1}`. A peer that sends too much or too slowly is cut off.

use crate::failure::{Exit, Failure};
use crate::inject::{Injected, Injection};
use crate::instance::Dirs;
use crate::pause::Turn;
use crate::status::Observed;
use crate::sys;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

const LINE_MAX: u64 = 4096;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
const CONNECTION_DEADLINE: Duration = Duration::from_secs(30);
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// What can be asked of an instance.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Tell everything.
    Status {},
    /// End.
    Stop {
        /// Remove the device under whoever holds it.
        #[serde(default)]
        force: bool,
    },
    /// Let something go wrong with the flash.
    Inject {
        /// What.
        fault: Injection,
    },
    /// Pause, step or go on.
    Pace {
        /// What.
        turn: Turn,
    },
}

/// What was asked for over the socket and changes the instance.
#[derive(Debug)]
pub enum Asked {
    /// End.
    Stop {
        /// Remove the device under whoever holds it.
        force: bool,
        /// Takes the names of those who hold it up.
        answer: oneshot::Sender<Vec<String>>,
    },
    /// Let something go wrong with the flash.
    Inject {
        /// What.
        fault: Injection,
        /// Takes what was done.
        answer: oneshot::Sender<Result<Injected, Failure>>,
    },
    /// Pause, step or go on.
    Pace {
        /// What.
        turn: Turn,
        /// Takes what became of it.
        answer: oneshot::Sender<Result<Value, Failure>>,
    },
}

/// Makes the socket; a file that a killed daemon left is replaced. Called with the instance's name
/// held.
///
/// # Errors
/// The socket cannot be made.
pub fn bind(path: &Path) -> Result<std::os::unix::net::UnixListener, Failure> {
    let failed =
        |error: std::io::Error| Failure::io(format!("control socket {}", path.display()), &error);
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    sys::listen_privately(path, BACKLOG).map_err(failed)
}

/// Answers until the runtime ends.
///
/// # Errors
/// The runtime does not take the listener.
pub async fn serve(
    listener: std::os::unix::net::UnixListener,
    observed: Arc<dyn Observed>,
    asked: mpsc::Sender<Asked>,
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
    observed: Arc<dyn Observed>,
    asked: mpsc::Sender<Asked>,
) -> std::io::Result<()> {
    let (read, mut write) = stream.split();
    let mut read = tokio::io::BufReader::new(read);
    loop {
        let mut line = String::new();
        if (&mut read).take(LINE_MAX).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => obey(request, &*observed, &asked).await.unwrap_or_else(
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

async fn obey(
    request: Request,
    observed: &dyn Observed,
    asked: &mpsc::Sender<Asked>,
) -> Result<Value, Failure> {
    match request {
        Request::Status {} => Ok(observed.view().json()),
        Request::Stop { force } => {
            let (answer, told) = oneshot::channel();
            let holders = pass_on(asked, Asked::Stop { force, answer }, told).await?;
            Ok(json!({"waiting_for": holders}))
        }
        Request::Pace { turn } => {
            let (answer, told) = oneshot::channel();
            pass_on(asked, Asked::Pace { turn, answer }, told).await?
        }
        Request::Inject { fault } => {
            let (answer, told) = oneshot::channel();
            let Injected {
                kind,
                count,
                text,
                mut facts,
            } = pass_on(asked, Asked::Inject { fault, answer }, told).await??;
            facts["kind"] = kind.name().into();
            facts["count"] = count.into();
            facts["text"] = text.into();
            Ok(facts)
        }
    }
}

/// Waits for the answer of those who run the instance.
async fn pass_on<T>(
    asked: &mpsc::Sender<Asked>,
    what: Asked,
    told: oneshot::Receiver<T>,
) -> Result<T, Failure> {
    let stopping = || Failure::failed("already stopping");
    asked.send(what).await.map_err(|_| stopping())?;
    told.await.map_err(|_| stopping())
}

/// The instance is another user's.
pub(crate) fn not_permitted(dirs: &Dirs, name: &str) -> Failure {
    let path = dirs.control(name);
    let message = format!(
        "{}: Permission denied; only the user who started instance {name:?} controls it",
        path.display()
    );
    Failure::new(Exit::Permission, message)
}

/// Asks a running instance. Exit 3 if none answers.
///
/// # Errors
/// No instance of this name answers, or it refuses the request.
pub fn ask(dirs: &Dirs, name: &str, request: &Request) -> Result<Value, Failure> {
    let path = dirs.control(name);
    let not_running = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => not_permitted(dirs, name),
        _ => Failure::new(
            Exit::NotRunning,
            format!("instance {name:?} is not running; `ftld list` shows those that are"),
        ),
    };
    let mut stream = std::os::unix::net::UnixStream::connect(&path).map_err(not_running)?;
    let failed =
        |error: std::io::Error| Failure::io(format!("instance {name:?} does not answer"), &error);
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

#[cfg(test)]
mod tests {
    use super::*;

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
