//! Parts with silent faults, and dies that stop working, under every scheme. A request may fail and
//! the device may become read-only, but reads return correct data.

use ftl_core::{FtlError, Params};
use ftld_battery::host::{Host, Trouble, values};
use ftld_battery::rig::Rig;
use ftld_battery::workload::{HostOp, Kind, Workload};
use ftld_tests::suite;
use nand_model::{DieFailure, Fault, FaultPlan, Geometry, Profile};
use std::collections::BTreeMap;

const PAGES: u32 = 256;

/// Results of the requests.
#[derive(Default)]
struct Tally {
    requests: u32,
    failed: u32,
    lost: u32,
    gave_up: Option<String>,
}

/// Runs requests under faults until `requests` are done, or the device becomes read-only; reads
/// everything at the end.
fn endure(host: &mut Host, kind: Kind, seed: u64, requests: usize) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut unsure = Unsure::default();
    for op in Workload::new(kind, host.model.pages(), seed).take(requests) {
        tally.requests += 1;
        settle(host, &mut unsure)?;
        let before: Vec<(u32, Vec<u64>)> = values(&op, 0)
            .map(|(lpn, _)| (lpn, host.model.candidates(lpn)))
            .collect();
        match host.run(&op) {
            Ok(()) => before.iter().for_each(|(lpn, _)| drop(unsure.remove(lpn))),
            Err(Trouble::Refused(FtlError::MediaLost(_))) => {
                tally.failed += 1;
                doubt(host, &mut unsure, before);
            }
            Err(Trouble::Refused(error @ (FtlError::ReadOnly(_) | FtlError::Corrupt(_)))) => {
                tally.gave_up = Some(error.to_string());
                doubt(host, &mut unsure, before);
                break;
            }
            Err(other) => return Err(format!("{op:?}: {}", String::from(other))),
        }
    }
    settle(host, &mut unsure)?;
    for lpn in 0..host.model.pages() {
        match host.read(lpn, 1) {
            Ok(seen) => host.model.judge(lpn, seen[0])?,
            Err(FtlError::MediaLost(_) | FtlError::Corrupt(_)) => tally.lost += 1,
            Err(other) => return Err(format!("read of page {lpn}: {other}")),
        }
    }
    Ok(tally)
}

/// Pages of failed requests with their possible contents, until a read succeeds or the page is
/// rewritten.
type Unsure = BTreeMap<u32, Vec<u64>>;

/// Records that a failed request may have been done in part; `before` is the possible contents of
/// its pages until then.
fn doubt(host: &Host, unsure: &mut Unsure, before: Vec<(u32, Vec<u64>)>) {
    for (lpn, values) in before {
        let known = unsure.entry(lpn).or_default();
        known.extend(values);
        known.push(host.model.newest(lpn));
    }
}

/// Reads each such page; the first content read must persist.
fn settle(host: &mut Host, unsure: &mut Unsure) -> Result<(), String> {
    for (lpn, values) in std::mem::take(unsure) {
        match host.read(lpn, 1) {
            Ok(seen) => {
                let value = host.model.value(lpn, seen[0])?;
                if !values.contains(&value) {
                    return Err(format!(
                        "page {lpn} of a failed request reads as version {value}, not of {values:?}"
                    ));
                }
                host.model.assume(lpn, value);
            }
            Err(_) => drop(unsure.insert(lpn, values)),
        }
    }
    Ok(())
}

/// Checks that the next start mounts or returns the reason.
fn starts_or_says_why(rig: &Rig, host: Host) -> Result<&'static str, String> {
    match rig.mount(host.cut_power().0) {
        Ok(mut ftl) => {
            let page = rig.profile.geometry.page_bytes as usize;
            let mut bytes = vec![0; page];
            (0..rig.config.logical_pages)
                .for_each(|lpn| drop(ftl.read(0, ftl_core::Lpn::new(lpn), &mut bytes)));
            Ok("mounted")
        }
        Err(FtlError::Corrupt(_) | FtlError::ReadOnly(_)) => Ok("refused"),
        Err(other) => Err(format!("mount: {other}")),
    }
}

#[test]
fn silent_faults_cause_no_wrong_read() {
    let silent = Fault::ALL.into_iter().filter(|fault| fault.is_silent());
    for (fault, (scheme, cells)) in
        silent.flat_map(|fault| suite::matrix().map(move |on| (fault, on)))
    {
        let mut params = Params::default();
        params.set("ckpt.interval", "400");
        let rig = Rig::with_params(scheme, cells, PAGES, params, suite::seed())
            .variant(fault.name(), |_| {});
        let mut verdicts = suite::verdicts("faulty_parts", scheme);
        let (mut struck, mut failed, mut lost, mut gave_up, mut refused) = (0, 0, 0, 0, 0);
        for round in 0..if suite::long() { 2_000 } else { 40 } {
            verdicts.case(&format!("{}/{round}", rig.path()), || {
                let seed = rig.seed + round;
                let mut host = Host::format(&rig);
                for lpn in 0..PAGES {
                    host.run(&HostOp::Write {
                        lpn,
                        count: 1,
                        fua: false,
                    })?;
                }
                let rates = [(
                    fault,
                    if fault == Fault::LostErase {
                        5_000_000
                    } else {
                        500_000
                    },
                )]
                .into();
                host.set_faults(FaultPlan {
                    rates,
                    seed,
                    ..FaultPlan::default()
                });
                let tally = endure(
                    &mut host,
                    Kind::ALL[round as usize % Kind::ALL.len()],
                    seed,
                    1_500,
                )?;
                struck += host.ftl.chip().counters().injected(fault);
                failed += tally.failed;
                lost += tally.lost;
                gave_up += tally.gave_up.is_some() as u32;
                refused += (starts_or_says_why(&rig, host)? == "refused") as u32;
                Ok(())
            });
        }
        println!(
            "{}: struck {struck} times; {failed} requests failed, {lost} pages lost at the end, {gave_up} devices gave up, {refused} would not mount",
            rig.path()
        );
        assert!(
            struck > 0 || verdicts.cases < 40,
            "{}: nothing struck",
            rig.path()
        );
        verdicts.assert_none_failed();
    }
}

#[test]
fn failed_die_loses_only_its_own_data() {
    for (scheme, cells) in suite::matrix() {
        let profile = cells.profile();
        let profile = Profile {
            geometry: Geometry {
                ways: 4,
                ..profile.geometry
            },
            ..profile
        };
        let rig = Rig::on_profile(
            scheme,
            cells,
            profile,
            PAGES,
            Params::default(),
            suite::seed(),
        )
        .variant("die", |_| {});
        let mut verdicts = suite::verdicts("faulty_parts", scheme);
        let (mut lost, mut gave_up, mut refused) = (0, 0, 0);
        let rounds = if suite::long() { 400 } else { 20 };
        for round in 0..rounds {
            verdicts.case(&format!("{}/{round}", rig.path()), || {
                let seed = rig.seed + round;
                let mut host = Host::format(&rig);
                for lpn in 0..PAGES {
                    host.run(&HostOp::Write {
                        lpn,
                        count: 1,
                        fua: false,
                    })?;
                }
                let die = DieFailure {
                    die: round as u32 % 4,
                    at_op: 37 * round,
                };
                host.set_faults(FaultPlan {
                    die: Some(die),
                    seed,
                    ..FaultPlan::default()
                });
                let tally = endure(&mut host, Kind::HotCold, seed, 1_500)?;
                lost += tally.lost;
                gave_up += tally.gave_up.is_some() as u32;
                refused += (starts_or_says_why(&rig, host)? == "refused") as u32;
                Ok(())
            });
        }
        println!(
            "{}: {rounds} dies died; {lost} of {} pages lost, {gave_up} devices gave up, {refused} would not mount",
            rig.path(),
            rounds * PAGES as u64
        );
        assert!(
            lost > 0 || verdicts.cases < rounds,
            "{}: no die took anything with it",
            rig.path()
        );
        verdicts.assert_none_failed();
    }
}
