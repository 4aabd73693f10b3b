//! `--log`: a line per measured request.
//!
//! The simulation copies numbers into batches; another thread formats, compresses and writes them.
//! A bounded number of batches waits, so memory is bounded and a slow disk slows the run.

use super::address::Extent;
use super::sim::Sim;
use ftld_kit::failure::Failure;
use ftld_kit::output::unwritable;
use ftld_traces::Op;
use nand_model::{Cause, Counters, Nanos, OpCounts};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Requests per batch.
const BATCH: usize = 4096;
/// Batches that wait for the writer.
const WAITING: usize = 8;
/// Fast, and a fifth of the size. `deploy/build.sh` leaves out what other levels need.
const ZSTD_LEVEL: i32 = 1;

/// Format of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Ndjson,
    Csv,
}

/// One request, in emulated time since the measurement began and in bytes of the device.
struct Entry {
    start: Nanos,
    response: Nanos,
    offset: u64,
    length: u64,
    op: Op,
    /// How many of the batch's flash operations are its own.
    causes: u8,
}

#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    /// Flash operations by cause, in the order of the entries; causes without operations are left
    /// out.
    flash: Vec<(Cause, OpCounts)>,
}

impl Batch {
    fn new() -> Batch {
        Batch {
            entries: Vec::with_capacity(BATCH),
            flash: Vec::with_capacity(2 * BATCH),
        }
    }
}

/// An open log.
pub(super) struct Log {
    name: String,
    begun: Nanos,
    counters: [OpCounts; Cause::COUNT],
    batch: Batch,
    /// `None` once the writer was told to end.
    to: Option<SyncSender<Batch>>,
    /// Written batches, whose memory is used again: new memory costs page faults.
    free: Receiver<Batch>,
    writer: JoinHandle<io::Result<()>>,
}

/// Where lines go.
enum Sink {
    Plain(BufWriter<File>),
    Zstd(Box<zstd::Encoder<'static, BufWriter<File>>>),
}

impl Sink {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(file) => file.write_all(text),
            Sink::Zstd(encoder) => encoder.write_all(text),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Sink::Plain(mut file) => file.flush(),
            Sink::Zstd(encoder) => encoder.finish()?.flush(),
        }
    }
}

/// Returns the format that a name asks for, and whether it asks for compression.
fn format(path: &Path) -> Result<(Format, bool), Failure> {
    let name = path.to_string_lossy();
    let plain = name.strip_suffix(".zst");
    let format = match plain.unwrap_or(&name).rsplit_once('.') {
        Some((_, "ndjson")) => Format::Ndjson,
        Some((_, "csv")) => Format::Csv,
        _ => {
            return Err(Failure::usage(format!(
                "--log {name}: the name selects the format; end it in .ndjson or .csv, or in .ndjson.zst or .csv.zst"
            )));
        }
    };
    Ok((format, plain.is_some()))
}

impl Log {
    /// Checks that the name selects a format.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn check(path: &Path) -> Result<(), Failure> {
        format(path).map(drop)
    }

    /// Creates the file, and starts the thread that writes to it.
    ///
    /// # Errors
    /// The name selects no format, or the file cannot be created.
    pub(super) fn create(path: &Path) -> Result<Log, Failure> {
        let (format, compressed) = format(path)?;
        let failed = |error: io::Error| Failure::io(path.display(), &error);
        let file = File::create(path).map_err(|error| unwritable("--log", path, &error))?;
        let file = BufWriter::new(file);
        let sink = if compressed {
            let encoder = zstd::Encoder::new(file, ZSTD_LEVEL).map_err(failed)?;
            Sink::Zstd(Box::new(encoder))
        } else {
            Sink::Plain(file)
        };
        let (to, from) = sync_channel(WAITING);
        let (give, free) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("log".into())
            .spawn(move || write(&from, &give, sink, format))
            .map_err(failed)?;
        Ok(Log {
            name: path.display().to_string(),
            begun: 0,
            counters: [OpCounts::default(); Cause::COUNT],
            batch: Batch::new(),
            to: Some(to),
            free,
            writer,
        })
    }

    /// Begins with the measurement.
    pub(super) fn begin(&mut self, sim: &Sim) {
        let counters = sim.ftl().chip().counters();
        self.begun = sim.now;
        self.counters = Cause::ALL.map(|cause| *counters.of(cause));
    }

    /// Notes a request.
    #[inline]
    pub(super) fn note(
        &mut self,
        op: Op,
        extents: &[Extent],
        start: Nanos,
        done: Nanos,
        counters: &Counters,
    ) -> Result<(), Failure> {
        let mut causes = 0;
        for cause in Cause::ALL {
            let (before, now) = (&mut self.counters[cause.index()], counters.of(cause));
            if before != now {
                self.batch.flash.push((cause, now.since(before)));
                *before = *now;
                causes += 1;
            }
        }
        self.batch.entries.push(Entry {
            start: start - self.begun,
            response: done - start,
            offset: extents.first().map_or(0, |extent| extent.offset),
            length: extents.iter().map(|extent| extent.len).sum(),
            op,
            causes,
        });
        if self.batch.entries.len() == BATCH {
            return self.send();
        }
        Ok(())
    }

    #[cold]
    fn send(&mut self) -> Result<(), Failure> {
        let next = self.free.try_recv().unwrap_or_else(|_| Batch::new());
        let batch = std::mem::replace(&mut self.batch, next);
        match &self.to {
            Some(to) if to.send(batch).is_ok() => Ok(()),
            // The writer has failed; `finish` has the reason.
            _ => Err(Failure::failed(format!("{}: not written", self.name))),
        }
    }

    /// Writes the remaining requests. A log that could not be written fails the run, with
    /// `outcome` or without.
    pub(super) fn finish(mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let sent = self.send();
        self.to = None;
        let written = self.writer.join().expect("the writer does not panic");
        written.map_err(|error| Failure::io(&self.name, &error))?;
        outcome.and(sent)
    }
}

/// Writes batches until there are no more, and gives their memory back.
fn write(
    from: &Receiver<Batch>,
    give: &SyncSender<Batch>,
    mut sink: Sink,
    format: Format,
) -> io::Result<()> {
    let mut text = Vec::new();
    if format == Format::Csv {
        csv_head(&mut text);
    }
    for mut batch in from {
        let mut flash = &batch.flash[..];
        for entry in &batch.entries {
            let (own, others) = flash.split_at(usize::from(entry.causes));
            match format {
                Format::Ndjson => ndjson(&mut text, entry, own),
                Format::Csv => csv(&mut text, entry, own),
            }
            flash = others;
        }
        assert!(flash.is_empty(), "flash operations of no request");
        sink.write(&text)?;
        text.clear();
        batch.entries.clear();
        batch.flash.clear();
        // If nobody takes it, it is freed.
        give.try_send(batch).ok();
    }
    sink.write(&text)?;
    sink.finish()
}

fn letter(op: Op) -> u8 {
    match op {
        Op::Read => b'R',
        Op::Write => b'W',
        Op::Trim => b'T',
        Op::Flush => b'F',
    }
}

/// Appends the decimal digits of a number. The machinery of `write!` takes as long as the
/// simulation of a request, with some twenty numbers a line.
fn number(text: &mut Vec<u8>, value: u64) {
    text.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a comma and a number. Most counts of a request are 0.
#[inline]
fn column(text: &mut Vec<u8>, value: u64) {
    match u8::try_from(value) {
        Ok(digit @ 0..10) => text.extend_from_slice(&[b',', b'0' + digit]),
        _ => {
            text.push(b',');
            number(text, value);
        }
    }
}

type Count = fn(&OpCounts) -> u64;

/// Counts of an operation by name.
const COUNTS: [(&str, Count); 5] = [
    ("reads", |of| of.reads),
    ("partial_reads", |of| of.partial_reads),
    ("programs", |of| of.programs),
    ("oob_programs", |of| of.oob_programs),
    ("erases", |of| of.erases),
];

fn ndjson(text: &mut Vec<u8>, entry: &Entry, flash: &[(Cause, OpCounts)]) {
    text.extend_from_slice(b"{\"start_ns\":");
    number(text, entry.start);
    text.extend_from_slice(b",\"op\":\"");
    text.push(letter(entry.op));
    text.extend_from_slice(b"\",\"offset_bytes\":");
    number(text, entry.offset);
    text.extend_from_slice(b",\"length_bytes\":");
    number(text, entry.length);
    text.extend_from_slice(b",\"response_ns\":");
    number(text, entry.response);
    text.extend_from_slice(b",\"flash\":{");
    let name = |text: &mut Vec<u8>, first: bool, name: &str| {
        text.extend_from_slice(if first { b"\"" } else { b",\"" });
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"\":");
    };
    for (at, (cause, counts)) in flash.iter().enumerate() {
        name(text, at == 0, cause.name());
        text.push(b'{');
        let mut first = true;
        for (of, count) in COUNTS {
            if count(counts) > 0 {
                name(text, first, of);
                number(text, count(counts));
                first = false;
            }
        }
        text.push(b'}');
    }
    text.extend_from_slice(b"}}\n");
}

fn csv_head(text: &mut Vec<u8>) {
    text.extend_from_slice(b"start_ns,op,offset_bytes,length_bytes,response_ns");
    for (name, _) in COUNTS {
        text.push(b',');
        text.extend_from_slice(name.as_bytes());
    }
    for cause in Cause::ALL {
        text.extend_from_slice(b",programs_");
        text.extend_from_slice(cause.name().as_bytes());
    }
    text.push(b'\n');
}

/// Operations in total, then programs by cause.
fn csv(text: &mut Vec<u8>, entry: &Entry, flash: &[(Cause, OpCounts)]) {
    let mut total = OpCounts::default();
    let mut programs = [0; Cause::COUNT];
    for (cause, counts) in flash {
        total.reads += counts.reads;
        total.partial_reads += counts.partial_reads;
        total.programs += counts.programs;
        total.oob_programs += counts.oob_programs;
        total.erases += counts.erases;
        programs[cause.index()] = counts.programs;
    }
    number(text, entry.start);
    text.extend_from_slice(&[b',', letter(entry.op)]);
    for value in [entry.offset, entry.length, entry.response] {
        column(text, value);
    }
    for (_, count) in COUNTS {
        column(text, count(&total));
    }
    for value in programs {
        column(text, value);
    }
    text.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for value in [0, 7, 10, 99, 100, 4096, u64::from(u32::MAX), u64::MAX] {
            let mut text = b"x".to_vec();
            number(&mut text, value);
            assert_eq!(String::from_utf8(text).unwrap(), format!("x{value}"));
        }
    }

    #[test]
    fn lines_have_the_operations_of_their_request() {
        let entry = Entry {
            start: 5,
            response: 700,
            offset: 4096,
            length: 512,
            op: Op::Write,
            causes: 2,
        };
        let host = OpCounts {
            programs: 1,
            ..OpCounts::default()
        };
        let gc = OpCounts {
            reads: 3,
            programs: 12,
            erases: 1,
            ..OpCounts::default()
        };
        let flash = [(Cause::Host, host), (Cause::Gc, gc)];
        let mut text = Vec::new();
        ndjson(&mut text, &entry, &flash);
        ndjson(&mut text, &entry, &[]);
        let own = r#"{"start_ns":5,"op":"W","offset_bytes":4096,"length_bytes":512,"response_ns":700,"flash":{"#;
        let operations = r#""host":{"programs":1},"gc":{"reads":3,"programs":12,"erases":1}"#;
        let expected = format!("{own}{operations}}}}}\n{own}}}}}\n");
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let mut text = Vec::new();
        csv_head(&mut text);
        csv(&mut text, &entry, &flash);
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        let value = |name: &str| lines[1][lines[0].iter().position(|head| *head == name).unwrap()];
        assert_eq!(lines[1].len(), lines[0].len());
        assert_eq!(
            [
                "start_ns",
                "op",
                "response_ns",
                "reads",
                "programs",
                "erases"
            ]
            .map(value),
            ["5", "W", "700", "3", "13", "1"]
        );
        assert_eq!(
            ["programs_host", "programs_gc", "programs_convert"].map(value),
            ["1", "12", "0"]
        );
    }

    #[test]
    fn the_name_selects_the_format() {
        for (name, expected) in [
            ("x.ndjson", (Format::Ndjson, false)),
            ("/tmp/a.b/x.csv", (Format::Csv, false)),
            ("x.ndjson.zst", (Format::Ndjson, true)),
            ("x.csv.zst", (Format::Csv, true)),
        ] {
            assert_eq!(format(Path::new(name)).unwrap(), expected, "{name}");
        }
        for wrong in ["x", "x.log", "x.zst", "x.csv.gz", ".zst"] {
            let failure = format(Path::new(wrong)).unwrap_err();
            assert!(
                failure.message.contains("end it in .ndjson or .csv"),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_created_is_named() {
        let failure = Log::create(Path::new("/nonexistent/x.csv")).err().unwrap();
        assert!(
            failure
                .message
                .starts_with("--log /nonexistent/x.csv: there is no folder /nonexistent"),
            "{failure}"
        );
    }

    /// A disk without space: the reason reaches the run, whenever the writer meets it.
    #[test]
    fn a_full_disk_fails_the_run() {
        let (to, from) = sync_channel(WAITING);
        let sink = Sink::Plain(BufWriter::new(
            File::options().write(true).open("/dev/full").unwrap(),
        ));
        let (give, free) = sync_channel(WAITING);
        let writer = std::thread::spawn(move || write(&from, &give, sink, Format::Csv));
        let mut log = Log {
            name: "/dev/full".into(),
            begun: 0,
            counters: [OpCounts::default(); Cause::COUNT],
            batch: Batch::new(),
            to: Some(to),
            free,
            writer,
        };
        let extent = Extent {
            offset: 0,
            len: 512,
        };
        let counters = Counters::default();
        let outcome = (0..1_000_000u64)
            .try_for_each(|at| log.note(Op::Read, &[extent], at, at + 1, &counters));
        let failure = log.finish(outcome).unwrap_err();
        assert!(
            failure.message.starts_with("/dev/full: No space"),
            "{failure}"
        );
    }
}
