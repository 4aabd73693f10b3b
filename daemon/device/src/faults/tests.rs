use super::*;
use crate::device::{Completion, Extent, Flush, FlushOf};
use std::io;
use std::sync::Arc;

const SIZE: u64 = 1 << 20;

/// A device in memory.
#[derive(Default)]
struct Ram(Mutex<Vec<u8>>, AtomicU64, Mutex<Option<Faulty>>);

struct Done;

impl Flush for Done {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        Ok(None)
    }
}

impl Ram {
    fn on<R>(&self, offset: u64, len: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = self.0.lock();
        bytes.resize(SIZE as usize, 0);
        work(&mut bytes[offset as usize..][..len])
    }
}

impl BlockDevice for Ram {
    fn size(&self) -> u64 {
        SIZE
    }
    fn logical_block(&self) -> u32 {
        512
    }
    fn physical_block(&self) -> u32 {
        4096
    }
    fn preferred_block(&self) -> u32 {
        4096
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<Completion> {
        self.on(offset, buf.len(), |bytes| buf.copy_from_slice(bytes));
        Ok(None)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        self.on(offset, data.len(), |bytes| bytes.copy_from_slice(data));
        Ok(None)
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.on(offset, len as usize, |bytes| bytes.fill(0));
        Ok(None)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.trim(offset, len)
    }
    fn flush(&self, _of: FlushOf) -> io::Result<Box<dyn Flush>> {
        self.1.fetch_add(1, Relaxed);
        if let Some(other) = self.2.lock().take() {
            other.read(0, &mut [0; 512])?;
        }
        Ok(Box::new(Done))
    }
    fn extents(&self, _: u64, len: u64, _: usize) -> io::Result<Vec<Extent>> {
        Ok(vec![Extent { len, mapped: true }])
    }
}

/// A device with faults, and what it is made of.
struct Rig {
    ram: Arc<Ram>,
    faults: Arc<Faults>,
    device: Faulty,
}

impl Rig {
    fn new() -> Rig {
        let (ram, faults) = (Arc::<Ram>::default(), Arc::<Faults>::default());
        let device = Faulty::new(ram.clone(), faults.clone());
        Rig {
            ram,
            faults,
            device,
        }
    }

    fn run(&self, command: FaultCommand) -> Result<Injected, Failure> {
        self.faults.run(&command, &*self.ram)
    }

    fn flush(&self) -> Option<i32> {
        self.device
            .flush(FlushOf::Everything)
            .and_then(|flush| flush.wait().map(drop))
            .err()
            .and_then(|error| error.raw_os_error())
    }

    fn write(&self, offset: u64, byte: u8) -> Option<i32> {
        let written = self.device.write(offset, &[byte; 512]);
        written.err().and_then(|error| error.raw_os_error())
    }

    fn read(&self, offset: u64) -> Result<u8, i32> {
        let mut byte = [0; 512];
        match self.device.read(offset, &mut byte) {
            Ok(_) => Ok(byte[0]),
            Err(error) => Err(error.raw_os_error().unwrap()),
        }
    }

    fn hits(&self, kind: Kind) -> u64 {
        self.faults.hits()[kind.index()]
    }
}

fn hits(offset: u64, length: u64, count: Option<u64>) -> Hits {
    Hits {
        offset: Some(offset),
        length: Some(length),
        count,
    }
}

#[test]
fn errors_hit_their_range_and_end_after_their_count() {
    let rig = Rig::new();
    rig.run(FaultCommand::WriteErrors(hits(4096, 4096, Some(2))))
        .unwrap();
    assert_eq!((rig.write(0, 1), rig.write(8192, 1)), (None, None));
    assert_eq!((rig.write(4096, 1), rig.read(4096)), (Some(5), Ok(0)));
    assert_eq!(
        rig.device.trim(0, 8192).err().unwrap().raw_os_error(),
        Some(5)
    );
    assert_eq!((rig.write(4096, 1), rig.read(4096)), (None, Ok(1)));
    assert_eq!(rig.hits(Kind::WriteErrors), 2);
    rig.run(FaultCommand::ReadErrors(Hits::default())).unwrap();
    assert_eq!(
        (rig.read(0), rig.write(0, 3), rig.flush()),
        (Err(5), None, None)
    );
    assert_eq!(rig.faults.in_force(SIZE), ["reads fail"]);
    let read_errors = Clear {
        fault: Some(RequestKind::ReadErrors),
    };
    rig.run(FaultCommand::Clear(read_errors.clone())).unwrap();
    assert_eq!((rig.read(0), rig.hits(Kind::ReadErrors)), (Ok(3), 1));
    let error = rig.run(FaultCommand::Clear(read_errors)).unwrap_err();
    assert!(error.message.contains("no read-errors to clear"), "{error}");
}

#[test]
fn a_failed_flush_keeps_or_loses_what_was_not_durable() {
    let rig = Rig::new();
    let fails = |then, count| FaultCommand::FlushFails(FlushFails { count, then });
    rig.run(fails(Then::Kept, None)).unwrap();
    rig.write(0, 1);
    assert_eq!(
        (rig.flush(), rig.read(0), rig.ram.1.load(Relaxed)),
        (Some(5), Ok(1), 0)
    );
    assert_eq!((rig.flush(), rig.ram.1.load(Relaxed)), (None, 1));
    // Arming makes everything before durable.
    rig.run(fails(Then::Lost, Some(2))).unwrap();
    assert_eq!(rig.ram.1.load(Relaxed), 2);
    for round in 0..2 {
        rig.write(0, 7);
        rig.write(0, 8);
        rig.write(512, 9);
        drop(rig.device.trim(0, 512).unwrap());
        let part = FlushOf::Request {
            offset: 0,
            len: 512,
        };
        assert_eq!(
            rig.device.flush(part).err().unwrap().raw_os_error(),
            Some(5)
        );
        assert_eq!(
            (rig.read(0), rig.read(512)),
            (Ok(1), Ok(0)),
            "round {round}"
        );
    }
    rig.write(0, 5);
    assert_eq!((rig.flush(), rig.read(0)), (None, Ok(5)));
    assert_eq!(rig.hits(Kind::FlushFails), 3);
}

#[test]
fn a_failed_flush_loses_data_beside_other_faults() {
    let rig = Rig::new();
    rig.write(0, 1);
    rig.write(512, 2);
    let lost = FlushFails {
        count: Some(1),
        then: Then::Lost,
    };
    rig.run(FaultCommand::FlushFails(lost)).unwrap();
    // These faults hit other requests, and one of them ends.
    rig.run(FaultCommand::WriteErrors(hits(4096, 512, None)))
        .unwrap();
    rig.run(FaultCommand::ReadErrors(hits(8192, 512, Some(1))))
        .unwrap();
    assert_eq!((rig.write(0, 7), rig.read(8192)), (None, Err(5)));
    assert_eq!((rig.write(0, 8), rig.read(0)), (None, Ok(8)));
    drop(rig.device.write_zeroes(512, 512).unwrap());
    assert_eq!(
        rig.device
            .write_zeroes(4096, 512)
            .err()
            .unwrap()
            .raw_os_error(),
        Some(5)
    );
    assert_eq!(
        (rig.flush(), rig.read(0), rig.read(512)),
        (Some(5), Ok(1), Ok(2))
    );
    assert_eq!(rig.faults.in_force(SIZE).len(), 1, "the write errors");
}

#[test]
fn a_request_while_a_fault_is_armed_does_not_end_the_old_contents() {
    let rig = Rig::new();
    let slow = Slow {
        extra: 1e-6,
        ..Slow::default()
    };
    rig.run(FaultCommand::Slow(slow)).unwrap();
    // The flush that arms the fault executes this read meanwhile, as another client may.
    *rig.ram.2.lock() = Some(Faulty::new(Arc::<Ram>::default(), rig.faults.clone()));
    let (count, then) = (None, Then::Lost);
    rig.run(FaultCommand::FlushFails(FlushFails { count, then }))
        .unwrap();
    assert!(rig.ram.2.lock().is_none(), "it has read");
    rig.write(0, 7);
    assert_eq!((rig.flush(), rig.read(0)), (Some(5), Ok(0)));
}

#[test]
fn a_fault_that_begins_with_a_flush_does_not_wait_for_the_end_of_a_pause() {
    let rig = Rig::new();
    let (time, hits) = (3000.0, Hits::default());
    rig.run(FaultCommand::Hang(Hang { time, hits })).unwrap();
    let (count, then) = (None, Then::Lost);
    let fails = FaultCommand::FlushFails(FlushFails { count, then });
    let faults = Faults::default();
    let error = faults.run(&fails, &rig.device).unwrap_err();
    assert!(error.message.contains("`ftld resume`"), "{error}");
    assert!(!faults.is_armed() && !faults.keeps_old.load(Relaxed));
}

#[test]
fn slow_requests_are_acknowledged_later_and_block_nobody() {
    let rig = Rig::new();
    let slow = Slow {
        extra: 30.0,
        time: None,
        hits: hits(0, 512, Some(2)),
    };
    rig.run(FaultCommand::Slow(slow)).unwrap();
    let began = Instant::now();
    let completion = rig.device.write(0, &[4; 512]).unwrap().unwrap();
    assert!(completion.due() >= began + Duration::from_secs(30));
    assert!(rig.device.write(512, &[4; 512]).unwrap().is_none());
    let flush = rig.device.flush(FlushOf::Everything).unwrap();
    assert!(flush.wait().unwrap().is_some());
    assert_eq!((rig.read(0), rig.hits(Kind::Slow)), (Ok(4), 2));
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn requests_are_slow_for_the_time_that_was_asked_for() {
    let rig = Rig::new();
    let slow = Slow {
        extra: 30.0,
        time: Some(0.2),
        hits: Hits::default(),
    };
    let text = rig.run(FaultCommand::Slow(slow)).unwrap().text;
    assert_eq!(text, "requests take 30s longer, for 200ms");
    assert!(rig.device.write(0, &[4; 512]).unwrap().is_some());
    assert!(!rig.device.is_paused(), "no request hangs");
    std::thread::sleep(Duration::from_millis(210));
    assert!(rig.faults.in_force(SIZE).is_empty());
    assert!(rig.device.write(0, &[5; 512]).unwrap().is_none());
    assert!(!rig.faults.is_armed());
}

/// Runs a request of a hanging device on another thread; `free` lets it go.
fn hang(time: f64, free: impl FnOnce(&Rig)) -> Duration {
    let rig = Rig::new();
    let hang = Hang {
        time,
        hits: hits(4096, 512, None),
    };
    rig.run(FaultCommand::Hang(hang)).unwrap();
    assert!(rig.device.is_paused());
    let began = Instant::now();
    assert_eq!(rig.write(0, 1), None);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| rig.write(4096, 2));
        while !rig.faults.is_hanging() && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        // Others are served meanwhile.
        assert_eq!((rig.write(512, 1), rig.read(4096 - 512)), (None, Ok(0)));
        free(&rig);
        assert_eq!(waiting.join().unwrap(), None);
    });
    assert_eq!((rig.read(4096), rig.hits(Kind::Hang)), (Ok(2), 1));
    assert!(!rig.faults.is_hanging() && !rig.device.is_paused());
    began.elapsed()
}

#[test]
fn a_hang_ends_by_its_time_a_clear_or_a_stop() {
    let took = hang(0.2, |_| ());
    assert!(took >= Duration::from_millis(200), "{took:?}");
    let clear = |rig: &Rig| {
        rig.run(FaultCommand::Clear(Clear::default())).unwrap();
    };
    assert!(hang(3000.0, clear) < Duration::from_secs(20));
    assert!(hang(3000.0, |rig| rig.faults.release()) < Duration::from_secs(20));
}

#[test]
fn what_does_not_fit_the_device_is_refused() {
    let rig = Rig::new();
    for (hits, part) in [
        (
            hits(SIZE, 512, None),
            "--offset 1048576: the device has 1048576 bytes",
        ),
        (hits(512, SIZE, None), "--length 1048576: need 1 to 1048064"),
        (hits(0, 0, None), "--length 0: need 1 to"),
        (hits(0, 512, Some(0)), "--count 0: need at least 1"),
    ] {
        let error = rig.run(FaultCommand::WriteErrors(hits)).unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
    for extra in [0.0, -1.0, 4000.0, f64::NAN] {
        let slow = Slow {
            extra,
            ..Slow::default()
        };
        let error = rig.run(FaultCommand::Slow(slow)).unwrap_err();
        assert!(error.message.contains("need more than 0"), "{error}");
    }
    assert!(!rig.faults.is_armed() && rig.faults.in_force(SIZE).is_empty());
}

#[test]
fn each_write_of_a_batch_meets_the_faults() {
    let device: Arc<Ram> = Arc::default();
    let faults: Arc<Faults> = Arc::default();
    let faulty = Faulty::new(device.clone(), faults.clone());
    let data = [7; 4096];
    let writes: Vec<(u64, &[u8])> = (0..3).map(|page| (page * 4096, &data[..])).collect();
    let failed = |faulty: &Faulty| -> Vec<bool> {
        let mut results = Vec::new();
        BlockDevice::write_many(faulty, &writes, &mut results);
        results.iter().map(|result| result.is_err()).collect()
    };
    assert_eq!(failed(&faulty), [false; 3]);
    let hits = Hits {
        offset: Some(4096),
        length: Some(4096),
        ..Hits::default()
    };
    faults
        .run(&FaultCommand::WriteErrors(hits), &*device)
        .unwrap();
    assert_eq!(failed(&faulty), [false, true, false]);
}
