//! The handshake on a stream, including the upgrade to TLS.
//!
//! Invariants: the handshake ends within its deadline. Nothing reaches the device, so power failure
//! has no effect.

use super::close_reason::CloseReason;
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::export::Export;
use crate::transport::nbd::handshake::{Handshake, Security, Session, Step};
use crate::transport::nbd::limits::Limits;
use crate::transport::nbd::tls::{Channel, Tls};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Performs the handshake, including TLS, within its deadline. Returns the stream, the session, and
/// the bytes that followed.
pub(crate) async fn negotiate<S>(
    stream: S,
    export: &Export,
    limits: &Limits,
    tls: Option<&Tls>,
    full: Option<usize>,
) -> Result<(Channel<S>, Session, Vec<u8>), CloseReason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let security = tls.map_or(Security::Plain, Tls::security);
    let machine = Handshake::new(export, limits, security, full);
    tokio::time::timeout(limits.handshake, run(stream, machine, tls))
        .await
        .unwrap_or(Err(CloseReason::Deadline(limits.handshake)))
}

/// Runs the negotiation to its end.
async fn run<S>(
    stream: S,
    mut machine: Handshake<'_>,
    tls: Option<&Tls>,
) -> Result<(Channel<S>, Session, Vec<u8>), CloseReason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = Channel::Plain(stream);
    let mut input = Buffer::new(512);
    let mut out = Vec::new();
    stream.write_all(&Handshake::greeting()).await?;
    loop {
        let (taken, step) = machine.advance(input.filled(), &mut out);
        assert!(
            taken <= input.len(),
            "the handshake took {taken} bytes of {}",
            input.len()
        );
        assert!(
            !matches!(step, Step::StartTls) || taken == input.len(),
            "{} bytes in plain text follow STARTTLS",
            input.len() - taken
        );
        input.consume(taken);
        // Before the next option is read, so that replies never accumulate.
        stream.write_all(&out).await?;
        stream.flush().await?;
        out.clear();
        match step {
            Step::More if taken > 0 => {}
            Step::More => {
                assert!(
                    input.len() < machine.want(),
                    "an incomplete message of {} bytes; none is longer than {}",
                    input.len(),
                    machine.want()
                );
                let n = stream.read(input.spare(machine.want())).await?;
                if n == 0 {
                    return Err(CloseReason::Stream(io::ErrorKind::UnexpectedEof.into()));
                }
                input.commit(n);
            }
            Step::StartTls => {
                let tls = tls.expect("without it nothing is upgraded");
                stream = stream.upgrade(tls).await.map_err(CloseReason::Tls)?;
                machine.secured();
            }
            Step::Done(session) => return Ok((stream, session, input.filled().to_vec())),
            Step::End(why) => {
                let _ = stream.shutdown().await;
                return Err(why.into());
            }
        }
    }
}
