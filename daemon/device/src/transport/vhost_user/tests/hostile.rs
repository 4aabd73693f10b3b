//! Front-ends that break the protocol: each loses its connection with one message, and the next one
//! is served.

use super::*;
use nix::fcntl::{FcntlArg, fcntl};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Returns the reason for which a connection ends.
fn reason(work: impl FnOnce(&FrontEnd)) -> String {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let others = UnixListener::bind(folder.path().join("s")).unwrap();
    others.set_nonblocking(true).unwrap();
    let server = std::thread::spawn(move || {
        let (ram, stop) = (Ram::new(), event());
        let reason = Connection::new(ours, &ram, "disk", &stop).run(&others);
        reason.to_string()
    });
    let front_end = FrontEnd::over(theirs);
    work(&front_end);
    drop(front_end);
    server.join().unwrap()
}

#[test]
fn a_message_that_breaks_the_protocol_ends_the_connection() {
    let regions = |count: u32, region: [u64; 4]| {
        let region = u64s(&region);
        [u32s(&[count, 0]), region.repeat(count.min(8) as usize)].concat()
    };
    let end = u64::MAX - 1;
    for (what, request, payload, files) in [
        ("too long", 1, vec![0; 300], 0),
        ("another size", 1, vec![0; 8], 0),
        ("another size", 2, vec![0; 7], 0),
        ("feature that is not offered", 2, u64s(&[1 << 28]), 0),
        ("protocol feature", 16, u64s(&[1]), 0),
        ("not offered", 6, vec![0; 16], 1),
        ("not offered", 17, vec![], 0),
        ("not offered", 1000, vec![], 0),
        ("descriptor too many", 3, vec![], 1),
        ("descriptor too many", 13, u64s(&[1 << 8]), 1),
        ("number of descriptors", 12, u64s(&[0]), 0),
        ("number of descriptors", 12, u64s(&[0]), 2),
        ("number of descriptors", 21, u64s(&[0]), 0),
        (
            "number of descriptors",
            5,
            regions(1, [GUEST, LEN, OWN, 0]),
            0,
        ),
        (
            "number of descriptors",
            5,
            regions(1, [GUEST, LEN, OWN, 0]),
            2,
        ),
        (
            "too many descriptors",
            5,
            regions(1, [GUEST, LEN, OWN, 0]),
            9,
        ),
        (
            "too many descriptors",
            5,
            regions(1, [GUEST, LEN, OWN, 0]),
            30,
        ),
        ("without kicks", 12, u64s(&[1 << 8]), 0),
        ("one queue", 12, u64s(&[1]), 1),
        ("one queue", 8, u32s(&[1, 64]), 0),
        ("one queue", 11, u32s(&[7, 0]), 0),
        ("one queue", 9, [u32s(&[1, 0]), u64s(&[OWN; 4])].concat(), 0),
        ("another size", 9, u64s(&[0; 4]), 0),
        ("too short", 5, u32s(&[1]), 0),
        (
            "too short",
            5,
            regions(2, [GUEST, LEN, OWN, 0])[..64].to_vec(),
            2,
        ),
        ("more than 8", 5, regions(9, [GUEST, LEN, OWN, 0]), 8),
        (
            "end of its file",
            5,
            regions(1, [GUEST, LEN + 1, OWN, 0]),
            1,
        ),
        ("end of its file", 5, regions(1, [GUEST, LEN, OWN, 1]), 1),
        ("end of its file", 5, regions(1, [GUEST, 1, OWN, end]), 1),
        ("end of its file", 5, regions(1, [end, LEN, OWN, 0]), 1),
        ("end of its file", 5, regions(1, [GUEST, LEN, end, 0]), 1),
        ("power of two", 8, u32s(&[0, 65]), 0),
        ("power of two", 8, u32s(&[0, 0]), 0),
        ("power of two", 8, u32s(&[0, 2048]), 0),
        ("power of two", 8, u32s(&[0, 1 << 20]), 0),
        ("above 65535", 10, u32s(&[0, 1 << 16]), 0),
        ("configuration space", 24, u32s(&[200, 57, 0]), 0),
        ("configuration space", 24, u32s(&[u32::MAX, u32::MAX, 0]), 0),
        ("too short", 24, u32s(&[0]), 0),
    ] {
        let found = reason(|front_end| {
            front_end.send(&(request, payload, files));
            assert!(front_end.is_closed(), "{what} {request}");
        });
        assert!(
            found.contains(what),
            "message {request}: {found}, not {what}"
        );
    }
}

#[test]
fn descriptors_of_another_kind_are_refused() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let memory = [u32s(&[1, 0]), u64s(&[GUEST, LEN, OWN, 0])].concat();
    let empty = u64s(&[0]);
    for (what, request, payload, file) in [
        ("is not a file", 5, &memory, reader.as_fd()),
        ("is not a file", 5, &memory, null.as_fd()),
        ("no event, pipe or socket", 12, &empty, null.as_fd()),
        ("no event, pipe or socket", 13, &empty, null.as_fd()),
    ] {
        let found = reason(|front_end| {
            front_end.send_files(request, payload, &[file]);
            assert!(front_end.is_closed());
        });
        assert!(found.contains(what), "message {request}: {found}");
    }
    let of_memory = reason(|front_end| {
        front_end.send_files(12, &empty, &[front_end.memory.as_fd()]);
        assert!(front_end.is_closed());
    });
    assert!(of_memory.contains("no event"), "{of_memory}");
}

#[test]
fn a_front_end_may_vanish_at_any_byte() {
    let bytes = [u32s(&[2, 1, 8]), u64s(&[1 << 32])].concat();
    for end in 0..=bytes.len() {
        let found = reason(|front_end| (&front_end.socket).write_all(&bytes[..end]).unwrap());
        let torn = end % bytes.len() != 0;
        assert_eq!(found.contains("in the middle"), torn, "{end}: {found}");
        assert!(found.contains("disconnected"), "{found}");
    }
    for flags in [0, 2, 5, 7] {
        let found = reason(|front_end| front_end.send_bytes(&u32s(&[1, flags, 0]), &[]));
        assert!(found.contains("version 1"), "{found}");
    }
}

/// Returns the reason for which a running queue ends the connection.
fn ring_reason(work: impl FnOnce(&FrontEnd)) -> String {
    reason(|front_end| {
        front_end.start();
        front_end.header(4, 0);
        front_end.chain(0, &[(HEADER, 16, false), (STATUS, 1, true)]);
        work(front_end);
        // Offered last: the server looks at the index whenever it likes.
        let mut index = [0; 2];
        let is_read = front_end.memory.read_exact_at(&mut index, AVAILABLE + 2);
        if is_read.is_ok() && index == [0; 2] {
            front_end.put(AVAILABLE + 2, &1u16.to_le_bytes());
        }
        front_end.kick.write(1).unwrap();
        assert!(front_end.is_closed());
    })
}

#[test]
fn a_queue_that_breaks_the_standard_ends_the_connection() {
    type Work = Box<dyn FnOnce(&FrontEnd)>;
    let beyond = GUEST + LEN;
    let cases: Vec<(&str, Work)> = vec![
        (
            "more requests than entries",
            Box::new(|f| f.put(AVAILABLE + 2, &65u16.to_le_bytes())),
        ),
        (
            "beyond the table",
            Box::new(|f| f.put(AVAILABLE + 4, &SIZE.to_le_bytes())),
        ),
        (
            "beyond the table",
            Box::new(|f| f.descriptor(0, GUEST + HEADER, 16, NEXT, SIZE)),
        ),
        (
            "more descriptors than",
            Box::new(|f| f.descriptor(0, GUEST + HEADER, 16, NEXT, 0)),
        ),
        (
            "more descriptors than",
            Box::new(|f| f.descriptor(1, GUEST + STATUS, 1, NEXT | WRITE, 1)),
        ),
        (
            "indirect",
            Box::new(|f| f.descriptor(0, GUEST + HEADER, 16, 4, 0)),
        ),
        (
            "read after",
            Box::new(|f| {
                f.chain(
                    0,
                    &[(HEADER, 16, false), (STATUS, 1, true), (DATA, 9, false)],
                )
            }),
        ),
        (
            "no room for its status",
            Box::new(|f| f.chain(0, &[(HEADER, 16, false)])),
        ),
        (
            "no room for its status",
            Box::new(|f| f.chain(0, &[(HEADER, 16, false), (STATUS, 0, true)])),
        ),
        (
            "no header",
            Box::new(|f| f.chain(0, &[(HEADER, 15, false), (STATUS, 1, true)])),
        ),
        (
            "outside the memory",
            Box::new(move |f| f.descriptor(0, beyond, 16, NEXT, 1)),
        ),
        (
            "outside the memory",
            Box::new(move |f| f.descriptor(0, beyond - 15, 16, NEXT, 1)),
        ),
        (
            "outside the memory",
            Box::new(|f| f.descriptor(0, GUEST - 1, 16, NEXT, 1)),
        ),
        (
            "outside the memory",
            Box::new(|f| f.descriptor(0, u64::MAX, 16, NEXT, 1)),
        ),
        (
            "outside the memory",
            Box::new(|f| f.descriptor(1, u64::MAX, 2, WRITE, 1)),
        ),
        (
            "outside the memory",
            Box::new(move |f| f.descriptor(1, beyond, 1, WRITE, 1)),
        ),
        // The front-end's addresses are not the guest's.
        (
            "outside the memory",
            Box::new(|f| f.descriptor(0, OWN + HEADER, 16, NEXT, 1)),
        ),
        (
            "too long",
            Box::new(|f| f.chain(0, &[(HEADER, u32::MAX, false), (STATUS, 1, true)])),
        ),
        (
            "too long",
            Box::new(|f| {
                f.header(0, 0);
                let whole = (0, LEN as u32, true);
                f.chain(0, &[&[(HEADER, 16, false)], &[whole; 9][..]].concat());
            }),
        ),
        (
            "read the guest's memory",
            Box::new(|f| f.memory.set_len(0).unwrap()),
        ),
        (
            "nobody can kick",
            Box::new(|f| {
                let (reader, _) = std::io::pipe().unwrap();
                f.send_files(12, &u64s(&[0]), &[reader.as_fd()]);
            }),
        ),
        (
            "interrupt the driver",
            Box::new(|f| {
                let (_, writer) = std::io::pipe().unwrap();
                f.send_files(13, &u64s(&[0]), &[writer.as_fd()]);
                f.ask(1, &[]);
            }),
        ),
    ];
    for (what, work) in cases {
        let found = ring_reason(work);
        assert!(found.contains(what), "{found}, not {what}");
    }
    let [table, used, available] = [DESCRIPTORS, USED, AVAILABLE].map(|at| OWN + at);
    for rings in [
        [OWN + LEN, used, available],
        [table, u64::MAX, available],
        [table, used, u64::MAX - 1],
    ] {
        let addresses = [u32s(&[0, 0]), u64s(&rings), u64s(&[0])].concat();
        let found = ring_reason(|front_end| front_end.send(&(9, addresses, 0)));
        assert!(found.contains("outside the memory"), "{rings:x?}: {found}");
    }
    let early = reason(|front_end| {
        front_end.send(&(12, u64s(&[0]), 1));
        front_end.send(&(18, u32s(&[0, 1]), 0));
        assert!(front_end.is_closed());
    });
    assert!(early.contains("before its size"), "{early}");
}

#[test]
fn neither_a_full_pipe_nor_a_silent_front_end_holds_up_the_server() {
    let rig = Rig::new();
    let mut guest = rig.front_end();
    let (_reader, writer) = std::io::pipe().unwrap();
    let size = fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    guest.send_files(13, &u64s(&[0]), &[writer.as_fd()]);
    guest.ask(1, &[]);
    let header = guest.header(4, 0);
    guest.chain(0, &[header, (STATUS, 1, true)]);
    for _ in 0..size / 8 + 10 {
        guest.offer(0);
        guest.kick.write(1).unwrap();
        let start = Instant::now();
        while guest.used().is_none() {
            assert!(start.elapsed() < Duration::from_secs(10));
        }
    }
    // Half a message, then silence: the stop does not wait for the rest.
    guest.send_bytes(&[1, 0], &[]);
    let start = Instant::now();
    drop(rig);
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number near one that is special.
    fn number(&mut self) -> u64 {
        let near = [
            0,
            1,
            GUEST,
            GUEST + LEN,
            OWN,
            OWN + LEN,
            1 << 16,
            1 << 32,
            u64::MAX,
        ];
        let near = near[self.below(9) as usize];
        near.wrapping_add(self.below(64))
            .wrapping_sub(self.below(64))
    }
}

/// Changes a message.
fn spoil(message: &mut Sent, random: &mut Random) {
    let (request, payload, files) = message;
    match random.below(6) {
        0 => *request = random.below(30) as u32,
        1 => payload.truncate(random.below(40) as usize),
        2 => payload.resize(random.below(300) as usize, 0xff),
        3 => *files = random.below(12) as usize,
        _ if payload.is_empty() => {}
        4 => {
            let at = random.below(payload.len() as u64) as usize;
            payload[at] ^= 1 << random.below(8);
        }
        _ => {
            let number = random.number().to_le_bytes();
            let at = random.below(payload.len() as u64) as usize;
            payload.splice(at.., number);
        }
    }
}

/// Fills the rings: descriptors of headers, data and status, some of them anything.
fn fill(front_end: &FrontEnd, random: &mut Random) {
    for number in 0..SIZE {
        let wild = random.one_in(12);
        let address = match random.below(3) {
            _ if wild => random.number(),
            0 => GUEST + HEADER,
            _ => GUEST + DATA + random.below(LEN),
        };
        let len = match random.below(4) {
            _ if wild => random.number() as u32,
            0 => 16,
            1 => 1,
            _ => random.below(9) as u32 * 512,
        };
        let flags = if wild {
            random.below(8)
        } else {
            random.below(4)
        } as u16;
        let next = if wild {
            random.number()
        } else {
            u64::from(number) + 1
        } as u16;
        front_end.descriptor(number, address, len, flags, next);
    }
    let kind = [0, 1, 4, 8, 11, 13, 77][random.below(7) as usize];
    front_end.header(kind, random.below(BYTES / 512 + 9));
    for entry in 0..u64::from(SIZE) {
        let wild = random.one_in(9);
        let head = if wild {
            random.number()
        } else {
            random.below(u64::from(SIZE))
        } as u16;
        front_end.put(AVAILABLE + 4 + 2 * entry, &head.to_le_bytes());
    }
    let most = if random.one_in(8) { 1 << 16 } else { 9 };
    let count = random.below(most) as u16;
    if random.one_in(2) {
        let data = (DATA, random.below(99) as u32 * 512, kind == 0);
        let header = (HEADER, 16, false);
        front_end.chain(0, &[header, data, (STATUS, 1, true)]);
        front_end.put(AVAILABLE + 4, &[0; 2]);
    }
    front_end.put(AVAILABLE + 2, &count.to_le_bytes());
}

#[test]
fn random_messages_and_rings_end_at_most_their_connection() {
    let rig = Rig::new();
    let seed = std::env::var("FTLD_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed: u64 = seed.unwrap_or(0x9e37_79b9_7f4a_7c15);
    let mut random = Random(seed);
    let offered = features(&rig.front_end());
    let start_of_all = Instant::now();
    let (mut closed, mut served) = (0, 0);
    for run in 0..600 {
        let front_end = loop {
            // The server may not have left the connection before.
            let front_end = FrontEnd::over(UnixStream::connect(&rig.path).unwrap());
            front_end.send(&(1, vec![], 0));
            if !front_end.is_closed() {
                break front_end;
            }
        };
        let mut messages = start(offered);
        for _ in 0..random.below(3) {
            let at = random.below(messages.len() as u64) as usize;
            match random.below(4) {
                0 => drop(messages.remove(at)),
                1 => messages.insert(at, messages[random.below(at as u64 + 1) as usize].clone()),
                _ => spoil(&mut messages[at], &mut random),
            }
        }
        fill(&front_end, &mut random);
        for message in &messages {
            front_end.send(message);
        }
        front_end.kick.write(1).unwrap();
        match front_end.outcome(Duration::from_millis(5)) {
            Some(true) => served += 1,
            Some(false) => closed += 1,
            None => {}
        }
        if run % 100 == 0 {
            drop(front_end);
            rig.works();
        }
    }
    rig.works();
    assert!(
        served > 100 && closed > 100,
        "{served} served, {closed} closed, seed {seed}"
    );
    assert!(start_of_all.elapsed() < Duration::from_secs(60));
}
