//! `ftld inspect` of a recording: its head, and its entries, by kind or one by one.

use super::InspectOptions;
use ftld_kit::convert::to_f64;
use ftld_kit::failure::Failure;
use ftld_kit::output::{print, print_json};
use ftld_kit::path_json;
use ftld_kit::size::show_size;
use ftld_traces::recording::{Entry, Kind, Reader};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Counts of a kind.
#[derive(Default)]
struct Count {
    entries: u64,
    bytes: u64,
    failed: u64,
}

fn name(entry: &Entry) -> &'static str {
    match entry.kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Trim => "trim",
        Kind::WriteZeroes => "write_zeroes",
        Kind::Flush if entry.fua => "fua",
        Kind::Flush => "flush",
        Kind::Mark => "mark",
        Kind::Base => "content",
    }
}

/// Bytes of a list that are printed at once.
const PART_BYTES: usize = 64 << 10;

/// Prints every entry: its number, as in the cases of `ftld crashes`, and what it asked for.
fn list(reader: &mut Reader, json: bool) -> Result<(), Failure> {
    let mut text = String::new();
    for (number, entry) in (1u64..).zip(reader) {
        let entry = entry.map_err(Failure::failed)?;
        let mark = (entry.kind == Kind::Mark).then(|| String::from_utf8_lossy(&entry.data));
        if json {
            let line = json!({
                "entry": number, "kind": name(&entry), "offset": entry.offset, "length": entry.length,
                "errno": entry.errno, "begin_ns": entry.begin.ns, "end_ns": entry.end.ns, "mark": mark,
            });
            text += &format!("{line}\n");
        } else {
            let what = match &mark {
                Some(mark) => format!("{mark:?}"),
                None if entry.length == 0 => String::new(),
                None => format!("{} bytes at {}", entry.length, entry.offset),
            };
            let failed = match entry.errno {
                0 => String::new(),
                errno => format!(
                    ", failed: {}",
                    std::io::Error::from_raw_os_error(errno.into())
                ),
            };
            let (seconds, kind) = (to_f64(entry.end.ns) / 1e9, name(&entry));
            let line = format!("{number:>9}  {seconds:>10.6} s  {kind:<12}  {what}{failed}");
            text += &(line.trim_end().to_owned() + "\n");
        }
        if text.len() >= PART_BYTES {
            print(&text)?;
            text.clear();
        }
    }
    print(&text)
}

/// Prints a recording; one without its end mark up to its last whole chunk.
///
/// # Errors
/// The recording cannot be read, or standard output cannot be written.
pub(super) fn inspect(path: &Path, wanted: &InspectOptions) -> Result<(), Failure> {
    let of_image = wanted.blocks || wanted.page.is_some() || wanted.lpn.is_some() || wanted.toml;
    if of_image {
        return Err(Failure::usage(format!(
            "{}: a recording has no blocks or pages; leave --blocks, --page, --lpn and --toml out",
            path.display()
        )));
    }
    let mut reader = Reader::open(path, true).map_err(Failure::failed)?;
    if wanted.entries {
        return list(&mut reader, wanted.json);
    }
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    let mut ns = 0;
    for entry in reader.by_ref() {
        let entry = entry.map_err(Failure::failed)?;
        let count = counts.entry(name(&entry)).or_default();
        count.entries += 1;
        count.bytes += if entry.errno == 0 { entry.length } else { 0 };
        count.failed += u64::from(entry.errno != 0);
        ns = ns.max(entry.end.ns);
    }
    let (head, seconds) = (reader.head(), to_f64(ns) / 1e9);
    if wanted.json {
        let count = |(name, count): (&&str, &Count)| {
            let Count {
                entries,
                bytes,
                failed,
            } = count;
            let value = json!({"entries": entries, "bytes": bytes, "failed": failed});
            ((*name).to_owned(), value)
        };
        let entries: serde_json::Map<_, _> = counts.iter().map(count).collect();
        let value = json!({"recording": path_json::shown(path), "head": head, "entries": entries, "seconds": seconds, "cut_off": reader.was_cut_off()});
        return print_json("inspect-recording", value);
    }
    let mut text = format!(
        "{}: a recording of ftld {}, {seconds:.1} s",
        path.display(),
        head.program
    );
    text += if reader.was_cut_off() {
        ", without its end mark\n"
    } else {
        "\n"
    };
    let data = if head.has_data { "with" } else { "without" };
    text += &format!("  device     {}, {data} data\n", show_size(head.size));
    if let Some(flash) = &head.flash {
        let params: Vec<_> = flash
            .params
            .iter()
            .map(|(k, v)| format!("{k}={v}"))
            .collect();
        text += &format!("  scheme     {} {}", flash.scheme, params.join(" "));
        text = text.trim_end().to_owned() + "\n";
    }
    if let Some(cache) = &head.write_cache {
        let (size, model) = (show_size(cache.bytes), &cache.model);
        text += &format!("  cache      {size}, {model}\n");
    }
    for (name, count) in &counts {
        text += &format!("  {name:<12} {:>10}", count.entries);
        if count.bytes > 0 {
            text += &format!("  {}", show_size(count.bytes));
        }
        if count.failed > 0 {
            text += &format!(", {} failed", count.failed);
        }
        text += "\n";
    }
    print(&text)
}
