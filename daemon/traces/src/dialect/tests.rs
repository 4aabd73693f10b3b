//! A few synthetic lines per format, and every kind of invalid line in each.

use super::{DIALECTS, TraceFormat};
use crate::record::{Op, Record};

fn parse(name: &str, lines: &[&str]) -> Result<Vec<Record>, String> {
    let mut parser = (TraceFormat::find(name).unwrap().parser)();
    lines
        .iter()
        .filter_map(|line| parser.line(line).transpose())
        .map(|record| record.map_err(|error| error.to_string()))
        .collect()
}

fn at(time_ns: u64, op: Op, device: u64, offset_bytes: u64, length_bytes: u64) -> Record {
    Record {
        time_ns,
        op,
        device,
        offset_bytes,
        length_bytes,
    }
}

/// Per format: lines and their meaning; then lines with one fault and the error for it. Every list
/// of invalid lines has a truncated line, a wrong number of columns, a negative and a huge address,
/// and a length of 0.
struct Sample {
    name: &'static str,
    lines: &'static [&'static str],
    records: Vec<Record>,
    bad: &'static [(&'static str, &'static str)],
}

fn samples() -> Vec<Sample> {
    use Op::{Read, Trim, Write};
    vec![
        Sample {
            name: "plain",
            lines: &[
                "time_us,op,offset_bytes,length_bytes",
                "10,W,4096,512",
                "12.5,read, 0 ,8192",
                "13,T,0,1048576",
            ],
            records: vec![
                at(10_000, Write, 0, 4096, 512),
                at(12_500, Read, 0, 0, 8192),
                at(13_000, Trim, 0, 0, 1 << 20),
            ],
            bad: &[
                ("10,W,409", "3 columns, not 4"),
                ("10,W,4096,512,9", "5 columns, not 4"),
                ("10,W,-4096,512", "offset -4096 is negative"),
                (
                    "10,W,99999999999999999999,512",
                    "offset 99999999999999999999 is too large",
                ),
                ("10,W,18446744073709551104,512", "reach beyond 1 PiB"),
                ("10,W,4096,0", "length is 0"),
                (
                    "10,X,4096,512",
                    "operation \"X\" is neither a read nor a write",
                ),
                ("ten,W,4096,512", "time \"ten\" is not a decimal number"),
                ("-1,W,4096,512", "time -1 is negative"),
            ],
        },
        Sample {
            name: "msr",
            lines: &[
                "128166372003061629,web,1,Read,383496192,32768,413",
                "128166372003061630,web,0,Write,0,512,88",
            ],
            records: vec![
                at(12_816_637_200_306_162_900, Read, 1, 383_496_192, 32_768),
                at(12_816_637_200_306_163_000, Write, 0, 0, 512),
            ],
            bad: &[
                ("128166372003061629,web,1,Rea", "4 columns, not 7"),
                (
                    "128166372003061629,web,1,Rea,383496192,32768,413",
                    "operation \"Rea\"",
                ),
                (
                    "128166372003061629,web,1,Read,383496192,32768,413,5",
                    "8 columns, not 7",
                ),
                (
                    "128166372003061629,web,1,Read,-512,32768,413",
                    "offset -512 is negative",
                ),
                (
                    "128166372003061629,web,1,Read,9223372036854775807,32768,413",
                    "reach beyond 1 PiB",
                ),
                (
                    "128166372003061629,web,1,Read,383496192,0,413",
                    "length is 0",
                ),
                (
                    "999166372003061629999,web,1,Read,0,512,413",
                    "timestamp 999166372003061629999 is too large",
                ),
            ],
        },
        Sample {
            name: "spc",
            lines: &["0,20941264,8192,W,0.551706", "23,0,512,r,1.5,x,y"],
            records: vec![
                at(551_706_000, Write, 0, 20_941_264 * 512, 8192),
                at(1_500_000_000, Read, 23, 0, 512),
            ],
            bad: &[
                ("0,20941264,8192,W", "4 columns, not 5 or more"),
                ("0,-1,8192,W,0.5", "LBA -1 is negative"),
                (
                    "0,99999999999999999,8192,W,0.5",
                    "LBA 99999999999999999 is too large",
                ),
                ("0,20941264,0,W,0.5", "length is 0"),
                ("0,20941264,8192,W,", "timestamp is missing"),
            ],
        },
        Sample {
            name: "blkparse",
            lines: &[
                "  8,16   1        1     0.000000000  4041  Q  WS 223490 + 8 [fio]",
                "  8,16   1        2     0.000001200  4041  G  WS 223490 + 8 [fio]",
                "  8,16   1        3     0.000002000  4041  P   N [fio]",
                "  8,16   1        4     0.000003000  4041  U   N [fio] 1",
                "  8,16   1        5     0.000004000  4041  D  WS 223490 + 8 [fio]",
                "  8,16   1        6     0.000005000     0  C  WS 223490 + 8 [0]",
                "  8,16   1        7     0.000006000     7  Q FWS [jbd2]",
                "  8,16   1        8     0.000007000     7  Q FWFSM 64 + 16 [jbd2]",
                "  8,16   1        9     1.000000009     7  Q   R 0 + 2048 [dd]",
                "  8,16   1       10     1.500000000     7  Q   D 2048 + 4096 [fstrim]",
                "  8,16   1        0     1.600000000     0  m   N cfq7 idle",
                "CPU1 (sdb):",
                " Reads Queued:           1,     1024KiB  Writes Queued:           2,        12KiB",
                "Total (sdb):",
                "Throughput (R/W): 1KiB/s / 1KiB/s",
                "Events (sdb): 11 entries",
                "Skips: 0 forward (0 -   0.0%)",
            ],
            records: vec![
                at(0, Write, 8 << 20 | 16, 223_490 * 512, 4096),
                at(7_000, Write, 8 << 20 | 16, 64 * 512, 8192),
                at(1_000_000_009, Read, 8 << 20 | 16, 0, 1 << 20),
                at(1_500_000_000, Trim, 8 << 20 | 16, 1 << 20, 2 << 20),
            ],
            bad: &[
                ("8,16 1 1 0.0 4041 Q", "RWBS is missing"),
                ("8,16 1 1 0.0 4041 Q WS 223490 +", "sectors is missing"),
                ("8,16 1 1 0.0 4041 Q WS 223490", "no \"sector + sectors\""),
                (
                    "8,16 1 1 0.0 4041 Q WS -8 + 8 [fio]",
                    "sector -8 is negative",
                ),
                (
                    "8,16 1 1 0.0 4041 Q WS 99999999999999999 + 8 [fio]",
                    "sector 99999999999999999 is too large",
                ),
                ("8,16 1 1 0.0 4041 Q WS 223490 + 0 [fio]", "length is 0"),
                (
                    "8 1 1 0.0 4041 Q WS 223490 + 8 [fio]",
                    "device \"8\" is not MAJOR,MINOR",
                ),
            ],
        },
        Sample {
            name: "fio",
            lines: &[
                "fio version 2 iolog",
                "/dev/sdb add",
                "/dev/sdb open",
                "/dev/sdb write 4096 512",
                "/dev/sdb wait 250 0",
                "/dev/sdb read 0 8192",
                "/dev/sdb datasync 0 0",
                "/dev/sdb wait 50 0",
                "/dev/sdb trim 0 65536",
                "/dev/sdb close",
            ],
            records: vec![
                at(0, Write, 0, 4096, 512),
                at(250_000, Read, 0, 0, 8192),
                at(300_000, Trim, 0, 0, 65_536),
            ],
            bad: &[
                ("/dev/sdb write 40", "offset and length are missing"),
                ("/dev/sdb", "no action"),
                ("/dev/sdb write 4096 512 9", "offset and length are missing"),
                ("/dev/sdb write -4096 512", "offset -4096 is negative"),
                (
                    "/dev/sdb write 99999999999999999999 512",
                    "offset 99999999999999999999 is too large",
                ),
                ("/dev/sdb write 4096 0", "length is 0"),
                (
                    "/dev/sdc write 4096 512",
                    "file \"/dev/sdc\" was never added",
                ),
                ("/dev/sdb flip 4096 512", "action \"flip\""),
            ],
        },
        Sample {
            name: "disksim",
            lines: &["0.000000 0 61100 8 0", "12.500 2 0 1 1", "13.0 2 16 8 0x10"],
            records: vec![
                at(0, Write, 0, 61_100 * 512, 4096),
                at(12_500_000, Read, 2, 0, 512),
                at(13_000_000, Write, 2, 8192, 4096),
            ],
            bad: &[
                ("0.000000 0 61100", "3 columns, not 5"),
                ("0.000000 0 61100 8 0 0", "6 columns, not 5"),
                ("0.000000 0 -61100 8 0", "sector -61100 is negative"),
                (
                    "0.000000 0 99999999999999999 8 0",
                    "sector 99999999999999999 is too large",
                ),
                ("0.000000 0 61100 0 0", "length is 0"),
                ("0.000000 0 61100 8 W", "flags \"W\" are not hexadecimal"),
            ],
        },
        Sample {
            name: "disksim-bytes",
            lines: &["0.000 0 1048576 4194304 1", "0.120 3 524288 16384 0"],
            records: vec![
                at(0, Read, 0, 1 << 20, 4 << 20),
                at(120_000, Write, 3, 512 << 10, 16 << 10),
            ],
            bad: &[
                ("0.000 0 1048576", "3 columns, not 5"),
                ("0.000 0 -1048576 4096 0", "offset -1048576 is negative"),
                (
                    "0.000 0 99999999999999999999 4096 0",
                    "offset 99999999999999999999 is too large",
                ),
                ("0.000 0 1048576 0 0", "length is 0"),
                (
                    "0.000 0 61100 4096 0",
                    "offset 61100 is not a multiple of 512 bytes",
                ),
                (
                    "0.000 0 1048576 4096 2",
                    "operation \"2\" is neither 1 (read) nor 0 (write)",
                ),
            ],
        },
        Sample {
            name: "mqsim",
            lines: &["938513000 4 264719034 16 0", "938828000 3 0 1 1"],
            records: vec![
                at(938_513_000, Write, 4, 264_719_034 * 512, 8192),
                at(938_828_000, Read, 3, 0, 512),
            ],
            bad: &[
                ("938513000 4 264719034", "3 columns, not 5"),
                ("938513000 4 -1 16 0", "sector -1 is negative"),
                (
                    "938513000 4 99999999999999999 16 0",
                    "sector 99999999999999999 is too large",
                ),
                ("938513000 4 264719034 0 0", "length is 0"),
                (
                    "938513000 4 264719034 16 2",
                    "operation \"2\" is neither 1 (read) nor 0 (write)",
                ),
                ("1.5 4 264719034 16 0", "time \"1.5\" is not a whole number"),
            ],
        },
        Sample {
            name: "systor",
            lines: &[
                "Timestamp,Response,IOType,LUN,Offset,Size",
                "1455592983.507722000,0.000146,R,3,1474215424,4096",
                "1455592983.6,,W,0,0,512",
            ],
            records: vec![
                at(1_455_592_983_507_722_000, Read, 3, 1_474_215_424, 4096),
                at(1_455_592_983_600_000_000, Write, 0, 0, 512),
            ],
            bad: &[
                ("1455592983.507722000,0.000146,R,3", "4 columns, not 6"),
                (
                    "1455592983.507722000,0.000146,R,3,-1,4096",
                    "offset -1 is negative",
                ),
                (
                    "1455592983.507722000,0.000146,R,3,18446744073709551616,4096",
                    "offset 18446744073709551616 is too large",
                ),
                ("1455592983.507722000,0.000146,R,3,0,0", "length is 0"),
                (
                    "1455592983.507722000,fast,R,3,0,4096",
                    "response \"fast\" is not a decimal number",
                ),
            ],
        },
        Sample {
            name: "alibaba",
            lines: &[
                "419,W,8792731648,16384,1577808000000046",
                "419,R,0,4096,1577808000000050",
            ],
            records: vec![
                at(1_577_808_000_000_046_000, Write, 419, 8_792_731_648, 16_384),
                at(1_577_808_000_000_050_000, Read, 419, 0, 4096),
            ],
            bad: &[
                ("419,W,8792731648", "3 columns, not 5"),
                ("419,W,-8,16384,1577808000000046", "offset -8 is negative"),
                (
                    "419,W,88888888888888888888,16384,1577808000000046",
                    "offset 88888888888888888888 is too large",
                ),
                ("419,W,8792731648,0,1577808000000046", "length is 0"),
                ("419,2,8792731648,16384,1577808000000046", "operation \"2\""),
            ],
        },
        Sample {
            name: "tencent",
            lines: &["1538323200,4247200,128,1,1058", "1538323199,0,8,0,1063"],
            records: vec![
                at(
                    1_538_323_200_000_000_000,
                    Write,
                    1058,
                    4_247_200 * 512,
                    65_536,
                ),
                at(1_538_323_199_000_000_000, Read, 1063, 0, 4096),
            ],
            bad: &[
                ("1538323200,4247200,128", "3 columns, not 5"),
                ("1538323200,-8,128,1,1058", "offset -8 is negative"),
                (
                    "1538323200,88888888888888888,128,1,1058",
                    "offset 88888888888888888 is too large",
                ),
                ("1538323200,4247200,0,1,1058", "length is 0"),
                (
                    "1538323200,4247200,128,R,1058",
                    "operation \"R\" is neither 0 (read) nor 1 (write)",
                ),
            ],
        },
    ]
}

#[test]
fn every_format_is_read_as_it_is_meant() {
    let samples = samples();
    let names: Vec<_> = samples.iter().map(|sample| sample.name).collect();
    assert_eq!(
        names,
        DIALECTS
            .iter()
            .map(|dialect| dialect.name)
            .collect::<Vec<_>>(),
        "every format has a sample"
    );
    for Sample {
        name,
        lines,
        records,
        ..
    } in samples
    {
        assert_eq!(parse(name, lines).as_ref(), Ok(&records), "{name}");
    }
}

#[test]
fn the_first_line_tells_the_format_and_no_other_accepts_it() {
    for Sample {
        name,
        lines,
        records,
        ..
    } in samples()
    {
        // With and without the header.
        let first = lines
            .iter()
            .take(if lines.len() > records.len() { 2 } else { 1 });
        for line in first.filter(|_| name != "fio").chain(lines.first()) {
            let accepted: Vec<_> = DIALECTS
                .iter()
                .filter(|dialect| dialect.begins(line))
                .map(|d| d.name)
                .collect();
            let both = name == "disksim" || name == "mqsim";
            assert!(
                accepted == [name] || both && accepted.first() == Some(&name),
                "{line}: {accepted:?}"
            );
        }
    }
}

#[test]
fn every_kind_of_bad_line_says_what_is_wrong() {
    for Sample {
        name, lines, bad, ..
    } in samples()
    {
        for (line, part) in bad {
            let all: Vec<_> = lines.iter().take(3).chain([line]).copied().collect();
            let error = parse(name, &all).expect_err(line);
            assert!(error.contains(part), "{name}: {line}: {error}");
        }
    }
}

proptest::proptest! {
    /// Any line is a record, nothing, or an error of one line.
    #[test]
    fn no_line_panics(
        sample in 0..DIALECTS.len(),
        cut in 0..200usize,
        noise in "[-0-9a-zA-Z,;+./ \\t]{0,24}",
        version in proptest::sample::select(vec!["2", "3"]),
    ) {
        let Sample { name, lines, .. } = samples().swap_remove(sample);
        let mut parser = (TraceFormat::find(name).unwrap().parser)();
        let begin = if name == "fio" { format!("fio version {version} iolog") } else { lines[0].to_owned() };
        let _ = parser.line(&begin);
        for line in lines {
            let at = (0..=cut.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap();
            for text in [format!("{}{noise}{}", &line[..at], &line[at..]), format!("{}{noise}", &line[..at]), noise.clone()] {
                if let Err(why) = parser.line(&text).map_err(|error| error.to_string()) {
                    proptest::prop_assert!(!why.is_empty() && why.len() < 300 && !why.contains('\n'), "{}", why);
                }
            }
        }
    }
}

#[test]
fn version_3_of_fio_has_a_time_on_every_line() {
    let log = [
        "fio version 3 iolog",
        "23 f add",
        "188 f open",
        "192 f read 0 4096",
        "10408 g add",
        "10409 g write 45056 512",
        "10410 f close",
    ];
    let expected = vec![
        at(192_000, Op::Read, 0, 0, 4096),
        at(10_409_000, Op::Write, 1, 45_056, 512),
    ];
    assert_eq!(parse("fio", &log), Ok(expected));
    assert_eq!(
        parse("fio", &["fio version 3 iolog", "f add"]).unwrap_err(),
        "time \"f\" is not a whole number"
    );
    assert!(
        parse("fio", &["fio version 4 iolog"])
            .unwrap_err()
            .contains("is not the first line of an iolog")
    );
}

#[test]
fn a_header_is_one_only_in_the_first_line() {
    let header = "time_us,op,offset_bytes,length_bytes";
    assert!(parse("plain", &["1,W,0,512", header]).is_err());
    assert_eq!(
        parse(
            "plain",
            &["Time_us, OP,offset_bytes,length_bytes", "1,W,0,512"]
        )
        .unwrap()
        .len(),
        1
    );
}
