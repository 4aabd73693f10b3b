use super::*;
use crate::device::{Completion, Extent, Flush, FlushOf};
use ftld_traces::recording::Reader;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const SIZE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// A device in memory; its upper half is not mapped until it is written.
struct Ram {
    bytes: Mutex<Vec<u8>>,
    mapped: Mutex<BTreeSet<u64>>,
    /// Takes a mark whenever the device serves a request.
    marks: OnceLock<Arc<Recorder>>,
}

impl Ram {
    fn new() -> Arc<Ram> {
        Arc::new(Ram {
            bytes: Mutex::new(vec![0; SIZE as usize]),
            mapped: Mutex::default(),
            marks: OnceLock::new(),
        })
    }

    fn served(&self) {
        if let Some(recorder) = self.marks.get() {
            recorder.mark("served").unwrap();
        }
    }

    fn range(&self, offset: u64, len: u64) -> io::Result<std::ops::Range<usize>> {
        self.served();
        let end = offset.checked_add(len).filter(|end| *end <= SIZE);
        let end = end.ok_or_else(|| io::Error::from_raw_os_error(28))?;
        Ok(offset as usize..end as usize)
    }
}

struct Waited(bool);

impl Flush for Waited {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        match self.0 {
            true => Ok(None),
            false => Err(io::Error::from_raw_os_error(5)),
        }
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
        let range = self.range(offset, buf.len() as u64)?;
        buf.copy_from_slice(&self.bytes.lock()[range]);
        Ok(None)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<Completion> {
        let range = self.range(offset, data.len() as u64)?;
        let blocks = offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK);
        self.mapped.lock().extend(blocks);
        self.bytes.lock()[range].copy_from_slice(data);
        Ok(None)
    }
    fn trim(&self, offset: u64, len: u64) -> io::Result<Completion> {
        let range = self.range(offset, len)?;
        self.bytes.lock()[range].fill(0);
        Ok(None)
    }
    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<Completion> {
        self.trim(offset, len)
    }
    fn flush(&self, of: FlushOf) -> io::Result<Box<dyn Flush>> {
        self.served();
        // The sync of a request at the very end fails.
        let fails = matches!(of, FlushOf::Request { offset, len } if offset + len == SIZE);
        Ok(Box::new(Waited(!fails)))
    }
    fn extents(&self, offset: u64, len: u64, max: usize) -> io::Result<Vec<Extent>> {
        let blocks = (offset / BLOCK..(offset + len) / BLOCK).take(max);
        let mapped = self.mapped.lock();
        let extent = |block| Extent {
            len: BLOCK,
            mapped: mapped.contains(&block),
        };
        Ok(blocks.map(extent).collect())
    }
}

fn recorder_into(file: File, device: &Ram, has_data: bool) -> Arc<Recorder> {
    let head = head_of(device, None, has_data).unwrap();
    Recorder::start(file, Path::new("FILE"), &head).unwrap()
}

/// Records what `work` does with the device, and reads it back.
fn recorded(has_data: bool, work: impl FnOnce(&Recorded, &Recorder)) -> Vec<Entry> {
    recorded_on(&Ram::new(), has_data, work)
}

fn recorded_on(
    ram: &Arc<Ram>,
    has_data: bool,
    work: impl FnOnce(&Recorded, &Recorder),
) -> Vec<Entry> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let recorder = recorder_into(file.reopen().unwrap(), ram, has_data);
    recorder.record_content(&**ram).unwrap();
    work(&Recorded::new(ram.clone(), recorder.clone()), &recorder);
    recorder.finish().unwrap();
    let reader = Reader::open(file.path(), false).unwrap();
    assert_eq!(
        (reader.head().size, reader.head().has_data),
        (SIZE, has_data)
    );
    let entries: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
    assert_eq!(recorder.view().entries, entries.len() as u64);
    assert_eq!(
        recorder.view().bytes,
        file.as_file().metadata().unwrap().len()
    );
    check_moments(&entries);
    entries
}

/// Each number from 0 on is one moment, and entries are in the order of their ends.
fn check_moments(entries: &[Entry]) {
    assert!(entries.is_sorted_by_key(|entry| entry.end.seq));
    let mut moments: Vec<_> = entries
        .iter()
        .flat_map(|entry| [entry.begin, entry.end])
        .collect();
    moments.sort_by_key(|moment| moment.seq);
    assert!(moments.iter().zip(0..).all(|(moment, n)| moment.seq == n));
    for entry in entries {
        assert!(entry.begin.seq < entry.end.seq && entry.begin.ns <= entry.end.ns);
    }
}

#[test]
fn every_request_is_there_with_its_flags_and_its_result() {
    let entries = recorded(true, |device, recorder| {
        device.write(8192, &[7; 512]).unwrap();
        let part = FlushOf::Request {
            offset: 8192,
            len: 512,
        };
        device.flush(part).unwrap().wait().unwrap();
        device.read(0, &mut [0; 1024]).unwrap();
        device.trim(0, 4096).unwrap();
        device.write_zeroes(4096, 4096).unwrap();
        device.flush(FlushOf::Everything).unwrap().wait().unwrap();
        assert_eq!(recorder.mark("committed 17").unwrap(), 12);
        assert!(device.write(SIZE, &[1; 512]).is_err());
        let last = FlushOf::Request {
            offset: SIZE - 512,
            len: 512,
        };
        device.flush(last).unwrap().wait().map(drop).unwrap_err();
        drop(device.flush(FlushOf::Everything).unwrap());
    });
    let shown: Vec<_> = entries
        .iter()
        .map(|e| (e.kind, e.fua, e.errno, e.offset, e.length, e.data.len()))
        .collect();
    let expected = [
        (Kind::Write, false, 0, 8192, 512, 512),
        (Kind::Flush, true, 0, 8192, 512, 0),
        (Kind::Read, false, 0, 0, 1024, 0),
        (Kind::Trim, false, 0, 0, 4096, 0),
        (Kind::WriteZeroes, false, 0, 4096, 4096, 0),
        (Kind::Flush, false, 0, 0, 0, 0),
        (Kind::Mark, false, 0, 0, 0, 12),
        (Kind::Write, false, 28, SIZE, 512, 512),
        (Kind::Flush, true, 5, SIZE - 512, 512, 0),
        (Kind::Flush, false, 5, 0, 0, 0),
    ];
    assert_eq!(shown, expected);
    assert_eq!(entries[0].data, [7; 512]);
    assert_eq!(entries[6].data, b"committed 17");
}

#[test]
fn a_flush_covers_the_writes_that_had_ended() {
    let entries = recorded(true, |device, _| {
        device.write(0, &[1; 4096]).unwrap();
        let flush = device.flush(FlushOf::Everything).unwrap();
        device.write(4096, &[2; 4096]).unwrap();
        flush.wait().unwrap();
    });
    let [first, second, flush] = &entries[..] else {
        panic!("{entries:?}")
    };
    assert_eq!(flush.kind, Kind::Flush);
    assert!(first.end.seq < flush.begin.seq);
    assert!(second.end.seq > flush.begin.seq && second.end.seq < flush.end.seq);
}

#[test]
fn a_request_begins_before_the_device_gets_it_and_ends_after_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let ram = Ram::new();
    let recorder = recorder_into(file.reopen().unwrap(), &ram, true);
    let device = Recorded::new(ram.clone(), recorder.clone());
    assert!(ram.marks.set(recorder.clone()).is_ok());
    device.read(0, &mut [0; 512]).unwrap();
    device.write(0, &[1; 512]).unwrap();
    device.trim(0, 4096).unwrap();
    device.write_zeroes(0, 4096).unwrap();
    for of in [
        FlushOf::Everything,
        FlushOf::Request {
            offset: 0,
            len: 512,
        },
    ] {
        device.flush(of).unwrap().wait().unwrap();
    }
    recorder.finish().unwrap();
    let entries: Vec<_> = Reader::open(file.path(), false)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    check_moments(&entries);
    let (marks, requests) = entries
        .iter()
        .partition::<Vec<_>, _>(|e| e.kind == Kind::Mark);
    assert_eq!((marks.len(), requests.len()), (6, 6));
    for (mark, request) in marks.iter().zip(&requests) {
        assert!(
            request.begin.seq < mark.begin.seq && mark.end.seq < request.end.seq,
            "{request:?}"
        );
    }
}

#[test]
fn requests_of_many_threads_are_in_the_order_of_their_ends() {
    let entries = recorded(true, |device, _| {
        std::thread::scope(|scope| {
            for thread in 0..8u64 {
                scope.spawn(move || {
                    for i in 0..500u64 {
                        let at = (thread * 500 + i) % 256 * 4096;
                        device.write(at, &[thread as u8; 4096]).unwrap();
                        if i % 50 == 0 {
                            device.flush(FlushOf::Everything).unwrap().wait().unwrap();
                        }
                    }
                });
            }
        });
    });
    assert_eq!(entries.len(), 8 * 510);
    for thread in 0..8 {
        let writes = |entry: &&Entry| entry.kind == Kind::Write && entry.data[0] == thread;
        let mut writes = entries.iter().filter(writes).zip(0..);
        assert!(writes.all(|(entry, i)| {
            entry.offset == (u64::from(thread) * 500 + i) % 256 * 4096 && entry.data.len() == 4096
        }));
    }
}

#[test]
fn content_from_before_comes_first_and_only_with_data() {
    let ram = Ram::new();
    ram.write(4096, &[3; 8192]).unwrap();
    ram.write(512 << 10, &vec![4; 400 << 10]).unwrap();
    let write = |device: &Recorded, _: &Recorder| drop(device.write(0, &[9; 512]).unwrap());
    let entries = recorded_on(&ram, true, write);
    let (last, base) = entries.split_last().unwrap();
    assert_eq!(last.kind, Kind::Write);
    let mut bytes = vec![0; SIZE as usize];
    for entry in base {
        assert_eq!(
            (entry.kind, entry.length),
            (Kind::Base, entry.data.len() as u64)
        );
        bytes[entry.offset as usize..][..entry.data.len()].copy_from_slice(&entry.data);
    }
    ram.write(0, &[0; 512]).unwrap();
    assert!(bytes == *ram.bytes.lock());
    assert!(recorded_on(&ram, false, write).len() == 1, "without data");
}

#[test]
fn without_data_lengths_and_marks_stay() {
    let entries = recorded(false, |device, recorder| {
        device.write(0, &[1; 4096]).unwrap();
        recorder.mark("here").unwrap();
    });
    assert_eq!((entries[0].length, entries[0].data.len()), (4096, 0));
    assert_eq!(entries[1].data, b"here");
}

fn pipe() -> (File, File) {
    let (read, write) = std::io::pipe().unwrap();
    (OwnedFd::from(read).into(), OwnedFd::from(write).into())
}

/// Waits up to 10 s.
fn until(mut what: impl FnMut() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < Duration::from_secs(10), "waited 10 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn requests_wait_for_a_slow_file_and_none_is_lost() {
    let (mut source, sink) = pipe();
    let ram = Ram::new();
    let recorder = recorder_into(sink, &ram, true);
    let device = Recorded::new(ram, recorder.clone());
    let data: Vec<u8> = {
        let mut rng = nand_model::SplitMix::new(1);
        (0..SIZE / 8)
            .flat_map(|_| rng.next_u64().to_le_bytes())
            .collect()
    };
    let writes = 3 * BYTES_MAX / SIZE;
    let bytes = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            (0..writes).for_each(|_| drop(device.write(0, &data).unwrap()));
            recorder.finish().unwrap();
        });
        // Nobody reads the pipe: the writes stop at the bound.
        until(|| recorder.view().waits > 0);
        assert!(!writing.is_finished());
        recorder.mark("while it waits").unwrap();
        // The thread closes the pipe behind the end mark.
        let mut bytes = Vec::new();
        source.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let entries: Vec<_> = Reader::open(file.path(), false)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(entries.len() as u64, writes + 1);
    let mut kinds = entries.iter().filter(|entry| entry.kind == Kind::Write);
    assert!(kinds.all(|entry| entry.data == data));
    check_moments(&entries);
}

#[test]
fn a_file_that_fails_ends_the_recording_and_not_the_device() {
    let (source, sink) = pipe();
    let ram = Ram::new();
    let recorder = recorder_into(sink, &ram, true);
    let device = Recorded::new(ram.clone(), recorder.clone());
    drop(source);
    until(|| {
        device.write(0, &[5; 4096]).unwrap();
        recorder.view().failure.is_some()
    });
    for _ in 0..2 * BYTES_MAX / SIZE {
        device.write(0, &vec![6; SIZE as usize]).unwrap();
        device.flush(FlushOf::Everything).unwrap().wait().unwrap();
    }
    assert_eq!(ram.bytes.lock()[0], 6);
    let view = recorder.view();
    let why = view.failure.unwrap();
    assert!(why.starts_with("FILE: Broken pipe"), "{why}");
    assert!(recorder.mark("here").unwrap_err().message.contains(&why));
    assert!(recorder.finish().unwrap_err().message.contains(&why));
}

#[test]
fn entries_are_in_the_file_within_a_second() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let ram = Ram::new();
    let recorder = recorder_into(file.reopen().unwrap(), &ram, true);
    let device = Recorded::new(ram, recorder.clone());
    device.write(0, &[1; 512]).unwrap();
    let began = Instant::now();
    until(|| {
        let mut reader = Reader::open(file.path(), true).unwrap();
        matches!(reader.next(), Some(Ok(entry)) if entry.data == [1; 512])
    });
    assert!(
        began.elapsed() >= Duration::from_millis(100),
        "one chunk per request"
    );
    recorder.finish().unwrap();
    // Later requests are not recorded, and do not wait either.
    device.write(0, &[2; 512]).unwrap();
    assert_eq!(Reader::open(file.path(), false).unwrap().count(), 1);
}

#[test]
fn a_mark_has_a_text_that_fits() {
    for (text, part) in [
        (String::new(), "a mark without text"),
        ("committed\0 1".into(), "a mark with a NUL"),
        (
            "x".repeat(MARK_MAX),
            "a mark of 3074 bytes as JSON; at most 3072",
        ),
        ("\n".repeat(MARK_MAX / 2), "a mark of 3074 bytes as JSON"),
    ] {
        let error = check_mark(&text).unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
    check_mark(&"x".repeat(MARK_MAX - 2)).unwrap();
}

#[test]
fn a_file_is_never_overwritten_and_goes_with_a_failed_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rec");
    drop(NewRecording::create(&path).unwrap());
    assert!(!path.exists());
    NewRecording::create(&path).unwrap().keep();
    let error = NewRecording::create(&path).err().unwrap();
    assert!(error.message.contains("name another file"), "{error}");
    let error = NewRecording::create(&folder.path().join("no/rec")).err();
    let error = error.unwrap().message;
    assert!(error.contains("there is no folder"), "{error}");
}

/// The writer thread dies: requests that wait for room continue, and the status has the reason.
#[test]
fn a_thread_that_dies_ends_the_recording_and_not_the_device() {
    let device = Ram::new();
    let recorder = recorder_into(tempfile::tempfile().unwrap(), &device, true);
    super::writer::guarded(&recorder.shared, || panic!("planted"));
    let why = recorder.view().failure.unwrap();
    assert!(why.contains("ftld-record has ended: planted"), "{why}");
    // Takes more than the whole room.
    for _ in 0..3 {
        recorder.shared.room.take(super::BYTES_MAX);
    }
    assert!(recorder.mark("m").is_err() && recorder.finish().is_err());
}

/// Moments of two recordings are on the clock of the host: one after the other is in this order.
#[test]
fn moments_of_two_devices_are_on_one_clock() {
    let disks = [0, 1].map(|_| {
        let (ram, file) = (Ram::new(), tempfile::NamedTempFile::new().unwrap());
        let recorder = recorder_into(file.reopen().unwrap(), &ram, true);
        std::thread::sleep(Duration::from_millis(3));
        (Recorded::new(ram, recorder.clone()), recorder, file)
    });
    for round in 0..50 {
        let (device, ..) = &disks[round % 2];
        device.write(0, &[1; 512]).unwrap();
    }
    let read = |(_, recorder, file): (Recorded, Arc<Recorder>, tempfile::NamedTempFile)| {
        recorder.finish().unwrap();
        let reader = Reader::open(file.path(), false).unwrap();
        let clock = reader.head().clock.clone().unwrap();
        let entries: Vec<_> = reader.collect::<Result<_, _>>().unwrap();
        (clock, entries)
    };
    let [(clock, first), (other, second)] = disks.map(read);
    assert_eq!(clock.id, other.id);
    assert!(clock.began_ns + 3_000_000 <= other.began_ns);
    let mut last = 0;
    for (one, two) in first.iter().zip(&second) {
        for (clock, entry) in [(&clock, one), (&other, two)] {
            let [begin, end] = [entry.begin, entry.end].map(|at| clock.began_ns + at.ns);
            assert!(last <= begin && begin <= end, "{last} {begin} {end}");
            last = end;
        }
    }
    assert_eq!((first.len(), second.len()), (25, 25));
}
