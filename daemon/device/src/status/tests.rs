use super::*;
use crate::fresh_status::fresh;
use crate::volume::write_cache::{CacheView, CutCounts, Model};
use crate::volume::{LastWrite, Wear};
use ftl_core::{BlockCounts, BlockMark, Lookups, MountReport, SchemeStats, StreamKind, StreamView};
use nand_model::Pbn;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStringExt;
use strum::VariantArray;

/// Returns an instance of two shards with a different figure in every field.
fn full() -> StatusSnapshot {
    let mut view = fresh();
    let facts = Arc::make_mut(&mut view.facts);
    facts.image = std::ffi::OsString::from_vec(b"/a/\xFFb".to_vec()).into();
    facts.metrics = Some("http://127.0.0.1:9917/metrics".into());
    (facts.shards, facts.latency) = (2, Latency::Emulate);
    (facts.was_clean, facts.power_cut) = (false, true);
    let flash = Arc::make_mut(&mut view.flash);
    flash.host_written_bytes = 3 << 20;
    flash.emulated_ns = 15;
    flash.last_write = Some(LastWrite {
        at: 1,
        offset: 4096,
        bytes: 512,
    });
    let stream = |kind, number, block| StreamView {
        kind,
        number,
        pages: 16,
        block,
    };
    flash.streams = vec![
        stream(StreamKind::Host, 0, Some(Pbn::new(17))),
        stream(StreamKind::Log, 2, None),
    ];
    flash.cache = CacheView {
        capacity_bytes: 1,
        dirty_bytes: 2,
        read_hit_bytes: 3,
        written_back_bytes: [4, 5, 6, 7, 8, 9],
        failed_write_backs: 10,
        model: Model::Ordered,
        protected: true,
        write_through: true,
        last_cut: CutCounts {
            new: 11,
            torn: 12,
            old: 13,
            lost: 14,
        },
    };
    flash.wear = Wear {
        min: 18,
        mean: 19.25,
        max: 20,
        stddev: 0.5,
        bad_factory: 21,
        bad_grown: 22,
        ..flash.wear
    };
    flash.erase_credit = 23;
    let lookups = |total, hits| Lookups { total, hits };
    flash.scheme = SchemeStats {
        gc_runs: 24,
        gc_pages_moved: 25,
        wear_moves: 26,
        refreshes: 27,
        converts: 28,
        convert_map_pages: 29,
        switch_merges: 30,
        partial_merges: 31,
        full_merges: 32,
        map_lookup_steps: 33,
        checkpoints: 34,
        mapped_pages: 35,
        valid_pages: 36,
        free_threshold_blocks: 37,
        lookups_read: lookups(39, 38),
        lookups_write: lookups(41, 40),
        read_only: Some("worn out"),
        blocks: BlockCounts {
            free: 42,
            open: 43,
            data: 44,
            log: 45,
            map: 46,
            checkpoint: 47,
            released: 48,
            bad: 49,
        },
        mount: MountReport {
            steps: vec![("scan", 50), ("rewrite", 51)],
            pages_scanned: 52,
            pages_discarded: 53,
            pages_kept: 54,
            pages_dropped: 55,
            pages_rewritten: 56,
            blocks_rewritten: 57,
            marks: vec![(Pbn::new(9), BlockMark::Torn)],
            ..MountReport::default()
        },
        ..SchemeStats::default()
    };
    view.flash_by_shard = vec![view.flash.clone(); 2];
    for (op, number) in Op::VARIANTS.iter().zip(100u64..) {
        let op = &mut view.host.ops[op.index()];
        (op.completed, op.delayed, op.bytes) = (number, number + 10, number + 20);
        (op.in_flight, op.unaligned) = (number + 30, number + 40);
        op.errors = [1, 2, 3, 4].map(|n| number + 50 + n);
        op.wall.counts = std::array::from_fn(|bucket| number + bucket as u64);
        (op.wall.sum_ns, op.emulated.sum_ns) = (number * 1000, number * 100);
    }
    view.injected = std::array::from_fn(|kind| 200 + kind as u64);
    view.faults = vec!["reads fail".into(), "slow".into()];
    view.failure = Some("gone".into());
    view.writes_failing = Some(WritesFailing { errno: 28 });
    view.paused = Some(Paused {
        left: Duration::from_millis(1500),
        stepping: true,
        runs: 7,
    });
    view.recording = Some(RecordingView {
        file: "/r.rec".into(),
        entries: 1,
        bytes: 2,
        waits: 3,
        failure: Some("full".into()),
    });
    view.shadows = vec![Shadow {
        name: "dftl:op=28".into(),
        scheme: "dftl".into(),
        profile: "mlc-4k".into(),
        op_percent: 28.5,
        parameters: "a=1".into(),
        memory_bytes: 60,
        requests: 61,
        behind: 62,
        dropped: 63,
        exact: false,
        failure: Some("gone".into()),
        figures: Figures {
            host_pages_written: 64,
            programs: 65,
            erases: 66,
            write_amplification: Some(1.5),
            ram_bytes: 67,
            read_p99_ns: Some(68.5),
            write_p99_ns: Some(69.5),
        },
        live: Figures::default(),
    }];
    view.waiting_for = vec!["mount /mnt".into(), "fio (pid 7)".into()];
    view
}

/// Returns the document without what time changes.
fn document(view: &StatusSnapshot) -> Value {
    let mut document = view.status().json();
    for part in ["/pid", "/uptime_seconds", "/snapshot/age_seconds"] {
        let value = document.pointer_mut(part).unwrap();
        assert!(value.take().is_number(), "{part}");
    }
    document
}

/// Returns documents with a line per key.
fn by_line(documents: &Value) -> String {
    let text = |(name, document): (&String, &Value)| {
        let lines = document.as_object().unwrap().iter();
        let lines: Vec<_> = lines
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("\"{name}\":{{\n{}\n}}", lines.join(",\n"))
    };
    let documents: Vec<_> = documents.as_object().unwrap().iter().map(text).collect();
    format!("{{\n{}\n}}\n", documents.join(",\n"))
}

/// Programs of others read the document. `FTLD_STATUS=write` writes documents.json; otherwise the
/// documents have to be as they are there.
#[test]
fn the_document_keeps_its_keys_and_values() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/status/documents.json");
    let found = json!({"fresh": document(&fresh()), "full": document(&full())});
    if std::env::var("FTLD_STATUS").is_ok_and(|value| value == "write") {
        return std::fs::write(path, by_line(&found)).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap();
    assert_eq!(found, serde_json::from_str::<Value>(&known).unwrap());
}

#[test]
fn a_document_is_read_as_it_was_written_and_never_in_part() {
    for view in [fresh(), full()] {
        let written = view.status().json();
        let read: Status = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(read.json(), written);
    }
    // One of a newer daemon has more keys, one of an older daemon fewer.
    let mut newer = full().status().json();
    newer["news"] = json!(1);
    newer["nand"]["news"] = newer["nand"]["gc"].clone();
    assert!(serde_json::from_value::<Status>(newer).is_ok());
    for (part, key) in [
        ("", "scheme"),
        ("/nand", "gc"),
        ("/host/write/wall", "sum_ns"),
        ("/scheme_stats", "partial_merges"),
    ] {
        let mut older = full().status().json();
        let part = older.pointer_mut(part).unwrap().as_object_mut().unwrap();
        part.remove(key).unwrap();
        let error = serde_json::from_value::<Status>(older).unwrap_err();
        assert!(error.to_string().contains(&format!("`{key}`")), "{error}");
    }
}

#[test]
fn blocks_are_marked_for_ten_minutes_after_a_recovery_and_never_after_a_clean_stop() {
    let mut view = full();
    assert_eq!(view.marks(), [(Pbn::new(9), BlockMark::Torn)]);
    Arc::make_mut(&mut view.facts).started -= Duration::from_secs(601);
    assert_eq!(view.marks(), []);
    let mut view = full();
    Arc::make_mut(&mut view.facts).was_clean = true;
    assert_eq!((view.marks(), view.status().recovery), (&[][..], None));
}

#[test]
fn a_host_that_is_slower_than_the_emulated_flash_is_named_and_no_other() {
    let behind = |latency, wall_ns, emulated_ns| {
        let mut view = fresh();
        Arc::make_mut(&mut view.facts).latency = latency;
        for op in [Op::Read, Op::Write] {
            let counters = &mut view.host.ops[op.index()];
            counters.wall.sum_ns = wall_ns;
            counters.emulated.sum_ns = emulated_ns;
        }
        view.status().host_behind
    };
    let said = behind(Latency::Emulate, 150_000, 100_000).unwrap();
    assert!(said.starts_with("requests took 50 % longer"), "{said}");
    assert_eq!(behind(Latency::Emulate, 109_000, 100_000), None);
    assert_eq!(behind(Latency::Emulate, 100_000, 0), None);
    assert_eq!(behind(Latency::None, 150_000, 100_000), None);
}
