//! The transmission state machine without a socket, under arbitrary input.

use crate::support::ram::Ram;
use ftld_device::device::BlockDevice;
use ftld_device::transport::nbd::buffer::Buffer;
use ftld_device::transport::nbd::engine::{Engine, Turn};
use ftld_device::transport::nbd::handshake::Session;
use ftld_device::transport::nbd::wire::Mode;
use ftld_device::transport::nbd::{Export, ExportInfo, Limits};
use proptest::prelude::*;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

const SIZE: u64 = 256 << 10;

fn limits() -> Limits {
    Limits {
        piece: 16 << 10,
        backlog: 4 << 10,
        resting: 512,
        payload: 64 << 10,
        in_flight: 5,
        ..Limits::default()
    }
}

/// Feeds `bytes` in pieces of the given sizes and takes output in such pieces; returns all of it.
/// Runs a connection. `dues`: turns after the start at which completions are due.
fn run(mode: Mode, bytes: &[u8], cuts: &[usize], dues: &[Option<u16>]) -> (Vec<u8>, Option<Turn>) {
    let limits = limits();
    let (ram, start) = (Ram::new(SIZE), Instant::now());
    let after = move |turns: u16| start + Duration::from_secs(turns.into());
    if !dues.is_empty() {
        let dues: Vec<_> = dues.iter().map(|due| due.map(after)).collect();
        *ram.due.lock().unwrap() = Box::new(dues.into_iter().cycle());
    }
    let export = Export::of(&ram, ExportInfo::default());
    let mut engine = Engine::new(
        Session {
            mode,
            base_allocation: mode != Mode::Simple,
        },
        &export,
        &limits,
    );
    let (mut input, mut out, mut syncs) = (
        Buffer::new(limits.resting),
        Buffer::new(limits.resting),
        Vec::new(),
    );
    let (mut rest, mut all) = (bytes, Vec::new());
    let most = limits.backlog + limits.piece * if dues.is_empty() { 1 } else { 2 } + 4096;
    for (turns, cut) in cuts.iter().cycle().enumerate() {
        let now = after(turns as u16);
        while engine.next_due().is_some_and(|due| due <= now) {
            assert!(engine.release(now, &mut out), "what is due leaves");
        }
        let turn = engine.advance(&ram, &mut input, &mut out, &mut syncs);
        assert!(out.len() <= most, "replies are bounded");
        assert!(
            engine.in_flight() <= limits.in_flight + 1,
            "requests are bounded"
        );
        // In order, so that runs can be compared: a reply to FLUSH may otherwise come at any time.
        // Not inside the reply to another request.
        let ready = if engine.between_replies() {
            syncs.len()
        } else {
            0
        };
        for sync in syncs.drain(..ready) {
            engine.finish(sync.to, sync.wait(), &mut out);
        }
        let n = out.len().min(*cut);
        all.extend_from_slice(&out.filled()[..n]);
        out.consume(n);
        if out.is_empty() {
            engine.sent();
        }
        match turn {
            Turn::Input(want) => {
                assert!(
                    want > input.len() && want <= limits.piece.max(32),
                    "wants {want}, has {}",
                    input.len()
                );
                if rest.is_empty()
                    && out.is_empty()
                    && syncs.is_empty()
                    && engine.next_due().is_none()
                {
                    return (all, None);
                }
                let space = input.spare(want);
                let n = space.len().min(*cut).min(rest.len());
                space[..n].copy_from_slice(&rest[..n]);
                input.commit(n);
                rest = &rest[n..];
            }
            Turn::Room => {}
            Turn::Close(_) if out.is_empty() => return (all, Some(turn)),
            Turn::Close(_) => {}
        }
    }
    unreachable!("cuts cycle for ever")
}

#[derive(Clone, Debug)]
struct Ask {
    flags: u16,
    command: u16,
    offset: u64,
    length: u32,
}

fn ask() -> impl Strategy<Value = Ask> {
    let flags = prop_oneof![6 => Just(0u16), 3 => 0u16..64, 1 => any::<u16>()];
    let command = prop_oneof![9 => prop_oneof![Just(0u16), Just(1), 3u16..8], 1 => any::<u16>()];
    let offset = prop_oneof![8 => 0..SIZE, 1 => Just(SIZE), 1 => any::<u64>()];
    let length = prop_oneof![6 => 0u32..5000, 3 => 0u32..66_000];
    (flags, command, offset, length).prop_map(|(flags, command, offset, length)| Ask {
        flags,
        command: if command == 2 { 3 } else { command },
        offset,
        length,
    })
}

/// The bytes of requests with their payloads, and how many there are.
fn encode(mode: Mode, asks: &[Ask]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (cookie, ask) in asks.iter().enumerate() {
        let extended = mode == Mode::Extended;
        bytes.extend(
            (if extended {
                0x21e4_1c71u32
            } else {
                0x2560_9513
            })
            .to_be_bytes(),
        );
        bytes.extend(ask.flags.to_be_bytes());
        bytes.extend(ask.command.to_be_bytes());
        bytes.extend((cookie as u64).to_be_bytes());
        bytes.extend(ask.offset.to_be_bytes());
        if extended {
            bytes.extend([0; 4]);
        }
        bytes.extend(ask.length.to_be_bytes());
        let payload = ask.command == 1 || extended && ask.flags & 32 != 0;
        bytes.resize(
            bytes.len() + if payload { ask.length as usize } else { 0 },
            cookie as u8 | 1,
        );
    }
    bytes
}

/// Cookies of the replies, each once; the bytes must hold whole replies only.
fn cookies(mode: Mode, mut bytes: &[u8], asks: &[Ask]) -> Vec<u64> {
    let mut found = Vec::new();
    let u = |range: &[u8]| range.iter().fold(0u64, |n, b| n << 8 | u64::from(*b));
    while !bytes.is_empty() {
        let magic = u(&bytes[..4]);
        let length = if magic == 0x6744_6698 {
            let cookie = u(&bytes[8..16]);
            found.push(cookie);
            let ask = &asks[cookie as usize];
            let data = mode == Mode::Simple && ask.command == 0 && u(&bytes[4..8]) == 0;
            16 + if data { ask.length as usize } else { 0 }
        } else {
            if bytes[5] & 1 != 0 {
                found.push(u(&bytes[8..16]));
            }
            if mode == Mode::Extended {
                32 + u(&bytes[24..32]) as usize
            } else {
                20 + u(&bytes[16..20]) as usize
            }
        };
        bytes = &bytes[length..];
    }
    found
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Simple),
        Just(Mode::Structured),
        Just(Mode::Extended)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_request_is_answered_once_however_the_bytes_come(
        mode in modes(),
        asks in prop::collection::vec(ask(), 1..12),
        cuts in prop::collection::vec(1usize..3000, 1..20),
        dues in prop::collection::vec(prop::option::of(0u16..300), 0..6),
    ) {
        // A payload beyond the limit ends the session, which is another test's affair.
        let asks: Vec<_> = asks.into_iter().map(|a| Ask { length: a.length.min(64 << 10), ..a }).collect();
        let bytes = encode(mode, &asks);
        let (_, end) = run(mode, &bytes, &[usize::MAX], &dues);
        let (parts, last) = run(mode, &bytes, &cuts, &dues);
        prop_assert_eq!((end, last), (None, None));
        let mut found = cookies(mode, &parts, &asks);
        found.sort_unstable();
        prop_assert_eq!(found, (0..asks.len() as u64).collect::<Vec<_>>());
    }

    #[test]
    fn how_bytes_are_cut_up_does_not_matter(
        mode in modes(),
        asks in prop::collection::vec(ask(), 1..12),
        tail in prop::collection::vec(any::<u8>(), 0..50),
        cuts in prop::collection::vec(1usize..3000, 1..20),
    ) {
        // Without what may be answered out of turn.
        let asks: Vec<_> = asks.into_iter().filter(|a| a.command != 3 && a.flags & 1 == 0).collect();
        let mut bytes = encode(mode, &asks);
        bytes.extend(tail);
        prop_assert_eq!(run(mode, &bytes, &[usize::MAX], &[]), run(mode, &bytes, &cuts, &[]));
    }

    #[test]
    fn no_bytes_make_it_panic(mode in modes(), bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 1usize..50) {
        run(mode, &bytes, &[cut], &[]);
    }
}

#[test]
fn a_device_of_no_size_has_nothing_to_read() {
    let ram = Ram::new(0);
    assert_eq!(ram.size(), 0);
    let export = Export::of(&ram, ExportInfo::default());
    let mut engine = Engine::new(Session::SIMPLE, &export, &Limits::default());
    let (mut input, mut out) = (Buffer::new(64), Buffer::new(64));
    input.push(&encode(
        Mode::Simple,
        &[Ask {
            flags: 0,
            command: 0,
            offset: 0,
            length: 1,
        }],
    ));
    engine.advance(&ram, &mut input, &mut out, &mut Vec::new());
    assert_eq!(out.filled()[4..8], 22u32.to_be_bytes());
}

/// A WRITE, also of a batch, a TRIM and a WRITE_ZEROES each wait for a sync of their own.
#[test]
fn without_a_volatile_cache_every_change_is_durable_before_its_reply() {
    let ram = Ram::without_volatile_cache(SIZE);
    let export = Export::of(&ram, ExportInfo::default());
    let mut engine = Engine::new(Session::SIMPLE, &export, &limits());
    let (mut input, mut out, mut syncs) = (Buffer::new(64), Buffer::new(64), Vec::new());
    let ask = |command| Ask {
        flags: 0,
        command,
        offset: 0,
        length: 512,
    };
    input.push(&encode(Mode::Simple, &[1, 1, 4, 6].map(ask)));
    for _ in 0..8 {
        engine.advance(&ram, &mut input, &mut out, &mut syncs);
    }
    assert_eq!((syncs.len(), out.len()), (4, 0), "no reply before its sync");
    assert_eq!(ram.flushes.load(SeqCst), 4);
}

/// An engine over memory whose completions are due as told, in milliseconds after `start`.
struct Slow {
    ram: Ram,
    engine: Engine,
    start: Instant,
    input: Buffer,
    out: Buffer,
}

impl Slow {
    fn new(dues: &[Option<u64>]) -> Self {
        let (ram, start, limits) = (Ram::new(SIZE), Instant::now(), limits());
        let dues: Vec<_> = dues
            .iter()
            .map(|due| due.map(|ms| start + Duration::from_millis(ms)))
            .collect();
        *ram.due.lock().unwrap() = Box::new(dues.into_iter());
        let engine = Engine::new(
            Session::SIMPLE,
            &Export::of(&ram, ExportInfo::default()),
            &limits,
        );
        Slow {
            ram,
            engine,
            start,
            input: Buffer::new(64),
            out: Buffer::new(64),
        }
    }

    fn ask(&mut self, asks: &[Ask]) -> Turn {
        self.input.push(&encode(Mode::Simple, asks));
        self.turn()
    }

    fn turn(&mut self) -> Turn {
        self.engine
            .advance(&self.ram, &mut self.input, &mut self.out, &mut Vec::new())
    }

    /// Bytes that leave by this time.
    fn leave(&mut self, ms: u64) -> Vec<u8> {
        self.engine
            .release(self.start + Duration::from_millis(ms), &mut self.out);
        self.turn();
        let bytes = self.out.filled().to_vec();
        self.out.consume(bytes.len());
        self.engine.sent();
        bytes
    }

    /// Cookies of replies that leave by this time.
    fn answered(&mut self, ms: u64, asks: &[Ask]) -> Vec<u64> {
        cookies(Mode::Simple, &self.leave(ms), asks)
    }
}

fn plain(command: u16, offset: u64, length: u32) -> Ask {
    Ask {
        flags: 0,
        command,
        offset,
        length,
    }
}

#[test]
fn a_held_reply_lets_others_pass_and_leaves_when_it_is_due() {
    let asks = [
        plain(1, 0, 512),
        plain(0, 0, 512),
        plain(0, 512, 512),
        plain(4, 0, 512),
    ];
    let mut slow = Slow::new(&[Some(50), Some(20), None, Some(30)]);
    slow.ask(&asks);
    assert_eq!(slow.engine.in_flight(), 4);
    let reply = slow.leave(19);
    assert_eq!(
        cookies(Mode::Simple, &reply, &asks),
        [2],
        "the one that was not held"
    );
    let reply = slow.leave(20);
    assert_eq!(cookies(Mode::Simple, &reply, &asks), [1]);
    assert!(
        reply[16..].iter().all(|byte| *byte == 1),
        "what was written before: held, not undone"
    );
    assert_eq!(
        [29, 30, 49].map(|ms| slow.answered(ms, &asks)),
        [vec![], vec![3], vec![]]
    );
    assert!(!slow.engine.is_idle());
    assert_eq!(slow.answered(50, &asks), [0]);
    assert!(slow.engine.is_idle() && slow.engine.in_flight() == 0);
}

#[test]
fn pieces_of_a_large_read_leave_one_after_the_other_with_nothing_between() {
    let piece = limits().piece as u32;
    let asks = [plain(1, 0, 512), plain(0, 0, 2 * piece + 512)];
    let mut slow = Slow::new(&[Some(15), Some(10), Some(20), Some(30)]);
    slow.ask(&asks);
    let lengths = [9, 10, 15, 20, 29, 30].map(|ms| {
        // The last piece was read by 20 ms: a FLUSH that ends then still has to wait for it.
        assert!(!slow.engine.between_replies(), "before {ms} ms");
        slow.leave(ms).len() as u32
    });
    // The write's reply would have been due at 15.
    assert_eq!(lengths, [0, 16 + piece, 0, piece, 0, 512 + 16]);
    assert!(slow.engine.between_replies());
    assert!(slow.engine.is_idle());
}

#[test]
fn a_write_is_due_when_its_last_piece_is() {
    let piece = limits().piece as u32;
    let asks = [plain(1, 0, 2 * piece)];
    let mut slow = Slow::new(&[Some(40), Some(30)]);
    slow.ask(&asks);
    assert_eq!(
        (slow.answered(39, &asks), slow.answered(40, &asks)),
        (vec![], vec![0])
    );
}

#[test]
fn nothing_is_held_when_draining_nor_for_a_client_that_leaves() {
    let asks = [plain(1, 0, 512)];
    let mut slow = Slow::new(&[Some(1000)]);
    slow.ask(&asks);
    slow.engine.drain();
    assert_eq!(slow.answered(0, &asks), [0]);
    let mut slow = Slow::new(&[Some(1000)]);
    slow.ask(&[plain(1, 0, 512), plain(2, 0, 0)]);
    assert_eq!(slow.answered(0, &asks), [0]);
    assert!(matches!(slow.turn(), Turn::Close(_)));
}

#[test]
fn held_data_is_bounded() {
    let piece = limits().piece as u32;
    let mut slow = Slow::new(&[Some(10), Some(10), Some(10)]);
    let turn = slow.ask(&[plain(0, 0, piece - 600), plain(0, 0, 512), plain(0, 0, 512)]);
    assert_eq!(
        (turn, slow.engine.in_flight()),
        (Turn::Room, 3),
        "the third has to wait for room"
    );
    assert_eq!(slow.leave(10).len() as u32, piece - 600 + 512 + 32);
    slow.turn();
    assert_eq!(slow.leave(10).len(), 512 + 16, "now it is its turn");
}

#[test]
fn during_a_pause_a_reply_leaves_before_the_next_request_may_block() {
    let asks = [plain(1, 0, 512), plain(3, 0, 0), plain(0, 0, 512)];
    let mut slow = Slow::new(&[None, None, None]);
    slow.ram.paused.store(true, SeqCst);
    assert_eq!(slow.ask(&asks), Turn::Room);
    assert_eq!(slow.answered(0, &asks), [0]);
    let mut syncs = Vec::new();
    for _ in 0..2 {
        let turn = slow
            .engine
            .advance(&slow.ram, &mut slow.input, &mut slow.out, &mut syncs);
        assert_eq!(
            (turn, syncs.len(), slow.engine.in_flight()),
            (Turn::Room, 1, 1),
            "the sync ends before the read begins"
        );
    }
    let sync = syncs.remove(0);
    slow.engine.finish(sync.to, sync.wait(), &mut slow.out);
    assert_eq!(slow.answered(0, &asks), [1]);
    slow.turn();
    assert_eq!(slow.answered(0, &asks), [2]);
    assert!(slow.engine.is_idle());
}
