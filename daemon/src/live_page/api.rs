//! JSON for the live page besides `/status`: constant facts, the block map, the newest events, the
//! last ten minutes, other instances.
//!
//! Columns of a map are integers of one or two bytes, little-endian, in base64: at most 4096 cells
//! are some tens of KiB, however large the device is.

use super::PageSource;
use super::neighbours::Neighbour;
use super::page::PAGE;
use crate::load::{Load, Pattern, Setting};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ftl_core::schemes::Scheme;
use ftl_core::{BlockUse, Event, EventKind};
use ftld_device::volume::{CELLS_MAX, Cell, parse_ranges};
use ftld_kit::convert::index;
use ftld_kit::failure::{Exit, Failure};
use hyper::StatusCode;
use nand_model::Cause;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// Maximum of events in one answer.
const EVENTS_MAX: usize = 500;

/// Time for a look at places: half of a connection's.
const LOOK: Duration = Duration::from_secs(1);

/// Returns the number in `since=NUMBER`.
pub(crate) fn since(query: &str) -> Option<u64> {
    query
        .split('&')
        .find_map(|pair| pair.strip_prefix("since="))?
        .parse()
        .ok()
}

/// Returns the facts that are constant while the instance runs.
pub(crate) fn device(observed: &dyn PageSource) -> String {
    let facts = &*observed.view().facts;
    let geometry = facts.geometry();
    let scheme = Scheme::find(facts.scheme).map(|scheme| {
        json!({
            "name": scheme.name, "title": scheme.title, "about": scheme.about, "paper": scheme.paper, "mapping": scheme.mapping, "ram": scheme.ram,
        })
    });
    let answer = json!({
        "name": facts.name, "target": facts.target, "version": env!("CARGO_PKG_VERSION"), "scheme": scheme,
        "profile": facts.profile.name, "cell": facts.cell(), "endurance": facts.profile.endurance,
        "size_bytes": facts.size, "logical_bytes": facts.logical_bytes, "raw_bytes": facts.raw_bytes(), "shards": facts.shards,
        "blocks": facts.blocks(), "pages_per_block": geometry.pages_per_block, "page_bytes": geometry.page_bytes,
        "dies": facts.dies(), "latency": facts.latency.name(),
        "uses": BlockUse::ALL.map(BlockUse::name), "events": EventKind::ALL.map(EventKind::name),
        "causes": Cause::ALL.map(Cause::name), "load": observed.load().is_some(), "page": PAGE.id,
    });
    format!("{answer}\n")
}

/// Returns the blocks in the order of their numbers, `per_cell` of them in each cell. If `have` is
/// the current generation, returns only the generation.
pub(crate) fn blocks(observed: &dyn PageSource, have: Option<u64>) -> String {
    observed.watch();
    let map = observed.blocks();
    let view = observed.view();
    let marks = view.marks();
    let marks = marks
        .iter()
        .map(|(block, mark)| json!([block.raw(), mark.name()]));
    let marks: Vec<_> = marks.collect();
    if have == Some(map.generation) {
        return format!(
            "{}\n",
            json!({"generation": map.generation, "marks": marks})
        );
    }
    // Scaled by the largest value, so that two bytes suffice for any device.
    let erases = map
        .cells
        .iter()
        .map(|cell| u64::from(cell.erases))
        .max()
        .unwrap_or(0);
    let age = map.cells.iter().map(|cell| cell.age).max().unwrap_or(0);
    let (erases_unit, age_unit) = (unit(erases), unit(age));
    assert!(
        map.cells.is_empty() || map.per_cell > 0,
        "{} cells of no blocks",
        map.cells.len()
    );
    assert!(
        map.cells.len() <= index(CELLS_MAX),
        "{} cells, limited to {CELLS_MAX}",
        map.cells.len()
    );
    let column = |value: &dyn Fn(&Cell) -> u64| {
        let bytes = map
            .cells
            .iter()
            .flat_map(|cell| (value(cell).min(u64::from(u16::MAX)) as u16).to_le_bytes());
        BASE64.encode(bytes.collect::<Vec<_>>())
    };
    let answer = json!({
        "marks": marks,
        "generation": map.generation, "blocks": map.blocks, "per_cell": map.per_cell, "counts": map.counts,
        "used": BASE64.encode(map.cells.iter().map(|cell| cell.used as u8).collect::<Vec<_>>()),
        "valid": column(&|cell| u64::from(cell.valid) / u64::from(map.per_cell)),
        "written": column(&|cell| u64::from(cell.written) / u64::from(map.per_cell)),
        "erases": column(&|cell| u64::from(cell.erases) / erases_unit), "erases_unit": erases_unit,
        "age": column(&|cell| cell.age.div_ceil(age_unit)), "age_unit": age_unit,
    });
    format!("{answer}\n")
}

/// Returns the unit in which the greatest value fits two bytes.
fn unit(greatest: u64) -> u64 {
    let unit = greatest.div_ceil(u64::from(u16::MAX)).max(1);
    assert!(
        greatest.div_ceil(unit) <= u64::from(u16::MAX),
        "{greatest} in units of {unit} needs more than two bytes"
    );
    unit
}

/// Returns whether the answer at this path may have to wait for requests to the device.
pub(crate) fn waits(path: &str) -> bool {
    matches!(path, "/api/where" | "/api/block")
}

/// Returns the places of the pages at `extents=OFFSET+LENGTH,...` of the device, or the pages of
/// block `number=N`.
///
/// # Errors
/// The query asks for nothing that the device has, or it cannot be looked at.
pub(crate) fn places(
    path: &str,
    query: &str,
    observed: &dyn PageSource,
) -> Result<String, Failure> {
    // Browsers may write them either way.
    let query = query.replace("%2B", "+").replace("%2C", ",");
    let value = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key));
    let answer = if path == "/api/where" {
        let extents = value("extents=").unwrap_or_default();
        json!(observed.places(&parse_ranges(extents)?, LOOK)?)
    } else {
        let number = value("number=").and_then(|number| number.parse().ok());
        let number = number.ok_or_else(|| Failure::usage("number=N, with a block of the map"))?;
        json!(observed.block_pages(number)?)
    };
    Ok(format!("{answer}\n"))
}

/// Returns the status code of the answer to a failed question.
pub(crate) fn code_of(failure: &Failure) -> StatusCode {
    match failure.exit {
        Exit::Usage => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Returns the newest events from a number on: `[number, kind, block or null, pages, began_ns,
/// took_ns]` each, oldest first.
pub(crate) fn events(observed: &dyn PageSource, since: Option<u64>) -> String {
    observed.watch();
    let view = observed.events(since.unwrap_or(0), EVENTS_MAX);
    assert!(
        view.events.len() <= EVENTS_MAX,
        "{} events in an answer, limited to {EVENTS_MAX}",
        view.events.len()
    );
    assert!(
        view.events
            .last()
            .is_none_or(|(number, _)| *number < view.next),
        "event {:?} is not before event {}",
        view.events.last(),
        view.next
    );
    let mut text = format!("{{\"next\":{},\"events\":[", view.next);
    for (
        i,
        (
            number,
            Event {
                kind,
                block,
                pages,
                at,
                took,
            },
        ),
    ) in view.events.iter().enumerate()
    {
        let comma = if i == 0 { "" } else { "," };
        let block = block.map_or("null".into(), |block| block.raw().to_string());
        let _ = write!(
            text,
            "{comma}[{number},{},{block},{pages},{at},{took}]",
            *kind as u8
        );
    }
    text + "]}\n"
}

/// Returns the seconds from number `since` on, column by column.
pub(crate) fn history(observed: &dyn PageSource, since: Option<u64>) -> String {
    let text = observed.page().history.lock().json(since.unwrap_or(0));
    format!("{text}\n")
}

/// Returns what the load of the daemon's own does, and what it could do.
pub(crate) fn load(load: &Load) -> String {
    let Setting { pattern, rate } = load.setting();
    let answer = json!({"pattern": pattern.name(), "rate": rate, "patterns": Pattern::names()});
    format!("{answer}\n")
}

/// Returns this instance and the others of its user.
pub(crate) fn instances(observed: &dyn PageSource) -> String {
    let own = Neighbour::of(&observed.view().status());
    let instances = observed.page().neighbours.with(own);
    format!("{}\n", json!({"instances": instances}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::Still;
    use ftld_device::volume::{BlockMap, CELLS_MAX, EventsView};
    use nand_model::Pbn;
    use serde_json::Value;
    use std::sync::Arc;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_map_of_a_tebibyte_is_some_tens_of_kilobytes_and_nothing_when_nothing_changed() {
        let cell = Cell {
            used: BlockUse::Cold,
            valid: 512 * 300,
            written: 512 * 511,
            erases: 70_000,
            age: 1 << 40,
        };
        let map = BlockMap {
            generation: 7,
            blocks: 1 << 21,
            per_cell: 512,
            cells: vec![cell; CELLS_MAX as usize],
            counts: [1 << 17; BlockUse::ALL.len()],
        };
        let still = Still {
            map: Arc::new(map),
            ..Still::default()
        };
        let text = blocks(&still, None);
        assert!(text.len() < 56 << 10, "{} bytes", text.len());
        let answer = read(&text);
        assert_eq!(answer["counts"][BlockUse::Cold as usize], 1 << 17);
        let column = |name: &str| BASE64.decode(answer[name].as_str().unwrap()).unwrap();
        assert_eq!(
            (column("used").len(), column("used")[9]),
            (4096, BlockUse::Cold as u8)
        );
        let second = |name: &str| u16::from_le_bytes([column(name)[2], column(name)[3]]) as u64;
        let pages = ["valid", "written"].map(second);
        assert_eq!(pages, [300, 511], "pages of a block, on average");
        assert_eq!(
            second("erases") * answer["erases_unit"].as_u64().unwrap(),
            70_000
        );
        let age = second("age") * answer["age_unit"].as_u64().unwrap();
        assert!(
            ((1u64 << 40)..(1 << 40) + (1 << 25)).contains(&age),
            "{age}"
        );
        assert_eq!(blocks(&still, Some(7)), "{\"generation\":7,\"marks\":[]}\n");
        assert!(
            still.watched.load(std::sync::atomic::Ordering::Relaxed) > 0,
            "asking is looking"
        );
    }

    #[test]
    fn events_are_the_newest_and_bounded() {
        let event = |at| Event {
            kind: EventKind::FullMerge,
            block: Some(Pbn::new(4_000_000)),
            pages: 64,
            at,
            took: 9,
        };
        let events_of: Vec<_> = (0..EVENTS_MAX as u64 + 9)
            .map(|n| (n, event(n * 1_000_000_000)))
            .collect();
        let still = Still {
            events: EventsView {
                next: 509,
                events: events_of,
            },
            ..Still::default()
        };
        let text = events(&still, None);
        assert!(text.len() < 32 << 10, "{} bytes", text.len());
        let answer = read(&text);
        assert_eq!(answer["events"].as_array().unwrap().len(), EVENTS_MAX);
        assert_eq!(
            answer["events"][0],
            json!([
                9,
                EventKind::FullMerge as u8,
                4_000_000,
                64,
                9_000_000_000u64,
                9
            ])
        );
        assert_eq!(
            read(&events(&still, Some(508)))["events"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        assert_eq!(read(&events(&still, Some(9_999)))["events"], json!([]));
    }

    #[test]
    fn numbers_in_a_query_are_found_and_nonsense_is_none() {
        let all = [
            "since=12",
            "a=b&since=3",
            "since=",
            "since=-1",
            "sinces=1",
            "since=99999999999999999999",
        ]
        .map(since);
        assert_eq!(all, [Some(12), Some(3), None, None, None, None]);
    }

    #[test]
    fn the_device_tells_its_scheme() {
        let answer = read(&device(&Still::default()));
        assert_eq!(answer["scheme"]["name"], "pagemap");
        assert_eq!(answer["uses"][BlockUse::Map as usize], "map");
        assert_eq!(answer["causes"].as_array().unwrap().len(), Cause::ALL.len());
    }
}
