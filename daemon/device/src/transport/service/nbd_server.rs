//! The service of an NBD address.

use super::worker::{Worker, small_runtime};
use super::{Context, Service, StopHow};
use crate::device::BlockDevice;
use crate::transport::holders::Users;
use crate::transport::nbd::{ExportInfo, Limits, Listening, NbdStats, NbdUri, Server};
use ftld_kit::failure::Failure;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use tokio::sync::watch;

/// An NBD server on a socket. When it stops, it answers the requests of its clients and then
/// disconnects them.
pub(super) struct NbdServer {
    uri: String,
    stop: watch::Sender<bool>,
    stats: Arc<NbdStats>,
    worker: Worker,
}

impl NbdServer {
    pub(super) fn start(
        uri: &NbdUri,
        passed: Option<Listening>,
        device: Arc<dyn BlockDevice>,
        context: Context<'_>,
    ) -> Result<Self, Failure> {
        let info = ExportInfo {
            name: uri.export.clone(),
            description: format!("ftld {}", context.name),
        };
        let (endpoint, text, tls) = (uri.endpoint.clone(), uri.to_string(), context.tls.cloned());
        let (stop, mut stopped) = watch::channel(false);
        let (tell, told) = sync_channel(1);
        let serve = move || {
            let runtime = match small_runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            runtime.block_on(async {
                let bound = match passed {
                    Some(socket) => Server::adopt(socket, device, info, Limits::default(), tls),
                    None => Server::bind(&endpoint, device, info, Limits::default(), tls),
                };
                let server = match bound
                    .and_then(|server| Ok((server.uri()?.to_string(), server.stats(), server)))
                {
                    Ok((uri, stats, server)) => {
                        let _ = tell.send(Ok((uri, stats)));
                        server
                    }
                    Err(error) => return drop(tell.send(Err(error))),
                };
                server
                    .run(async { drop(stopped.wait_for(|stop| *stop).await) })
                    .await;
            });
        };
        let failed = |error: std::io::Error| Failure::io(&text, &error);
        let worker = Worker::spawn("ftld-nbd", serve).map_err(failed)?;
        let lost = || Failure::failed(format!("{text}: the server ended before it was ready"));
        let (uri, stats) = told.recv().map_err(|_| lost())?.map_err(failed)?;
        Ok(NbdServer {
            uri,
            stop,
            stats,
            worker,
        })
    }
}

impl Service for NbdServer {
    fn target(&self) -> String {
        self.uri.clone()
    }
    fn holders(&self) -> Users {
        Users::default()
    }
    fn ended(&self) -> Option<String> {
        self.worker
            .finished()
            .then(|| "the NBD server ended".into())
    }
    fn stop(&self, _how: StopHow) -> Result<(), Failure> {
        let _ = self.stop.send(true);
        self.worker.join(&self.uri)
    }
    fn nbd_stats(&self) -> Option<Arc<NbdStats>> {
        Some(self.stats.clone())
    }
}
