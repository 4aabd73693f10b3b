//! `ftld crash-test`: runs a program on a new file system, and visits the states that a power cut
//! can leave of it.
//!
//! Data flows one way: [`args`] -> [`Plan`] (all that can be refused, before anything is made) ->
//! [`device`] (image, recording) -> [`uml`], [`host`] or NBD (COMMAND, a [`job`]) -> the
//! exploration of `ftld crashes`. In [`uml`] the other end is [`guest`], over [`frames`]. On a file
//! system that only a kernel reads, [`checks`] mounts each state in a machine that stays up.
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
mod overlay;
mod programs;
mod uml;

pub(crate) use args::CrashTestArgs;
pub(crate) use checks::{CheckStatesArgs, check_states};
pub(crate) use guest::guest_init;

use agitate::Agitation;
use args::Where;
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
    plan.record(&is_over)?;
    crashes::crashes(&plan.crashes, json)
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
    fn choose(args: &CrashTestArgs) -> Result<Machine, Failure> {
        let place = scratch_place(&args.crashes);
        let uml = || {
            uml::check_visible(&place, uml::OTHER_FOLDER)?;
            Uml::find(args.memory, &place).map(Machine::Uml)
        };
        match args.machine {
            Some(Where::Nbd) if args.fs == file_system::NONE => Ok(Machine::Nbd),
            Some(Where::Nbd) => Err(Failure::usage(
                "--machine nbd: nothing mounts the device; with --fs none COMMAND gets its NBD URI",
            )),
            Some(Where::Host) => Way::find(args.devices()).map(Machine::Host),
            Some(Where::Uml) => uml(),
            None if geteuid().is_root() => Way::find(args.devices())
                .map(Machine::Host)
                .or_else(|_| uml()),
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
        let bytes = parse_size(&args.size).map_err(Failure::usage)?;
        let fs = file_system::of(&args.fs);
        let fs = fs.map(|fs| Ok((fs, fs.maker(bytes)?))).transpose()?;
        if args.agitate.is_some() && fs.is_none() {
            return Err(Failure::usage(
                "--agitate: with --fs none there are no files to write back; leave it out",
            ));
        }
        let machine = Machine::choose(args)?;
        let crashes = checks_of(fs.as_ref().map(|(fs, _)| *fs), &machine, args)?;
        for (device, recording) in crashes.recordings().enumerate() {
            refuse_recording(recording, device)?;
        }
        crashes::check_arguments(of_recording)?;
        Ok(Plan {
            machine,
            size: args.size.clone(),
            bytes,
            fs,
            command: args.command.clone(),
            agitate: args.agitate,
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
        let in_memory = self.crashes.scratch.is_none() && device::has_room(shm, wanted);
        let of_image = in_memory.then(|| Scratch::create_in(shm).ok()).flatten();
        let folder = scratch.path();
        let of_image = of_image.as_ref().unwrap_or(&scratch).path();
        let places = |device| Places::of(device, of_image, folder);
        let places: Vec<Places> = (0..recordings.len()).map(places).collect();
        let fs = self.fs.as_ref().map(|(fs, maker)| (*fs, maker.as_path()));
        // Messages of a device that is not served yet are nobody's.
        let silent = NoSubscriber::default();
        with_default(silent, || {
            let mut places = places.iter();
            places.try_for_each(|places| places.create(&self.size, fs))
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
        let mount = |device| nth_file(&folder.join("mnt"), device);
        let mounts: Vec<_> = (0..places.len()).map(mount).collect();
        for mount in &mounts {
            std::fs::create_dir(mount).map_err(|error| Failure::io(mount.display(), &error))?;
        }
        // The first device has the marks.
        let first = &places[0];
        let job = Job::of(&self.command, &first.dirs)?;
        let (mut devices, mut targets) = (Vec::new(), Vec::new());
        for (number, (places, recording)) in
            places.iter().zip(self.crashes.recordings()).enumerate()
        {
            let target = match &self.machine {
                Machine::Uml(_) => uml::target(folder, number),
                Machine::Host(way) => way.target(folder, number),
                Machine::Nbd => host::uri(folder, number),
            };
            devices.push(Device::start(places, &target, recording)?);
            ours.borrow_mut().push(identity(recording));
            targets.push(PathBuf::from(target));
        }
        let pids: Vec<Pid> = devices.iter().map(Device::pid).collect();
        let report = match &self.machine {
            Machine::Uml(uml) => {
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
                host::run(way, fs, (folder, &mounts), load, &devices, first, is_over)
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

/// Returns the exploration, with the files of a state for the check: mounted by the kernel that ran
/// COMMAND, unless they can be read without.
///
/// # Errors
/// Nothing here shows the check the files of a state.
fn checks_of(
    fs: Option<&FileSystem>,
    machine: &Machine,
    of: &CrashTestArgs,
) -> Result<CrashesArgs, Failure> {
    let mut args = of.crashes.clone();
    let Some(fs) = fs else {
        return match args.files {
            None => Ok(args),
            Some(_) => Err(Failure::usage("--files: there are none with --fs none")),
        };
    };
    if fs.is_readable {
        args.files.get_or_insert_with(|| "/".into());
        return Ok(args);
    }
    let name = fs.name;
    if of.group.is_some() {
        return Err(Failure::usage(format!(
            "--group: with --fs {name} each state has to be mounted, and one file system is at a time; use ext4, or none"
        )));
    }
    if args.files.is_some() {
        return Err(Failure::usage(format!(
            "--files reads ext4; with --fs {name} the check finds the mounted state in FTLD_FILES"
        )));
    }
    if args.server {
        return Err(Failure::usage(format!(
            "--server: with --fs {name} each state is mounted for a check of its own; leave it out"
        )));
    }
    if let Machine::Uml(_) = machine {
        args.check = checks::command(name, of.memory, &args.check)?;
        args.server = true;
        return Ok(args);
    }
    if !is_known_here(name) {
        return Err(Failure::failed(format!(
            "--fs {name}: this kernel does not know it; use `--machine uml`, or another file system"
        )));
    }
    args.check = on_mounted(fs, &args.check);
    Ok(args)
}

/// Returns the command that mounts a state and runs the check on it.
fn on_mounted(fs: &FileSystem, check: &str) -> String {
    let (name, options) = (fs.name, fs.mount_options);
    // The check may end in a comment, or in the text of a redirection.
    format!(
        "export FTLD_FILES=\"$FTLD_WORK/files\"; mkdir \"$FTLD_FILES\"; \
         mount -t {name} -o loop{options} \"$FTLD_IMAGE\" \"$FTLD_FILES\" || exit 1; \
         (\n{check}\n); rc=$?; umount \"$FTLD_FILES\"; exit $rc"
    )
}

/// Returns whether this kernel can mount a file system.
fn is_known_here(name: &str) -> bool {
    let is_listed = || {
        let list = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        list.lines()
            .any(|line| line.split_whitespace().last() == Some(name))
    };
    // A mount would load its module, too.
    is_listed() || (Command::new("modprobe").arg(name).output().is_ok() && is_listed())
}

/// Returns device and number of a file, if there is one.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = path.symlink_metadata().ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Refuses to replace a file, unless it is the default recording of a device, from 0.
fn refuse_recording(recording: &Path, device: usize) -> Result<(), Failure> {
    output::writable("--record", recording)?;
    if recording.symlink_metadata().is_err() {
        return Ok(());
    }
    let is_default = recording == nth_file(Path::new(args::RECORDING), device);
    let is_ours = is_default && Reader::open(recording, true).is_ok();
    if is_ours {
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

    #[test]
    fn the_exit_code_of_a_check_on_a_mounted_state_is_its_own() {
        let fs = file_system::of("xfs").expect("a file system");
        // Stands for programs that take root.
        let programs = "mkdir() { :; }\nmount() { :; }\numount() { :; }\n";
        for (check, wanted) in [
            ("true", 0),
            ("exit 7", 7),
            ("test -n \"$FTLD_FILES\" # a comment", 0),
            ("test \"$(cat <<END\none\nEND\n)\" = one", 0),
            ("cat <<END | grep -q two\none\nEND", 1),
        ] {
            let mut shell = Command::new("/bin/sh");
            shell
                .arg("-c")
                .arg(programs.to_owned() + &on_mounted(fs, check));
            let code = shell.status().expect("a shell").code();
            assert_eq!(code, Some(wanted), "{check}");
        }
    }

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
