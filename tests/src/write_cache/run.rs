//! A run: rounds of requests, each with an end and a restart.

use super::device::Setup;
use super::oracle::{Change, Oracle, Seen};
use ftld_device::device::{BlockDevice, FlushOf};
use ftld_device::inject::{BadBlock, Injection, PowerCut};
use ftld_device::stack::close_stores;
use ftld_device::volume::Volume;
use ftld_device::volume::write_cache::{CutCounts, Model};
use ftld_host_disk::{Crash, End, Freeze, SimDisk};
use nand_model::SplitMix;
use std::time::Duration;

/// Counts of runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Power cuts with a checked outcome.
    pub cuts: u64,
    /// Power cuts with dirty units in the cache.
    pub dirty_cuts: u64,
    /// Kills with a checked outcome.
    pub kills: u64,
    /// Host crashes with a checked outcome.
    pub crashes: u64,
    /// Clean stops.
    pub stops: u64,
    /// Clean stops that ended before they were complete.
    pub stops_interrupted: u64,
    /// Restarts with a shard whose flash refuses its entries, after writes to the others.
    pub refusals: u64,
    /// Starts that ended before they were complete.
    pub starts_interrupted: u64,
    /// Completed FLUSHes, FUA included.
    pub flushes: u64,
    /// Outcomes of dirty units, as the device reports them after the restart.
    pub units: CutCounts,
    /// Units with their newest content after a cut, as the oracle sees them.
    pub newest: u64,
    /// Units with a content between the last FLUSH and the newest.
    pub between: u64,
    /// Units with the content as of the last FLUSH.
    pub base: u64,
    /// Writes of several units that survived in part.
    pub torn_writes: u64,
    /// Power cuts after which everything had the content as of the last FLUSH, as it must.
    pub lost_whole: u64,
    /// Bytes written back by age and by pressure.
    pub written_back: [u64; 2],
}

impl Report {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Report) {
        let [by_age, by_pressure] = &mut self.written_back;
        for (to, from) in [
            (&mut self.cuts, other.cuts),
            (&mut self.dirty_cuts, other.dirty_cuts),
            (&mut self.kills, other.kills),
            (&mut self.crashes, other.crashes),
            (&mut self.stops, other.stops),
            (&mut self.stops_interrupted, other.stops_interrupted),
            (&mut self.refusals, other.refusals),
            (&mut self.starts_interrupted, other.starts_interrupted),
            (&mut self.flushes, other.flushes),
            (&mut self.units.new, other.units.new),
            (&mut self.units.torn, other.units.torn),
            (&mut self.units.old, other.units.old),
            (&mut self.units.lost, other.units.lost),
            (&mut self.newest, other.newest),
            (&mut self.between, other.between),
            (&mut self.base, other.base),
            (&mut self.torn_writes, other.torn_writes),
            (&mut self.lost_whole, other.lost_whole),
            (by_age, other.written_back[0]),
            (by_pressure, other.written_back[1]),
        ] {
            *to += from;
        }
    }
}

struct Run {
    setup: Setup,
    rng: SplitMix,
    disk: SimDisk,
    volume: Volume,
    oracle: Oracle,
    /// Whether a trim or a FLUSH began since the last completed FLUSH: both write back.
    wrote_back: bool,
    /// Bytes that writes may have taken in the ring since the start.
    appended: u64,
    /// Whether the round has trims.
    trims: bool,
    /// Whether the flash of a shard takes no more writes: the run ends.
    is_over: bool,
    report: Report,
}

/// Runs this many rounds on the device. `cuts_only` ends every round with a power cut.
///
/// # Errors
/// The device lost or invented data.
pub fn run(setup: Setup, seed: u64, rounds: u64, cuts_only: bool) -> Result<Report, String> {
    let disk = setup.make()?;
    let volume = setup.open(&disk)?;
    let oracle = Oracle::new(volume.physical_block() as usize, setup.size());
    let mut run = Run {
        setup,
        rng: SplitMix::new(seed),
        disk,
        volume,
        oracle,
        wrote_back: false,
        appended: 0,
        trims: true,
        is_over: false,
        report: Report::default(),
    };
    for round in 0..rounds {
        run.round(cuts_only)
            .map_err(|why| format!("{setup:?}, seed {seed}, round {round}: {why}"))?;
        if run.is_over {
            break;
        }
    }
    Ok(run.report)
}

impl Run {
    fn extent(&mut self) -> (u64, u64) {
        let size = self.setup.size();
        let hot = size.min(16 << 10);
        let at = match self.rng.one_in(3) {
            true => self.rng.below(size),
            false => self.rng.below(hot),
        };
        let unit = self.oracle_unit();
        let (at, length) = match self.rng.below(6) {
            0 => (at, 1 + self.rng.below(unit)),
            1 => (at, 1 + self.rng.below(6 * unit)),
            2 | 3 => (at - at % unit, unit),
            _ => (at - at % unit, unit * (1 + self.rng.below(6))),
        };
        (at, length.min(size - at))
    }

    fn oracle_unit(&self) -> u64 {
        u64::from(self.volume.physical_block())
    }

    /// One request. Returns whether it succeeded.
    fn request(&mut self) -> Result<bool, String> {
        let (offset, length) = self.extent();
        let kind = self.rng.below(40);
        match kind {
            0..24 => {
                let mut data = vec![0; length as usize];
                let mut words = SplitMix::new(self.rng.next_u64());
                data.iter_mut().for_each(|byte| *byte = words.byte());
                let change = Change { offset, data };
                self.oracle.submit(change.clone());
                self.appended += 2 * (length + 2 * self.oracle_unit() + 512);
                if self.volume.write(offset, &change.data).is_err() {
                    return Ok(false);
                }
                self.oracle.acknowledged();
                if kind == 0 {
                    return Ok(self.flush());
                }
            }
            24..28 if self.trims => {
                let data = vec![0; length as usize];
                self.oracle.submit(Change { offset, data });
                self.appended += 4 * (self.oracle_unit() + 512);
                self.wrote_back = true;
                let done = match self.rng.one_in(2) {
                    true => self.volume.trim(offset, length),
                    false => self.volume.write_zeroes(offset, length),
                };
                if done.is_err() {
                    return Ok(false);
                }
                self.oracle.acknowledged();
            }
            24..37 => {
                let mut bytes = vec![0x5A; length as usize];
                if self.volume.read(offset, &mut bytes).is_err() {
                    return Ok(false);
                }
                let wanted = &self.oracle.now()[offset as usize..][..length as usize];
                if bytes != wanted {
                    return Err(format!("bytes {offset}+{length} read as other ones"));
                }
            }
            37 => self.volume.write_back_aged(Duration::ZERO),
            38 => drop(self.volume.idle(10)),
            _ => return Ok(self.flush()),
        }
        Ok(true)
    }

    fn flush(&mut self) -> bool {
        self.wrote_back = true;
        let flushed = self
            .volume
            .flush(FlushOf::Everything)
            .and_then(|flush| flush.wait());
        if flushed.is_ok() {
            self.report.flushes += 1;
            self.oracle.flushed();
            self.wrote_back = false;
        }
        flushed.is_ok()
    }

    fn contents(volume: &Volume) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0xA5; volume.size() as usize];
        let read = volume.read(0, &mut bytes);
        read.map_err(|error| format!("read after a restart: {error}"))?;
        let mut at = 0;
        while at < volume.size() {
            let extents = volume.extents(at, volume.size() - at, 64);
            for extent in extents.map_err(|error| format!("extents: {error}"))? {
                let part = &bytes[at as usize..][..extent.len as usize];
                if !extent.mapped && part.iter().any(|byte| *byte != 0) {
                    return Err(format!("the hole at byte {at} does not read as zeros"));
                }
                at += extent.len;
            }
        }
        Ok(bytes)
    }

    fn round(&mut self, cuts_only: bool) -> Result<(), String> {
        let steps = 1 + self.rng.below(60);
        self.trims = self.setup.cache.model != Model::Lost || self.rng.one_in(3);
        for _ in 0..steps {
            if !self.request()? {
                return Err("a request failed without a fault".into());
            }
        }
        self.note_written_back();
        match self.rng.below(9) {
            _ if cuts_only => self.cut(),
            0 if self.setup.striping.is_some() => self.refuse(),
            0..3 => self.cut(),
            3..5 => self.kill(),
            5 | 6 => self.crash(),
            _ => self.stop(),
        }
    }

    fn note_written_back(&mut self) {
        self.volume.publish(true);
        let bytes = self.volume.flash().cache.written_back_bytes;
        self.report.written_back[0] += bytes[0];
        self.report.written_back[1] += bytes[1];
    }

    /// Cuts power between two requests or inside one, and restarts.
    fn cut(&mut self) -> Result<(), String> {
        let after = (!self.rng.one_in(3)).then(|| self.rng.below(12));
        let seed = Some(self.rng.next_u64() >> 1);
        let cut = PowerCut {
            after,
            seed,
            ..PowerCut::default()
        };
        self.volume
            .inject(&Injection::PowerCut(cut))
            .map_err(|failure| failure.message)?;
        for _ in 0..30 {
            if self.volume.is_powerless() {
                break;
            }
            if !self.request()? && !self.volume.is_powerless() {
                return Err("a request failed without a fault".into());
            }
        }
        if !self.volume.is_powerless() {
            let now = PowerCut {
                seed,
                ..PowerCut::default()
            };
            self.volume
                .inject(&Injection::PowerCut(now))
                .map_err(|failure| failure.message)?;
        }
        let disk = self.disk.ended(End::Kill);
        let disk = self.restart_amid(disk)?;
        let volume = self.setup.open(&disk)?;
        let bytes = Self::contents(&volume)?;
        let seen = self
            .oracle
            .judge_any(&bytes)
            .map_err(|why| format!("after a power cut: {why}"))?;
        volume.publish(true);
        let (counts, wrote) = (volume.flash().cache.last_cut, self.may_have_written_back());
        match self.setup.cache.model {
            _ if self.setup.cache.protected => self.oracle.judge_exact(&bytes)?,
            Model::Ordered => drop(self.oracle.judge_prefix(&bytes)?),
            Model::Lost if !wrote => {
                self.oracle.judge_base(&bytes)?;
                self.report.lost_whole += 1;
            }
            Model::Lost | Model::Any => {}
        }
        self.note_cut(counts, seen);
        self.begin(disk, volume, bytes);
        Ok(())
    }

    /// Returns whether something may have reached the flash without a completed FLUSH.
    fn may_have_written_back(&self) -> bool {
        self.wrote_back || self.appended > self.setup.room() / 2
    }

    fn note_cut(&mut self, counts: CutCounts, seen: Seen) {
        let report = &mut self.report;
        report.cuts += 1;
        report.dirty_cuts += u64::from(counts.units() > 0);
        report.units.new += counts.new;
        report.units.torn += counts.torn;
        report.units.old += counts.old;
        report.units.lost += counts.lost;
        report.newest += seen.newest;
        report.between += seen.between;
        report.base += seen.base;
        report.torn_writes += seen.torn;
    }

    /// Some starts end inside the opening: by a kill, or by a host crash where a power cut before
    /// it decided the outcome and no order is promised.
    fn restart_amid(&mut self, disk: SimDisk) -> Result<SimDisk, String> {
        let mut disk = disk;
        while self.rng.one_in(3) {
            disk.freeze_at(match self.rng.one_in(3) {
                true => Freeze::Sync(self.rng.below(6)),
                false => Freeze::Write(self.rng.below(60)),
            });
            drop(self.setup.open(&disk)?);
            let Some(frozen) = disk.take_frozen() else {
                return Ok(disk.ended(End::Kill));
            };
            self.report.starts_interrupted += 1;
            disk = frozen.ended(End::Kill);
        }
        Ok(disk)
    }

    fn kill(&mut self) -> Result<(), String> {
        let disk = self.disk.ended(End::Kill);
        let disk = self.restart_amid(disk)?;
        let other = self.rng.one_in(4);
        let volume = if other {
            // Without a cache, and then again with one: the area comes and goes.
            let volume = self.setup.open_with(&disk, None)?;
            let bytes = Self::contents(&volume)?;
            self.oracle.judge_exact(&bytes)?;
            drop(volume);
            self.setup.open(&disk)?
        } else {
            self.setup.open(&disk)?
        };
        let bytes = Self::contents(&volume)?;
        self.oracle
            .judge_exact(&bytes)
            .map_err(|why| format!("after a kill: {why}"))?;
        self.report.kills += 1;
        self.begin(disk, volume, bytes);
        Ok(())
    }

    fn crash(&mut self) -> Result<(), String> {
        let seed = self.rng.next_u64();
        let how = match self.rng.below(4) {
            0 => Crash::Nothing,
            1 => Crash::Prefix(seed),
            2 => Crash::Writes(seed),
            _ => Crash::Sectors(seed),
        };
        let disk = self.disk.ended(End::Crash(how));
        let volume = self.setup.open(&disk)?;
        let bytes = Self::contents(&volume)?;
        self.oracle
            .judge_any(&bytes)
            .map_err(|why| format!("after a host crash: {why}"))?;
        self.report.crashes += 1;
        self.begin(disk, volume, bytes);
        Ok(())
    }

    /// Stops. Some stops end inside: by a kill, or by a host crash.
    fn stop(&mut self) -> Result<(), String> {
        let before = self.setup.make()?.length();
        let end = match self.rng.below(4) {
            0 => Some(End::Kill),
            1 => Some(End::Crash(Crash::Sectors(self.rng.next_u64()))),
            _ => None,
        };
        if end.is_some() {
            let at = match self.rng.one_in(2) {
                true => Freeze::Sync(self.rng.below(6)),
                false => Freeze::Write(self.rng.below(24)),
            };
            self.disk.freeze_at(at);
        }
        self.close()?;
        let frozen = end.and_then(|_| self.disk.take_frozen());
        let disk = match (end, frozen) {
            (Some(end), Some(frozen)) => {
                self.report.stops_interrupted += 1;
                frozen.ended(end)
            }
            (_, None) if self.disk.length() != before => {
                return Err(format!(
                    "an image of {} bytes is {} bytes long after a clean stop",
                    before,
                    self.disk.length()
                ));
            }
            _ => {
                self.report.stops += 1;
                self.disk.ended(End::Kill)
            }
        };
        let volume = self.setup.open(&disk)?;
        let bytes = Self::contents(&volume)?;
        let judged = match end {
            Some(End::Crash(_)) => self.oracle.judge_any(&bytes).map(drop),
            _ => self.oracle.judge_exact(&bytes),
        };
        judged.map_err(|why| format!("after a stop, {end:?}: {why}"))?;
        self.begin(disk, volume, bytes);
        Ok(())
    }

    fn close(&self) -> Result<(), String> {
        let told = |error: &dyn std::fmt::Display| format!("stop: {error}");
        let stores = self.volume.close().map_err(|error| told(&error))?;
        close_stores(stores).map_err(|error| told(&error))
    }

    /// The flash of one shard takes no more writes. The others continue, and the host's writes to
    /// them survive restarts, whatever their caches had.
    fn refuse(&mut self) -> Result<(), String> {
        let of = self.setup.striping.expect("several shards");
        let shard = self.rng.number(of.count);
        let flash = &self.volume.flash_by_shard()[shard as usize];
        let bad = BadBlock {
            count: Some(flash.blocks - flash.scheme.blocks.bad),
            seed: Some(self.rng.below(1 << 32)),
            shard: Some(shard),
            ..BadBlock::default()
        };
        self.volume
            .inject(&Injection::BadBlock(bad))
            .map_err(|failure| failure.message)?;
        // Every block of the shard fails, or the shard has nothing to write back.
        let refuses = !self.flush();
        self.is_over = refuses;
        let mut disk = self.disk.ended(End::Kill);
        for _ in 0..1 + 2 * u64::from(refuses) {
            let volume = self.setup.open(&disk)?;
            let bytes = Self::contents(&volume)?;
            self.oracle
                .judge_exact(&bytes)
                .map_err(|why| format!("with shard {shard} refusing: {why}"))?;
            self.begin(disk, volume, bytes);
            if refuses {
                for _ in 0..8 {
                    self.write_beside(shard)?;
                }
                self.report.refusals += 1;
                if self.rng.one_in(3) {
                    // A stop that finds the end of life fails, and then is a kill.
                    let _ = self.close();
                }
            }
            disk = self.disk.ended(End::Kill);
        }
        Ok(())
    }

    /// Writes a part of a stripe of another shard.
    fn write_beside(&mut self, shard: u32) -> Result<(), String> {
        let of = self.setup.striping.expect("several shards");
        let number = self.rng.below(self.setup.size().div_ceil(of.stripe_bytes));
        if number % u64::from(of.count) == u64::from(shard) {
            return Ok(());
        }
        let offset = number * of.stripe_bytes;
        let length = of.stripe_bytes.min(self.setup.size() - offset);
        let change = Change {
            offset,
            data: vec![self.rng.byte(); length as usize],
        };
        self.oracle.submit(change.clone());
        let written = self.volume.write(offset, &change.data);
        written.map_err(|error| format!("write beside shard {shard}: {error}"))?;
        self.oracle.acknowledged();
        Ok(())
    }

    fn begin(&mut self, disk: SimDisk, volume: Volume, bytes: Vec<u8>) {
        self.disk = disk;
        self.volume = volume;
        (self.wrote_back, self.appended) = (false, 0);
        self.oracle.restarted(bytes);
    }
}
