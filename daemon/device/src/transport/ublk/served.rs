//! A device served in the background.

use parking_lot::Mutex;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{io, sync::mpsc::RecvTimeoutError};

use super::queue::Gate;
use super::{Error, Options, Ready, control, serve};
use crate::device::BlockDevice;
use crate::transport::holders::Users;

/// Longest time for a stopped device to answer the requests in flight.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A `/dev/ublkbN` with the thread that serves it.
pub(crate) struct Served {
    ready: Ready,
    gate: Arc<Gate>,
    thread: Mutex<Option<JoinHandle<Result<(), Error>>>>,
    ended: Mutex<mpsc::Receiver<()>>,
}

impl Served {
    /// Starts [`serve`](super::serve) on a thread of its own; returns when the first request can be
    /// served.
    ///
    /// # Errors
    /// The device cannot be created.
    pub(crate) fn start(
        n: Option<u32>,
        device: Arc<dyn BlockDevice>,
        options: Options,
    ) -> Result<Self, Error> {
        let gate = Arc::new(Gate::default());
        let (says_ready, ready) = mpsc::sync_channel(1);
        let (end, ended) = mpsc::channel();
        let thread = {
            let gate = gate.clone();
            thread::Builder::new()
                .name("ftld-ublk-ctl".into())
                .spawn(move || {
                    let _end: mpsc::Sender<()> = end;
                    serve(gate, n, device, &options, move |ready| {
                        drop(says_ready.send(ready))
                    })
                })
        };
        let thread = thread.map_err(|source| Error::Io {
            what: "start a thread for ublk".into(),
            source,
        })?;
        match ready.recv() {
            Ok(ready) => Ok(Self {
                ready,
                gate,
                thread: Mutex::new(Some(thread)),
                ended: Mutex::new(ended),
            }),
            // The thread ended before it was ready; its result has the reason.
            Err(_) => Err(join(thread)
                .err()
                .unwrap_or_else(|| failed("ended before it was ready"))),
        }
    }

    /// Returns the device's number.
    pub(crate) fn n(&self) -> u32 {
        self.ready.n
    }

    /// Returns the device's node.
    pub(crate) fn path(&self) -> &Path {
        &self.ready.path
    }

    /// Returns whether the device was reattached after its daemon died.
    pub(crate) fn recovered(&self) -> bool {
        self.ready.recovered
    }

    /// Returns its users.
    pub(crate) fn holders(&self) -> Users {
        control::live_holders(self.ready.n)
    }

    /// Returns the reason if serving ended by itself: another program removed the device, or a
    /// queue failed.
    pub(crate) fn ended(&self) -> Option<String> {
        let mut thread = self.thread.lock();
        let ended = thread.take_if(|thread| thread.is_finished())?;
        Some(join(ended).map_or_else(
            |error| error.to_string(),
            |()| "removed by another program".into(),
        ))
    }

    /// Removes the device, even if open: requests in flight are answered, later ones fail.
    ///
    /// # Errors
    /// The driver refuses to remove the device.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let Some(thread) = self.thread.lock().take() else {
            return Ok(());
        };
        self.gate.hurry();
        match control::stop(self.ready.n, true) {
            Ok(()) | Err(Error::Absent(_)) => {}
            Err(error) => return Err(error),
        }
        let ended = self.ended.lock();
        match ended.recv_timeout(END_TIMEOUT) {
            Err(RecvTimeoutError::Timeout) => {
                Err(failed("requests were still in flight after 5 s"))
            }
            _ => join(thread),
        }
    }

    /// Leaves the device to the next daemon without removing it: from here on no request reaches
    /// the volume. Once the process has exited, all requests wait for the next daemon. The process
    /// must exit soon.
    pub(crate) fn leave(&self) {
        self.gate.close();
    }
}

fn join(thread: JoinHandle<Result<(), Error>>) -> Result<(), Error> {
    thread
        .join()
        .unwrap_or_else(|_| Err(failed("the serving thread panicked")))
}

fn failed(why: &str) -> Error {
    Error::Io {
        what: "serve a ublk device".into(),
        source: io::Error::other(why.to_owned()),
    }
}
