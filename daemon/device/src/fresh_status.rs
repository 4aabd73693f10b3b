//! Status of an instance that has just started, for the tests of its readers.

use crate::status::{InstanceInfo, StatusSnapshot};
use crate::volume::{FlashSnapshot, HostView, Wear};
use ftl_core::{RamEntry, RamPart, SchemeStats};
use nand_model::{Counters, Profile};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Returns an instance that has just started.
pub fn fresh() -> StatusSnapshot {
    let facts = InstanceInfo {
        name: "ublkb0".into(),
        target: "/dev/ublkb0".into(),
        transport: "ublk",
        image: "/var/lib/ftld/ublkb0.ftld".into(),
        scheme: "pagemap",
        profile: Profile::default_profile().with_blocks(100),
        shards: 1,
        size: 40 << 20,
        logical_bytes: 40 << 20,
        metrics: None,
        read_only: false,
        latency: crate::config::Latency::None,
        verify: Default::default(),
        started: SystemTime::now(),
        opened_in: Duration::from_millis(250),
        was_clean: true,
        power_cut: false,
        uuid: [7; 16],
    };
    let flash = FlashSnapshot {
        taken: Instant::now(),
        host_written_bytes: 0,
        emulated_ns: 0,
        last_write: None,
        streams: Vec::new(),
        counters: Counters::default(),
        scheme: SchemeStats::default(),
        events: Default::default(),
        gc_pages: Default::default(),
        ram: vec![RamEntry {
            part: RamPart::Map,
            entries: 10,
            paper_bytes: 30,
            allocated_bytes: 40,
            most_bytes: 50,
        }],
        wear: Wear::default(),
        erase_credit: u32::MAX,
        blocks_to_refresh: 0,
        blocks: 100,
        cache: Default::default(),
    };
    let flash = Arc::new(flash);
    StatusSnapshot {
        facts: Arc::new(facts),
        host: HostView::default(),
        flash_by_shard: vec![flash.clone()],
        flash,
        nbd: Default::default(),
        service: Default::default(),
        injected: Default::default(),
        faults: Vec::new(),
        failure: None,
        writes_failing: None,
        paused: None,
        recording: None,
        shadows: Vec::new(),
        waiting_for: Vec::new(),
    }
}
