//! Recordings: any bytes, and forged heads and entries with checks that hold; and ledgers.
//!
//! Properties: a reader refuses an entry, or its numbers are within the bounds of
//! docs/RECORDING.md. As a trace and in `ftld crashes`, a recording is refused with one message or
//! used. Time and memory follow from its length.

use super::Input;
use ftl_core::Params;
use ftl_core::schemes::SCHEMES;
use ftld_kit::profile_file;
use ftld_lab::crashes::{At, CrashesArgs, Loss, Model, visit};
use ftld_traces::Trace;
use ftld_traces::recording::{Entry, Flash, Head, Kind, Moment, Reader, Writer};
use nand_model::{Capacity, Profile};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const KINDS: [Kind; 7] = [
    Kind::Read,
    Kind::Write,
    Kind::Trim,
    Kind::WriteZeroes,
    Kind::Flush,
    Kind::Mark,
    Kind::Base,
];

/// Runs one input. The first byte selects what is forged.
pub fn run(data: &[u8]) {
    thread_local!(static FOLDER: TempDir = tempfile::tempdir().expect("a temporary folder"));
    FOLDER.with(|folder| {
        let mut input = Input::new(data);
        let path = folder.path().join("run.rec");
        let choice = input.u8();
        let file = match choice % 4 {
            0 => input.rest().to_vec(),
            1 => written(&head(1 << 20, 4096, None), &sound_entries()),
            _ => forged(&mut input),
        };
        std::fs::write(&path, file).expect("room for a recording");
        read(&path);
        let mut args = args(folder.path(), path);
        if choice % 4 == 1 {
            ledger(&mut args, input.rest());
            return;
        }
        for model in [Model::Cache, Model::Flash] {
            args.model = model;
            let _ = visit(&args);
        }
    });
}

fn args(folder: &Path, recording: PathBuf) -> CrashesArgs {
    CrashesArgs {
        recording,
        others: Vec::new(),
        mounts: None,
        check: "true".into(),
        model: Model::Cache,
        loss: vec![Loss::Garbage, Loss::Channel],
        at: At::Request,
        every: 1,
        states: 3,
        seed: 1,
        jobs: Some(1),
        timeout: Duration::from_secs(1),
        after_mark: false,
        from: 0,
        to: u64::MAX,
        files: None,
        server: false,
        nested: None,
        ignore: Vec::new(),
        time: None,
        failures: 0,
        case: None,
        keep: None,
        ledger: None,
        junit: None,
        html: None,
        cut_off: true,
        scratch: Some(folder.into()),
    }
}

/// Reads every entry, as a recording and as a trace.
fn read(path: &Path) {
    if let Ok(reader) = Reader::open(path, true) {
        let size = reader.head().size;
        let mut last = None;
        for entry in reader.map_while(Result::ok) {
            let end = entry.offset.checked_add(entry.length).expect("a last byte");
            assert!(entry.errno != 0 || end <= size, "{entry:?} in {size} bytes");
            assert!(entry.begin.seq < entry.end.seq && last < Some(entry.end.seq));
            last = Some(entry.end.seq);
        }
    }
    if let Ok(trace) = Trace::open(path, None, true) {
        trace.map_while(Result::ok).for_each(drop);
    }
}

/// Reads a ledger that begins as this exploration's and ends with these bytes, and these alone.
fn ledger(args: &mut CrashesArgs, bytes: &[u8]) {
    let path = args.scratch.as_ref().expect("a folder").join("ledger");
    let _ = std::fs::remove_file(&path);
    args.ledger = Some(path.clone());
    visit(args).expect("a sound recording and a new ledger");
    let own = std::fs::read(&path).expect("a ledger");
    std::fs::write(&path, [&own, bytes].concat()).expect("room for a ledger");
    visit(args).expect("lines that are no verdict are skipped");
    std::fs::write(&path, bytes).expect("room for a ledger");
    let _ = visit(args);
}

fn written(head: &Head, entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::create(Vec::new(), head).expect("memory");
    for entry in entries {
        writer.push(entry, &entry.data).expect("memory");
    }
    writer.finish().expect("memory").0
}

fn head(size: u64, physical_block: u32, flash: Option<Flash>) -> Head {
    Head {
        program: "fuzz".into(),
        size,
        logical_block: 512,
        physical_block,
        has_data: true,
        started_unix_s: 0,
        clock: None,
        flash,
        write_cache: None,
    }
}

fn sound_entries() -> Vec<Entry> {
    let entry = |kind, seq, data: Vec<u8>| Entry {
        kind,
        fua: false,
        errno: 0,
        offset: 0,
        length: if kind == Kind::Write { 4096 } else { 0 },
        begin: Moment { seq, ns: seq },
        end: Moment {
            seq: seq + 1,
            ns: seq,
        },
        data,
    };
    vec![
        entry(Kind::Write, 0, vec![1; 4096]),
        entry(Kind::Flush, 2, Vec::new()),
        entry(Kind::Mark, 4, b"1".to_vec()),
    ]
}

/// Returns a recording whose numbers the input chooses, many from the edges of their fields.
fn forged(input: &mut Input) -> Vec<u8> {
    let size = number(input);
    let unit = match input.u8() % 8 {
        0 => input.u32(),
        1 => 512,
        2 => 8192,
        3 => 3072,
        _ => 4096,
    };
    let flash = (input.u8() % 2 == 1).then(|| flash(input));
    let head = head(size, unit, flash);
    let (mut entries, mut seq) = (Vec::new(), 0);
    while !input.is_empty() {
        let kind = KINDS[usize::from(input.u8()) % KINDS.len()];
        let how = input.u8();
        let (offset, length) = (number(input), number(input));
        let has_data = matches!(kind, Kind::Write | Kind::Base | Kind::Mark);
        let data = match how & 3 {
            0 => Vec::new(),
            1 => vec![how; 16],
            _ if has_data => vec![how; length.min(64 << 10) as usize],
            _ => Vec::new(),
        };
        let mut moment = || {
            seq += 1;
            match how & 0xC {
                4 => number(input),
                _ => seq,
            }
        };
        let (begin, end) = (moment(), moment());
        entries.push(Entry {
            kind,
            fua: how & 0x10 != 0,
            errno: if how & 0x20 != 0 { 5 } else { 0 },
            offset,
            length,
            begin: Moment {
                seq: begin,
                ns: begin,
            },
            end: Moment { seq: end, ns: end },
            data,
        });
    }
    written(&head, &entries)
}

/// Returns a small number of units, or one near the end of a field.
fn number(input: &mut Input) -> u64 {
    let (kind, value) = (input.u8(), u64::from(input.u8()));
    match kind % 8 {
        0 => value,
        1 => value << (input.u8() % 57),
        2 => (1 << 20) - value,
        3 => u64::MAX - value,
        4 => (u64::from(u32::MAX) + 1) * 4096 - value,
        5 => value * 512,
        _ => value * 4096,
    }
}

/// Returns a small device, with numbers that may not fit it.
fn flash(input: &mut Input) -> Flash {
    let scheme = &SCHEMES[usize::from(input.u8()) % SCHEMES.len()];
    let torture = Profile::find("torture").expect("a built-in profile");
    let layout = scheme.layout(torture, 64 << 10, 0.07, &Params::default());
    let layout = layout.expect("a size that fits");
    let blocks = match input.u8() % 4 {
        0 => u32::from(input.u8()),
        _ => layout.profile.geometry.blocks,
    };
    let profile = Profile {
        capacity: Capacity::Blocks(blocks),
        ..layout.profile
    };
    let logical_pages = match input.u8() % 4 {
        0 => input.u32(),
        1 => u32::from(input.u8()),
        _ => layout.logical_pages,
    };
    Flash {
        scheme: scheme.name.into(),
        params: [].into(),
        profile: profile_file::to_toml(&profile.named("recorded-torture", "of a fuzzer")),
        shards: (input.u8() == 1).then_some(2),
        logical_pages,
        seed: 1,
    }
}
