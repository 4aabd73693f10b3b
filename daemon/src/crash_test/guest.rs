//! `ftld guest-init`: the first process of a machine of User-Mode Linux.
//!
//! The machine's root is the host's, with the user's rights. This process mounts the disk, runs
//! COMMAND as the user who called, unmounts, reports, and switches the machine off; or it does so
//! with the check, for each state that the host brings onto the disk. It speaks [`Frame`]s with the
//! host over the first serial line: what it is to do is the first answer. For COMMAND, the control
//! socket of the device is at the same path as on the host; its requests pass over the line.

use super::agitate::{self, Agitation, Disturbed};
use super::device::{NAME, kernel_flushes};
use super::file_system::{self, FileSystem};
use super::frames::{Frame, PART_BYTES};
use super::job::{self, Job, Outcome};
use super::stays_up::{StaysUp, Verdict};
use crate::control::{self, Request};
use ftld_device::instance::{Dirs, Instance};
use ftld_kit::descendants;
use ftld_kit::failure::{Failure, panic_text};
use ftld_lab::crashes::{RECOVERY, Resident};
use nix::errno::Errno;
use nix::libc;
use nix::mount::{MsFlags, mount, umount};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, sendto, socket,
};
use nix::unistd::{getgid, getgroups, getuid};
use parking_lot::Mutex;
use rustix::process::{Gid, Uid};
use rustix::system::{RebootCommand, finit_module, reboot};
use rustix::termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr};
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Line to the host.
const SERIAL: &str = "/dev/ttyS0";
/// The disk of a machine that has one.
pub(super) const DISK: &str = "/dev/vda";
const DISKS_IN_SYS: &str = "/sys/block";
/// Folder of the modules, by the kernel's release.
pub(super) const MODULES: &str = "/usr/lib/uml/modules";
/// Module of the disk.
pub(super) const DISK_MODULE: &str = "virtio_blk";
/// Longest waits for the disk, and for a mount that is in use.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Folder in the machine's memory where a state is mounted, and that of its check.
const STATE: &str = "/dev/shm/files";
const WORK: &str = "/dev/shm/work";
const SHM: &str = "/dev/shm";
/// Longest request to the device.
const REQUEST_MAX: u64 = 4096;

/// What the machine is to do.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Spec {
    /// Name of the file system; `none` for the bare disk.
    fs: String,
    /// Options of its mounts.
    options: String,
    /// Where each disk is mounted.
    mounts: Vec<OsString>,
    job: Job,
    task: Task,
    /// The user who called.
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

#[derive(Debug, Deserialize, Serialize)]
enum Task {
    /// Run the job once.
    Command {
        /// Runtime folder of the device.
        runtime: OsString,
        /// Seed of the agitation of its files.
        agitate: Option<u64>,
    },
    /// Run the job on each state, or ask it if it stays up.
    Checks { server: bool },
}

impl Spec {
    /// Returns what a machine does that runs COMMAND, for the user of this process.
    ///
    /// # Errors
    /// The groups of the user cannot be read.
    pub(super) fn of_command(
        (fs, options): (Option<&FileSystem>, &str),
        mounts: &[PathBuf],
        job: Job,
        dirs: &Dirs,
        agitate: Option<u64>,
    ) -> Result<Spec, Failure> {
        let runtime = dirs.runtime.clone().into();
        let task = Task::Command { runtime, agitate };
        Spec::of((fs, options), mounts, job, task)
    }

    /// Returns what a machine does that runs a shell command on states, for the user of this
    /// process.
    ///
    /// # Errors
    /// There is no working folder, or the groups of the user cannot be read.
    pub(super) fn of_checks(
        (fs, options): (&FileSystem, &str),
        check: &str,
        server: bool,
    ) -> Result<Spec, Failure> {
        let words = ["/bin/sh", "-c", check].map(OsString::from);
        let job = Job::with(&words, |environment| {
            for name in ["FTLD_URI", RECOVERY] {
                environment.remove(OsStr::new(name));
            }
            let places = [
                ("FTLD_FILES", STATE),
                ("FTLD_IMAGE", DISK),
                ("FTLD_WORK", WORK),
                ("TMPDIR", WORK),
            ];
            environment.extend(places.map(|(name, path)| (name.into(), path.into())));
        })?;
        let task = Task::Checks { server };
        Spec::of((Some(fs), options), &[STATE.into()], job, task)
    }

    /// Returns the number of disks.
    pub(super) fn disks(&self) -> usize {
        self.mounts.len()
    }

    fn of(
        (fs, options): (Option<&FileSystem>, &str),
        mounts: &[PathBuf],
        job: Job,
        task: Task,
    ) -> Result<Spec, Failure> {
        let groups = getgroups().map_err(|errno| at("groups")(errno.into()))?;
        Ok(Spec {
            fs: fs.map_or(file_system::NONE, |fs| fs.name).into(),
            options: options.into(),
            mounts: mounts.iter().map(Into::into).collect(),
            job,
            task,
            uid: getuid().as_raw(),
            gid: getgid().as_raw(),
            groups: groups.into_iter().map(|group| group.as_raw()).collect(),
        })
    }
}

/// What the machine did.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Report {
    /// End of COMMAND.
    pub(super) outcome: Outcome,
    /// FLUSHes that the kernel sent to each disk; `None` without one.
    pub(super) flushes: Option<Vec<u64>>,
    /// Why the disk is still mounted.
    pub(super) busy: Option<String>,
    /// What happened to its files meanwhile, if that was asked for.
    pub(super) disturbed: Option<Disturbed>,
}

/// The machine's last message.
pub(super) type LastWord = Result<Report, String>;

/// Runs the machine until it is switched off. Returns if this process is not the first one.
///
/// # Errors
/// It is not.
pub(crate) fn guest_init() -> Result<(), Failure> {
    if std::process::id() != 1 {
        return Err(Failure::usage(
            "guest-init: the first process of a machine, which `ftld crash-test` starts",
        ));
    }
    let run = || {
        let line = open_line()?;
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| run(&line)));
        let done = done.unwrap_or_else(|panic| Err(Failure::failed(panic_text(&*panic))));
        let word: LastWord = done.map_err(|failure| failure.message);
        let word = serde_json::to_vec(&word).map_err(Failure::failed)?;
        line.send(&Frame::End(word)).map_err(at(SERIAL))?;
        tcdrain(&*line.output.lock()).map_err(|errno| at(SERIAL)(errno.into()))
    };
    // The kernel's console, which the host shows if the machine ends without a last message.
    let result = run().inspect_err(|failure| eprintln!("ftld guest-init: {failure}"));
    reboot(RebootCommand::PowerOff).map_err(|errno| Failure::io("power off", &errno.into()))?;
    result
}

/// Makes a failure of an error of the host.
fn at(what: impl std::fmt::Display) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::io(&what, &error)
}

/// The serial line.
struct Line {
    output: Mutex<File>,
    answers: Mutex<Receiver<Vec<u8>>>,
}

impl Line {
    fn send(&self, frame: &Frame) -> io::Result<()> {
        frame.write(&mut *self.output.lock())
    }

    /// Asks the host, and waits for all parts of its answer. The first answer is what the machine
    /// is to do.
    fn ask(&self, mut request: Vec<u8>) -> io::Result<Vec<u8>> {
        let answers = self.answers.lock();
        let mut answer = Vec::new();
        loop {
            self.send(&Frame::Ask(std::mem::take(&mut request)))?;
            let part = answers.recv().map_err(io::Error::other)?;
            let is_last = part.len() < PART_BYTES;
            answer.extend(part);
            if is_last {
                return Ok(answer);
            }
        }
    }
}

/// Mounts the kernel's own file systems and opens the line.
fn open_line() -> Result<Arc<Line>, Failure> {
    for (kind, path) in [("proc", "/proc"), ("sysfs", "/sys")] {
        mount_at(kind, kind, Path::new(path), "")?;
    }
    // Most kernels have mounted it.
    let _ = mount_at("devtmpfs", "devtmpfs", Path::new("/dev"), "");
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let mut input = options.open(SERIAL).map_err(at(SERIAL))?;
    let raw = tcgetattr(&input).and_then(|mut line| {
        line.make_raw();
        tcsetattr(&input, OptionalActions::Now, &line)
    });
    raw.map_err(|errno| at(SERIAL)(errno.into()))?;
    let output = input.try_clone().map_err(at(SERIAL))?;
    let (answered, answers) = channel();
    std::thread::spawn(move || {
        while let Ok(Some(Frame::Answer(answer))) = Frame::read(&mut input) {
            let _ = answered.send(answer);
        }
        // The host is gone.
        let _ = reboot(RebootCommand::PowerOff);
    });
    Ok(Arc::new(Line {
        output: Mutex::new(output),
        answers: Mutex::new(answers),
    }))
}

fn mount_at(source: &str, kind: &str, path: &Path, options: &str) -> Result<(), Failure> {
    let options = (!options.is_empty()).then_some(options);
    mount(Some(source), path, Some(kind), MsFlags::empty(), options).map_err(|errno| {
        Failure::io(
            format!("mount of {kind} at {}", path.display()),
            &errno.into(),
        )
    })
}

fn run(line: &Arc<Line>) -> Result<Report, Failure> {
    let text = line.ask(Vec::new()).map_err(at(SERIAL))?;
    let spec: Spec = serde_json::from_slice(&text).map_err(Failure::failed)?;
    // Without these many programs run, too.
    for (kind, path) in [("tmpfs", SHM), ("devpts", "/dev/pts")] {
        let _ = std::fs::create_dir(path);
        let _ = mount_at(kind, kind, Path::new(path), "");
    }
    let _ = start_loopback();
    let disks = find_disks(spec.disks())?;
    let fs = file_system::of(&spec.fs);
    for module in fs.map_or(&[][..], |fs| fs.modules) {
        load(module)?;
    }
    match (&spec.task, fs) {
        (Task::Command { runtime, agitate }, fs) => {
            run_command(&spec, (fs, &disks), (Path::new(runtime), *agitate), line)
        }
        (Task::Checks { server }, Some(fs)) => run_checks(&spec, fs, *server, line),
        (Task::Checks { .. }, None) => Err(Failure::failed("a check of no file system")),
    }
}

/// Runs COMMAND on the disk.
fn run_command(
    spec: &Spec,
    (fs, disks): (Option<&FileSystem>, &[PathBuf]),
    (runtime, agitate): (&Path, Option<u64>),
    line: &Arc<Line>,
) -> Result<Report, Failure> {
    let folders: Vec<_> = spec.mounts.iter().map(PathBuf::from).collect();
    for (disk, folder) in disks.iter().zip(&folders) {
        let place = match fs {
            None => disk,
            Some(fs) => {
                mount_at(&disk.to_string_lossy(), fs.name, folder, &spec.options)?;
                folder
            }
        };
        chown(place, Some(spec.uid), Some(spec.gid)).map_err(at(place.display()))?;
        let opened = File::open(place).map_err(at(place.display()))?;
        rustix::fs::syncfs(&opened).map_err(|errno| at(place.display())(errno.into()))?;
    }
    let places = if fs.is_some() { &folders } else { disks };
    let dirs = Dirs {
        config: PathBuf::new(),
        state: PathBuf::new(),
        runtime: runtime.into(),
    };
    let _instance = pass_control(&dirs, spec, line)?;
    let agitation = agitate.map(|seed| Agitation {
        folders: &folders,
        seed,
    });
    let done = as_user(spec, || {
        let command = spec.job.command(places);
        let show = |bytes: &[u8]| drop(line.send(&Frame::Output(bytes.to_vec())));
        let mut mark = |text: &str| set_mark(&dirs, text);
        agitate::during(agitation, || {
            job::run(command, &show, &mut mark, &|| false, &end_left)
        })
    });
    let left = end_left();
    let (mut outcome, disturbed) = done?;
    outcome.left += left;
    let mounted = if fs.is_some() { &folders[..] } else { &[] };
    let unmounted: Vec<_> = mounted.iter().map(|folder| unmount(folder)).collect();
    let busy = unmounted.into_iter().find_map(Result::err);
    let counts = disks.iter().map(|disk| kernel_flushes(&in_sys(disk)));
    Ok(Report {
        outcome,
        flushes: Some(counts.collect::<Result<_, _>>()?),
        busy: busy.map(|failure| failure.message),
        disturbed,
    })
}

/// Runs the check on each state that the host brings onto the disk. The machine asks for the next
/// state with the verdict on the last one: `ok`, or what is wrong. The answer is a tab, the case,
/// a tab and the last mark before the cut, or nothing at the end. A check that cannot be run is the
/// last one.
fn run_checks(spec: &Spec, fs: &FileSystem, server: bool, line: &Line) -> Result<Report, Failure> {
    chown(DISK, Some(spec.uid), Some(spec.gid)).map_err(at(DISK))?;
    std::fs::create_dir(STATE).map_err(at(STATE))?;
    let start = || {
        make_work(spec)?;
        as_user(spec, || {
            let mut command = spec.job.command(&[]);
            command.process_group(0);
            let spawn = |mut command: Command| command.spawn();
            Resident::start(command, spawn).map_err(at("the check"))
        })
    };
    let mut resident = StaysUp::new(&start);
    let show = |bytes: &[u8]| drop(line.send(&Frame::Output(bytes.to_vec())));
    let mut verdict = "ready".to_owned();
    let code = loop {
        let answer = line.ask(verdict.into_bytes()).map_err(at(SERIAL))?;
        let Some(state) = answer.strip_prefix(b"\t") else {
            break 0;
        };
        let state = String::from_utf8_lossy(state);
        let (case, mark) = state.split_once('\t').unwrap_or((&state, ""));
        let mounted = mount_state(fs, &spec.options);
        let judged = match (mounted, server) {
            (Err(errno), _) => Ok(format!("the mount fails: {}", io::Error::from(errno))),
            (Ok(()), true) => resident.judge(Path::new(STATE), mark, &show)?,
            (Ok(()), false) => check(spec, (case, mark), line)?,
        };
        verdict = match judged {
            Ok(verdict) => verdict,
            Err(code) => break code,
        };
    };
    Ok(Report {
        outcome: Outcome { code, left: 0 },
        flushes: None,
        busy: None,
        disturbed: None,
    })
}

fn mount_state(fs: &FileSystem, options: &str) -> nix::Result<()> {
    let options = (!options.is_empty()).then_some(options);
    mount(Some(DISK), STATE, Some(fs.name), MsFlags::empty(), options)
}

/// Makes a new folder for the files of a check.
fn make_work(spec: &Spec) -> Result<(), Failure> {
    if Path::new(WORK).exists() {
        std::fs::remove_dir_all(WORK).map_err(at(WORK))?;
    }
    std::fs::create_dir(WORK).map_err(at(WORK))?;
    chown(WORK, Some(spec.uid), Some(spec.gid)).map_err(at(WORK))
}

/// Runs the check on the mounted state with this case and mark, and unmounts it.
fn check(spec: &Spec, (case, mark): (&str, &str), line: &Line) -> Result<Verdict, Failure> {
    make_work(spec)?;
    let code = as_user(spec, || {
        let mut command = spec.job.command(&[]);
        command.env("FTLD_MARK", mark).env("FTLD_CASE", case);
        let show = |bytes: &[u8]| drop(line.send(&Frame::Output(bytes.to_vec())));
        job::run_check(command, &show, &end_left)
    });
    end_left();
    let unmounted = unmount(Path::new(STATE));
    std::fs::remove_dir_all(WORK).map_err(at(WORK))?;
    // A state that stays mounted would be found in place of the next one: the machine ends.
    unmounted?;
    Ok(match code? {
        0 => Ok("ok".into()),
        code @ (126 | 127) => Err(code),
        code if code > 128 => Ok(format!("ended by signal {}", code - 128)),
        code => Ok(format!("exit code {code}")),
    })
}

/// Runs this as the user: the rights of a thread are its own.
fn as_user<T: Send>(
    spec: &Spec,
    run: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let run = || {
        let refused = |errno: rustix::io::Errno| at("the rights of the user")(errno.into());
        let groups: Vec<_> = spec.groups.iter().map(|id| Gid::from_raw(*id)).collect();
        set_thread_groups(&groups).map_err(refused)?;
        set_thread_gid(Gid::from_raw(spec.gid)).map_err(refused)?;
        set_thread_uid(Uid::from_raw(spec.uid)).map_err(refused)?;
        run()
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(run).join();
        done.unwrap_or_else(|panic| Err(Failure::failed(panic_text(&*panic))))
    })
}

/// Sets the loopback interface up; it is the first one.
fn start_loopback() -> nix::Result<()> {
    let route = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let up = u32::try_from(libc::IFF_UP).unwrap_or(1);
    // RTM_NEWLINK as a request: a header of 16 bytes, then family, type, index, flags and their
    // mask.
    let words = [
        32,
        u32::from(libc::RTM_NEWLINK) | 1 << 16,
        0,
        0,
        0,
        1,
        up,
        up,
    ];
    let message: Vec<u8> = words
        .iter()
        .flat_map(|word: &u32| word.to_ne_bytes())
        .collect();
    let to = NetlinkAddr::new(0, 0);
    sendto(route.as_raw_fd(), &message, &to, MsgFlags::empty()).map(drop)
}

/// Waits for the disks, in the order of the machine's command line, and refuses one whose cache the
/// kernel does not flush.
fn find_disks(count: usize) -> Result<Vec<PathBuf>, Failure> {
    load(DISK_MODULE)?;
    let mut disks = Vec::new();
    for number in 0..count {
        let mut found = None;
        wait_for(|| {
            found = disk(number);
            found.is_some()
        });
        let missing = "the machine has no disk: its device has ended";
        disks.push(found.ok_or_else(|| Failure::failed(missing))?);
    }
    for disk in &disks {
        let cache = in_sys(disk).join("queue/write_cache");
        let cache = std::fs::read_to_string(&cache).map_err(at(cache.display()))?;
        if cache.trim() != "write back" {
            return Err(Failure::failed(format!(
                "the guest's kernel sees a {:?} disk, to which it sends no FLUSH",
                cache.trim()
            )));
        }
    }
    Ok(disks)
}

/// Returns the disk with this number on the machine's command line, if it is there.
fn disk(number: usize) -> Option<PathBuf> {
    let bus = format!("virtio-uml.{number}");
    let is_it = |link: &Path| link.components().any(|part| part.as_os_str() == &*bus);
    let mut disks = std::fs::read_dir(DISKS_IN_SYS).ok()?.flatten();
    let found =
        disks.find(|disk| std::fs::read_link(disk.path()).is_ok_and(|link| is_it(&link)))?;
    let disk = Path::new("/dev").join(found.file_name());
    disk.exists().then_some(disk)
}

/// Returns the folder of a disk in sysfs.
fn in_sys(disk: &Path) -> PathBuf {
    Path::new(DISKS_IN_SYS).join(disk.file_name().unwrap_or_default())
}

fn wait_for(mut is_so: impl FnMut() -> bool) -> Option<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Some(())
}

/// Inserts a module and those that it needs. One that is built in has no file.
fn load(name: &str) -> Result<(), Failure> {
    let release = rustix::system::uname();
    let folder = Path::new(MODULES).join(&*release.release().to_string_lossy());
    let list = folder.join("modules.dep");
    let list = std::fs::read_to_string(&list).map_err(at(list.display()))?;
    for file in modules(&list, name) {
        let file = folder.join(file);
        let opened = File::open(&file).map_err(at(file.display()))?;
        match finit_module(&opened, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(at(file.display())(errno.into())),
        }
    }
    Ok(())
}

/// Returns the files of a module, in the order in which they are inserted, from the list that
/// depmod makes.
pub(super) fn modules<'a>(list: &'a str, name: &str) -> Vec<&'a str> {
    let is_it = |file: &str| {
        let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str());
        stem.is_some_and(|stem| stem.replace('-', "_") == name)
    };
    let mut lines = list.lines().filter_map(|line| line.split_once(':'));
    let Some((file, needs)) = lines.find(|(file, _)| is_it(file)) else {
        return Vec::new();
    };
    needs.split_whitespace().rev().chain([file]).collect()
}

/// Serves the control socket of the device at its path on the host, for the user.
fn pass_control(dirs: &Dirs, spec: &Spec, line: &Arc<Line>) -> Result<Instance, Failure> {
    std::fs::create_dir_all(&dirs.runtime).map_err(at(dirs.runtime.display()))?;
    // The host's sockets cannot be reached through its files.
    mount_at("tmpfs", "tmpfs", &dirs.runtime, "mode=755")?;
    let instance = Instance::take(dirs, NAME)?;
    let path = dirs.control(NAME);
    let listener = control::bind(&path)?;
    listener
        .set_nonblocking(false)
        .map_err(at(path.display()))?;
    for path in [dirs.of(NAME), dirs.of(NAME).join("pid"), path] {
        chown(&path, Some(spec.uid), Some(spec.gid)).map_err(at(path.display()))?;
    }
    let line = line.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let line = line.clone();
            std::thread::spawn(move || pass_requests(&stream, &line));
        }
    });
    Ok(instance)
}

fn pass_requests(stream: &UnixStream, line: &Line) -> io::Result<()> {
    let mut requests = BufReader::new(stream);
    loop {
        let mut request = Vec::new();
        if requests
            .by_ref()
            .take(REQUEST_MAX)
            .read_until(b'\n', &mut request)?
            == 0
        {
            return Ok(());
        }
        let answer = line.ask(request)?;
        if answer.is_empty() {
            // Nobody waits for an answer that does not come.
            return Ok(());
        }
        (&mut &*stream).write_all(&answer)?;
    }
}

/// Puts a mark into the recording.
///
/// # Errors
/// The device refuses it.
pub(super) fn set_mark(dirs: &Dirs, text: &str) -> Result<(), Failure> {
    ftld_device::record::check_mark(text)?;
    let text = text.to_owned();
    control::answer(dirs, NAME, &Request::Mark { text }).map(drop)
}

/// Ends all processes that are left, and returns their number.
fn end_left() -> usize {
    super::killed(&descendants::end_all(&[]).0)
}

fn unmount(folder: &Path) -> Result<(), Failure> {
    let mut last = Ok(());
    let _ = wait_for(|| {
        last = umount(folder);
        last != Err(Errno::EBUSY)
    });
    last.map_err(|errno| at("umount")(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_inserted_after_those_that_they_need() {
        let list = "kernel/drivers/block/virtio_blk.ko:\n\
                    kernel/fs/f2fs/f2fs.ko: kernel/lib/lz4/lz4_compress.ko kernel/lib/crc.ko\n\
                    kernel/lib/crc32-generic.ko:\n";
        assert_eq!(
            modules(list, "virtio_blk"),
            ["kernel/drivers/block/virtio_blk.ko"]
        );
        let f2fs = [
            "kernel/lib/crc.ko",
            "kernel/lib/lz4/lz4_compress.ko",
            "kernel/fs/f2fs/f2fs.ko",
        ];
        assert_eq!(modules(list, "f2fs"), f2fs);
        assert_eq!(
            modules(list, "crc32_generic"),
            ["kernel/lib/crc32-generic.ko"]
        );
        assert!(modules(list, "ext4").is_empty(), "it is built in");
    }

    #[test]
    fn only_the_first_process_of_a_machine_switches_it_off() {
        let refused = guest_init().unwrap_err();
        assert!(
            refused.message.contains("`ftld crash-test` starts"),
            "{refused}"
        );
    }
}
