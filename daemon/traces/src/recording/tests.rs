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
    entries
}

#[test]
fn what_was_written_is_read() {
    let entries = some_entries();
    assert_eq!(read(&written(&entries), false).unwrap(), (entries, false));
    assert_eq!(read(&written(&[]), false).unwrap(), (Vec::new(), false));
}

/// Random data is stored as it is, and costs no more than its headers; data that repeats is
/// compressed, also behind a chunk that was not.
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
    let random: Vec<_> = random.collect();
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
    let both = [random, alike].concat();
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
