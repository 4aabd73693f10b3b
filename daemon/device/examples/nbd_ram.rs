//! Serves memory over NBD until SIGINT: the transport alone, to try clients against or to measure.
//!
//!     cargo run --release --example nbd_ram -- 'nbd+unix:///?socket=/tmp/ram.sock' 1073741824

use ftld_device::transport::nbd::{ExportInfo, Limits, NbdUri, Server};
use std::sync::Arc;

#[path = "../tests/nbd/support/ram.rs"]
mod ram;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(uri), Some(size)) = (args.next(), args.next()) else {
        return Err("usage: nbd_ram URI BYTES".into());
    };
    let uri: NbdUri = uri.parse()?;
    let device = Arc::new(ram::Ram::new(size.parse()?));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let info = ExportInfo {
            name: uri.export.clone(),
            description: "memory".into(),
        };
        let server = Server::bind(&uri.endpoint, device, info, Limits::default(), None)?;
        println!("ready {}", server.uri()?);
        server
            .run(async { drop(tokio::signal::ctrl_c().await) })
            .await;
        Ok(())
    })
}
