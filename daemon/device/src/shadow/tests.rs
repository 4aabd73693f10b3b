use super::*;
use crate::device::BlockDevice;
use crate::device::{Completion, Extent, Flush, FlushOf};
use std::io;
use std::sync::Arc;

/// A device of 64 KiB; writes to its last 4 KiB fail.
struct Device;

struct Flushed;

impl Flush for Flushed {
    fn wait(self: Box<Self>) -> io::Result<Completion> {
        Ok(None)
    }
}

impl BlockDevice for Device {
    fn size(&self) -> u64 {
        64 << 10
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
    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<Completion> {
        Ok(None)
    }
    fn write(&self, offset: u64, _: &[u8]) -> io::Result<Completion> {
        match offset < 60 << 10 {
            true => Ok(None),
            false => Err(io::Error::from_raw_os_error(5)),
        }
    }
    fn trim(&self, _: u64, _: u64) -> io::Result<Completion> {
        Ok(None)
    }
    fn write_zeroes(&self, _: u64, _: u64) -> io::Result<Completion> {
        Ok(None)
    }
    fn flush(&self, _: FlushOf) -> io::Result<Box<dyn Flush>> {
        Ok(Box::new(Flushed))
    }
    fn extents(&self, offset: u64, _: u64, max: usize) -> io::Result<Vec<Extent>> {
        unreachable!("nobody asks for {max} extents from {offset} on")
    }
}

#[test]
fn requests_come_in_order_and_failed_or_empty_ones_not_at_all() {
    let tap = Arc::<Tap>::default();
    let device = Shadowed::new(Arc::new(Device), tap.clone());
    let mut requests = tap.take().unwrap();
    assert!(tap.take().is_none());
    device.write(0, &[0; 512]).unwrap();
    tap.set_open(true);
    device.read(4096, &mut [0; 1024]).unwrap();
    assert!(device.write(60 << 10, &[0; 512]).is_err());
    device.trim(0, 0).unwrap();
    let writes: [(u64, &[u8]); 3] = [(0, &[0; 512]), (61 << 10, &[0; 512]), (512, &[0; 1024])];
    let mut results = vec![Ok(None)];
    device.write_many(&writes, &mut results);
    assert_eq!(results.len(), 4);
    device.write_zeroes(8192, 4096).unwrap();
    drop(device.flush(FlushOf::Everything).unwrap());
    tap.set_open(false);
    device.write(0, &[0; 512]).unwrap();
    let mut taken = Vec::new();
    requests.take(100, &mut taken);
    let seen = taken
        .iter()
        .map(|of| (of.op, of.offset, of.length, of.depth));
    let expected = [
        (Op::Read, 4096, 1024, 1),
        (Op::Write, 0, 512, 3),
        (Op::Write, 512, 1024, 3),
        (Op::Trim, 8192, 4096, 1),
        (Op::Flush, 0, 0, 1),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert!(taken.is_sorted_by_key(|request| request.ns));
    assert_eq!((tap.dropped(), requests.late()), (0, 0));
}

fn entry(seq: u64) -> Entry {
    let request = Request {
        ns: 0,
        op: Op::Write,
        offset: seq,
        length: 1,
        depth: 1,
    };
    Entry {
        seq,
        request: Some(request),
    }
}

fn offsets(taken: &[Request]) -> Vec<u64> {
    taken.iter().map(|request| request.offset).collect()
}

#[test]
fn a_request_waits_for_those_that_began_before_it_but_not_for_ever() {
    let (ring, entries) = sync_channel(1 << 14);
    let mut requests = Requests::new(entries);
    let mut taken = Vec::new();
    for seq in [2, 0, 3] {
        ring.send(entry(seq)).unwrap();
    }
    requests.take(100, &mut taken);
    assert_eq!((offsets(&taken), requests.has_gap()), (vec![0], true));
    ring.send(entry(1)).unwrap();
    requests.take(100, &mut taken);
    assert_eq!(
        (offsets(&taken), requests.has_gap()),
        (vec![0, 1, 2, 3], false)
    );
    // Number 4 hangs.
    taken.clear();
    (5..5 + 5000).for_each(|seq| ring.send(entry(seq)).unwrap());
    requests.take(10_000, &mut taken);
    assert_eq!(offsets(&taken), (5..5 + 5000).collect::<Vec<_>>());
    ring.send(entry(4)).unwrap();
    ring.send(entry(6_000)).unwrap();
    requests.take(100, &mut taken);
    assert_eq!((taken.len(), requests.late()), (5001, 1));
    requests.skip_gaps(&mut taken);
    assert_eq!(taken.last().unwrap().offset, 6_000);
    assert!(!requests.has_gap());
}

#[test]
fn a_full_ring_drops_and_counts() {
    let tap = Tap::default();
    let mut requests = tap.take().unwrap();
    tap.set_open(true);
    for _ in 0..RING + 10 {
        let begun = tap.begin(1).unwrap();
        tap.end(begun, Some((Op::Write, 0, 512)));
    }
    assert_eq!(tap.dropped(), 10);
    let mut taken = Vec::new();
    requests.take(usize::MAX, &mut taken);
    assert_eq!(taken.len(), RING);
}
