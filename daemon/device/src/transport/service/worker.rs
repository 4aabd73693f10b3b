//! The threads of services on sockets.

use ftld_kit::failure::Failure;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest time for a stopped transport to answer the requests in flight.
const END_TIMEOUT: Duration = Duration::from_secs(6);

/// A thread that signals its end.
pub(super) struct Worker {
    ended: Mutex<Receiver<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    pub(super) fn spawn(
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Worker> {
        let (end, ended) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _end = end;
                work();
            })?;
        Ok(Worker {
            ended: Mutex::new(ended),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) fn finished(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(super) fn join(&self, what: &str) -> Result<(), Failure> {
        let ended = self.ended.lock();
        if ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            return Err(Failure::failed(format!(
                "{what}: requests were still in flight after {END_TIMEOUT:?}"
            )));
        }
        let thread = self.thread.lock().take();
        match thread.map(JoinHandle::join) {
            Some(Err(_)) => Err(Failure::failed(format!("{what}: its thread panicked"))),
            _ => Ok(()),
        }
    }
}

pub(super) fn small_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
