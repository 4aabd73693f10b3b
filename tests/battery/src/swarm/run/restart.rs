//! A device goes down and restarts: losses in between, faults inside mounts, and the checks after a
//! mount.

use super::{Runner, Verdict, arm, bad_blocks};
use crate::host::blocks_add_up;
use crate::swarm::oracle::Cost;
use crate::swarm::plan::{Down, Inside, Restart};
use crate::swarm::world;
use crate::swarm::world::World;
use ftl_core::FtlError;
use nand_model::{Chip, Cut};

impl<'p, W: World> Runner<'p, W> {
    pub(super) fn power_lost_in_request(&mut self) -> Verdict {
        let Some(restart) = self.armed.take() else {
            return Err("power was lost, and no cut was armed".into());
        };
        self.classes.note("power cut");
        self.note_unflushed_merges();
        self.note_in_flight();
        self.power_lost = true;
        self.take_down();
        self.restart(restart)
    }

    /// Drops the state in RAM.
    pub(super) fn take_down(&mut self) {
        self.tally();
        // A look at the flash would write what a batch left unwritten.
        if self.batch.take().is_none() {
            self.scan();
        } else {
            self.classes.note("batch not acknowledged");
        }
        self.remember_reads(false);
        self.drop_sync();
        let Some(ftl) = self.ftl.take() else { return };
        if self.world.disk().is_some() {
            // A dead process writes nothing more.
            drop(ftl);
        } else {
            self.world.leave(ftl.into_chip().into_store());
        }
    }

    /// After a failed sync the next open trusts only the operations synced before.
    fn drop_sync(&mut self) {
        if self
            .sync
            .take()
            .is_some_and(|sync| sync.failure().is_some())
        {
            self.classes.note("failed sync");
            self.power_lost = true;
        }
    }

    pub(super) fn down(&mut self, how: Down, restart: &'p Restart) -> Verdict {
        self.armed = None;
        match how {
            Down::Stop => {
                if self.shut_down()? {
                    self.stopped &= restart.crash.is_none() && restart.inside.is_empty();
                    return self.restart(restart);
                }
                return Ok(());
            }
            Down::StopCut(cut) => {
                self.chip().update_faults(|plan| plan.cut = Some(cut));
                if self.shut_down()? {
                    self.stopped = false;
                    return self.restart(restart);
                }
                return Ok(());
            }
            Down::StopCrash(at, how) => {
                self.world
                    .disk()
                    .into_iter()
                    .for_each(|disk| disk.freeze_at(at));
                if !self.shut_down()? {
                    return Ok(());
                }
                self.stopped = false;
                let class = match self.thaw() {
                    true => "host crash inside a clean stop",
                    false => "host crash",
                };
                self.crash(how, class);
                return self.restart(restart);
            }
            Down::Kill => {
                let dirty = self.world.disk().is_some_and(|disk| disk.unsynced() > 0);
                self.classes.note(if dirty {
                    "kill on a dirty cache"
                } else {
                    "kill"
                });
            }
            Down::PowerOff => {
                self.classes.note("power off between operations");
                self.power_lost = true;
            }
            Down::Crash(how) => {
                self.take_down();
                self.crash(how, "host crash");
                return self.restart(restart);
            }
        }
        self.take_down();
        self.restart(restart)
    }

    /// Stops cleanly, as far as faults let it. Returns false if the device is at its end.
    fn shut_down(&mut self) -> Result<bool, String> {
        self.check()
            .map_err(|why| format!("before the stop: {why}"))?;
        let now = self.latest;
        match self.ftl().shutdown(now) {
            Ok(_) => {}
            Err(FtlError::PowerLost) => {
                self.classes.note("power cut");
                self.classes.note("power cut inside a clean stop");
                self.power_lost = true;
                self.take_down();
                return Ok(true);
            }
            Err(error) => {
                self.refused(error)?;
                if self.gave_up {
                    return Ok(false);
                }
                self.take_down();
                return Ok(true);
            }
        }
        // A write that used the last good blocks may have succeeded without a later one.
        let read_only = self.ftl().stats().read_only;
        if let Some(reason) = read_only
            && !self.host_fails()
            && !self.may_give_up()
            && !self.blocks_used_up()
        {
            return Err(format!("read-only at a stop: {reason}"));
        }
        self.tally();
        self.scan();
        self.remember_reads(true);
        let store = self.ftl.take().expect("it served").into_chip().into_store();
        let closed = self.world.close(store);
        self.drop_sync();
        if let Err(why) = closed
            && !self.disk_fails
            && !self.power_lost
        {
            return Err(format!("close: {why}"));
        }
        self.classes.note("clean stop");
        self.stopped = self.oracle.cost() == Cost::Nothing
            && read_only.is_none()
            && !self.disk_fails
            && !self.power_lost;
        Ok(true)
    }

    /// Crashes the host; counted if some writes had not reached the disk.
    fn crash(&mut self, how: ftld_host_disk::Crash, class: &'static str) {
        let unsynced = self.world.disk().map_or(0, |disk| disk.unsynced());
        self.classes.note_times(class, u64::from(unsynced > 0));
        self.world
            .disk()
            .into_iter()
            .for_each(|disk| world::crash(disk, how));
        // A new disk: the host replaced the failing one.
        (self.disk_fails, self.erases_fail) = (false, false);
        self.exposure.forget();
        self.power_lost = true;
    }

    pub(super) fn mend(&mut self) {
        (self.disk_fails, self.erases_fail) = (false, false);
        self.world
            .disk()
            .into_iter()
            .for_each(|disk| disk.clear_faults());
    }

    /// Mounts until the device serves.
    pub(super) fn restart(&mut self, restart: &'p Restart) -> Verdict {
        if let Some(how) = restart.crash {
            self.crash(
                how,
                if self.power_lost {
                    "power cut, then host crash"
                } else {
                    "kill, then host crash"
                },
            );
        }
        for inside in &restart.inside {
            match self.fault_in_mount(*inside) {
                Ok(()) => {}
                Err(Failed::Refused) => return Ok(()),
                Err(failed) => return Err(failed.into()),
            }
        }
        self.mount_and_serve()
    }

    pub(super) fn mount_and_serve(&mut self) -> Verdict {
        match self.mount(None) {
            Ok(()) => self.serve(),
            Err(Failed::Refused) => Ok(()),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Mounts with a fault inside; the device is down again afterwards.
    fn fault_in_mount(&mut self, inside: Inside) -> Result<(), Failed> {
        match inside {
            Inside::Cut(cut, how) => {
                if self.cut_inside_mount(cut)? {
                    self.classes.note("power cut inside a mount");
                    self.power_lost = true;
                }
                if let Some(how) = how {
                    self.crash(how, "power cut, then host crash");
                }
            }
            Inside::Fails(blocks, after, cut) => {
                self.failing = Some((blocks, after));
                let is_cut = self.cut_inside_mount(cut);
                self.failing = None;
                if is_cut? {
                    self.classes.note("power cut inside a mount");
                    self.power_lost = true;
                } else {
                    self.bad_before = None;
                }
            }
            Inside::Crash(at, how) => {
                self.world
                    .disk()
                    .into_iter()
                    .for_each(|disk| disk.freeze_at(at));
                self.mount(None)?;
                self.take_down();
                let amid = self.thaw();
                self.crash(
                    how,
                    if amid {
                        "host crash amid a mount"
                    } else {
                        "host crash after a mount"
                    },
                );
            }
            Inside::Kill => {
                self.mount(None)?;
                self.classes.note("kill after a mount");
                self.take_down();
            }
        }
        Ok(())
    }

    /// Returns whether the mount reached the cut.
    fn cut_inside_mount(&mut self, cut: Cut) -> Result<bool, Failed> {
        let (environment, failing, mut bad) = (self.environment(None), self.failing, 0);
        let mut prepare = |chip: &mut Chip| {
            bad = bad_blocks(chip);
            arm(chip, environment.clone(), failing);
        };
        let outcome = self.world.cut_inside_mount(self.rig, &mut prepare, cut);
        if let Some(outcome) = outcome {
            let is_cut = outcome.map_err(|error| self.mount_failed(error))?;
            self.note_cut_in_mount(is_cut, bad);
            return Ok(is_cut);
        }
        let outcome = self.mount(Some(cut));
        self.take_down();
        self.note_cut_in_mount(matches!(outcome, Err(Failed::Power)), self.bad_at_open);
        match outcome {
            Ok(()) => Ok(false),
            Err(Failed::Power) => Ok(true),
            Err(failed) => Err(failed),
        }
    }

    /// If power failed in a mount, counts another cut at the same logical page, and keeps the
    /// number of bad blocks for the next opening.
    fn note_cut_in_mount(&mut self, is_cut: bool, bad: usize) {
        if is_cut {
            self.bad_before = self.failing.map(|_| bad);
            self.cut_page = self.cut_page.map(|(lpn, cuts)| (lpn, cuts + 1));
            self.note_cuts_at_one_page();
        }
    }

    /// Restores the disk at the moment of the host crash. False if the mount did not get that far.
    fn thaw(&mut self) -> bool {
        let Some(disk) = self.world.disk() else {
            return false;
        };
        let Some(frozen) = disk.take_frozen() else {
            return false;
        };
        *disk = frozen;
        true
    }

    /// Opens and mounts, once more after the faults of the disk are cleared.
    fn mount(&mut self, cut: Option<Cut>) -> Result<(), Failed> {
        let outcome = self.try_mount(cut);
        let Err(Failed::Host(why)) = outcome else {
            return outcome;
        };
        if !self.disk_fails {
            return Err(Failed::Violation(format!(
                "mount on a disk without faults: {why}"
            )));
        }
        self.classes.note("disk failed in a mount");
        // A sync may have failed: then the next open trusts only the operations synced before.
        self.power_lost = true;
        self.mend();
        self.take_down();
        match self.try_mount(cut) {
            Err(Failed::Host(why)) => {
                Err(Failed::Violation(format!("mount on a mended disk: {why}")))
            }
            other => other,
        }
    }

    fn try_mount(&mut self, cut: Option<Cut>) -> Result<(), Failed> {
        let store = self.world.open().map_err(Failed::Host)?;
        self.sync = W::sync_handle(&store);
        let mut chip = self.rig.open(store);
        self.compare_reads(&chip).map_err(Failed::Violation)?;
        self.bad_at_open = bad_blocks(&chip);
        let failed = self.bad_before.take();
        self.classes.note_times(
            "program failure in a mount, then power cut",
            u64::from(failed.is_some_and(|before| before < self.bad_at_open)),
        );
        // The device's clock continues: emulated instants count from the opening.
        self.done.clear();
        self.latest = 0;
        arm(&mut chip, self.environment(cut), self.failing);
        match self.rig.mount(chip) {
            Ok(ftl) => {
                self.ftl = Some(ftl);
                self.flushed_at = self.merges_and_erases();
                self.begin_session();
                let stats = self.ftl().stats();
                let writes_checkpoints = !self
                    .plan
                    .device
                    .params
                    .contains(&("ckpt.interval".into(), "0".into()));
                if std::mem::take(&mut self.stopped) && !stats.mount.clean && writes_checkpoints {
                    return Err(Failed::Violation(
                        "an orderly stop was not followed by a clean mount".into(),
                    ));
                }
                self.classes.note(if stats.mount.clean {
                    "clean mount"
                } else {
                    "mount by scan"
                });
                if let Err(why) = self.sync_image() {
                    self.power_lost = true;
                    return Err(Failed::Host(why));
                }
                Ok(())
            }
            Err(FtlError::PowerLost) if cut.is_some() => Err(Failed::Power),
            Err(error) => Err(self.mount_failed(error)),
        }
    }

    fn mount_failed(&mut self, error: FtlError) -> Failed {
        match error {
            FtlError::HostFull | FtlError::Host(_) => Failed::Host(error.to_string()),
            FtlError::Corrupt(_) | FtlError::ReadOnly(_) | FtlError::MediaLost(_)
                if self.oracle.cost() == Cost::Service =>
            {
                self.classes.note("mount refused");
                self.gave_up = true;
                Failed::Refused
            }
            error => Failed::Violation(format!("mount: {error}")),
        }
    }

    pub(super) fn sync_image(&mut self) -> Result<(), String> {
        let Some(sync) = &self.sync else {
            return Ok(());
        };
        sync.sync_through(sync.last_seq())
            .map_err(|error| error.to_string())
    }

    /// Completes a mount: reads everything; these contents must stay.
    fn serve(&mut self) -> Verdict {
        self.note_mount();
        // The mount ended with a sync, so these erases are durable. Later ones, as of reads that
        // evict mapping pages, may be undone.
        self.no_count_went_back()?;
        self.remember_wear();
        self.check()
            .map_err(|why| format!("after the mount: {why}"))?;
        let power_lost = self.power_lost;
        let settled = self.each_page(|oracle, lpn, seen| match seen {
            Some(seen) => oracle.settle(lpn, seen, power_lost),
            None => {
                oracle.leave_open(lpn, power_lost);
                Ok(())
            }
        });
        settled.map_err(|why| format!("after the mount: {why}"))?;
        self.power_lost = false;
        Ok(())
    }

    pub(super) fn check(&mut self) -> Verdict {
        let blocks = self.rig.profile.geometry.blocks;
        if self.oracle.cost() > Cost::Nothing {
            return blocks_add_up(&self.ftl().stats(), blocks);
        }
        let wrong = match self.ftl().check() {
            // It may have to write back a mapping page before it reads another.
            Err(FtlError::Host(_) | FtlError::HostFull) if self.host_fails() => return Ok(()),
            // An armed cut; the next request notices it.
            Err(FtlError::PowerLost) => return Ok(()),
            checked => checked.map_err(|error| format!("check failed: {error}"))?,
        };
        if !wrong.is_empty() {
            return Err(format!("check: {}", wrong.join("; ")));
        }
        blocks_add_up(&self.ftl().stats(), blocks)
    }

    fn no_count_went_back(&mut self) -> Verdict {
        let chip = self.ftl.as_ref().expect("the device serves").chip();
        let younger = self
            .worn
            .iter()
            .zip(chip.erase_counts())
            .position(|(before, now)| now < *before);
        younger.map_or(Ok(()), |block| {
            Err(format!("the erase count of block {block} went back"))
        })
    }

    pub(super) fn remember_wear(&mut self) {
        self.worn = self
            .ftl
            .as_ref()
            .map_or_else(Vec::new, |ftl| ftl.chip().erase_counts().collect());
    }
}

/// Reason of a failed mount.
enum Failed {
    /// The cut happened.
    Power,
    /// The host's disk failed.
    Host(String),
    /// The device may refuse, and did.
    Refused,
    /// The mount must not have failed.
    Violation(String),
}

impl From<Failed> for String {
    fn from(failed: Failed) -> String {
        match failed {
            Failed::Power => "power was lost, and no cut was armed".into(),
            Failed::Refused => "the mount was refused".into(),
            Failed::Host(why) | Failed::Violation(why) => why,
        }
    }
}
