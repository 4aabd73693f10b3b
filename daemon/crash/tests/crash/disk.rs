//! The views of a disk against a vector; what makes data durable.

use ftld_crash::{Crash, Disk, Error};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

const SIZE: usize = 10 << 12;

/// A generator of numbers below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

/// Random requests by offset and by position, compared with a vector.
fn compare(mut disk: &Disk, expected: &mut [u8], seed: u64) -> io::Result<()> {
    let mut numbers = Numbers(seed);
    let mut position = 0;
    disk.seek(SeekFrom::Start(0))?;
    for round in 0..400 {
        let at = numbers.below(SIZE);
        let length = numbers.below(9000).min(SIZE - at);
        let bytes = vec![round as u8; length];
        let mut found = vec![0; length];
        match numbers.below(5) {
            0 => {
                disk.write_all_at(&bytes, at as u64)?;
                expected[at..at + length].copy_from_slice(&bytes);
            }
            1 => {
                disk.read_exact_at(&mut found, at as u64)?;
                assert_eq!(found, expected[at..at + length]);
            }
            2 => {
                let to = match numbers.below(3) {
                    0 => SeekFrom::Start(at as u64),
                    1 => SeekFrom::End(at as i64 - SIZE as i64),
                    _ => SeekFrom::Current(at as i64 - position as i64),
                };
                assert_eq!(disk.seek(to)?, at as u64);
                position = at;
            }
            3 => {
                let length = length.min(SIZE - position);
                disk.write_all(&bytes[..length])?;
                expected[position..position + length].copy_from_slice(&bytes[..length]);
                position += length;
            }
            _ => {
                let read = disk.read(&mut found)?;
                assert_eq!(read, length.min(SIZE - position));
                assert_eq!(found[..read], expected[position..position + read]);
                position += read;
            }
        }
    }
    Ok(())
}

#[test]
fn every_view_is_of_the_same_bytes() -> Result<(), Error> {
    let mut expected = vec![0; SIZE];
    let run = Crash::new(SIZE as u64).record(|disk| -> io::Result<()> {
        assert_eq!(disk.size(), SIZE as u64);
        compare(disk, &mut expected, 1)?;
        disk.sync_all()?;
        disk.mark("done")
    })?;
    // The last state is the vector, and a check may write to it in the same way.
    let mut checked = 0;
    let report = run.explore(|state, mark| -> io::Result<()> {
        if mark.is_some() {
            let mut found = Vec::new();
            state.disk().clone().read_to_end(&mut found)?;
            assert!(found == expected, "another content");
            compare(state.disk(), &mut found, 2)?;
            checked += 1;
        }
        Ok(())
    })?;
    report.assert_none_failed();
    assert_eq!(checked, 1);
    Ok(())
}

/// As of a `File`: the trait's flush is no sync, unless asked for.
#[test]
fn the_flush_of_a_writer_is_no_sync() -> Result<(), Error> {
    let store = |mut file: Disk| -> io::Result<()> {
        file.write_all(b"promised")?;
        file.flush()
    };
    let check = |state: &ftld_crash::State, mark: Option<&str>| {
        let mut found = [0; 8];
        state
            .disk()
            .read_exact_at(&mut found, 0)
            .map_err(|error| error.to_string())?;
        match mark.is_none() || &found == b"promised" {
            true => Ok(()),
            false => Err("lost".to_owned()),
        }
    };
    let record = |flushing: bool| {
        Crash::new(4096).record(|disk| {
            store(if flushing {
                disk.flushing()
            } else {
                disk.clone()
            })?;
            disk.mark("written")
        })
    };
    let report = record(false)?.explore(check)?;
    assert_eq!(report.shortest().unwrap().mark.as_deref(), Some("written"));
    let text = report.to_string();
    assert!(text.contains("Write::flush was called 1 times"), "{text}");
    record(true)?.explore(check)?.assert_none_failed();
    Ok(())
}

/// A store of several threads has clones; what comes after the end is refused.
#[test]
fn clones_write_the_same_disk_until_the_closure_ends() -> Result<(), Error> {
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    let mut kept = None;
    let run = Crash::new(4 << 12).record(|disk| -> io::Result<()> {
        std::thread::scope(|scope| {
            for n in 0..4 {
                let disk = disk.clone();
                scope.spawn(move || {
                    disk.write_all_at(&[n + 1; 4096], u64::from(n) << 12)
                        .unwrap()
                });
            }
        });
        kept = Some(disk.clone());
        disk.sync_data()?;
        disk.mark("all")
    })?;
    let kept = kept.unwrap();
    for refused in [
        kept.write_all_at(b"late", 0),
        kept.sync_data(),
        kept.mark("late"),
    ] {
        let message = refused.unwrap_err().to_string();
        assert!(
            message.contains("the recorded closure has ended"),
            "{message}"
        );
    }
    let report = run.explore(|state, mark| {
        is_shared(state.disk());
        let mut found = [0; 4 << 12];
        state.disk().read_exact_at(&mut found, 0)?;
        assert!(mark.is_none() || (0..4).all(|n| found[n << 12..][..4096] == [n as u8 + 1; 4096]));
        io::Result::Ok(())
    })?;
    report.assert_none_failed();
    assert_eq!(report.points(), 6);
    Ok(())
}
