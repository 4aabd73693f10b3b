//! The service of `/dev/ublkbN`; without the feature, the error that this build has none.

#[cfg(feature = "ublk")]
use super::StopHow;
use super::{Context, Service};
use crate::device::BlockDevice;
#[cfg(feature = "ublk")]
use crate::transport::ublk::{self, Options, Served};
#[cfg(feature = "ublk")]
use crate::transport::{holders::Users, kernel_queue};
#[cfg(feature = "ublk")]
use crate::volume::Queue;
use ftld_kit::failure::{Exit, Failure};
use std::sync::Arc;

/// The error of a build without ublk.
#[cfg(not(feature = "ublk"))]
pub(super) fn not_built() -> Failure {
    Failure::new(
        Exit::DriverMissing,
        "this ftld was built without ublk; serve NBD instead, as in `ftld 'nbd+unix:///?socket=ftld.sock'`",
    )
}

#[cfg(feature = "ublk")]
pub(super) fn ublk_failure(error: ublk::Error) -> Failure {
    Failure::new(Exit::from_code(error.exit_code()), error.to_string())
}

#[cfg(feature = "ublk")]
pub(super) fn start(
    n: u32,
    device: Arc<dyn BlockDevice>,
    context: Context<'_>,
) -> Result<Arc<dyn Service>, Failure> {
    let served =
        Served::start(Some(n), device, Options::new(context.image)).map_err(ublk_failure)?;
    if served.recovered() {
        tracing::info!("reattached {}", served.path().display());
    }
    Ok(Arc::new(served))
}

#[cfg(not(feature = "ublk"))]
pub(super) fn start(
    _: u32,
    _: Arc<dyn BlockDevice>,
    _: Context<'_>,
) -> Result<Arc<dyn Service>, Failure> {
    Err(not_built())
}

#[cfg(feature = "ublk")]
impl Service for Served {
    fn target(&self) -> String {
        self.path().display().to_string()
    }
    fn holders(&self) -> Users {
        Served::holders(self)
    }
    fn kernel_queue(&self) -> Option<Queue> {
        kernel_queue(&format!("ublkb{}", self.n()))
    }
    fn ended(&self) -> Option<String> {
        Served::ended(self)
    }
    fn stop(&self, how: StopHow) -> Result<(), Failure> {
        match how {
            StopHow::Leave => {
                self.leave();
                Ok(())
            }
            StopHow::Remove => self.remove().map_err(ublk_failure),
        }
    }
}
