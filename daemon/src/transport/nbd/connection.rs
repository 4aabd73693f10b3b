//! One connection on tokio: moves bytes between a stream and the state machines, and watches the
//! clock.
//!
//! What always holds: requests run inline on the thread that polls the connection; only
//! [`crate::device::Flush::wait`] goes to the blocking pool, one thread per connection at a time,
//! while other requests go on being served. Held replies wait for one timer per connection, which
//! is there from the first of them on. Time runs against a peer only where it keeps us waiting in
//! the middle of a message, never while it waits for us. If the peer misbehaves or vanishes, the
//! connection ends and nothing else is touched.

use super::buffer::Buffer;
use super::engine::{Close, Engine, ReplyTo, Sync, Turn};
use super::export::{Export, ExportInfo};
use super::handshake::{End, Handshake, Security, Session, Step};
use super::limits::Limits;
use super::stats::{NbdStats, Share};
use super::tls::{Channel, Tls};
use crate::device::{BlockDevice, Completion};
use crate::transport::latency::Alarm;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

/// Payloads from here on are read to their end and no further.
const LARGE: usize = 64 << 10;
/// How long a stretched buffer of an idle connection is kept.
const RELAX: Duration = Duration::from_secs(1);

/// Why a connection ended other than by good-bye, by closing it between two messages, or by a
/// shutdown.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// In the handshake.
    #[error("handshake: {0}")]
    Handshake(#[from] End),
    /// The handshake took too long.
    #[error("the handshake was not done within {0:?}")]
    Deadline(Duration),
    /// The upgrade to TLS failed: no TLS, or no certificate that we trust.
    #[error("TLS handshake: {0}")]
    Tls(#[source] io::Error),
    /// In transmission.
    #[error("{0}")]
    Transmission(Close),
    /// Silence in the middle of a message, while others waited for a place.
    #[error("made way for another client, silent in the middle of a message")]
    Evicted,
    /// Silence in the middle of a message.
    #[error("no progress for {0:?} in the middle of a message")]
    Stalled(Duration),
    /// A shutdown did not wait any longer.
    #[error("requests were still under way {0:?} after the shutdown began")]
    Undrained(Duration),
    /// The stream ended or failed.
    #[error("connection lost: {0}")]
    Stream(#[from] io::Error),
}

impl Ended {
    /// Whether the peer is to blame, rather than the network or us.
    pub fn is_hostile(&self) -> bool {
        match self {
            Ended::Handshake(end) => !matches!(end, End::Aborted),
            Ended::Transmission(close) => !matches!(close, Close::Broken),
            Ended::Deadline(_) | Ended::Stalled(_) | Ended::Evicted | Ended::Tls(_) => true,
            Ended::Undrained(_) | Ended::Stream(_) => false,
        }
    }
}

/// Serves one client on a connected stream from the greeting on, until it leaves or `shutdown` is
/// done. Runs on the caller's tokio runtime, which needs its drivers for time and I/O.
pub async fn serve_stream<S>(
    stream: S,
    device: Arc<dyn BlockDevice>,
    info: ExportInfo,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let export = Export::of(&*device, info);
    let (channel, session, rest) = {
        let _share = Share::of(&stats.negotiating, 1);
        negotiate(stream, &export, limits, None, None).await?
    };
    let opening = Opening {
        session,
        export,
        rest,
        linger: Duration::ZERO,
        silence: Arc::default(),
    };
    transmit(channel, opening, device, limits, stats, shutdown).await
}

/// Serves a stream whose other end already is in transmission and takes simple replies: the
/// kernel's client on a socket handed to it. The kernel must be told the size and [`Export::flags`]
/// of [`super::wire::Mode::Simple`].
pub async fn attach_stream<S>(
    stream: S,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let export = Export::of(&*device, ExportInfo::default());
    let (session, linger, silence) = (Session::SIMPLE, Duration::ZERO, Arc::default());
    let opening = Opening {
        session,
        export,
        rest: Vec::new(),
        linger,
        silence,
    };
    transmit(
        Channel::Plain(stream),
        opening,
        device,
        limits,
        stats,
        shutdown,
    )
    .await
}

/// Where transmission starts from.
pub(super) struct Opening {
    pub(super) session: Session,
    pub(super) export: Export,
    /// Bytes of requests that came with the end of the handshake.
    pub(super) rest: Vec<u8>,
    /// How long to look for the next request before sleeping; zero where others share the thread.
    pub(super) linger: Duration,
    /// Where to say that the peer keeps us waiting.
    pub(super) silence: Arc<Silence>,
}

/// Since when a peer has been silent in the middle of a message, for whoever has to choose which
/// connection makes way.
#[derive(Default)]
pub(super) struct Silence(Mutex<Option<Instant>>);

impl Silence {
    fn set(&self, silent: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = silent.then(Instant::now);
    }

    /// `None` while the peer keeps nobody waiting.
    pub(super) fn since(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handshake, that of TLS included, within its deadline: what was agreed, and the bytes that
/// came after.
pub(super) async fn negotiate<S>(
    stream: S,
    export: &Export,
    limits: &Limits,
    tls: Option<&Tls>,
    full: Option<usize>,
) -> Result<(Channel<S>, Session, Vec<u8>), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let work = negotiate_slowly(stream, export, limits, tls, full);
    tokio::time::timeout(limits.handshake, work)
        .await
        .unwrap_or(Err(Ended::Deadline(limits.handshake)))
}

async fn negotiate_slowly<S>(
    stream: S,
    export: &Export,
    limits: &Limits,
    tls: Option<&Tls>,
    full: Option<usize>,
) -> Result<(Channel<S>, Session, Vec<u8>), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stream = Channel::Plain(stream);
    let mut machine = Handshake::new(
        export,
        limits,
        tls.map_or(Security::Plain, Tls::security),
        full,
    );
    let mut input = Buffer::new(512);
    let mut out = Vec::new();
    stream.write_all(&Handshake::greeting()).await?;
    loop {
        let (taken, step) = machine.advance(input.filled(), &mut out);
        input.consume(taken);
        // Before the next option is looked at, so that answers never pile up.
        stream.write_all(&out).await?;
        stream.flush().await?;
        out.clear();
        match step {
            Step::More if taken > 0 => {}
            Step::More => {
                let n = stream.read(input.spare(machine.want())).await?;
                if n == 0 {
                    return Err(Ended::Stream(io::ErrorKind::UnexpectedEof.into()));
                }
                input.commit(n);
            }
            Step::StartTls => {
                let tls = tls.expect("without it nothing is upgraded");
                stream = stream.upgrade(tls).await.map_err(Ended::Tls)?;
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

/// The transmission phase.
pub(super) async fn transmit<S>(
    channel: Channel<S>,
    opening: Opening,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match channel {
        Channel::Plain(stream) => {
            transmit_on(stream, opening, device, limits, stats, shutdown).await
        }
        Channel::Tls(stream) => {
            transmit_on(*stream, opening, device, limits, stats, shutdown).await
        }
    }
}

async fn transmit_on<S>(
    mut stream: S,
    opening: Opening,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _share = Share::of(&stats.connected, 1);
    let mut connection = Connection::new(opening, device, limits, stats);
    let mut shutdown = pin!(shutdown);
    let result = poll_fn(|cx| connection.poll(Pin::new(&mut stream), shutdown.as_mut(), cx)).await;
    connection.publish();
    // TLS says good-bye, for which a peer that takes nothing leaves no room.
    let _ = tokio::time::timeout(limits.drain, stream.shutdown()).await;
    result
}

/// What the one timer of a connection is running for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timer {
    Off,
    Stall,
    Relax,
    Drain,
}

/// Decides whether to look for the next request a little longer instead of sleeping. Being woken
/// costs more than most requests take, so that a client which sends one at a time gains much; an
/// idle or slow one must cost nothing, so that only a short silence makes us linger in the next
/// one.
struct Linger {
    limit: Duration,
    since: Option<Instant>,
    brisk: bool,
}

impl Linger {
    /// A client counts as brisk when its last silence was at most this many times the limit.
    const BRISK: u32 = 4;

    fn new(limit: Duration) -> Self {
        Linger {
            limit,
            since: None,
            brisk: false,
        }
    }

    /// Called when there is nothing to do.
    fn wants_more(&mut self) -> bool {
        if self.limit.is_zero() {
            return false;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.brisk && now - since < self.limit
    }

    /// Called when something came.
    fn stop(&mut self) {
        if let Some(since) = self.since.take() {
            self.brisk = since.elapsed() < self.limit * Self::BRISK;
        }
    }
}

type Waited = (ReplyTo, io::Result<Completion>);

struct Connection<'a> {
    engine: Engine,
    device: Arc<dyn BlockDevice>,
    limits: &'a Limits,
    stats: &'a NbdStats,
    in_flight: Share<'a>,
    linger: Linger,
    input: Buffer,
    out: Buffer,
    /// Whether the stream holds bytes of replies back, as TLS does.
    unflushed: bool,
    /// Syncs that wait for a thread, and how many are with one.
    syncs: Vec<Sync>,
    waiting: usize,
    sender: mpsc::UnboundedSender<Waited>,
    receiver: mpsc::UnboundedReceiver<Waited>,
    sleep: Pin<Box<Sleep>>,
    timer: Timer,
    silence: Arc<Silence>,
    /// For held replies.
    alarm: Option<(Alarm, pipe::Receiver)>,
    end_of_input: bool,
    draining: bool,
}

impl<'a> Connection<'a> {
    fn new(
        opening: Opening,
        device: Arc<dyn BlockDevice>,
        limits: &'a Limits,
        stats: &'a NbdStats,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut input = Buffer::new(limits.resting);
        input.push(&opening.rest);
        Connection {
            engine: Engine::new(opening.session, &opening.export, limits),
            device,
            limits,
            stats,
            in_flight: Share::of(&stats.in_flight, 0),
            linger: Linger::new(opening.linger),
            input,
            out: Buffer::new(limits.resting),
            unflushed: false,
            syncs: Vec::new(),
            waiting: 0,
            sender,
            receiver,
            sleep: Box::pin(tokio::time::sleep(limits.stall)),
            timer: Timer::Off,
            silence: opening.silence,
            alarm: None,
            end_of_input: false,
            draining: false,
        }
    }

    fn poll<S>(
        &mut self,
        mut stream: Pin<&mut S>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Ended>>
    where
        S: AsyncRead + AsyncWrite,
    {
        loop {
            let turn = match self.poll_work(stream.as_mut(), cx) {
                Ok(turn) => turn,
                Err(end) => return Poll::Ready(end),
            };
            self.publish();
            if !self.draining && shutdown.as_mut().poll(cx).is_ready() {
                self.draining = true;
                self.engine.drain();
                continue;
            }
            let quiet = self.engine.is_idle() && self.all_sent();
            if self.draining && quiet && self.engine.at_boundary(&self.input) {
                return Poll::Ready(Ok(()));
            }
            if quiet && self.linger.wants_more() {
                std::thread::yield_now();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.poll_alarm(cx)?.is_pending() {
                ready!(self.poll_timer(turn, cx))?;
            }
        }
    }

    /// Does all that can be done now. `Err` is the end of the connection, in whichever way.
    fn poll_work<S>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Result<Turn, Result<(), Ended>>
    where
        S: AsyncRead + AsyncWrite,
    {
        loop {
            let mut progress = self.poll_syncs(cx) | self.release();
            let turn = self.engine.advance(
                &*self.device,
                &mut self.input,
                &mut self.out,
                &mut self.syncs,
            );
            // Once around again, to be woken when they are done.
            progress |= self.start_syncs();
            progress |= self
                .poll_output(stream.as_mut(), cx)
                .map_err(|error| Err(error.into()))?;
            let quiet = self.engine.is_idle() && self.all_sent();
            match turn {
                Turn::Close(Close::Disconnect) if quiet => return Err(Ok(())),
                Turn::Close(Close::Disconnect) | Turn::Room => {}
                Turn::Close(why) => return Err(Err(Ended::Transmission(why))),
                Turn::Input(want) if !self.end_of_input => {
                    progress |= self
                        .poll_input(stream.as_mut(), want, cx)
                        .map_err(|error| Err(error.into()))?;
                }
                // The rest of a message will not come, but what was asked before is still answered.
                Turn::Input(_) if self.all_sent() && self.engine.answered_whole_requests() => {
                    let whole = self.engine.at_boundary(&self.input);
                    if whole && quiet {
                        return Err(Ok(()));
                    } else if !whole {
                        return Err(Err(Ended::Stream(io::ErrorKind::UnexpectedEof.into())));
                    }
                }
                Turn::Input(_) => {}
            }
            if !progress {
                return Ok(turn);
            }
            self.linger.stop();
            if self.timer != Timer::Drain {
                self.set_timer(Timer::Off);
            }
        }
    }

    /// Sends replies. They count as sent when the stream holds nothing back any more.
    fn poll_output<S: AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let mut progress = false;
        if !self.out.is_empty()
            && let Poll::Ready(sent) = stream.as_mut().poll_write(cx, self.out.filled())
        {
            self.out.consume(sent?);
            self.unflushed = true;
            progress = true;
        }
        if self.out.is_empty()
            && self.unflushed
            && let Poll::Ready(flushed) = stream.poll_flush(cx)
        {
            flushed?;
            self.unflushed = false;
            self.engine.sent();
        }
        Ok(progress)
    }

    fn all_sent(&self) -> bool {
        self.out.is_empty() && !self.unflushed
    }

    fn poll_input<S: AsyncRead>(
        &mut self,
        stream: Pin<&mut S>,
        want: usize,
        cx: &mut Context<'_>,
    ) -> io::Result<bool> {
        let missing = want - self.input.len();
        let spare = self.input.spare(want);
        // The queue runs empty behind a large payload, so that nothing of the next one has to be
        // moved to the front.
        let most = if want >= LARGE {
            spare.len().min(missing)
        } else {
            spare.len()
        };
        let mut buf = ReadBuf::new(&mut spare[..most]);
        match stream.poll_read(cx, &mut buf) {
            Poll::Pending => Ok(false),
            Poll::Ready(result) => {
                result?;
                let n = buf.filled().len();
                self.end_of_input = n == 0;
                self.input.commit(n);
                Ok(true)
            }
        }
    }

    fn poll_syncs(&mut self, cx: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.waiting > 0 && self.engine.between_replies() {
            let Poll::Ready(Some((to, result))) = self.receiver.poll_recv(cx) else {
                break;
            };
            self.engine.finish(to, result, &mut self.out);
            self.waiting -= 1;
            progress = true;
        }
        progress
    }

    /// Sends the syncs that gathered to a thread, unless one is at work: syncs share what the host
    /// does, so that waiting for them one after the other takes no longer, and a busy client cannot
    /// fill the thread pool.
    fn start_syncs(&mut self) -> bool {
        if self.waiting > 0 || self.syncs.is_empty() {
            return false;
        }
        let syncs = std::mem::take(&mut self.syncs);
        let sender = self.sender.clone();
        self.waiting = syncs.len();
        tokio::task::spawn_blocking(move || {
            for sync in syncs {
                let to = sync.to;
                let result = catch_unwind(AssertUnwindSafe(|| sync.wait()));
                let result = result.unwrap_or_else(|_| Err(io::Error::other("the flush panicked")));
                // Nobody listens any more when the connection has ended.
                let _ = sender.send((to, result));
            }
        });
        true
    }

    /// Answers what was held and is due.
    fn release(&mut self) -> bool {
        // Where nothing is held, no clock is read.
        self.engine.next_due().is_some()
            && self
                .engine
                .release(std::time::Instant::now(), &mut self.out)
    }

    /// Ready when a held reply may be due.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(due) = self.engine.next_due() else {
            return Poll::Pending;
        };
        let (alarm, file) = match &mut self.alarm {
            Some(both) => both,
            none => {
                let alarm = Alarm::new()?;
                // Nothing in there asks for more than a file that can be polled and read.
                let file =
                    pipe::Receiver::from_owned_fd_unchecked(alarm.as_fd().try_clone_to_owned()?)?;
                none.insert((alarm, file))
            }
        };
        alarm.set(due)?;
        // A count of eight bytes; room for more tells tokio that it was all there is.
        ready!(Pin::new(file).poll_read(cx, &mut ReadBuf::new(&mut [0; 16])))?;
        alarm.went_off();
        Poll::Ready(Ok(()))
    }

    /// Ready when there may be something to do because time passed.
    fn poll_timer(&mut self, turn: Turn, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        let (timer, after) = self.wanted_timer(turn);
        if timer == Timer::Off {
            self.set_timer(timer);
            return Poll::Pending;
        }
        if timer != self.timer {
            self.set_timer(timer);
            self.sleep.as_mut().reset(Instant::now() + after);
        }
        ready!(self.sleep.as_mut().poll(cx));
        self.set_timer(Timer::Off);
        Poll::Ready(match timer {
            Timer::Stall => Err(Ended::Stalled(after)),
            Timer::Drain => Err(Ended::Undrained(after)),
            Timer::Relax | Timer::Off => {
                self.input.relax();
                self.out.relax();
                Ok(())
            }
        })
    }

    fn set_timer(&mut self, timer: Timer) {
        if (timer == Timer::Stall) != (self.timer == Timer::Stall) {
            self.silence.set(timer == Timer::Stall);
        }
        self.timer = timer;
    }

    fn wanted_timer(&self, turn: Turn) -> (Timer, Duration) {
        let awaits_rest = matches!(turn, Turn::Input(_)) && !self.engine.at_boundary(&self.input);
        if self.draining {
            (Timer::Drain, self.limits.drain)
        } else if awaits_rest || !self.all_sent() {
            (Timer::Stall, self.limits.stall)
        } else if self.input.is_stretched() || self.out.is_stretched() {
            (Timer::Relax, RELAX)
        } else {
            (Timer::Off, Duration::ZERO)
        }
    }

    fn publish(&mut self) {
        self.stats.add(&self.engine.take_tally());
        self.in_flight.set(self.engine.in_flight() as u64);
    }
}

/// Counts and logs the end of a connection.
pub(super) fn note_end(peer: &str, result: &Result<(), Ended>, stats: &NbdStats) {
    match result {
        Ok(()) => tracing::debug!(peer, "nbd client left"),
        Err(ended) if ended.is_hostile() => {
            stats.dropped.fetch_add(1, Relaxed);
            tracing::info!(peer, reason = %ended, "nbd client dropped");
        }
        Err(ended) => tracing::debug!(peer, reason = %ended, "nbd connection ended"),
    }
}

#[cfg(test)]
mod tests;
