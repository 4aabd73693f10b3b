//! One front-end: its messages, and the requests of its queue.
//!
//! Invariants: the queue runs while it has a kick and is enabled. Between two waits it executes at
//! most as many requests as the queue has entries, and begins none after [`BATCH_MAX`], so a driver
//! that never pauses cannot block messages or a stop. Requests that finish in between are
//! acknowledged together, but before a request that may wait. At most as many completions as the
//! queue has entries are delayed; when the queue or the server stops, they complete at once.

use super::blk::{self, Blk};
use super::memory::Memory;
use super::messages::{CONFIG_MAX, Channel, Message, le_bytes};
use super::ring::{Addresses, Batch, Ring};
use super::{CloseReason, accept, is_ready, polled, unpolled, wait};
use crate::device::BlockDevice;
use crate::transport::latency::{CompletionTimer, DelayQueue};
use nix::poll::PollTimeout;
use nix::sys::eventfd::EventFd;
use rustix::io::ioctl_fionbio;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;

/// The socket for requests of the server, which sends none: without it User-Mode Linux requests no
/// interrupt.
const P_BACKEND_REQ: u64 = 1 << 5;
const P_CONFIG: u64 = 1 << 9;

/// Longest time that requests are collected to be acknowledged together; the last one may take
/// longer.
const BATCH_MAX: Duration = Duration::from_millis(1);

/// Flag of a message that would carry a descriptor, and does not.
const NO_FILE: u64 = 1 << 8;
const FILE_TYPE: u32 = 0o170_000;

/// One front-end.
pub(super) struct Connection<'a> {
    channel: Channel<'a>,
    stop: &'a EventFd,
    device: &'a dyn BlockDevice,
    blk: Blk<'a>,
    offered: u64,
    accepted: u64,
    memory: Memory,
    ring: Ring,
    /// Kept for its room.
    batch: Batch,
    enabled: bool,
    /// Whether requests may be waiting that no kick announces.
    is_behind: bool,
    /// First descriptors and written bytes of delayed completions.
    holds: DelayQueue<(u16, u32)>,
    alarm: Option<CompletionTimer>,
    /// Kept open: the front-end watches its other end.
    _backend_requests: Option<OwnedFd>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(
        socket: UnixStream,
        device: &'a dyn BlockDevice,
        serial: &str,
        stop: &'a EventFd,
    ) -> Self {
        Connection {
            channel: Channel::new(socket, stop),
            stop,
            device,
            blk: Blk::new(device, serial),
            offered: blk::features(device),
            accepted: 0,
            memory: Memory::default(),
            ring: Ring::default(),
            batch: Batch::default(),
            enabled: false,
            is_behind: false,
            holds: DelayQueue::default(),
            alarm: None,
            _backend_requests: None,
        }
    }

    /// Serves the front-end until the connection ends; turns others away meanwhile.
    pub(super) fn run(&mut self, others: &UnixListener) -> CloseReason {
        loop {
            if let Err(reason) = self.turn(others) {
                if matches!(reason, CloseReason::Stopped) {
                    // The front-end may be gone.
                    let _ = self.complete_all();
                }
                return reason;
            }
        }
    }

    /// Waits for an event and serves it: a message before a request.
    fn turn(&mut self, others: &UnixListener) -> Result<(), CloseReason> {
        self.release()?;
        let is_behind = self.is_running() && self.is_behind;
        let timeout = match is_behind {
            true => PollTimeout::ZERO,
            false => PollTimeout::NONE,
        };
        let kick = self.ring.kick.as_ref().filter(|_| self.is_running());
        let alarm = self.alarm.as_ref().filter(|_| !self.holds.is_empty());
        let none = || unpolled(self.stop.as_fd());
        let mut files = [
            polled(self.stop),
            polled(&self.channel.socket),
            polled(others),
            kick.map_or_else(none, polled),
            alarm.map_or_else(none, polled),
        ];
        wait(&mut files, timeout).map_err(CloseReason::io("wait"))?;
        let [stop, message, other, kick, alarm] = files.each_ref().map(is_ready);
        if stop {
            return Err(CloseReason::Stopped);
        } else if message {
            let message = self.channel.receive()?;
            return self.serve(message);
        }
        if other {
            self.turn_away(others)?;
        }
        if alarm && let Some(alarm) = &mut self.alarm {
            alarm.went_off();
        }
        if kick {
            self.ring.take_kick()?;
        }
        if kick || is_behind {
            self.execute()?;
        }
        Ok(())
    }

    /// Closes the connection of another front-end, unless this one has left before it came.
    fn turn_away(&self, others: &UnixListener) -> Result<(), CloseReason> {
        let mut files = [polled(&self.channel.socket)];
        wait(&mut files, PollTimeout::ZERO).map_err(CloseReason::io("wait"))?;
        if !is_ready(&files[0]) && accept(others).is_some() {
            tracing::warn!("vhost-user front-end turned away: another one is connected");
        }
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.ring.kick.is_some() && self.enabled
    }

    /// Executes the requests in the ring, at most as many as it has entries, for [`BATCH_MAX`].
    fn execute(&mut self) -> Result<(), CloseReason> {
        let executed = self.execute_batch();
        // What has finished is acknowledged, whatever follows.
        executed.and(self.ring.publish(&self.memory))
    }

    fn execute_batch(&mut self) -> Result<(), CloseReason> {
        let write_through = self.accepted & blk::F_FLUSH == 0;
        self.is_behind = false;
        let began = Instant::now();
        let mut batch = std::mem::take(&mut self.batch);
        self.ring.look(&self.memory, &mut batch)?;
        let left = (0..batch.heads().len()).rev();
        for (left, head) in left.zip(batch.heads()) {
            self.ring.take();
            let chain = batch.chain(head)?;
            let request = self.blk.receive(&self.memory, chain)?;
            if self.blk.may_wait(&request, write_through) {
                self.ring.publish(&self.memory)?;
            }
            let done = self.blk.execute(&self.memory, request, write_through)?;
            match done.hold {
                None => self.ring.finish(head, done.written),
                Some(_) if self.holds.len() >= usize::from(self.ring.size()) => {
                    return Err(CloseReason::Ring("it has more requests than entries"));
                }
                Some(hold) => self.holds.push(hold, (head, done.written)),
            }
            if left > 0 && began.elapsed() >= BATCH_MAX {
                self.is_behind = true;
                break;
            }
        }
        self.batch = batch;
        Ok(())
    }

    /// Completes the delayed requests that are due, and sets the timer for the next one.
    fn release(&mut self) -> Result<(), CloseReason> {
        while let Some(due) = self.holds.next_due() {
            if due > Instant::now() {
                self.ring.publish(&self.memory)?;
                let made = match self.alarm.take() {
                    Some(alarm) => Ok(alarm),
                    None => CompletionTimer::new(),
                };
                let alarm = self
                    .alarm
                    .insert(made.map_err(CloseReason::io("create a timer"))?);
                return alarm.set(due).map_err(CloseReason::io("set a timer"));
            }
            self.complete_first();
        }
        self.ring.publish(&self.memory)
    }

    fn complete_all(&mut self) -> Result<(), CloseReason> {
        while !self.holds.is_empty() {
            self.complete_first();
        }
        self.ring.publish(&self.memory)
    }

    fn complete_first(&mut self) {
        if let Some((head, written)) = self.holds.pop() {
            self.ring.finish(head, written);
        }
    }

    /// Serves a message.
    fn serve(&mut self, mut message: Message) -> Result<(), CloseReason> {
        match message.request {
            GET_FEATURES => {
                message.no_payload()?;
                self.reply(&message, &self.offered.to_le_bytes())?;
            }
            SET_FEATURES => self.accept(&message)?,
            GET_PROTOCOL_FEATURES => {
                message.no_payload()?;
                self.reply(&message, &(P_BACKEND_REQ | P_CONFIG).to_le_bytes())?;
            }
            SET_PROTOCOL_FEATURES => {
                if message.u64()? & !(P_BACKEND_REQ | P_CONFIG) != 0 {
                    return Err(message.fault("a protocol feature that is not offered"));
                }
            }
            SET_OWNER => message.no_payload()?,
            RESET_OWNER => {
                message.no_payload()?;
                self.stop_ring()?;
            }
            SET_BACKEND_REQ_FD => self._backend_requests = Some(message.file()?),
            SET_MEM_TABLE => self.memory = Memory::from_message(&mut message)?,
            GET_CONFIG => self.get_config(&message)?,
            _ => self.serve_ring(&mut message)?,
        }
        match message.has_files() {
            true => Err(message.fault("it carries a descriptor too many")),
            false => Ok(()),
        }
    }

    /// Serves a message about the queue.
    fn serve_ring(&mut self, message: &mut Message) -> Result<(), CloseReason> {
        match message.request {
            SET_VRING_NUM => {
                let size = state(message)?;
                self.ring.set_size(size)?;
            }
            SET_VRING_ADDR => self.set_addresses(message)?,
            SET_VRING_BASE => {
                let base = state(message)?;
                let base = u16::try_from(base).map_err(|_| message.fault("a base above 65535"))?;
                self.ring.next = base;
                self.ring.forget_used();
            }
            GET_VRING_BASE => {
                state(message)?;
                self.stop_ring()?;
                let [zero, base] = [0, u32::from(self.ring.next)].map(u32::to_le_bytes);
                self.reply(message, &[zero, base].concat())?;
            }
            SET_VRING_KICK => match event(message)? {
                None => return Err(message.fault("a queue without kicks is not served")),
                kick => {
                    self.ring.kick = kick;
                    // Without this feature there is no message that enables a queue.
                    self.enabled |= self.accepted & blk::F_PROTOCOL == 0;
                    self.is_behind = true;
                }
            },
            SET_VRING_CALL => self.ring.call = event(message)?,
            SET_VRING_ERR => drop(event(message)?),
            SET_VRING_ENABLE => {
                self.enabled = state(message)? != 0;
                self.is_behind = true;
            }
            _ => return Err(message.fault("it is not offered")),
        }
        Ok(())
    }

    fn accept(&mut self, message: &Message) -> Result<(), CloseReason> {
        let accepted = message.u64()?;
        if accepted & !self.offered != 0 {
            return Err(message.fault("a feature that is not offered"));
        }
        self.accepted = accepted;
        Ok(())
    }

    fn get_config(&self, message: &Message) -> Result<(), CloseReason> {
        let payload = message.payload(12)?;
        let [offset, size] = [0, 4].map(|at| u32::from_le_bytes(le_bytes(payload, at)));
        let mut space = [0; CONFIG_MAX];
        let config = blk::config(self.device);
        space[..config.len()].copy_from_slice(&config);
        let end = u64::from(offset) + u64::from(size);
        let part = usize::try_from(end)
            .ok()
            .and_then(|end| space.get(offset as usize..end));
        let part = part.ok_or_else(|| message.fault("beyond the configuration space"))?;
        self.reply(message, &[&payload[..12], part].concat())
    }

    fn set_addresses(&mut self, message: &Message) -> Result<(), CloseReason> {
        let payload = message.exactly::<40>()?;
        if u32::from_le_bytes(le_bytes(&payload, 0)) != 0 {
            return Err(message.fault(ONE_QUEUE));
        }
        let [descriptors, used, available] =
            [8, 16, 24].map(|at| u64::from_le_bytes(le_bytes(&payload, at)));
        self.ring.addresses = Some(Addresses {
            descriptors,
            used,
            available,
        });
        self.ring.forget_used();
        Ok(())
    }

    /// Completes the requests in flight, and serves no more until the next kick.
    fn stop_ring(&mut self) -> Result<(), CloseReason> {
        self.complete_all()?;
        (self.ring.kick, self.enabled) = (None, false);
        Ok(())
    }

    fn reply(&self, message: &Message, payload: &[u8]) -> Result<(), CloseReason> {
        self.channel.reply(message.request, payload)
    }
}

const ONE_QUEUE: &str = "there is one queue, number 0";

/// Returns the number in a message about the queue.
fn state(message: &Message) -> Result<u32, CloseReason> {
    let payload = message.exactly::<8>()?;
    let [queue, number] = [0, 4].map(|at| u32::from_le_bytes(le_bytes(&payload, at)));
    match queue {
        0 => Ok(number),
        _ => Err(message.fault(ONE_QUEUE)),
    }
}

/// Takes the event, pipe or socket of a message, if it carries one. It does not block the server. A
/// front-end that shares the flag, and clears it again, delays its own requests and the stop, which
/// gives up after its time.
fn event(message: &mut Message) -> Result<Option<File>, CloseReason> {
    match message.u64()? {
        0 => {}
        NO_FILE => return Ok(None),
        _ => return Err(message.fault(ONE_QUEUE)),
    }
    let file = File::from(message.file()?);
    let meta = file
        .metadata()
        .map_err(CloseReason::io("inspect an event"))?;
    // Event descriptors have no type; User-Mode Linux passes a socket.
    let kind = meta.file_type();
    if !kind.is_fifo() && !kind.is_socket() && meta.mode() & FILE_TYPE != 0 {
        return Err(message.fault("its descriptor is no event, pipe or socket"));
    }
    ioctl_fionbio(&file, true)
        .map_err(|errno| CloseReason::io("use an event without blocking")(errno.into()))?;
    Ok(Some(file))
}
