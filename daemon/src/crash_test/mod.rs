//! `ftld crash-test`: runs a program on a new file system, and visits the states that a power cut
//! can leave of it.
//!
//! Data flows one way: [`args`] -> [`Plan`] (all that can be refused, before anything is made) ->
//! [`device`] (image, recording) -> [`uml`], [`host`] or NBD (COMMAND, a [`job`]) -> the
//! exploration of `ftld crashes`. In [`uml`] the other end is [`guest`], over [`frames`].
//! [`states`] says how the check gets the files of a state: on a file system that only a kernel
//! reads, [`checks`] mounts each state in a machine that stays up.
//!
//! Invariants: no run is explored whose FLUSHes did not all reach the device: the kernel's count
//! has to equal the recording's. The process that the user started only waits, and is the reaper of
//! all others: whichever one dies, no process, mount or folder stays. If all are killed at once,
//! the next run removes their folder.

mod agitate;
mod args;
mod checks;
mod device;
mod file_system;
mod frames;
mod guest;
mod host;
mod job;
mod mount_options;
mod on_host;
mod overlay;
mod programs;
mod seeds;
mod states;
mod stays_up;
mod uml;

pub(crate) use args::CrashTestArgs;
pub(crate) use checks::{CheckStatesArgs, check_states};
pub(crate) use guest::guest_init;
pub(crate) use states::{RecordedArgs, recorded};

use agitate::Agitation;
use args::Where;
pub(crate) use device::has_room;
use device::{Counts, Device, Places};
use file_system::FileSystem;
use frames::CONTENT_MAX;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_kit::output::{self, counted};
use ftld_kit::size::parse_size;
use ftld_kit::{descendants, interrupt};
use ftld_lab::crashes::{self, CrashesArgs, Scratch, nth_file, remove_orphans};
use ftld_traces::recording::Reader;
use guest::{Report, Spec};
use host::Way;
use job::{Job, Outcome};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Pid, geteuid};
use seeds::Seeds;
use states::How;
use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::subscriber::{NoSubscriber, with_default};
use uml::Uml;

/// Program name (`argv[0]`) of the process that does the work.
const WORKER: &str = "ftld-crash-test";
/// Folder that is in memory on most hosts.
const SHM: &str = "/dev/shm";
/// Time between two looks at the worker.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs COMMAND on a new device that records, and explores the recording.
///
/// # Errors
/// A state failed the check (exit code 1), something that the run needs is missing, or the run
/// failed; the message has the way out.
pub(crate) fn crash_test(args: &CrashTestArgs, json: bool) -> Result<(), Failure> {
    let name = std::env::args_os().next();
    if name.is_some_and(|name| name == WORKER) {
        return work(args, json);
    }
    let failed = |error| Failure::io("the crash test", &error);
    descendants::adopt().map_err(failed)?;
    let is_over = interrupt::flag()?;
    let mut worker = Command::new("/proc/self/exe");
    worker.arg0(WORKER).args(std::env::args_os().skip(1));
    // Signals of a terminal end this process at most; its end is a signal for the worker.
    worker.process_group(0);
    let mut worker = worker.spawn().map_err(failed)?;
    let pid = Pid::from_raw(i32::try_from(worker.id()).expect("a process id"));
    let status = loop {
        match worker.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if is_over.swap(false, Relaxed) => drop(kill(pid, Signal::SIGTERM)),
            None => std::thread::sleep(LOOK_EVERY),
        }
    };
    // One that was killed has left all that it started.
    descendants::end_all_after(device::STOP_MAX);
    for place in [scratch_place(&args.crashes), SHM.into()] {
        remove_orphans(&place);
    }
    match status.code() {
        // It has printed its own message.
        Some(code) => std::process::exit(code),
        None => Err(Failure::failed(format!(
            "the crash test was killed: {status}"
        ))),
    }
}

/// Does what was asked for, as a child of the process that the user started.
fn work(args: &CrashTestArgs, json: bool) -> Result<(), Failure> {
    let failed = |error| Failure::io("the crash test", &error);
    descendants::adopt().map_err(failed)?;
    let is_over = interrupt::flag()?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM).map_err(|errno| failed(errno.into()))?;
    let plan = Plan::of(args)?;
    match args.agitate.filter(|seeds| seeds.count() > 1) {
        Some(seeds) => seeds::explore(plan, seeds, &is_over, json),
        None => {
            plan.record(&is_over)?;
            crashes::crashes(&plan.crashes, json)
        }
    }
}

/// How COMMAND gets the device.
#[derive(Debug)]
enum Machine {
    Uml(Uml),
    Host(Way),
    Nbd,
}

impl Machine {
    /// Returns the machine that was asked for, or the best one here.
    fn choose(fs: &str, how: &How, crashes: &CrashesArgs) -> Result<Machine, Failure> {
        let place = scratch_place(crashes);
        let uml = || {
            uml::check_visible(&place, uml::OTHER_FOLDER)?;
            Uml::find(how.memory, &place).map(Machine::Uml)
        };
        let host = || Way::find(crashes.recordings().count()).map(Machine::Host);
        let is_mounted = ftld_lab::crashes::is_kept(crashes) && fs != file_system::NONE;
        match how.machine {
            Some(Where::Host) if is_mounted => Err(Failure::usage(
                "--nested: a mount on this kernel does not tell in which order it repairs; use `--machine uml`",
            )),
            Some(Where::Nbd) if fs == file_system::NONE => Ok(Machine::Nbd),
            Some(Where::Nbd) => Err(Failure::usage(
                "--machine nbd: nothing mounts the device; with --fs none COMMAND gets its NBD URI",
            )),
            Some(Where::Host) => host(),
            Some(Where::Uml) => uml(),
            // A kernel's loop device keeps no order.
            None if is_mounted => uml(),
            None if geteuid().is_root() => host().or_else(|_| uml()),
            None => uml(),
        }
    }
}

/// A crash test that can be run.
#[derive(Debug)]
struct Plan {
    machine: Machine,
    size: String,
    bytes: u64,
    /// The file system, and the program that makes it.
    fs: Option<(&'static FileSystem, PathBuf)>,
    /// Options of its mount.
    mount_options: String,
    /// Its unit of atomicity, if it is not the default one.
    atomic_unit: Option<String>,
    command: Vec<OsString>,
    /// Seed of the agitation of its files.
    agitate: Option<u64>,
    crashes: CrashesArgs,
}

impl Plan {
    /// Checks everything that can be checked before anything is made.
    ///
    /// # Errors
    /// Something is missing or contradictory; the message has the way out.
    fn of(args: &CrashTestArgs) -> Result<Plan, Failure> {
        let args = &args.with_recordings();
        let of_recording = &args.crashes;
        if of_recording.case.is_some() || of_recording.ledger.is_some() || of_recording.cut_off {
            return Err(Failure::usage(format!(
                "--case, --ledger and --cut-off are for a recording that exists: `ftld crashes {}`",
                of_recording.recording.display()
            )));
        }
        let devices = args.devices();
        let has = |device| {
            let mut words = args.command.iter();
            words.any(|word| job::has_place(word, device, devices))
        };
        if !has(0) {
            return Err(Failure::usage(
                "COMMAND without {}: write {} where it takes the folder, or with --fs none the device",
            ));
        }
        if let Some(device) = (1..devices).find(|device| !has(*device)) {
            return Err(Failure::usage(format!(
                "COMMAND without {{{0}}}: with --group {devices} write {{{0}}} where it takes the folder of device {0}, or with --fs none the device",
                device + 1
            )));
        }
        if args.group.is_some() && args.agitate.is_some_and(|seeds| seeds.count() > 1) {
            return Err(Failure::usage(
                "--group: with one seed of --agitate only: the recordings of several are FILE.2, too",
            ));
        }
        let bytes = parse_size(&args.size).map_err(Failure::usage)?;
        let fs = file_system::of(&args.fs);
        let fs = fs.map(|fs| Ok((fs, fs.maker(bytes)?))).transpose()?;
        if args.agitate.is_some() && fs.is_none() {
            return Err(Failure::usage(
                "--agitate: with --fs none there are no files to write back; leave it out",
            ));
        }
        let how = How {
            machine: args.machine,
            memory: args.memory,
            mount_options: args.mount_options.clone(),
        };
        let mount_options = mount_options::of(&how.mount_options, fs.as_ref().map(|(fs, _)| *fs))?;
        device::flash(args.atomic_unit.as_deref(), bytes)?;
        crashes::check_arguments(of_recording)?;
        let machine = Machine::choose(&args.fs, &how, of_recording)?;
        let shown_by = fs.as_ref().map(|(fs, _)| *fs);
        let crashes = states::shown(shown_by, &machine, &how, of_recording)?;
        let is_default = crashes.recording == Path::new(args::RECORDING);
        let seeds = 1..=args.agitate.map_or(1, Seeds::count);
        let of_seeds = seeds.map(|number| seeds::numbered(&crashes.recording, number));
        for recording in of_seeds.chain(crashes.others.iter().cloned()) {
            refuse_recording(&recording, is_default)?;
        }
        Ok(Plan {
            machine,
            size: args.size.clone(),
            bytes,
            fs,
            mount_options,
            atomic_unit: args.atomic_unit.clone(),
            command: args.command.clone(),
            agitate: args.agitate.map(|seeds| seeds.first),
            crashes,
        })
    }

    /// Runs COMMAND on the device. The recording stays if COMMAND ended, well or not.
    ///
    /// # Errors
    /// The run failed, or the recording misses a FLUSH.
    fn record(&self, is_over: &Arc<AtomicBool>) -> Result<(), Failure> {
        let recordings: Vec<&Path> = self.crashes.recordings().collect();
        let scratch = Scratch::create_in(&scratch_place(&self.crashes))?;
        let shm = Path::new(SHM);
        let wanted = self.bytes.saturating_mul(2 * to_u64(recordings.len()));
        let in_memory = self.crashes.scratch.is_none() && has_room(shm, wanted);
        let of_image = in_memory.then(|| Scratch::create_in(shm).ok()).flatten();
        let folder = scratch.path();
        let of_image = of_image.as_ref().unwrap_or(&scratch).path();
        let places = |device| Places::of(device, of_image, folder);
        let places: Vec<Places> = (0..recordings.len()).map(places).collect();
        let fs = self.fs.as_ref().map(|(fs, maker)| (*fs, maker.as_path()));
        // Messages of a device that is not served yet are nobody's.
        let silent = NoSubscriber::default();
        with_default(silent, || {
            let unit = self.atomic_unit.as_deref();
            let mut places = places.iter();
            places.try_for_each(|places| places.create(&self.size, unit, fs))
        })?;
        for recording in &recordings {
            if recording.exists() {
                std::fs::remove_file(recording)
                    .map_err(|error| Failure::io(recording.display(), &error))?;
            }
        }
        let began = Instant::now();
        let ours = RefCell::new(Vec::new());
        let ran = self.run(folder, &places, &ours, &|| is_over.load(Relaxed));
        let took = began.elapsed();
        let ours = ours.into_inner();
        let is_ours = |(device, recording): &(usize, &&Path)| {
            let of = ours.get(*device).copied().flatten();
            of.is_some() && of == identity(recording)
        };
        let numbered = || recordings.iter().enumerate();
        let counts = ran.and_then(|report| match numbered().find(|it| !is_ours(it)) {
            _ if is_over.load(Relaxed) => Err(interrupted()),
            None => {
                let counts = recordings.iter().map(|recording| Counts::of(recording));
                Ok((report, counts.collect::<Result<Vec<_>, _>>()?))
            }
            Some((_, recording)) => Err(Failure::failed(format!(
                "{}: another program has replaced this recording, so nothing is explored; give each run a file of its own by --record",
                recording.display()
            ))),
        });
        let (report, counts) = counts.inspect_err(|_| {
            for (_, recording) in numbered().filter(is_ours) {
                drop(std::fs::remove_file(recording));
            }
        })?;
        self.judge(&report, &counts, took)
    }

    /// Runs COMMAND, and stops the devices. Adds the identities of the recordings to `ours`.
    fn run(
        &self,
        folder: &Path,
        places: &[Places],
        ours: &RefCell<Vec<Option<(u64, u64)>>>,
        is_over: &(dyn Fn() -> bool + Sync),
    ) -> Result<Report, Failure> {
        let fs = self.fs.as_ref().map(|(fs, _)| *fs);
        let options = self.mount_options.as_str();
        let mount = |device| nth_file(&folder.join("mnt"), device);
        let mounts: Vec<_> = (0..places.len()).map(mount).collect();
        for mount in &mounts {
            std::fs::create_dir(mount).map_err(|error| Failure::io(mount.display(), &error))?;
        }
        // The first device has the marks.
        let first = &places[0];
        let job = Job::of(&self.command, &first.dirs)?;
        let (mut devices, mut targets) = (Vec::new(), Vec::new());
        let unit = self.atomic_unit.as_deref();
        for (number, (places, recording)) in
            places.iter().zip(self.crashes.recordings()).enumerate()
        {
            let target = match &self.machine {
                Machine::Uml(_) => uml::target(folder, number),
                Machine::Host(way) => way.target(folder, number),
                Machine::Nbd => host::uri(folder, number),
            };
            devices.push(Device::start(places, &target, recording, unit)?);
            ours.borrow_mut().push(identity(recording));
            targets.push(PathBuf::from(target));
        }
        let pids: Vec<Pid> = devices.iter().map(Device::pid).collect();
        let report = match &self.machine {
            Machine::Uml(uml) => {
                let fs = (fs, options);
                let spec = Spec::of_command(fs, &mounts, job, &first.dirs, self.agitate)?;
                let control = first.dirs.control(device::NAME);
                let ask = move |request: Vec<u8>| ask(&control, &request).unwrap_or_default();
                let machine = uml.start(folder, &spec, pids, ask)?;
                machine.wait(&mut || {
                    let ended = devices.iter_mut().position(Device::has_ended);
                    match ended {
                        _ if is_over() => Err(interrupted()),
                        Some(at) => Err(devices[at].failure("the device ended while COMMAND ran")),
                        None => Ok(()),
                    }
                })
            }
            Machine::Host(way) => {
                let agitation = self.agitate.map(|seed| Agitation {
                    folders: &mounts,
                    seed,
                });
                let load = (&job, agitation);
                let (fs, mounts) = ((fs, options), (folder, &mounts[..]));
                host::run(way, fs, mounts, load, &devices, first, is_over)
            }
            Machine::Nbd => {
                let command = job.command(&targets);
                let outcome = host::run_command(command, first, &pids, is_over);
                outcome.map(|outcome| Report {
                    outcome,
                    flushes: None,
                    busy: None,
                    disturbed: None,
                })
            }
        };
        let report = report?;
        for device in devices {
            device.stop(is_over)?;
        }
        Ok(report)
    }

    /// Says what was recorded; refuses what cannot be explored.
    fn judge(&self, report: &Report, counts: &[Counts], took: Duration) -> Result<(), Failure> {
        let recording = self.crashes.recording.display();
        let recordings = self
            .crashes
            .recordings()
            .map(|path| path.display().to_string());
        let recordings: Vec<_> = recordings.collect();
        let Outcome { code, left } = report.outcome;
        let say = |text: &str| eprintln!("{recording}: {text}");
        let sent = |device: usize| Some(report.flushes.as_ref()?.get(device).copied().unwrap_or(0));
        for (device, seen) in counts.iter().enumerate() {
            let Some(sent) = sent(device).filter(|sent| *sent != seen.flushes) else {
                continue;
            };
            let of = match counts.len() {
                1 => String::new(),
                _ => format!("device {}: ", device + 1),
            };
            return Err(Failure::failed(format!(
                "{of}the kernel sent {sent} FLUSHes, the device saw {}: this way loses them, so nothing is explored",
                seen.flushes
            )));
        }
        if left > 0 {
            say(&format!(
                "COMMAND left {}: ended",
                counted(to_u64(left), "running process")
            ));
        }
        if let Some(busy) = &report.busy {
            say(busy);
        }
        if code != 0 {
            return Err(Failure::failed(format!(
                "COMMAND ended with exit code {code}, so nothing is explored; its recording is {}",
                recordings.join(", ")
            )));
        }
        if let Some(disturbed) = report.disturbed {
            say(&format!(
                "agitated by {} and {}",
                counted(disturbed.write_backs, "write-back"),
                counted(disturbed.fsyncs, "fsync")
            ));
        }
        if counts.iter().all(|of| of.marks == 0) {
            say("no mark: the checks can tell consistency, not durability");
        }
        say(&format!(
            "recorded in {:.1} s, {} FLUSHes by {}",
            took.as_secs_f64(),
            counts
                .iter()
                .map(|of| of.flushes.to_string())
                .collect::<Vec<_>>()
                .join(" + "),
            match report.flushes {
                Some(_) => "the kernel's count and the device's",
                None => "the device's count",
            }
        ));
        Ok(())
    }
}

/// Passes a request to the device; returns its answer, or the begin of one that is too long.
fn ask(control: &Path, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(control)?;
    stream.write_all(request)?;
    let (mut answer, most) = (Vec::new(), to_u64(CONTENT_MAX));
    BufReader::new(stream.take(most)).read_until(b'\n', &mut answer)?;
    Ok(answer)
}

/// Returns the folder for temporary files.
fn scratch_place(args: &CrashesArgs) -> PathBuf {
    let place = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
    place.canonicalize().unwrap_or(place)
}

/// Returns device and number of a file, if there is one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Refuses to replace a file, unless it is the default recording.
fn refuse_recording(recording: &Path, is_default: bool) -> Result<(), Failure> {
    output::writable("--record", recording)?;
    if recording.symlink_metadata().is_err() {
        return Ok(());
    }
    if is_default && Reader::open(recording, true).is_ok() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--record {0}: the file exists, and no recording overwrites one; name another file, or move {0} away",
        recording.display()
    )))
}

/// Returns the failure of a run that the user ended.
fn interrupted() -> Failure {
    Failure::failed("interrupted while COMMAND ran; nothing is explored")
}

/// Returns how many processes were killed.
fn killed(ended: &[WaitStatus]) -> usize {
    let is_killed = |end: &&WaitStatus| matches!(end, WaitStatus::Signaled(..));
    ended.iter().filter(is_killed).count()
}

/// Shows output of COMMAND; standard output is for the report.
fn show(bytes: &[u8]) {
    let _ = std::io::stderr().write_all(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Stands for the program.
    #[derive(clap::Parser)]
    enum Cli {
        Run(CrashTestArgs),
    }

    #[test]
    fn a_recording_is_explored_only_if_both_counts_of_its_flushes_are_equal() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("rec");
        let line = [
            "",
            "run",
            "--fs",
            "none",
            "--machine",
            "nbd",
            "--group",
            "2",
            "--check",
            "true",
        ];
        let line = line.map(OsString::from).into_iter();
        let record = [
            "--record".into(),
            recording.into(),
            "--".into(),
            "{}{2}".into(),
        ];
        let Cli::Run(args) = <Cli as clap::Parser>::parse_from(line.chain(record));
        let plan = Plan::of(&args).unwrap();
        for (sent, flushes, is_explored) in [
            (Some(vec![3]), vec![3], true),
            (Some(vec![3]), vec![2], false),
            (Some(vec![3]), vec![4], false),
            (Some(vec![1]), vec![0], false),
            (None, vec![2], true),
            (Some(vec![3, 0]), vec![3, 0], true),
            (Some(vec![3, 1]), vec![3, 2], false),
            (Some(vec![3, 1]), vec![1, 3], false),
        ] {
            let report = Report {
                outcome: Outcome { code: 0, left: 0 },
                flushes: sent.clone(),
                busy: None,
                disturbed: None,
            };
            let counts = flushes.iter().map(|flushes| Counts {
                flushes: *flushes,
                marks: 1,
            });
            let counts: Vec<_> = counts.collect();
            let judged = plan.judge(&report, &counts, Duration::ZERO);
            assert_eq!(judged.is_ok(), is_explored, "{sent:?}, {flushes:?}");
            if let Err(refused) = judged {
                assert!(refused.message.contains("nothing is explored"), "{refused}");
            }
        }
    }

    #[test]
    fn options_of_one_device_are_refused_for_a_group_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let recording = folder.path().join("rec").display().to_string();
        for (options, why) in [
            (&["--nested"][..], "--nested: with one device only"),
            (&["--agitate=1..2"], "with one seed of --agitate only"),
        ] {
            let line = [
                "", "run", "--fs", "none", "--check", "true", "--record", &recording,
            ];
            let group = ["--group", "2", "--", "true", "{}{2}"];
            let line = line.iter().chain(options).chain(&group);
            let Cli::Run(args) = <Cli as clap::Parser>::parse_from(line);
            let refused = Plan::of(&args).unwrap_err();
            assert!(refused.message.contains(why), "{refused}");
        }
    }

    #[test]
    fn an_answer_that_no_frame_holds_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("control.sock");
        let device = UnixListener::bind(&control).unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = device.accept().unwrap();
            // The other end may close before it has read all.
            let _ = stream.write_all(&vec![b'x'; 2 * CONTENT_MAX]);
        });
        let answer = ask(&control, b"{}\n").unwrap();
        assert!(answer == vec![b'x'; CONTENT_MAX], "{} bytes", answer.len());
        answers.join().unwrap();
    }
}
