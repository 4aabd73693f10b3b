//! Programs of other packages.

use ftld_kit::failure::{Exit, Failure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that the PATH of a user may lack.
const OF_SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Returns the path of a program.
///
/// # Errors
/// There is none; the message names Debian's package.
pub(super) fn find(name: &str, package: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(OF_SYSTEM.map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file()).ok_or_else(|| {
        let what = format!("there is no {name}: `apt install {package}`");
        Failure::new(Exit::Failed, what)
    })
}

/// Runs a program to its end.
///
/// # Errors
/// It fails; the message has the first line that it wrote.
pub(super) fn run(mut command: Command, name: &str) -> Result<(), Failure> {
    output(&mut command, name).map(drop)
}

/// Runs a program to its end; returns what it printed.
///
/// # Errors
/// As [`run`].
pub(super) fn output(command: &mut Command, name: &str) -> Result<String, Failure> {
    let out = command
        .output()
        .map_err(|error| Failure::io(name, &error))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() {
        return Ok(text(&out.stdout));
    }
    let said = text(&out.stderr) + &text(&out.stdout);
    let first = said.lines().map(str::trim).find(|line| !line.is_empty());
    let why = first.map_or_else(|| out.status.to_string(), str::to_owned);
    let why = why.strip_prefix(&format!("{name}: ")).unwrap_or(&why);
    Err(Failure::failed(format!("{name}: {why}")))
}

/// Returns the last lines of a file that a program wrote.
pub(super) fn last_lines(file: &Path, count: usize) -> String {
    let text = std::fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
