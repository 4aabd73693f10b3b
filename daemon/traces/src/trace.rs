//! A trace file as a stream of records: detects the format, and reports what it cannot read.

use crate::dialect::{BYTES, DIALECTS, Parse, TraceFormat, Units};
use crate::error::TraceError;
use crate::fields::shown;
use crate::lines::Lines;
use crate::record::{ADDRESS_MAX, Record, TIME_MAX};
use crate::recording::{Reader, Requests};
use std::path::{Path, PathBuf};

/// Lines that must exclude another reading of the columns than that of the format.
const SAMPLE: usize = 256;

/// Open trace. It ends after the first error.
pub struct Trace {
    file: PathBuf,
    source: Source,
    ended: bool,
}

enum Source {
    Lines(LineTrace),
    Recording(Box<Requests>),
}

impl Trace {
    /// Opens a trace, or a recording; without a dialect, the content determines the format. Content
    /// with another reading is refused. `cut_off` takes a recording without its end mark up to its
    /// last whole chunk.
    ///
    /// # Errors
    /// The file cannot be read, or its format is unknown.
    pub fn open(
        path: &Path,
        dialect: Option<&'static TraceFormat>,
        cut_off: bool,
    ) -> Result<Trace, TraceError> {
        let source = match dialect.is_none() && path.is_file() && Reader::detects(path)? {
            true => Source::Recording(Box::new(Requests::new(Reader::open(path, cut_off)?))),
            false => Source::Lines(LineTrace::open(path, dialect)?),
        };
        Ok(Trace {
            file: path.into(),
            source,
            ended: false,
        })
    }

    /// Returns the name of the format.
    pub fn format(&self) -> &'static str {
        match &self.source {
            Source::Lines(lines) => lines.dialect.name,
            Source::Recording(_) => "recording",
        }
    }

    /// Returns the units of its columns.
    pub fn units(&self) -> Units {
        match &self.source {
            Source::Lines(lines) => lines.dialect.units,
            Source::Recording(_) => Units::new("ns", BYTES, BYTES),
        }
    }

    /// Returns the share of the file read so far, 0 to 1.
    pub fn progress(&self) -> f64 {
        match &self.source {
            Source::Lines(lines) => lines.lines.progress(),
            Source::Recording(requests) => requests.progress(),
        }
    }

    /// Returns the origin of the last record, for messages.
    pub fn place(&self) -> String {
        match &self.source {
            Source::Lines(lines) => format!("line {}", lines.lines.number()),
            Source::Recording(requests) => format!("request {}", requests.returned()),
        }
    }

    /// Returns whether the last record is earlier than the first one. Its time is 0 then.
    pub fn is_early(&self) -> bool {
        matches!(&self.source, Source::Lines(lines) if lines.is_early)
    }

    /// Returns whether the last line that was read has no line end. That line may lack its last
    /// digits, if the file was cut off.
    pub fn is_last_line_open(&self) -> bool {
        matches!(&self.source, Source::Lines(lines) if lines.lines.is_open())
    }
}

/// A trace of lines.
struct LineTrace {
    lines: Lines,
    dialect: &'static TraceFormat,
    parser: Box<dyn Parse>,
    /// Time of the first record, on the trace's own clock.
    begin_ns: Option<u64>,
    /// Whether the last record is earlier.
    is_early: bool,
}

impl LineTrace {
    fn open(path: &Path, dialect: Option<&'static TraceFormat>) -> Result<Self, TraceError> {
        let mut lines = Lines::open(path)?;
        let empty = || TraceError::content(path, "nothing in it; expected a block trace");
        // The first line, if it cannot be read.
        let sample = lines.look_ahead(SAMPLE);
        let dialect = match sample.first() {
            Some(_) => dialect.map_or_else(|| detect(path, &sample), Ok)?,
            None => return Err(lines.next().err().unwrap_or_else(empty)),
        };
        Ok(LineTrace {
            lines,
            dialect,
            parser: (dialect.parser)(),
            begin_ns: None,
            is_early: false,
        })
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while let Some(line) = self.lines.next()? {
            match self.parser.line(line) {
                Ok(None) => {}
                Ok(Some(record)) => {
                    let (at, len) = (record.offset_bytes, record.length_bytes);
                    assert!(
                        len > 0 && len <= ADDRESS_MAX && at <= ADDRESS_MAX - len,
                        "the {} parser returned a request of {len} bytes at {at}",
                        self.dialect.name
                    );
                    let begin_ns = *self.begin_ns.get_or_insert(record.time_ns);
                    self.is_early = record.time_ns < begin_ns;
                    return Ok(Some(Record {
                        time_ns: record.time_ns.saturating_sub(begin_ns),
                        ..record
                    }));
                }
                Err(error) => {
                    let mut what = error.to_string();
                    if self.lines.is_open() {
                        what += CUT_OFF;
                    }
                    return Err(TraceError::Line {
                        file: self.lines.file().into(),
                        line: self.lines.number(),
                        what,
                        dialect: self.dialect.name,
                        expected: self.dialect.line,
                    });
                }
            }
        }
        if self.begin_ns.is_none() {
            let expected = || format!("expected {}", self.dialect.line);
            let why = self.parser.without_request().unwrap_or_else(expected);
            let none = format!("no request in {} lines; {why}", self.lines.number());
            return Err(TraceError::content(self.lines.file(), none));
        }
        Ok(None)
    }
}

impl Iterator for Trace {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = match &mut self.source {
            Source::Lines(lines) => lines.next_record().transpose(),
            Source::Recording(requests) => requests.next(),
        };
        let next = match next {
            Some(Ok(record)) if record.time_ns > TIME_MAX => {
                let what = format!(
                    "{}: more than 100 years after the first request; check the unit of its times: {}",
                    self.place(),
                    self.units()
                );
                Some(Err(TraceError::content(&self.file, what)))
            }
            next => next,
        };
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Added to the reason of an unreadable line without a line end.
const CUT_OFF: &str =
    "; the file ends in the middle of this line: copy it again, or remove the line";

fn detect(file: &Path, sample: &[&str]) -> Result<&'static TraceFormat, TraceError> {
    let first = sample.first().copied().unwrap_or_default();
    let format = DIALECTS
        .iter()
        .find(|dialect| dialect.begins(first))
        .ok_or_else(|| {
            let names: Vec<_> = DIALECTS.iter().map(|dialect| dialect.name).collect();
            let what = format!(
                "line {:?} is of no format known here: {}; with --format NAME the message says what is wrong in it",
                shown(first),
                names.join(", ")
            );
            TraceError::content(file, what)
        })?;
    match (format.other_reading)(sample) {
        None => Ok(format),
        Some(readings) => {
            let what = format!("line {:?} has two readings: {readings}", shown(first));
            Err(TraceError::content(file, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;
    use std::io::Write;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn read(bytes: &[u8]) -> Result<Vec<Record>, String> {
        let file = file(bytes);
        let text = |error: TraceError| {
            error
                .to_string()
                .replace(&file.path().display().to_string(), "FILE")
        };
        Trace::open(file.path(), None, false)
            .map_err(text)?
            .collect::<Result<_, _>>()
            .map_err(text)
    }

    const PLAIN: &str = "time_us,op,offset_bytes,length_bytes\n5,W,4096,512\n\n# half way\n7,r,0,4096\n6,T,8192,8192\n";

    #[test]
    fn plain_gzip_and_zstd_read_alike() {
        let at = |time_ns, op, offset_bytes, length_bytes| Record {
            time_ns,
            op,
            device: 0,
            offset_bytes,
            length_bytes,
        };
        let expected = vec![
            at(0, Op::Write, 4096, 512),
            at(2000, Op::Read, 0, 4096),
            at(1000, Op::Trim, 8192, 8192),
        ];
        assert_eq!(read(PLAIN.as_bytes()).unwrap(), expected);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(PLAIN.as_bytes()).unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(read(&gzip).unwrap(), expected);
        // Two concatenated members form one file, as in the compression tools.
        let error = read(&[&gzip[..], &gzip[..]].concat()).unwrap_err();
        assert!(
            error.starts_with(
                "FILE: line 7: time \"time_us\" is not a decimal number; expected plain: "
            ),
            "{error}"
        );
        let zstd = zstd::encode_all(PLAIN.as_bytes(), 3).unwrap();
        assert_eq!(read(&zstd).unwrap(), expected);
    }

    #[test]
    fn what_is_no_trace_is_one_clear_error() {
        let big: Vec<u8> = (0..60_000u32).map(|i| (i * 7 + 130) as u8 | 0x80).collect();
        for (bytes, part) in [
            (&b""[..], "FILE: nothing in it"),
            (b"\n \n# a comment\n", "FILE: nothing in it"),
            (
                b"hello, world\n",
                "FILE: line \"hello, world\" is of no format known here: plain, msr",
            ),
            (b"\x7fELF\x02\x01\x01\0\0", "FILE: line 1: not text"),
            (&big, "not text"),
            (
                b"time_us,op,offset_bytes,length_bytes\n",
                "FILE: no request in 1 lines",
            ),
            (
                b"time_us,op,offset_bytes,length_bytes\n1,W,0,512\n1,W,0,\xff\xff\n",
                "FILE: line 3: not text",
            ),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(
                error.contains(part) && error.lines().count() == 1,
                "{error}"
            );
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_content() {
        let marked = [b"\xef\xbb\xbf", PLAIN.as_bytes()].concat();
        assert_eq!(read(&marked), read(PLAIN.as_bytes()));
        assert!(read(b"\xef\xbb\xbf# a comment\n5,W,4096,512\n").is_ok());
        let later = b"5,W,4096,512\n\xef\xbb\xbf6,W,4096,512\n";
        assert!(read(later).unwrap_err().contains("line 2: time"));
    }

    #[test]
    fn binary_output_of_blktrace_names_the_program_that_converts_it() {
        for magic in [0x6561_7407_u32.to_le_bytes(), 0x6561_7407_u32.to_be_bytes()] {
            let bytes = [&magic[..], &[0; 44]].concat();
            let error = read(&bytes).unwrap_err();
            assert!(error.contains("run blkparse -i FILE -o"), "{error}");
        }
        assert!(read(b"eats").unwrap_err().contains("no format known"));
    }

    #[test]
    fn times_of_a_century_are_refused_in_every_format() {
        let far = [
            "1,W,0,512\n9999999999999999,W,0,512\n",
            "0,0,512,W,0.5\n0,0,512,W,9999999999.5\n",
            "0.5 0 1 1 0\n9999999999999.5 0 1 1 0\n",
            "fio version 3 iolog\n1 f add\n1 f write 0 512\n9999999999999999 f write 0 512\n",
            "fio version 2 iolog\nf add\nf write 0 512\nf wait 9999999999999999 0\nf write 0 512\n",
        ];
        for text in far {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains("more than 100 years after"), "{error}");
            assert!(
                error.contains("times in ") && error.contains("line "),
                "{error}"
            );
        }
    }

    #[test]
    fn lines_with_two_readings_are_refused_with_both() {
        let cases = [
            (
                "0.000 0 1048576 4096 1\n0.120 0 524288 16384 0\n",
                "FILE: line \"0.000 0 1048576 4096 1\" has two readings: as disksim, in 512-byte sectors, \
                 the first request is 2 MiB at 512 MiB; in bytes, 4 KiB at 1 MiB; add --format disksim \
                 (times in ms, sectors) or --format disksim-bytes (times in ms, bytes)",
            ),
            (
                "0 0 1048576 4096 1\n120 0 524288 16384 0\n",
                "add --format mqsim (times in ns, sectors) or --format disksim-bytes",
            ),
            (
                "1538323200,1048576,4096,1,7\n",
                "add --format tencent for sectors, or convert",
            ),
            (
                "1000,0,4096,W,0\n2000,8192,4096,R,0\n3000,16384,4096,W,0\n",
                "as spc, 1000 is a disk (ASU) and 0 its time in s; or 1000 is the time and 0 the disk",
            ),
            (
                "1000,W,0,4096,0\n2000,R,8192,4096,0\n",
                "as alibaba, 1000 is a disk and 0 its time in us; or 1000 is the time and 0 the disk",
            ),
        ];
        for (text, part) in cases {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(
                error.contains(part) && error.lines().count() == 1,
                "{error}"
            );
        }
    }

    #[test]
    fn one_line_with_one_reading_decides() {
        let formats = [
            ("0.000 0 1048576 4096 1\n0.120 0 524288 8 0\n", "disksim"),
            ("0.000 0 1048576 4096 1\n0.120 0 524288 512 10\n", "disksim"),
            // As sectors these are 2 GiB.
            (
                "0.000 0 1048576 4194304 1\n0.120 0 524288 16384 0\n",
                "disksim-bytes",
            ),
            ("0 0 1048576 4096 1\n120 0 524288 8 0\n", "mqsim"),
            (
                "1538323200,1048576,4096,1,7\n1538323200,8,8,1,7\n",
                "tencent",
            ),
            (
                "Timestamp,Offset,Size,IOType,VolumeID\n1538323200,1048576,4096,1,7\n",
                "tencent",
            ),
            ("0,0,4096,W,1000\n0,8192,4096,R,2000\n", "spc"),
            ("1,0,4096,W,1000\n2,8192,4096,R,2000.5\n", "spc"),
            ("1,W,0,4096,1577808000000046\n", "alibaba"),
            ("2,W,0,4096,46\n1,W,0,4096,47\n", "alibaba"),
            (
                "device_id,opcode,offset,length,timestamp\n1,W,0,4096,46\n",
                "alibaba",
            ),
        ];
        for (text, format) in formats {
            let file = file(text.as_bytes());
            let trace = Trace::open(file.path(), None, false)
                .unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(trace.format(), format, "{text}");
        }
        // A name decides as well, before any line.
        let file = file(b"0.000 0 1048576 4096 1\n");
        let named = |name| Trace::open(file.path(), TraceFormat::find(name), false).unwrap();
        let first = |name| named(name).next().unwrap().unwrap();
        let of = |record: Record| (record.offset_bytes, record.length_bytes);
        assert_eq!(of(first("disksim")), (512 << 20, 2 << 20));
        assert_eq!(of(first("disksim-bytes")), (1 << 20, 4096));
        assert_eq!(
            named("disksim-bytes").units().to_string(),
            "times in ms, offsets and lengths in bytes"
        );
    }

    #[test]
    fn blkparse_without_queue_events_names_the_events_that_it_has() {
        let text = "202,16 7 5 675.7 661 D W 95839968 + 80 [k]\n202,16 7 6 675.8 661 C W 95839968 + 80 [0]\n";
        let error = read(text.as_bytes()).unwrap_err();
        assert!(
            error.contains("no request in 2 lines; events D and none Q"),
            "{error}"
        );
    }

    #[test]
    fn compressed_data_that_was_cut_off_says_so() {
        let long: String = (0..20_000)
            .map(|i| format!("{i},W,{},4096\n", i * 37 % 1000 * 4096))
            .collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(long.as_bytes()).unwrap();
        for whole in [
            gzip.finish().unwrap(),
            zstd::encode_all(long.as_bytes(), 3).unwrap(),
        ] {
            let error = read(&whole[..whole.len() / 2]).unwrap_err();
            let way_out = "the file is damaged or cut off: copy it again";
            assert!(error.contains(way_out), "{error}");
            assert_eq!(read(&whole).unwrap().len(), 20_000);
        }
    }

    /// Compressed files are cut between any two bytes: none is read as a shorter trace.
    #[test]
    fn a_cut_in_compressed_data_is_found_wherever_it_is() {
        let text: String = (0..40)
            .map(|i| format!("{i},W,{},4096\n", i * 7919 % 1000 * 4096))
            .collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(text.as_bytes()).unwrap();
        for whole in [
            gzip.finish().unwrap(),
            zstd::encode_all(text.as_bytes(), 3).unwrap(),
        ] {
            for cut in 0..whole.len() {
                let error = read(&whole[..cut]).unwrap_err();
                assert_eq!(error.lines().count(), 1, "{cut} bytes: {error}");
            }
        }
    }

    #[test]
    fn a_last_line_without_its_end_is_known() {
        let last = |text: &str| {
            let file = file(text.as_bytes());
            let mut trace = Trace::open(file.path(), None, false).unwrap();
            let error = trace.by_ref().find_map(Result::err);
            let error = error.map_or(String::new(), |error| error.to_string());
            (trace.place(), trace.is_last_line_open(), error)
        };
        assert_eq!(
            last("1,W,0,512\n2,W,0,512\n"),
            ("line 2".into(), false, String::new())
        );
        assert_eq!(
            last("1,W,0,512\n2,W,0,51"),
            ("line 2".into(), true, String::new())
        );
        let (place, open, error) = last("1,W,0,512\n2,W,0");
        assert!(place == "line 2" && open, "{error}");
        let way_out = "the file ends in the middle of this line: copy it again";
        assert!(error.contains(way_out), "{error}");
        let (.., error) = last("1,W,0,512\n2,W,0\n3,W,0,512");
        assert!(!error.contains(way_out), "{error}");
    }

    #[test]
    fn nothing_is_read_after_an_error() {
        let file = file(b"1,W,0,512\n2,W,0,0\n3,W,0,512\n");
        let mut trace = Trace::open(file.path(), None, false).unwrap();
        assert!(trace.next().unwrap().is_ok());
        assert_eq!(trace.place(), "line 1");
        assert!(
            trace
                .next()
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("line 2: length is 0")
        );
        assert!(trace.next().is_none());
    }

    #[test]
    fn a_missing_file_is_named() {
        let Err(error) = Trace::open(Path::new("/nonexistent/trace.csv"), None, false) else {
            panic!("opened")
        };
        assert_eq!(
            error.to_string(),
            "/nonexistent/trace.csv: No such file or directory (os error 2)"
        );
    }
}
