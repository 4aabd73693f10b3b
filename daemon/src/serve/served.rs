//! State of a running instance for HTTP and the control socket.
//!
//! Invariants: reading it takes no request lock. Of all this only the page's history is stored, on
//! which nothing depends, so power failure does not matter.

use crate::live_page::{PageSource, PageState};
use crate::load::Load;
use crate::shadows::Shadows;
use ftld_device::faults::Faults;
use ftld_device::inject::Kind;
use ftld_device::record::{Marked, Recorder, not_recorded};
use ftld_device::service_counters::ServiceCounters;
use ftld_device::shadow::ShadowCommand;
use ftld_device::status::{InstanceInfo, StatusSnapshot, StatusSource};
use ftld_device::transport::nbd::NbdStats;
use ftld_device::volume::{BlockMap, BlockPages, EventsView, Places, Volume};
use ftld_kit::failure::Failure;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use strum::EnumCount;

/// State of a running instance for HTTP and the control socket.
pub(super) struct Served {
    pub(super) facts: Arc<InstanceInfo>,
    pub(super) volume: Arc<Volume>,
    pub(super) nbd: Option<Arc<NbdStats>>,
    pub(super) service: ServiceCounters,
    pub(super) waiting_for: Mutex<Vec<String>>,
    pub(super) page: PageState,
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) faults: Arc<Faults>,
    /// The load of `ftld demo`.
    pub(super) load: OnceLock<Load>,
    /// Schemes that follow the requests.
    pub(super) shadows: Shadows,
}

impl StatusSource for Served {
    fn view(&self) -> StatusSnapshot {
        StatusSnapshot {
            facts: self.facts.clone(),
            host: self.volume.host(),
            flash: self.volume.flash(),
            flash_by_shard: self.volume.flash_by_shard(),
            injected: self.injected(),
            faults: self.faults.in_force(self.facts.size),
            service: self.service.view(),
            nbd: self
                .nbd
                .as_ref()
                .map(|stats| stats.snapshot())
                .unwrap_or_default(),
            failure: self.volume.failure(),
            writes_failing: self.volume.writes_failing(),
            paused: self.volume.paused(),
            recording: self.recorder.as_ref().map(|recorder| recorder.view()),
            shadows: self.shadows.view(),
            waiting_for: self.waiting_for.lock().clone(),
        }
    }

    fn service(&self) -> &ServiceCounters {
        &self.service
    }

    fn watch(&self) {
        self.volume.watch();
    }

    fn blocks(&self) -> Arc<BlockMap> {
        self.volume.blocks()
    }

    fn events(&self, from: u64, most: usize) -> EventsView {
        self.volume.events(from, most)
    }

    fn mark(&self, text: &str) -> Result<Marked, Failure> {
        let recorder = self.recorder.as_ref().ok_or_else(not_recorded)?;
        let seq = recorder.mark(text)?;
        Ok(Marked {
            seq,
            file: recorder.view().file,
        })
    }

    fn shadow(&self, command: &ShadowCommand) -> Result<Vec<String>, Failure> {
        self.shadows.run(command)
    }

    fn places(&self, ranges: &[Range<u64>], patience: Duration) -> Result<Places, Failure> {
        self.volume.places(ranges, patience)
    }

    fn block_pages(&self, block: u32) -> Result<BlockPages, Failure> {
        self.volume.block_pages(block)
    }
}

impl PageSource for Served {
    fn page(&self) -> &PageState {
        &self.page
    }

    fn load(&self) -> Option<&Load> {
        self.load.get()
    }
}

impl Served {
    /// Returns the injected faults of the flash, and the requests that other faults have hit.
    fn injected(&self) -> [u64; Kind::COUNT] {
        let (mut injected, hits) = (self.volume.injected(), self.faults.hits());
        injected
            .iter_mut()
            .zip(hits)
            .for_each(|(sum, hits)| *sum += hits);
        injected
    }

    pub(super) fn wait_for(&self, holders: &[String]) {
        *self.waiting_for.lock() = holders.to_vec();
    }
}
