//! HTTP while a request keeps the lock of the volume.

use super::http::get;
use crate::live_page::{PageSource, PageState};
use ftl_core::schemes::Scheme;
use ftl_core::{FtlConfig, Params, Start};
use ftld_device::fresh_status::fresh;
use ftld_device::service_counters::ServiceCounters;
use ftld_device::status::StatusSnapshot;
use ftld_device::status::StatusSource;
use ftld_device::volume::{BlockMap, BlockPages, EventsView, Places, Volume, VolumeOptions};
use ftld_kit::failure::Failure;
use nand_model::store::MemStore;
use nand_model::{Chip, Profile};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A volume as the HTTP server sees it.
struct Seen(Volume, PageState, ServiceCounters);

impl StatusSource for Seen {
    fn view(&self) -> StatusSnapshot {
        let mut view = fresh();
        (view.host, view.flash, view.failure) = (self.0.host(), self.0.flash(), self.0.failure());
        (view.injected, view.paused) = (self.0.injected(), self.0.paused());
        view
    }
    fn service(&self) -> &ServiceCounters {
        &self.2
    }
    fn watch(&self) {
        self.0.watch();
    }
    fn blocks(&self) -> Arc<BlockMap> {
        self.0.blocks()
    }
    fn events(&self, from: u64, most: usize) -> EventsView {
        self.0.events(from, most)
    }
    fn places(
        &self,
        ranges: &[std::ops::Range<u64>],
        patience: Duration,
    ) -> Result<Places, Failure> {
        self.0.places(ranges, patience)
    }
    fn block_pages(&self, block: u32) -> Result<BlockPages, Failure> {
        self.0.block_pages(block)
    }
}

impl PageSource for Seen {
    fn page(&self) -> &PageState {
        &self.1
    }
}

fn volume() -> Volume {
    let profile = Profile::find("torture").unwrap().with_blocks(8);
    let chip = Chip::over(profile, MemStore::new(profile.geometry)).unwrap();
    let config = FtlConfig {
        logical_pages: 64,
        params: Params::default(),
    };
    let scheme = Scheme::find("pagemap").unwrap();
    let ftl = scheme.start(chip, &config, Start::Format).unwrap();
    let options = VolumeOptions {
        size: 64 * u64::from(profile.geometry.page_bytes),
        read_only: false,
        emulate: false,
    };
    Volume::new(ftl, options, None)
}

#[test]
fn everything_that_http_has_is_answered_while_a_request_holds_the_lock() {
    const PATHS: [&str; 9] = [
        "/",
        "/metrics",
        "/healthz",
        "/status",
        "/api/device",
        "/api/blocks",
        "/api/events?since=0",
        "/api/history",
        "/api/instances",
    ];
    let volume = volume();
    volume.pause(Duration::from_secs(60)).unwrap();
    volume.resume();
    volume.watch();
    volume.publish(true);
    let seen = Seen(volume, Default::default(), ServiceCounters::default());
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let answers = seen.0.with_lock_held(|| {
            scope.spawn(|| {
                for path in PATHS {
                    let answer = get(path, Some("localhost"), &seen);
                    tell.send((path, answer.status().as_u16())).unwrap();
                }
            });
            let wait = Duration::from_secs(10);
            let answers = PATHS.iter().map_while(|_| told.recv_timeout(wait).ok());
            answers.collect::<Vec<_>>()
        });
        assert_eq!(
            answers.len(),
            PATHS.len(),
            "after {answers:?} the next one waited for the lock"
        );
        assert!(
            answers.iter().all(|(_, status)| *status == 200),
            "{answers:?}"
        );
    });
    assert!(answers_places(&seen));
}

/// Asks for places of pages, which wait for the lock.
fn answers_places(seen: &Seen) -> bool {
    let ask = |path: &str| get(path, Some("localhost"), seen);
    let codes = [
        ("/api/where?extents=0%2B4096,512+1", 200),
        ("/api/block?number=7", 200),
        ("/api/where", 400),
        ("/api/where?extents=0+0", 400),
        ("/api/block?number=8", 400),
        ("/api/block", 400),
    ];
    let answers = codes.map(|(path, code)| (ask(path).status().as_u16(), code));
    assert!(answers.iter().all(|(is, code)| is == code), "{answers:?}");
    drop(seen.0.close());
    ask("/api/where?extents=0+1").status() == 503
}
