//! Durations as a user writes them.

use crate::failure::Failure;

/// Parses a duration such as `500us`, `50ms`, `1.5m` or `90` (seconds) into seconds. The caller
/// checks its limits; the result may be negative or infinite.
///
/// # Errors
/// The text is no number, or its unit is unknown.
pub fn parse_seconds(text: &str) -> Result<f64, Failure> {
    let wrong = |text, what| format!("{text:?} is no {what}; write 500us, 50ms, 30s or 5m");
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        unit => return Err(Failure::usage(wrong(unit, "unit of time"))),
    };
    let number = number.trim().parse::<f64>().ok();
    number
        .map(|number| number * seconds)
        .ok_or_else(|| Failure::usage(wrong(text, "duration")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_unit_is_a_duration_and_seconds_need_none() {
        let good = [
            "500us", "50ms", "90", "90s", "10 s", "1.5m", "10min", "-1s", "0",
        ];
        let seconds = [5e-4, 0.05, 90.0, 90.0, 10.0, 90.0, 600.0, -1.0, 0.0];
        assert_eq!(good.map(|text| parse_seconds(text).unwrap()), seconds);
        for wrong in ["", "s", "2h", "5 H", "soon", "1,5s", "30 sec"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
