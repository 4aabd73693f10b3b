//! Human-readable sizes.

use crate::convert::{narrow, to_f64, to_u32};
use crate::error::ValueError;

const UNITS: [(&str, u64); 4] = [("k", 10), ("m", 20), ("g", 30), ("t", 40)];

/// Parses `4096`, `512K`, `1GiB` (powers of 1024) or `1GB` (powers of 1000) into bytes. Accepts
/// fractions such as `1.5GiB` if they are whole bytes.
///
/// # Errors
/// The text is not a size, or not a whole number of bytes.
pub fn parse_size(text: &str) -> Result<u64, ValueError> {
    let form = "a size; write for example 512MiB, 1GiB or 1.5TiB";
    let wrong = || ValueError::Text(text.into(), form);
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit_bytes(unit.trim()).ok_or_else(wrong)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.len() > 9 {
        return Err(wrong());
    }
    let scale = 10u128.pow(to_u32(fraction.len()));
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| wrong())?;
    let bytes = digits.checked_mul(u128::from(unit)).ok_or_else(wrong)?;
    if !bytes.is_multiple_of(scale) {
        return Err(ValueError::Text(text.into(), "a whole number of bytes"));
    }
    u64::try_from(bytes / scale).map_err(|_| wrong())
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    if matches!(unit.as_str(), "" | "b") {
        return Some(1);
    }
    let (_, shift) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
    match &unit[1..] {
        "" | "ib" => Some(1 << *shift),
        "b" => Some(1000u64.pow(narrow(*shift) / 10)),
        _ => None,
    }
}

/// Whether the unit of a size is a power of 1000, as in `1GB`.
pub fn is_decimal(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    let mut units = UNITS.iter();
    units.any(|(name, _)| text.ends_with(&format!("{name}b")))
}

/// Formats bytes in the largest binary unit with at most three digits before the point.
pub fn show_size(bytes: u64) -> String {
    let names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let step = (0..names.len() - 1)
        .find(|&i| bytes >> (10 * (i + 1)) == 0)
        .unwrap_or(names.len() - 1);
    assert!(step < names.len(), "a size has a unit");
    let unit = 1u64 << (10 * step);
    if bytes.is_multiple_of(unit) {
        return format!("{} {}", bytes / unit, names[step]);
    }
    format!("{:.2} {}", to_f64(bytes) / to_f64(unit), names[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_sizes_are_bytes() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("1GiB", 1 << 30),
            ("1g", 1 << 30),
            ("1.5 MiB", 3 << 19),
            ("2KB", 2000),
            ("3TB", 3_000_000_000_000),
            ("0.5K", 512),
            ("7 B", 7),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "GiB",
            "1 XiB",
            "-1",
            "1.",
            ".5G",
            "0.3",
            "99999999999TiB",
            "1e9",
            "1GiBB",
            "1..2G",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_of_1000_are_known() {
        let units = ["1GB", "2 kb", "3.5TB", "1GiB", "1g", "4096", "7 B"];
        let decimal = units.map(is_decimal);
        assert_eq!(decimal, [true, true, true, false, false, false, false]);
    }

    #[test]
    fn sizes_are_shown_exactly_where_they_are_round() {
        assert_eq!(show_size(1 << 30), "1 GiB");
        assert_eq!(show_size((1 << 30) + (1 << 29)), "1.50 GiB");
        assert_eq!(
            [show_size(0), show_size(1023), show_size(u64::MAX)],
            ["0 B", "1023 B", "16.00 EiB"]
        );
    }
}
