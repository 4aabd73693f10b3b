//! The transmission phase of one connection as a future: input, output, syncs, timers.
//!
//! Invariants: requests run inline in [`Connection::poll`], waits for the host's storage in the
//! blocking pool. A reply leaves after the device has finished the request, so power failure loses
//! no more than the device permits.

use super::busy_poll::BusyPoll;
use super::close_reason::CloseReason;
use super::{Opening, StallClock};
use crate::device::{BlockDevice, Completion};
use crate::transport::latency::CompletionTimer;
use crate::transport::nbd::buffer::Buffer;
use crate::transport::nbd::engine::{Close, Engine, PendingSync, ReplyTo, Turn};
use crate::transport::nbd::limits::Limits;
use crate::transport::nbd::stats::{NbdStats, Share};
use ftld_kit::convert::to_u64;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

/// Payloads of this size or more are read to their end and no further.
const LARGE: usize = 64 << 10;
/// Time for which an idle connection keeps a stretched buffer.
const RELAX: Duration = Duration::from_secs(1);

/// Purpose of the connection's timer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timer {
    Off,
    Stall,
    Relax,
    Drain,
}

type Waited = (ReplyTo, io::Result<Completion>);

pub(super) struct Connection<'a> {
    engine: Engine,
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) limits: &'a Limits,
    pub(super) stats: &'a NbdStats,
    in_flight: Share<'a>,
    pub(super) linger: BusyPoll,
    pub(super) input: Buffer,
    pub(super) out: Buffer,
    /// Whether the stream has unflushed bytes of replies, as TLS may.
    unflushed: bool,
    /// Syncs that wait for a thread; `waiting` counts those on one.
    syncs: Vec<PendingSync>,
    waiting: usize,
    sender: mpsc::UnboundedSender<Waited>,
    receiver: mpsc::UnboundedReceiver<Waited>,
    pub(super) sleep: Pin<Box<Sleep>>,
    timer: Timer,
    pub(super) silence: Arc<StallClock>,
    /// Timer of delayed replies.
    alarm: Option<(CompletionTimer, pipe::Receiver)>,
    end_of_input: bool,
    draining: bool,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
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
            linger: BusyPoll::new(opening.linger),
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

    pub(super) fn poll<S>(
        &mut self,
        mut stream: Pin<&mut S>,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), CloseReason>>
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
                assert_eq!(
                    self.engine.in_flight(),
                    0,
                    "a drained connection has requests in flight"
                );
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

    /// Does all work that is possible now. `Err` is the end of the connection, with or without an
    /// error.
    fn poll_work<S>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Result<Turn, Result<(), CloseReason>>
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
            // A started sync is progress: the next turn polls it and registers the waker.
            progress |= self.start_syncs();
            progress |= self
                .poll_output(stream.as_mut(), cx)
                .map_err(|error| Err(error.into()))?;
            let quiet = self.engine.is_idle() && self.all_sent();
            match turn {
                Turn::Close(Close::Disconnect) if quiet => return Err(Ok(())),
                Turn::Close(Close::Disconnect) | Turn::Room => {}
                Turn::Close(why) => return Err(Err(CloseReason::Transmission(why))),
                Turn::Input(want) if !self.end_of_input => {
                    progress |= self
                        .poll_input(stream.as_mut(), want, cx)
                        .map_err(|error| Err(error.into()))?;
                }
                // The rest of a message will not arrive, but earlier requests are still answered.
                Turn::Input(_) if self.all_sent() && self.engine.answered_whole_requests() => {
                    let whole = self.engine.at_boundary(&self.input);
                    if whole && quiet {
                        return Err(Ok(()));
                    } else if !whole {
                        return Err(Err(CloseReason::Stream(
                            io::ErrorKind::UnexpectedEof.into(),
                        )));
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

    /// Sends replies. They are sent once the stream has flushed them.
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
            progress = true;
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
        assert!(
            want > self.input.len(),
            "more input is asked for, but enough is buffered"
        );
        let missing = want - self.input.len();
        let (head, next) = self.engine.next_message();
        self.input.align(if want == head { head } else { 0 });
        let spare = self.input.spare(want);
        // The queue is empty after a large payload, so that the next one is aligned, and nothing of
        // it must be moved to the front.
        let most = match next.filter(|_| want == head) {
            Some(next) => spare.len().min(next.max(missing)),
            None if want >= LARGE => spare.len().min(missing),
            None => spare.len(),
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
            assert!(self.engine.syncs() > 0, "a sync ended, and none is counted");
            self.engine.finish(to, result, &mut self.out);
            self.waiting -= 1;
            progress = true;
        }
        progress
    }

    /// Sends the collected syncs to a thread, unless one is busy. Syncs share the host's work, so
    /// waiting for them in sequence takes no longer. A busy client cannot fill the thread pool.
    fn start_syncs(&mut self) -> bool {
        assert_eq!(
            self.engine.syncs(),
            self.waiting + self.syncs.len(),
            "syncs of the engine, and those that wait or run"
        );
        if self.waiting > 0 || self.syncs.is_empty() {
            return false;
        }
        let syncs = std::mem::take(&mut self.syncs);
        let sender = self.sender.clone();
        self.waiting = syncs.len();
        assert!(self.waiting > 0, "a thread is started for no sync");
        tokio::task::spawn_blocking(move || {
            for sync in syncs {
                let to = sync.to;
                let result = catch_unwind(AssertUnwindSafe(|| sync.wait()));
                let result = result.unwrap_or_else(|_| Err(io::Error::other("the flush panicked")));
                // The receiver is gone if the connection has ended.
                let _ = sender.send((to, result));
            }
        });
        true
    }

    /// Answers delayed requests that are due.
    fn release(&mut self) -> bool {
        // Without delayed replies, no clock is read.
        self.engine.next_due().is_some()
            && self
                .engine
                .release(std::time::Instant::now(), &mut self.out)
    }

    /// Returns `Ready` when a delayed reply may be due.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(due) = self.engine.next_due() else {
            return Poll::Pending;
        };
        let (alarm, file) = match &mut self.alarm {
            Some(both) => both,
            none => {
                let alarm = CompletionTimer::new()?;
                // The receiver needs only a file that can be polled and read.
                let file =
                    pipe::Receiver::from_owned_fd_unchecked(alarm.as_fd().try_clone_to_owned()?)?;
                none.insert((alarm, file))
            }
        };
        alarm.set(due)?;
        // The count has eight bytes; with a larger buffer, tokio detects that no more follows.
        ready!(Pin::new(file).poll_read(cx, &mut ReadBuf::new(&mut [0; 16])))?;
        alarm.went_off();
        Poll::Ready(Ok(()))
    }

    /// Returns `Ready` when elapsed time may require work.
    fn poll_timer(&mut self, turn: Turn, cx: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
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
            Timer::Stall => Err(CloseReason::Stalled(after)),
            Timer::Drain => Err(CloseReason::Undrained(after)),
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

    pub(super) fn publish(&mut self) {
        let in_flight = self.engine.in_flight();
        assert!(
            in_flight <= self.limits.in_flight,
            "{in_flight} requests of one client in flight, limited to {}",
            self.limits.in_flight
        );
        self.stats.add(&self.engine.take_tally());
        self.in_flight.set(to_u64(in_flight));
    }
}
