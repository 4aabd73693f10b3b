//! Parsers of columns and numbers, with errors that name them.

use crate::convert::to_u32;
use crate::error::ValueError;
use crate::record::{ADDRESS_MAX, LENGTH_MAX, Op, Record};

/// Bytes per sector, in all formats with sectors.
pub(crate) const SECTOR: u64 = 512;
const NS_PER_S: u64 = 1_000_000_000;

/// Splits a line into exactly `N` columns at commas.
pub(crate) fn columns<const N: usize>(line: &str) -> Result<[&str; N], ValueError> {
    // Columns are short: a search of its own for each comma costs more than this loop.
    let mut begin = 0;
    let ends = line.bytes().enumerate();
    let ends = ends.filter_map(|(at, byte)| (byte == b',').then_some(at));
    exactly(ends.chain([line.len()]).map(|end| {
        let column = &line[begin..end];
        begin = end + 1;
        column.trim()
    }))
}

/// Splits a line into exactly `N` columns at blanks.
pub(crate) fn words<const N: usize>(line: &str) -> Result<[&str; N], ValueError> {
    exactly(line.split_ascii_whitespace())
}

fn exactly<'a, const N: usize>(
    parts: impl Iterator<Item = &'a str>,
) -> Result<[&'a str; N], ValueError> {
    let (mut columns, mut found) = ([""; N], 0);
    for part in parts {
        if let Some(column) = columns.get_mut(found) {
            *column = part;
        }
        found += 1;
    }
    if found == N {
        return Ok(columns);
    }
    let plural = if found == 1 { "" } else { "s" };
    Err(ValueError::Misfit(format!(
        "{found} column{plural}, not {N}"
    )))
}

/// Parses a whole, nonnegative number.
pub(crate) fn number(name: &'static str, text: &str) -> Result<u64, ValueError> {
    text.parse()
        .map_err(|_| wrong_number(name, text, "is not a whole number"))
}

fn wrong_number(name: &'static str, text: &str, fault: &'static str) -> ValueError {
    let digits = text.trim_start_matches(['-', '+']);
    let are_all = |of: &[u8]| digits.bytes().all(|byte| of.contains(&byte));
    match text {
        "" => ValueError::Missing(name),
        _ if text.starts_with('-') && !digits.is_empty() && are_all(b"0123456789.") => {
            ValueError::Number(name, shown(text), "negative")
        }
        _ if are_all(b"0123456789") => ValueError::too_large(name, text),
        _ => ValueError::column(name, text, fault),
    }
}

/// Shortens a text so that a message stays one line.
pub(crate) fn shown(text: &str) -> String {
    const LONGEST: usize = 48;
    let mut short: String = text.chars().take(LONGEST).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Converts a count of units of `unit_bytes` into bytes.
pub(crate) fn bytes(name: &'static str, text: &str, unit_bytes: u64) -> Result<u64, ValueError> {
    number(name, text)?
        .checked_mul(unit_bytes)
        .ok_or_else(|| ValueError::too_large(name, text))
}

/// Converts a decimal number of units of `unit_ns` into whole nanoseconds, rounded down.
pub(crate) fn time(name: &'static str, text: &str, unit_ns: u64) -> Result<u64, ValueError> {
    let wrong = || wrong_number(name, text, "is not a decimal number");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    assert!(unit_ns > 0, "{name} in units of no time");
    // Only digits are left: a number that cannot be parsed is too large.
    let whole = whole.parse::<u64>().ok();
    let whole = whole.and_then(|whole| whole.checked_mul(unit_ns));
    let fraction = &fraction[..fraction.len().min(18)];
    let rest = match fraction {
        "" => Some(0),
        _ => {
            let value = u128::from(fraction.parse::<u64>().map_err(|_| wrong())?);
            let scale = 10u128.pow(to_u32(fraction.len()));
            u64::try_from(value * u128::from(unit_ns) / scale).ok()
        }
    };
    whole
        .zip(rest)
        .and_then(|(whole, rest)| whole.checked_add(rest))
        .ok_or_else(|| ValueError::too_large(name, text))
}

/// Parses decimal seconds.
pub(crate) fn seconds(name: &'static str, text: &str) -> Result<u64, ValueError> {
    time(name, text, NS_PER_S)
}

/// Parses `R`, `W`, `read`, `write`, or a trim.
pub(crate) fn letter(text: &str) -> Result<Op, ValueError> {
    const NAMES: [(&str, Op); 8] = [
        ("r", Op::Read),
        ("w", Op::Write),
        ("read", Op::Read),
        ("write", Op::Write),
        ("t", Op::Trim),
        ("d", Op::Trim),
        ("trim", Op::Trim),
        ("discard", Op::Trim),
    ];
    let found = NAMES
        .iter()
        .find(|(name, _)| text.eq_ignore_ascii_case(name));
    found
        .map(|(_, op)| *op)
        .ok_or_else(|| ValueError::column("operation", text, "is neither a read nor a write"))
}

/// Parses an operation encoded as one digit each for read and write.
pub(crate) fn digit(text: &str, read: &str, write: &str) -> Result<Op, ValueError> {
    match text {
        _ if text == read => Ok(Op::Read),
        _ if text == write => Ok(Op::Write),
        _ => Err(ValueError::Misfit(format!(
            "operation {:?} is neither {read} (read) nor {write} (write)",
            shown(text)
        ))),
    }
}

/// Builds a record, checking its extent.
pub(crate) fn record(
    time_ns: u64,
    op: Op,
    device: u64,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<Record, ValueError> {
    let end = offset_bytes.checked_add(length_bytes);
    let fault = if length_bytes == 0 {
        "length is 0".into()
    } else if op != Op::Trim && length_bytes > LENGTH_MAX {
        format!("length of {length_bytes} bytes is more than 1 GiB")
    } else if end.is_none_or(|end| end > ADDRESS_MAX) {
        format!("{length_bytes} bytes at {offset_bytes} reach beyond 1 PiB")
    } else {
        return Ok(Record {
            time_ns,
            op,
            device,
            offset_bytes,
            length_bytes,
        });
    };
    Err(ValueError::Misfit(fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(
            seconds("t", "1455592983.507722001"),
            Ok(1_455_592_983_507_722_001)
        );
        assert_eq!(seconds("t", "0.0000000019"), Ok(1));
        assert_eq!(seconds("t", "7."), Ok(7_000_000_000));
        assert_eq!(time("t", "2.5", 1_000_000), Ok(2_500_000));
        for wrong in ["", ".", "-1", "1e3", "nan", "1.2.3", "99999999999999999999"] {
            assert!(seconds("t", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_say_what_is_wrong_with_them() {
        assert_eq!(
            number("offset", "-4096").unwrap_err().to_string(),
            "offset -4096 is negative"
        );
        assert_eq!(
            number("offset", "99999999999999999999")
                .unwrap_err()
                .to_string(),
            "offset 99999999999999999999 is too large"
        );
        assert_eq!(
            number("offset", "0x10").unwrap_err().to_string(),
            "offset \"0x10\" is not a whole number"
        );
        assert_eq!(
            number("offset", "").unwrap_err().to_string(),
            "offset is missing"
        );
        assert_eq!(
            bytes("sector", "36028797018963968", 512)
                .unwrap_err()
                .to_string(),
            "sector 36028797018963968 is too large"
        );
        assert!(
            number("offset", &"x".repeat(5000))
                .unwrap_err()
                .to_string()
                .len()
                < 120
        );
    }

    #[test]
    fn extents_end_somewhere() {
        assert!(record(0, Op::Write, 0, ADDRESS_MAX - 512, 512).is_ok());
        assert_eq!(
            record(0, Op::Write, 0, ADDRESS_MAX - 511, 512)
                .unwrap_err()
                .to_string(),
            format!("512 bytes at {} reach beyond 1 PiB", ADDRESS_MAX - 511)
        );
        assert!(record(0, Op::Write, 0, u64::MAX, 1).is_err());
        assert!(
            record(0, Op::Read, 0, 0, LENGTH_MAX + 1)
                .unwrap_err()
                .to_string()
                .contains("more than 1 GiB")
        );
        assert!(record(0, Op::Trim, 0, 0, LENGTH_MAX + 1).is_ok());
        assert_eq!(
            record(0, Op::Trim, 0, 0, 0).unwrap_err().to_string(),
            "length is 0"
        );
    }
}
