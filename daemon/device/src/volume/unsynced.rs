//! Syncs of the image that no request asks for. A start after an unclean shutdown verifies every
//! operation that no sync covers, so these syncs bound the time of that start.
//!
//! Invariants: such a sync runs on a thread of its own, without a lock, and acknowledges nothing.
//! During a pause none begins: a copy of the image may be in progress. If one fails, the device
//! fails as after any failed sync.
//!
//! If the host crashes here, the image has its state of an earlier operation, as at any moment.

use super::unlocked::WELL;
use super::{Volume, request::Mark};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Flash pages, in bytes, programmed or erased since the last sync at which the next one starts.
/// A start verifies about 1 GiB per second.
const MOST_BYTES: u64 = 128 << 20;
/// Age of the oldest operation without a sync at which the next one starts.
pub const MOST_AGE: Duration = Duration::from_secs(5);

/// Age of the operations that no sync covers. Time is passed in.
#[derive(Debug)]
pub struct UnsyncedAge {
    /// The newest operation of each shard at `since`.
    newest: Vec<u64>,
    since: Instant,
}

/// Operations of a shard by number.
#[derive(Clone, Copy, Debug)]
struct Progress {
    newest: u64,
    /// The newest one that a sync covers.
    synced: u64,
}

impl UnsyncedAge {
    /// Creates the age for a device that is looked at from `now` on.
    pub fn new(now: Instant) -> UnsyncedAge {
        UnsyncedAge {
            newest: Vec::new(),
            since: now,
        }
    }

    /// Returns whether a sync is due at `now`.
    fn is_due(&mut self, now: Instant, shards: &[Progress], page_bytes: u32) -> bool {
        let operations: u64 = shards.iter().map(|of| of.newest - of.synced).sum();
        let mut aged = shards.iter().zip(&self.newest);
        if self.newest.len() != shards.len() || aged.all(|(of, newest)| of.synced >= *newest) {
            self.newest = shards.iter().map(|of| of.newest).collect();
            self.since = now;
        }
        let bytes = operations.saturating_mul(page_bytes.into());
        operations > 0 && (bytes >= MOST_BYTES || now - self.since >= MOST_AGE)
    }
}

impl Volume {
    /// Syncs the image if at `now` many operations, or old ones, are without a sync.
    pub fn sync_when_due(&self, age: &mut UnsyncedAge, now: Instant) {
        if self.shape.read_only
            || self.unlocked.health.load(Relaxed) != WELL
            || self.paused().is_some()
        {
            return;
        }
        let shards = self.shards.iter();
        let marks: Vec<Mark> = shards
            .filter_map(|shard| Self::mark_of(&mut shard.lock()))
            .collect();
        let progress = |Mark { durable, mark }: &Mark| Progress {
            newest: *mark,
            synced: durable.synced().min(*mark),
        };
        let shards: Vec<Progress> = marks.iter().map(progress).collect();
        if !age.is_due(now, &shards, self.shape.page_bytes) {
            return;
        }
        // One sync covers all shards: the others find theirs done.
        for Mark { durable, mark } in &marks {
            let synced = self.unlocked.at_storage(|| durable.wait(*mark));
            // The image may have been closed meanwhile, which is no failure.
            if let Err(error) = synced
                && durable.failed()
            {
                self.unlocked.sync_failed(&error);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = 4096;
    const MOST: u64 = MOST_BYTES / PAGE as u64;

    fn shards<const N: usize>(numbers: [(u64, u64); N]) -> [Progress; N] {
        numbers.map(|(newest, synced)| Progress { newest, synced })
    }

    #[test]
    fn a_sync_is_due_by_the_bytes_of_all_shards() {
        let now = Instant::now();
        let mut age = UnsyncedAge::new(now);
        assert!(!age.is_due(now, &shards([(MOST - 1, 0)]), PAGE));
        assert!(age.is_due(now, &shards([(MOST, 0)]), PAGE));
        assert!(!age.is_due(now, &shards([(2 * MOST, MOST + 1)]), PAGE));
        assert!(!age.is_due(now, &shards([(MOST, MOST / 2), (9, 9)]), PAGE));
        assert!(age.is_due(now, &shards([(MOST, MOST / 2), (MOST / 2, 0)]), PAGE));
        assert!(age.is_due(now, &shards([(MOST / 2, 0)]), 2 * PAGE));
    }

    #[test]
    fn a_sync_is_due_by_the_age_of_the_oldest_operation() {
        let start = Instant::now();
        let mut age = UnsyncedAge::new(start);
        let mut due = |ms, numbers| {
            let now = start + Duration::from_millis(ms);
            age.is_due(now, &shards(numbers), PAGE)
        };
        // Without operations no time counts.
        assert!(!due(0, [(5, 5), (0, 0)]));
        assert!(!due(60_000, [(5, 5), (0, 0)]));
        // The age begins at the first look with an operation.
        assert!(!due(60_100, [(5, 5), (1, 0)]));
        assert!(!due(65_000, [(9, 5), (2, 0)]));
        assert!(due(65_100, [(9, 5), (2, 0)]));
        assert!(due(66_000, [(9, 9), (2, 0)]), "one shard is not synced");
        // Synced by others: the age is that of the operations since.
        assert!(!due(67_000, [(12, 9), (4, 2)]));
        assert!(!due(71_900, [(13, 9), (5, 2)]));
        assert!(due(72_000, [(13, 9), (5, 2)]));
    }
}
