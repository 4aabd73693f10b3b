//! Output on standard output, human-readable or JSON. Colours are for terminals: [`anstream`]
//! leaves them out elsewhere, with `NO_COLOR` and with `TERM=dumb`, and keeps them with
//! `CLICOLOR_FORCE`.

use crate::failure::Failure;
use crate::quote;
use clap::builder::styling::{Style, Styles};
use serde::Serialize;
use serde_json::Value;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Colours of help and errors; answers use the same.
pub const STYLES: Styles = Styles::styled();

/// Maximum columns of a line of text, also without a terminal.
const WIDTH_MOST: usize = 100;
/// Minimum columns for which lines are broken.
const WIDTH_LEAST: usize = 40;

/// Returns the columns of a line of text: those of `COLUMNS` or the terminal, 40 to 100. A longer
/// word has a line of its own.
pub fn width() -> usize {
    told_width().unwrap_or(WIDTH_MOST)
}

/// Returns the width of the terminal or of `COLUMNS`; `None` without either.
fn told_width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok();
    let told = told
        .and_then(|text| text.parse().ok())
        .filter(|columns| *columns > 0);
    let terminal = || {
        let (columns, _) = terminal_size::terminal_size_of(io::stdout())?;
        Some(usize::from(columns.0)).filter(|columns| *columns > 0)
    };
    let columns = told.or_else(terminal)?;
    Some(columns.clamp(WIDTH_LEAST, WIDTH_MOST))
}

/// Meaning of a word in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All is well.
    Good,
    /// Someone has to look at it.
    Warning,
    /// Something failed.
    Bad,
    /// No judgement.
    Plain,
}

impl Tone {
    /// Returns the tone of the state of an instance.
    pub fn of_state(state: &str) -> Tone {
        match state {
            "serving" => Tone::Good,
            "failed" | "disk-full" | "host-error" | "unreadable" => Tone::Bad,
            "clean" | "in use" | "of another user" => Tone::Plain,
            _ => Tone::Warning,
        }
    }

    /// Returns the text in the colour of this tone.
    pub fn paint(self, text: &str) -> String {
        let style = match self {
            Tone::Good => *STYLES.get_valid(),
            Tone::Warning => *STYLES.get_invalid(),
            Tone::Bad => *STYLES.get_error(),
            Tone::Plain => Style::new(),
        };
        format!("{style}{text}{style:#}")
    }
}

/// Breaks lines that are longer than [`width`] between words. The rest is aligned with the text
/// behind the line's last gap, if that gap is in the first half; else it is indented.
pub fn wrapped(text: &str) -> String {
    wrapped_to(text, width())
}

/// Wraps a text on a terminal. Elsewhere, lines stay whole: logs and scripts search them.
pub fn wrapped_on_terminal(text: &str) -> String {
    told_width().map_or_else(|| text.into(), |width| wrapped_to(text, width))
}

/// As [`wrapped`], with this width.
pub fn wrapped_to(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let begin = line.chars().take_while(|c| *c == ' ').count();
        let characters: Vec<char> = line.chars().take(width / 2).collect();
        let gap = (begin + 2..characters.len())
            .rev()
            .find(|at| characters[*at - 2..*at] == [' ', ' '] && characters[*at] != ' ');
        let hang = gap.unwrap_or(begin + 4);
        let mut used = 0;
        // A gap belongs to the word behind it.
        for (i, word) in words(line).into_iter().enumerate() {
            let length = word.chars().count();
            if i > 0 && used + length > width && used > hang {
                let word = word.trim_start();
                out += &format!("\n{:hang$}{word}", "");
                used = hang + word.chars().count();
            } else {
                out += word;
                used += length;
            }
        }
        out.push('\n');
    }
    out
}

/// Returns the words of a line, each with the spaces before it.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut from, mut inside) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        if c == ' ' && inside {
            words.push(&line[from..at]);
            from = at;
        }
        inside = c != ' ';
    }
    words.push(&line[from..]);
    words
}

/// Returns the rows of a table with their columns aligned: numbers to the right. Columns that do
/// not fit a line of `width` continue on another one, indented: a cell is never broken. `paint`
/// colours a cell, given its row and column.
pub fn table<const N: usize>(
    rows: &[[String; N]],
    width: usize,
    paint: impl Fn(usize, usize) -> Tone,
) -> String {
    let widest = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(widest).collect();
    let is_number = |column: usize| {
        let mut cells = rows.iter().skip(1).map(|row| row[column].as_str());
        cells.all(|cell| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit()))
    };
    let lines = lines_of(&widths, width);
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (place, columns) in lines.iter().enumerate() {
            if place > 0 {
                text += &" ".repeat(INDENT);
            }
            for column in columns.clone() {
                let cell = &row[column];
                let space = " ".repeat(widths[column] - cell.chars().count());
                let cell = paint(number, column).paint(cell);
                text += &match (column + 1 == columns.end, is_number(column)) {
                    (true, true) => format!("{space}{cell}\n"),
                    (true, false) => format!("{cell}\n"),
                    (false, true) => format!("{space}{cell}  "),
                    (false, false) => format!("{cell}{space}  "),
                };
            }
        }
    }
    text
}

/// Indentation of a row's further lines.
const INDENT: usize = 4;

/// Returns the columns of each line: as many as fit, at least one.
fn lines_of(widths: &[usize], width: usize) -> Vec<Range<usize>> {
    let (mut lines, mut from, mut used) = (Vec::new(), 0, 0);
    for (column, wide) in widths.iter().enumerate() {
        if column > from && used + 2 + wide > width {
            lines.push(from..column);
            (from, used) = (column, INDENT + wide);
        } else {
            used += wide + if column > from { 2 } else { 0 };
        }
    }
    lines.push(from..widths.len());
    lines
}

/// Writes text for people to standard output, with its colours if that is a terminal.
///
/// # Errors
/// Standard output is not writable.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let styles = [STYLES.get_valid(), STYLES.get_invalid(), STYLES.get_error()];
    let mut sequences: Vec<_> = styles
        .iter()
        .map(|style| style.render().to_string())
        .collect();
    sequences.extend(styles.iter().map(|style| style.render_reset().to_string()));
    write(
        &mut anstream::stdout().lock(),
        &quote::plain(text, &sequences),
    )
}

/// Writes to standard output; a closed pipe is not an error.
///
/// # Errors
/// Standard output is not writable.
pub fn print(text: &str) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), &quote::plain(text, &[]))
}

fn write(out: &mut impl Write, text: &str) -> Result<(), Failure> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("standard output", &error))
        }
        _ => Ok(()),
    }
}

/// Checks before a run that a file of results can be written, and leaves no file behind. A pipe is
/// not opened: its reader would see an end of file.
///
/// # Errors
/// It cannot be written; the message names the option that asks for it.
pub fn writable(option: &str, path: &Path) -> Result<(), Failure> {
    if std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo()) {
        return Ok(());
    }
    let is_new = path.symlink_metadata().is_err();
    let file = File::options().append(true).create(true).open(path);
    file.map_err(|error| unwritable(option, path, &error))?;
    if is_new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// Returns the failure for a file that an option asks for and that the host refuses to write.
pub fn unwritable(option: &str, path: &Path, error: &io::Error) -> Failure {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let what = format!("{option} {}", path.display());
    let folder_name = folder.display();
    if path.is_dir() {
        return Failure::failed(format!("{what}: this is a folder; name a file in it"));
    }
    if error.kind() == io::ErrorKind::NotFound && !folder.exists() {
        return Failure::failed(format!(
            "{what}: there is no folder {folder_name}; create it, or name another file"
        ));
    }
    if error.kind() == io::ErrorKind::NotADirectory {
        return Failure::failed(format!(
            "{what}: {folder_name} is not a folder; name another file"
        ));
    }
    let failure = Failure::io(what, error);
    Failure::new(failure.exit, format!("{failure}; name another file"))
}

/// Refuses a file of results that is an input, which it would overwrite.
///
/// # Errors
/// Both paths lead to the same file.
pub fn spares(option: &str, path: &Path, (input, is): (&Path, &str)) -> Result<(), Failure> {
    let target = |path: &Path| path.canonicalize().ok();
    if target(path).is_none_or(|path| target(input) != Some(path)) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{option} {}: would overwrite {is}; name another file",
        path.display()
    )))
}

/// Returns a text without UTF-8's byte order mark, which some editors and spreadsheets write first.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns a number of things in words: `1 fault`, `2 faults`.
pub fn counted(number: u64, thing: &str) -> String {
    let ending = match number {
        1 => "",
        _ if thing.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {thing}{ending}")
}

/// Prints a JSON object and a newline. Its `"schema": "ftld.WHAT/1"` names the format; the number
/// grows with each incompatible change.
///
/// # Errors
/// Standard output is not writable.
pub fn print_json(what: &str, value: impl Serialize) -> Result<(), Failure> {
    print(&format!("{:#}\n", with_schema(what, value)))
}

/// Returns a JSON object with the name of its format.
pub fn with_schema(what: &str, value: impl Serialize) -> Value {
    let schema = format!("ftld.{what}/1");
    serde_json::to_value(Document { schema, value }).expect("an answer is plain data")
}

/// An object with the name of its format.
#[derive(Serialize)]
struct Document<T> {
    schema: String,
    #[serde(flatten)]
    value: T,
}

/// An answer with the name of its instance.
#[derive(Serialize)]
pub struct OfInstance<'a, T> {
    /// The instance.
    pub name: &'a str,
    #[serde(flatten)]
    /// The answer.
    pub answer: T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_break_between_words_below_their_text() {
        let words = "word ".repeat(40);
        for width in [40, 60, 80, 100] {
            let text = wrapped_to(&format!("  --set key=…  {words}\n\n  short  one\n"), width);
            let lines = text.lines().map(|line| line.chars().count());
            assert!(lines.max() <= Some(width), "{text}");
        }
        let text = wrapped_to(&format!("  --set key=…  {words}\n\n  short  one\n"), 100);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("  --set key=…  word word"), "{text}");
        assert!(lines[1].starts_with(&format!("{:15}word", "")), "{text}");
        assert_eq!(lines[lines.len() - 2..], ["", "  short  one"]);
        let joined: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(joined.iter().filter(|word| **word == "word").count(), 40);
        let path = format!("  image  /{}", "x".repeat(200));
        assert_eq!(wrapped_to(&path, 100), path + "\n", "a word is not broken");
    }

    #[test]
    fn columns_are_aligned_and_continue_whole_on_a_line_of_their_own() {
        let rows = [
            ["NAME", "STATE", "SIZE", "TARGET"],
            ["a", "serving", "8 MiB", "-"],
            ["longer", "stopped", "16 MiB", "nbd://127.0.0.1:10809/x"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned));
        let shown = |width| {
            let painted = table(&rows, width, |row, column| match (row, column) {
                (1.., 1) => Tone::of_state(&rows[row][column]),
                _ => Tone::Plain,
            });
            assert!(painted.contains("\u{1b}["), "{painted:?}");
            anstream::adapter::strip_str(&painted).to_string()
        };
        assert_eq!(
            shown(48),
            "NAME    STATE      SIZE  TARGET\n\
             a       serving   8 MiB  -\n\
             longer  stopped  16 MiB  nbd://127.0.0.1:10809/x\n"
        );
        assert_eq!(
            shown(47),
            "NAME    STATE      SIZE\n    TARGET\n\
             a       serving   8 MiB\n    -\n\
             longer  stopped  16 MiB\n    nbd://127.0.0.1:10809/x\n"
        );
        let narrow = shown(16);
        for line in narrow.lines().filter(|line| !line.contains("nbd:")) {
            assert!(line.chars().count() <= 16, "{narrow}");
        }
    }

    #[test]
    fn one_thing_is_no_plural() {
        let counted = [0, 1, 2].map(|number| counted(number, "page"));
        assert_eq!(counted, ["0 pages", "1 page", "2 pages"]);
    }

    #[test]
    fn states_have_their_colours() {
        assert_eq!(Tone::of_state("serving"), Tone::Good);
        assert_eq!(Tone::of_state("paused"), Tone::Warning);
        assert_eq!(Tone::of_state("failed"), Tone::Bad);
        assert_eq!(Tone::Plain.paint("clean"), "clean");
        let painted = Tone::Bad.paint("failed");
        assert!(
            painted.len() > 6 && anstream::adapter::strip_str(&painted).to_string() == "failed"
        );
    }
}
