//! Other readings of a trace's first lines.

use super::TraceFormat;
use crate::fields::SECTOR;
use crate::size::show_size;

/// Returns the two readings of the first request, if the sectors of these lines may be bytes: every
/// offset and every length is a multiple of 512. Bytes always are, sectors seldom.
pub(super) fn sectors_or_bytes(format: &TraceFormat, lines: &[&str]) -> Option<String> {
    const GRAIN: u64 = SECTOR * SECTOR;
    let mut parser = (format.parser)();
    let mut first = None;
    for line in lines {
        match parser.line(line) {
            Ok(Some(record)) => {
                let numbers = [record.offset_bytes, record.length_bytes];
                if !numbers.iter().all(|number| number.is_multiple_of(GRAIN)) {
                    return None;
                }
                first.get_or_insert(record);
            }
            // A header names the columns.
            Ok(None) => return None,
            // Reported when it is its turn.
            Err(_) => break,
        }
    }
    let record = first?;
    let shown = |unit: u64| {
        let (length, offset) = (record.length_bytes / unit, record.offset_bytes / unit);
        format!("{} at {}", show_size(length), show_size(offset))
    };
    let (name, sectors, bytes) = (format.name, shown(1), shown(SECTOR));
    Some(format!(
        "as {name}, in 512-byte sectors, the first request is {sectors}; in bytes, {bytes}"
    ))
}

/// Returns the first and the `other` column of the first line, if the first may be the time instead
/// of the other: its numbers grow. A header names the columns.
pub(super) fn swapped<'a>(lines: &[&'a str], other: usize) -> Option<(&'a str, &'a str)> {
    let column = |line: &&'a str, at: usize| line.split(',').nth(at).map(str::trim);
    let times: Option<Vec<f64>> = lines
        .iter()
        .map(|line| column(line, 0)?.parse().ok())
        .collect();
    let times = times?;
    let grows = times.is_sorted() && (times.len() == 1 || times.first() < times.last());
    let first = lines.first()?;
    grows.then_some((column(first, 0)?, column(first, other)?))
}
