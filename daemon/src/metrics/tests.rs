use super::catalog::{CATALOG, Family, Kind};
use super::render;
use crate::live_page::{PageSource, PageState};
use ftl_core::{EventKind, EventTotals, RamEntry, RamPart};
use ftld_device::fresh_status::fresh;
use ftld_device::record::RecordingView;
use ftld_device::service_counters::ServiceCounters;
use ftld_device::status::{StatusSnapshot, StatusSource};
use ftld_device::volume::write_cache::{CacheView, CutCounts};
use ftld_device::volume::{BlockMap, EventsView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A constant instance.
pub(crate) struct Still {
    pub(crate) view: StatusSnapshot,
    pub(crate) map: Arc<BlockMap>,
    pub(crate) events: EventsView,
    pub(crate) watched: AtomicU32,
    pub(crate) page: PageState,
    pub(crate) service: ServiceCounters,
}

impl Default for Still {
    fn default() -> Self {
        Still {
            view: fresh(),
            map: Arc::default(),
            events: EventsView::default(),
            watched: AtomicU32::new(0),
            page: PageState::default(),
            service: ServiceCounters::default(),
        }
    }
}

impl StatusSource for Still {
    fn view(&self) -> StatusSnapshot {
        self.view.clone()
    }
    fn service(&self) -> &ServiceCounters {
        &self.service
    }
    fn watch(&self) {
        self.watched.fetch_add(1, Relaxed);
    }
    fn blocks(&self) -> Arc<BlockMap> {
        self.map.clone()
    }
    fn events(&self, from: u64, most: usize) -> EventsView {
        let newer: Vec<_> = self
            .events
            .events
            .iter()
            .filter(|(number, _)| *number >= from)
            .copied()
            .collect();
        EventsView {
            next: self.events.next,
            events: newer[newer.len().saturating_sub(most)..].to_vec(),
        }
    }
}

impl PageSource for Still {
    fn page(&self) -> &PageState {
        &self.page
    }
}

/// Returns the samples of one family: name with labels, and value.
fn samples<'t>(text: &'t str, family: &'t Family) -> impl Iterator<Item = (&'t str, f64)> {
    let suffix = if family.kind == Kind::Histogram {
        "_count"
    } else {
        ""
    };
    text.lines().filter_map(move |line| {
        let (series, value) = line.rsplit_once(' ')?;
        let labels = series.strip_prefix(family.name)?.strip_prefix(suffix)?;
        labels
            .starts_with('{')
            .then(|| (labels, value.parse().unwrap()))
    })
}

#[test]
fn every_label_combination_exists_from_the_start_and_counters_begin_at_0() {
    let text = render(&fresh());
    for family in &*CATALOG {
        let found: Vec<_> = samples(&text, family).collect();
        let has_any = family.labels.iter().all(|label| label.name != "shadow");
        let mut wanted = vec![String::new(); usize::from(has_any)];
        for label in family
            .labels
            .iter()
            .filter(|label| !label.values.is_empty())
        {
            // A device has the shards that it was made with; this one has one, and no shadow.
            let count = match label.name {
                "shard" => 1,
                _ => label.values.len(),
            };
            let with = |set: &String| {
                label.values[..count]
                    .iter()
                    .map(|v| format!("{set},{}=\"{v}\"", label.name))
                    .collect()
            };
            wanted = wanted
                .iter()
                .flat_map(|set| -> Vec<String> { with(set) })
                .collect();
        }
        assert_eq!(found.len(), wanted.len(), "{}: {found:?}", family.name);
        for set in wanted {
            let pairs: Vec<_> = set
                .split(',')
                .skip(1)
                .chain(["device=\"ublkb0\""])
                .collect();
            let series = found
                .iter()
                .filter(|(labels, _)| pairs.iter().all(|pair| labels.contains(pair)));
            assert_eq!(series.count(), 1, "{} {pairs:?} in {found:?}", family.name);
        }
        if family.kind != Kind::Gauge {
            assert!(
                found.iter().all(|(_, value)| *value == 0.0),
                "{} of a fresh device: {found:?}",
                family.name
            );
        }
    }
}

#[test]
fn names_and_help_follow_the_rules() {
    let names: BTreeSet<_> = CATALOG.iter().map(|family| family.name).collect();
    assert_eq!(names.len(), CATALOG.len(), "a name is there twice");
    for Family {
        name,
        kind,
        labels,
        help,
        ..
    } in &*CATALOG
    {
        assert!(
            name.starts_with("ftld_")
                && name
                    .chars()
                    .all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_')),
            "{name}"
        );
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert!(help.ends_with('.') && help.len() < 120, "{name}: {help}");
        assert!(
            labels
                .iter()
                .all(|label| !matches!(label.name, "device" | "le" | "instance" | "job")),
            "{name}"
        );
    }
}

#[test]
fn classes_of_wear_are_named_after_their_bounds() {
    let family = CATALOG
        .iter()
        .find(|family| family.name == "ftld_block_erase_distribution_blocks")
        .unwrap();
    let bounds = ftld_device::volume::WEAR_BOUNDS
        .iter()
        .map(u32::to_string)
        .chain(["+Inf".into()]);
    assert!(bounds.eq(family.labels[0].values.iter().map(ToString::to_string)));
}

#[test]
fn values_reach_the_page() {
    let mut view = fresh();
    let flash = Arc::make_mut(&mut view.flash);
    flash.host_written_bytes = 1 << 20;
    (
        flash.scheme.gc_runs,
        flash.scheme.valid_pages,
        flash.scheme.blocks.free,
    ) = (3, 5, 6);
    flash.events[EventKind::Convert as usize] = EventTotals {
        count: 4,
        pages: 11,
        took: 2_500_000_000,
    };
    flash.wear.distribution[2] = 7;
    view.failure = Some("sync failed".into());
    view.injected[1] = 9;
    view.host.ops[1].wall.counts[16] = 8;
    let text = render(&view);
    for line in [
        r#"ftld_gc_runs_total{device="ublkb0"} 3"#,
        r#"ftld_scheme_events_total{device="ublkb0",event="convert"} 4"#,
        r#"ftld_scheme_event_pages_total{device="ublkb0",event="convert"} 11"#,
        r#"ftld_scheme_event_device_seconds_total{device="ublkb0",event="convert"} 2.5"#,
        r#"ftld_scheme_events_total{device="ublkb0",event="full_merge"} 0"#,
        r#"ftld_pages{device="ublkb0",state="valid"} 5"#,
        r#"ftld_pages{device="ublkb0",state="free"} 768"#,
        r#"ftld_pages{device="ublkb0",state="other"} 12027"#,
        r#"ftld_block_erase_distribution_blocks{device="ublkb0",at_most="1"} 0"#,
        r#"ftld_block_erase_distribution_blocks{device="ublkb0",at_most="+Inf"} 7"#,
        r#"ftld_device_read_only{device="ublkb0",reason="failed"} 1"#,
        r#"ftld_faults_injected_total{device="ublkb0",kind="bad_block"} 9"#,
        r#"ftld_device_read_only{device="ublkb0",reason="requested"} 0"#,
        r#"ftld_host_io_duration_seconds_bucket{device="ublkb0",op="write",le="10"} 0"#,
        r#"ftld_host_io_duration_seconds_bucket{device="ublkb0",op="write",le="+Inf"} 8"#,
        r#"ftld_recovery_duration_seconds{device="ublkb0"} 0.25"#,
        "# TYPE process_resident_memory_bytes gauge",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}

#[test]
fn each_counter_of_requests_space_and_service_reaches_its_family() {
    let mut view = fresh();
    view.host.ops[1].sizes[1] = 4;
    view.host.ops[1].sizes[12] = 1;
    view.host.ops[1].bytes = 64 << 20;
    view.host.fua = 2;
    view.service = ftld_device::service_counters::ServiceView {
        http: [5, 0, 0, 0, 1, 0],
        control: [3, 0, 0, 2, 0, 0, 0, 0],
        watchdog: 6,
    };
    let flash = Arc::make_mut(&mut view.flash);
    flash.counters.copybacks = 7;
    (flash.gc_pages[0], flash.gc_pages[4]) = (2, 3);
    flash.events[EventKind::Gc as usize].pages = 21;
    let scheme = &mut flash.scheme;
    (
        scheme.map_cache_evictions.clean,
        scheme.map_cache_evictions.dirty,
    ) = (8, 9);
    (scheme.buffered_pages, scheme.buffer_capacity_pages) = (3, 16);
    scheme.pages_since_checkpoint = 77;
    flash.ram.extend(
        [(RamPart::MapCache, 30), (RamPart::Pending, 40)].map(|(part, entries)| RamEntry {
            part,
            entries,
            paper_bytes: 0,
            allocated_bytes: 0,
            most_bytes: 0,
        }),
    );
    let text = render(&view);
    for line in [
        r#"ftld_host_io_size_bytes_bucket{device="ublkb0",op="write",le="512"} 0"#,
        r#"ftld_host_io_size_bytes_bucket{device="ublkb0",op="write",le="4096"} 4"#,
        r#"ftld_host_io_size_bytes_bucket{device="ublkb0",op="write",le="33554432"} 4"#,
        r#"ftld_host_io_size_bytes_bucket{device="ublkb0",op="write",le="+Inf"} 5"#,
        r#"ftld_host_io_size_bytes_sum{device="ublkb0",op="write"} 67108864"#,
        r#"ftld_host_io_size_bytes_count{device="ublkb0",op="read"} 0"#,
        r#"ftld_host_fua_ios_total{device="ublkb0"} 2"#,
        r#"ftld_nand_copybacks_total{device="ublkb0"} 7"#,
        r#"ftld_gc_victim_valid_pages_bucket{device="ublkb0",le="0"} 2"#,
        r#"ftld_gc_victim_valid_pages_bucket{device="ublkb0",le="8"} 5"#,
        r#"ftld_gc_victim_valid_pages_sum{device="ublkb0"} 21"#,
        r#"ftld_map_cache_entries{device="ublkb0"} 30"#,
        r#"ftld_map_pending_entries{device="ublkb0"} 40"#,
        r#"ftld_map_cache_evictions_total{device="ublkb0",state="clean"} 8"#,
        r#"ftld_map_cache_evictions_total{device="ublkb0",state="dirty"} 9"#,
        r#"ftld_write_buffer_bytes{device="ublkb0"} 12288"#,
        r#"ftld_write_buffer_capacity_bytes{device="ublkb0"} 65536"#,
        r#"ftld_checkpoint_age_pages{device="ublkb0"} 77"#,
        r#"ftld_http_requests_total{device="ublkb0",code="200"} 5"#,
        r#"ftld_http_requests_total{device="ublkb0",code="421"} 1"#,
        r#"ftld_control_requests_total{device="ublkb0",command="pause"} 2"#,
        r#"ftld_watchdog_pings_total{device="ublkb0"} 6"#,
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}

#[test]
fn each_counter_of_cache_and_recording_reaches_its_family() {
    let mut view = fresh();
    Arc::make_mut(&mut view.flash).cache = CacheView {
        capacity_bytes: 1,
        dirty_bytes: 2,
        read_hit_bytes: 3,
        written_back_bytes: [4, 5, 6, 7, 8, 9],
        failed_write_backs: 10,
        write_through: true,
        last_cut: CutCounts {
            new: 11,
            torn: 12,
            old: 13,
            lost: 14,
        },
        ..CacheView::default()
    };
    view.recording = Some(RecordingView {
        entries: 15,
        bytes: 16,
        waits: 17,
        failure: Some("full".into()),
        ..RecordingView::default()
    });
    let text = render(&view);
    for line in [
        r#"ftld_write_cache_capacity_bytes{device="ublkb0"} 1"#,
        r#"ftld_write_cache_dirty_bytes{device="ublkb0"} 2"#,
        r#"ftld_write_cache_read_hit_bytes_total{device="ublkb0"} 3"#,
        r#"ftld_write_cache_written_back_bytes_total{device="ublkb0",reason="age"} 4"#,
        r#"ftld_write_cache_written_back_bytes_total{device="ublkb0",reason="pressure"} 5"#,
        r#"ftld_write_cache_written_back_bytes_total{device="ublkb0",reason="flush"} 6"#,
        r#"ftld_write_cache_written_back_bytes_total{device="ublkb0",reason="trim"} 7"#,
        r#"ftld_write_cache_written_back_bytes_total{device="ublkb0",reason="shutdown"} 8"#,
        r#"ftld_write_cache_written_back_bytes_total{device="ublkb0",reason="mount"} 9"#,
        r#"ftld_write_cache_failed_write_backs_total{device="ublkb0"} 10"#,
        r#"ftld_write_cache_write_through{device="ublkb0"} 1"#,
        r#"ftld_write_cache_cut_units{device="ublkb0",outcome="new"} 11"#,
        r#"ftld_write_cache_cut_units{device="ublkb0",outcome="torn"} 12"#,
        r#"ftld_write_cache_cut_units{device="ublkb0",outcome="old"} 13"#,
        r#"ftld_write_cache_cut_units{device="ublkb0",outcome="lost"} 14"#,
        r#"ftld_recording_entries_total{device="ublkb0"} 15"#,
        r#"ftld_recording_bytes_total{device="ublkb0"} 16"#,
        r#"ftld_recording_waits_total{device="ublkb0"} 17"#,
        r#"ftld_recording_failed{device="ublkb0"} 1"#,
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in\n{text}"
        );
    }
}

#[test]
fn remaining_writes_are_the_rated_erases_left_over_write_amplification() {
    let remaining = |view: &StatusSnapshot| -> f64 {
        let family = CATALOG
            .iter()
            .find(|family| family.name == "ftld_remaining_writes_bytes")
            .unwrap();
        samples(&render(view), family).next().unwrap().1
    };
    let mut view = fresh();
    let geometry = *view.facts.geometry();
    let block = f64::from(geometry.pages_per_block) * f64::from(geometry.page_bytes);
    let rated = f64::from(view.facts.profile.endurance);
    assert_eq!(remaining(&view), rated * f64::from(geometry.blocks) * block);
    let flash = Arc::make_mut(&mut view.flash);
    (
        flash.wear.mean,
        flash.wear.bad_factory,
        flash.wear.bad_grown,
    ) = (rated / 2.0, 3, 1);
    let good = f64::from(geometry.blocks - 4);
    assert_eq!(remaining(&view), rated / 2.0 * good * block);
    Arc::make_mut(&mut view.flash).wear.mean = rated * 2.0;
    assert_eq!(remaining(&view), 0.0);
}

/// Values of a label at the first family that has it.
type Listed = BTreeMap<&'static str, &'static [&'static str]>;

/// Returns the item of a family in docs/METRICS.md. `listed` has the values that items above list.
fn item(family: &Family, listed: &mut Listed) -> String {
    let labels: Vec<_> = family.labels.iter().map(|label| label.name).collect();
    let mut values = Vec::new();
    for label in family
        .labels
        .iter()
        .filter(|label| !label.values.is_empty())
    {
        let differs = listed.get(label.name) != Some(&label.values);
        listed.entry(label.name).or_insert(label.values);
        if differs {
            values.push(format!("`{}`: {}", label.name, label.values.join(" ")));
        }
    }
    let braced = |labels: String| match labels.as_str() {
        "" => String::new(),
        _ => format!("{{{labels}}}"),
    };
    let text = format!(
        "- `{}{}`{}: {} {}",
        family.name,
        braced(labels.join(",")),
        if family.kind == Kind::Histogram {
            " (histogram)"
        } else {
            ""
        },
        family.help,
        values.join("; ") + if values.is_empty() { "" } else { "." },
    );
    folded(&text)
}

/// Breaks an item into lines of at most 100 columns.
fn folded(text: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > 100 {
            lines.push(std::mem::replace(&mut line, format!("  {word}")));
        } else {
            let gap = if line.is_empty() { "" } else { " " };
            line += &format!("{gap}{word}");
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// Returns the document with the catalogue's list replaced by `items`.
fn with_list(document: &str, items: &[String]) -> String {
    let section = document.find("\n## Catalogue\n").expect("the section");
    let begin = section + document[section..].find("\n- ").expect("the list") + 1;
    let end = begin + document[begin..].find("\n\n").expect("the end of the list");
    format!(
        "{}{}{}",
        &document[..begin],
        items.join("\n"),
        &document[end..]
    )
}

/// `FTLD_CATALOGUE=write` writes the list of docs/METRICS.md; otherwise it must be current.
#[test]
fn the_document_lists_exactly_the_catalogue() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md");
    let document = std::fs::read_to_string(path).unwrap();
    let mut listed = Listed::new();
    let items: Vec<_> = CATALOG
        .iter()
        .map(|family| item(family, &mut listed))
        .collect();
    let wanted = with_list(&document, &items);
    if std::env::var("FTLD_CATALOGUE").is_ok_and(|value| value == "write") {
        return std::fs::write(path, wanted).unwrap();
    }
    assert!(
        document == wanted,
        "the catalogue of docs/METRICS.md is stale; write it with FTLD_CATALOGUE=write cargo test \
         -p ftld --lib the_document_lists"
    );
}

#[test]
fn a_stale_list_is_replaced_and_nothing_else() {
    let document = |items: &str| format!("# M\n\n## Catalogue\n\n{items}\n\n- End\n");
    let items = ["- `a`".to_owned(), "- `b`".to_owned()];
    assert_eq!(
        with_list(&document("- `c`"), &items),
        document("- `a`\n- `b`")
    );
}

#[test]
fn an_item_repeats_no_values_and_fits_its_lines() {
    let mut listed = Listed::new();
    let items: Vec<_> = CATALOG
        .iter()
        .map(|family| item(family, &mut listed))
        .collect();
    let with = |values: &str| items.iter().filter(|item| item.contains(values)).count();
    assert_eq!((with("`event`: gc"), with("{event}")), (1, 3));
    assert!(with("`op`: read") > 1 && with("`state`: ") > 1);
    assert!(
        items
            .iter()
            .flat_map(|item| item.lines())
            .all(|line| line.len() <= 100)
    );
}
