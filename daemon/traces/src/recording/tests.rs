use super::*;
use crate::convert::to_u64;
use proptest::prelude::*;
use std::io::Write as _;

fn head() -> Head {
    Head {
        program: "0.2.0".into(),
        size: 1 << 20,
        logical_block: 512,
        physical_block: 4096,
        has_data: true,
        started_unix_s: 1,
        clock: None,
        flash: None,
        write_cache: None,
    }
}

fn entry(kind: Kind, offset: u64, data: Vec<u8>) -> Entry {
    Entry {
        kind,
        fua: false,
        errno: 0,
        offset,
        length: to_u64(data.len()),
        begin: Moment { seq: 1, ns: 5 },
        end: Moment { seq: 2, ns: 9 },
        data,
    }
}

/// Gives the entries moments of their own, in order.
fn timed(mut entries: Vec<Entry>) -> Vec<Entry> {
    for (seq, entry) in (0..).step_by(2).zip(&mut entries) {
        (entry.begin.seq, entry.end.seq) = (seq, seq + 1);
    }
    entries
}

fn written(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), &head()).unwrap();
    for entry in entries {
        writer.push(entry, &entry.data).unwrap();
    }
    assert_eq!(writer.entries(), to_u64(entries.len()));
    writer.finish().unwrap().0
}

fn read(bytes: &[u8], cut_off_is_end: bool) -> Result<(Vec<Entry>, bool), String> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let text = |error: crate::TraceError| {
        let text = error.to_string();
        text.replace(&file.path().display().to_string(), "FILE")
    };
    let mut reader = Reader::open(file.path(), cut_off_is_end).map_err(text)?;
    assert_eq!(reader.head(), &head());
    let entries = reader.by_ref().collect::<Result<_, _>>().map_err(text)?;
    Ok((entries, reader.was_cut_off()))
}

fn some_entries() -> Vec<Entry> {
    let mut entries: Vec<_> = (0..700u64)
        .map(|i| entry(Kind::Write, i % 200 * 4096, vec![i as u8; 4096]))
        .collect();
    entries.push(entry(Kind::Flush, 0, Vec::new()));
    entries.push(Entry {
        length: 0,
        ..entry(Kind::Mark, 0, b"committed 17".to_vec())
    });
    timed(entries)
}

#[test]
fn what_was_written_is_read() {
    let entries = some_entries();
    assert_eq!(read(&written(&entries), false).unwrap(), (entries, false));
    assert_eq!(read(&written(&[]), false).unwrap(), (Vec::new(), false));
}

/// Random data is stored uncompressed, and grows by the headers alone. Repetitive data is
/// compressed, also after an uncompressed chunk.
#[test]
fn a_chunk_that_does_not_compress_is_stored_as_it_is() {
    let mut state = 1u64;
    let random = (0..512u64).map(|i| {
        let byte = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        };
        entry(Kind::Write, i * 2048, (0..2048).map(byte).collect())
    });
    let random: Vec<_> = timed(random.collect());
    let alike: Vec<_> = some_entries();
    let bytes = written(&random);
    let plain = random.len() * (Entry::BYTES + 2048);
    let end = written(&[]).len();
    assert!(
        (plain..plain + 64).contains(&(bytes.len() - end)),
        "{}",
        bytes.len()
    );
    assert_eq!(read(&bytes, false).unwrap(), (random.clone(), false));
    let both = timed([random, alike].concat());
    assert!(written(&both).len() < bytes.len() + 40_000);
    assert_eq!(read(&written(&both), false).unwrap(), (both, false));
}

/// Wherever the file ends, it is one message, or as many whole entries as were requested.
#[test]
fn a_file_that_is_cut_off_says_so_wherever_it_is_cut() {
    let entries = some_entries();
    let whole = written(&entries);
    for cut in (0..whole.len()).step_by(23) {
        let error = read(&whole[..cut], false).unwrap_err();
        assert_eq!(error.lines().count(), 1, "{cut} bytes: {error}");
        assert!(error.contains("cut off"), "{cut} bytes: {error}");
        if let Ok((some, was_cut_off)) = read(&whole[..cut], true) {
            assert!(was_cut_off && entries.starts_with(&some), "{cut} bytes");
        }
    }
}

#[test]
fn another_version_and_other_files_are_named() {
    let mut bytes = written(&some_entries());
    let text = read(b"time_us,op,offset_bytes,length_bytes\n", false).unwrap_err();
    assert!(text.starts_with("FILE: no recording of ftld"), "{text}");
    bytes[8] = 9;
    let text = read(&bytes, false).unwrap_err();
    assert!(
        text.contains("version 9; this ftld reads version 1"),
        "{text}"
    );
}

/// A forged entry with a check that holds is one message, before anything uses its numbers.
#[test]
fn numbers_that_no_device_records_are_damage() {
    let good = || entry(Kind::Write, 4096, vec![1; 4096]);
    let base = || entry(Kind::Base, 0, vec![1; 4096]);
    let moments = |begin, end| Entry {
        begin: Moment { seq: begin, ns: 0 },
        end: Moment { seq: end, ns: 0 },
        ..good()
    };
    let failed = |offset, length| Entry {
        errno: 5,
        offset,
        length,
        ..entry(Kind::Trim, 0, Vec::new())
    };
    let unreadable = Entry {
        errno: 5,
        length: 4096,
        ..entry(Kind::Base, 0, Vec::new())
    };
    let text = |bytes: usize| Entry {
        length: 0,
        ..entry(Kind::Mark, 0, vec![b'x'; bytes])
    };
    let refused = [
        (
            "beyond the end",
            vec![Entry {
                length: 1,
                ..entry(Kind::Trim, u64::MAX, vec![])
            }],
        ),
        ("beyond the end", vec![failed(u64::MAX - 1, 4)]),
        ("beyond the end", vec![entry(Kind::Write, 1 << 20, vec![1])]),
        ("moments 3 and 3", vec![moments(3, 3)]),
        ("moments 4 and 3", vec![moments(4, 3)]),
        (
            "moments 0 and 18446744073709551615",
            vec![moments(0, u64::MAX)],
        ),
        ("moments 1 and 2", vec![good(), moments(1, 2)]),
        ("behind a request", timed(vec![good(), base()])),
        (
            "1 bytes of data",
            vec![Entry {
                length: 2,
                ..entry(Kind::Write, 0, vec![1])
            }],
        ),
        ("1 bytes of data", vec![entry(Kind::Read, 0, vec![1])]),
        (
            "0 bytes of data",
            vec![Entry {
                errno: 0,
                ..unreadable.clone()
            }],
        ),
        ("4096 bytes of data", vec![Entry { errno: 5, ..base() }]),
        ("3073 bytes of data", vec![text(MARK_MAX + 1)]),
    ];
    for (part, entries) in refused {
        let error = read(&written(&entries), false).unwrap_err();
        assert!(
            error.contains(part) && error.contains("damaged"),
            "{part}: {error}"
        );
    }
    // What docs/RECORDING.md allows.
    let allowed = timed(vec![
        unreadable,
        base(),
        failed(1 << 62, 1 << 62),
        text(MARK_MAX),
    ]);
    assert_eq!(read(&written(&allowed), false).unwrap().0, allowed);
}

proptest! {
    /// A changed byte is an error, or one that no check covers in a chunk's unused length.
    #[test]
    fn damage_is_found(at in 0usize..4000, bit in 0u8..8) {
        let entries = some_entries();
        let mut bytes = written(&entries);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let error = read(&bytes, true);
        prop_assert!(error.as_ref().err().is_some_and(|text| text.lines().count() == 1)
            || error.is_ok_and(|(some, cut)| cut && entries.starts_with(&some)));
    }

    /// Any bytes behind a head give an error or entries, and never a panic.
    #[test]
    fn any_bytes_are_survived(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = written(&[]);
        bytes.truncate(bytes.len() - 24);
        bytes.extend(tail);
        let _ = read(&bytes, true);
    }
}

/// Every chunk passes its check, and one is not there.
#[test]
fn a_chunk_that_is_missing_is_found_by_the_end_mark() {
    let whole = written(&some_entries());
    let begin = written(&[]).len() - (CHUNK_HEADER + 8);
    let length = u32::from_le_bytes(whole[begin + 4..begin + 8].try_into().unwrap()) as usize;
    let without = [&whole[..begin], &whole[begin + CHUNK_HEADER + length..]].concat();
    let error = read(&without, false).unwrap_err();
    assert!(error.contains("another number of requests"), "{error}");
}

#[test]
fn requests_that_failed_are_not_replayed() {
    let failed = |entry| Entry { errno: 5, ..entry };
    let write = |offset| entry(Kind::Write, offset, vec![1; 4096]);
    let flush = || entry(Kind::Flush, 0, Vec::new());
    let entries = timed(vec![
        write(0),
        failed(write(4096)),
        failed(flush()),
        write(8192),
    ]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&written(&entries)).unwrap();
    let trace = crate::Trace::open(file.path(), None, false).unwrap();
    let requests: Vec<_> = trace.map(|record| record.unwrap().offset_bytes).collect();
    assert_eq!(requests, [0, 8192]);
}

/// A head of an older program has no clock, and an older program reads past one.
#[test]
fn a_clock_is_read_as_written_and_may_be_missing() {
    let clock = Clock {
        id: "boot time:[1]".into(),
        began_ns: u64::MAX,
    };
    let with = Head {
        clock: Some(clock),
        ..head()
    };
    for head in [with, head()] {
        let text = serde_json::to_string(&head).unwrap();
        assert_eq!(text.contains("clock"), head.clock.is_some());
        assert_eq!(serde_json::from_str::<Head>(&text).unwrap(), head);
    }
}
