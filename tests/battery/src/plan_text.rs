//! Plans as text that a person can read and edit: JSON, one value per line.
//!
//! The first line is the head, such as a device; each line after it is a step. Empty lines and
//! lines that begin with `#` are ignored. Fields that have their default are left out.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Debug};

/// Writes a plan.
///
/// # Errors
/// The formatter's.
pub fn write<S: Serialize + Debug>(
    f: &mut fmt::Formatter,
    head: &(impl Serialize + Debug),
    steps: &[S],
) -> fmt::Result {
    writeln!(f, "{}", line(head))?;
    let mut steps = steps.iter();
    steps.try_for_each(|step| writeln!(f, "{}", line(step)))
}

/// A step or a head as one line. Without the feature `plans`, a line that nobody can read again.
pub fn line(value: &(impl Serialize + Debug)) -> String {
    #[cfg(feature = "plans")]
    let text = serde_json::to_string(value).expect("plans consist of names, numbers and lists");
    #[cfg(not(feature = "plans"))]
    let text = format!("{value:?}");
    text
}

/// Reads the output of [`write()`]: head and steps.
///
/// # Errors
/// They name the line, the wrong word, and the valid ones; or the feature `plans`, without which no
/// plan can be read.
pub fn read<H: DeserializeOwned, S: DeserializeOwned>(text: &str) -> Result<(H, Vec<S>), String> {
    let lines = text.lines().zip(1..);
    let mut lines = lines.filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
    let head = lines
        .next()
        .ok_or("the plan is empty: its first line is the device")?;
    Ok((value(head)?, lines.map(value).collect::<Result<_, _>>()?))
}

#[cfg(feature = "plans")]
fn value<T: DeserializeOwned>((line, number): (&str, u32)) -> Result<T, String> {
    serde_json::from_str(line).map_err(|error| {
        let why = error.to_string();
        let why = why.rsplit_once(" at line ").map_or(&*why, |(why, _)| why);
        let hint = if error.is_data() {
            ""
        } else {
            "; a plan has one JSON value per line (docs/TESTING.md)"
        };
        format!("line {number}, column {}: {why}{hint}", error.column())
    })
}

#[cfg(not(feature = "plans"))]
fn value<T: DeserializeOwned>(_: (&str, u32)) -> Result<T, String> {
    Err("this program was built without the feature `plans` of ftld-battery".into())
}

/// Whether a field can be left out.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
