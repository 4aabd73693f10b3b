//! Arbitrary client bytes for the NBD server: the negotiation alone under every kind of TLS, and
//! whole in-memory sessions on a real volume.
//!
//! Properties: a negotiation ends within its options, and neither stores nor sends more than they
//! allow. Where TLS is required, it sends nothing before TLS. A session ends when its input does,
//! without a device failure, and within the memory limits.

use super::Input;
use crate::suite;
use ftl_core::schemes::SCHEMES;
use ftld_battery::rig::{Cells, Rig};
use ftld_device::device::BlockDevice;
use ftld_device::transport::nbd::handshake::{Handshake, Security, Step};
use ftld_device::transport::nbd::wire::{option, reply, u32_at};
use ftld_device::transport::nbd::{Export, ExportInfo, Limits, NbdStats, serve_stream};
use ftld_device::volume::{Volume, VolumeOptions};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;

/// Runs one input. The first byte selects the mode and the split of the rest.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let knobs = input.u8();
    let piece = [1, 7, 64, usize::MAX][usize::from(knobs & 3)];
    match knobs >> 2 & 7 {
        0 => negotiate(Security::Plain, None, input.rest(), piece),
        1 => negotiate(Security::Offered, None, input.rest(), piece),
        2 => negotiate(Security::Required, None, input.rest(), piece),
        3 => negotiate(Security::Required, Some(64), input.rest(), piece),
        more => session(more == 7, input.rest(), piece),
    }
}

fn info() -> ExportInfo {
    ExportInfo {
        name: "disk".into(),
        description: "a disk".into(),
    }
}

/// Largest answer to one option: an answer to INFO with all items, or an error's text.
const ANSWER_MAX: usize = 1024;

fn negotiate(mut security: Security, full: Option<usize>, bytes: &[u8], piece: usize) {
    let export = Export {
        info: info(),
        size: 1 << 30,
        read_only: false,
        volatile_cache: true,
        preferred: 4096,
    };
    let limits = Limits::default();
    let mut machine = Handshake::new(&export, &limits, security, full);
    let (mut there, mut waiting, mut out) = (0, Vec::new(), Vec::new());
    loop {
        out.clear();
        let (taken, step) = machine.advance(&waiting, &mut out);
        assert!(taken <= waiting.len(), "took what was not there");
        assert!(out.len() <= ANSWER_MAX, "{} bytes of answer", out.len());
        if security == Security::Required {
            tells_nothing(&out);
        }
        waiting.drain(..taken);
        match step {
            Step::More if taken > 0 => {}
            Step::More => {
                assert!(
                    waiting.len() < machine.want(),
                    "keeps {} bytes",
                    waiting.len()
                );
                if there == bytes.len() {
                    return;
                }
                let more = piece.min(bytes.len() - there);
                waiting.extend_from_slice(&bytes[there..there + more]);
                there += more;
            }
            Step::StartTls => {
                assert!(waiting.is_empty(), "plaintext got behind TLS");
                assert!(
                    matches!(security, Security::Offered | Security::Required) && full.is_none()
                );
                security = Security::Secured;
                machine.secured();
            }
            Step::Done(_) => {
                assert!(security != Security::Required && full.is_none(), "let in");
                return;
            }
            Step::End(_) => return,
        }
    }
}

/// Checks that the server sends only errors and acknowledgements of STARTTLS and ABORT before TLS.
fn tells_nothing(mut answer: &[u8]) {
    while !answer.is_empty() {
        let (asked, kind, length) = (
            u32_at(answer, 8),
            u32_at(answer, 12),
            u32_at(answer, 16) as usize,
        );
        let acknowledged = kind == reply::ACK && matches!(asked, option::STARTTLS | option::ABORT);
        assert!(
            acknowledged || kind >= reply::ERR_UNSUP,
            "answer {kind:#x} to option {asked} before TLS"
        );
        answer = &answer[20 + length..];
    }
}

/// Pages of the device: few, so that repeated reads of the whole device are cheap.
const PAGES: u32 = 96;
const PAGE: u64 = 512;

thread_local! {
    static RUNTIME: Runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(1)
        .build()
        .expect("a runtime");
}

fn session(read_only: bool, bytes: &[u8], piece: usize) {
    let ftl = Rig::new(&SCHEMES[0], Cells::Mlc, PAGES, suite::seed()).format();
    let options = VolumeOptions {
        size: u64::from(PAGES) * PAGE,
        read_only,
        emulate: false,
    };
    let volume: Arc<Volume> = Arc::new(Volume::new(ftl, options, None));
    let limits = Limits {
        piece: 4096,
        backlog: 8192,
        resting: 10 << 10,
        ..Limits::default()
    };
    let stats = NbdStats::default();
    let stream = Script {
        bytes: bytes.to_vec(),
        at: 0,
        piece,
    };
    RUNTIME.with(|runtime| {
        let device: Arc<dyn BlockDevice> = volume.clone();
        // The way in which a session ends does not matter.
        let _ = runtime.block_on(serve_stream(
            stream,
            device,
            info(),
            &limits,
            &stats,
            std::future::pending(),
        ));
    });
    assert_eq!(volume.failure(), None);
    let seen = stats.snapshot();
    assert_eq!(
        (seen.negotiating, seen.connected, seen.in_flight),
        (0, 0, 0)
    );
}

/// Stream that sends its bytes in pieces and then ends, and discards received bytes.
struct Script {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let n = self
            .piece
            .min(self.bytes.len() - self.at)
            .min(buf.remaining());
        buf.put_slice(&self.bytes[self.at..self.at + n]);
        self.at += n;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Script {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(self.piece.min(bytes.len())))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
