//! A machine without root: User-Mode Linux, a kernel that is a program.
//!
//! Its root is the host's root (hostfs). Its disk is a virtio disk that the device serves over
//! vhost-user: UML's own disk, `ubd`, drops every FLUSH. The machine dies with its process group.

use super::frames::{Frame, PART_BYTES};
use super::guest::{self, DISK_MODULE, LastWord, MODULES, Report, Spec};
use super::programs::{find, last_lines, output};
use super::{device, killed, show};
use ftld_device::target::SOCKET_PATH_MAX;
use ftld_kit::descendants;
use ftld_kit::failure::Failure;
use ftld_kit::size::show_size;
use ftld_lab::crashes::nth_file;
use nix::sys::signal::{Signal, killpg};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::Pid;
use rustix::io::{FdFlags, fcntl_setfd};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Debian's package of the program and the modules.
const PACKAGE: &str = "user-mode-linux";
/// Time between two looks at the device and the user's signals.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for a machine that switches itself off.
const OFF_MAX: Duration = Duration::from_secs(5);
/// The kernel's last lines that a message has.
const CONSOLE_LINES: usize = 6;
/// Smallest memory in which the kernel starts and a file system is mounted.
const MEMORY_MIN: u64 = 64 << 20;
/// Folder of the memory, if it can be used.
const SHM: &str = "/dev/shm";
/// Bytes of the longest path of a socket below the folder for temporary files.
const BELOW_SCRATCH: usize = "/ftld-crashes-123456/run/disk-2/control.sock".len();
/// Way out of a folder for temporary files that cannot be used.
pub(super) const OTHER_FOLDER: &str = "choose another by TMPDIR or --scratch";
/// Folders of the host that the machine has its own of.
const HIDDEN: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Returns the target of a device, from 0.
pub(super) fn target(folder: &Path, device: usize) -> String {
    format!("vhost-user://{}", folder.join(socket(device)).display())
}

/// Returns the name of the socket of a disk.
fn socket(device: usize) -> String {
    nth_file(Path::new("vu"), device).display().to_string()
}

/// A machine that can run here.
#[derive(Debug)]
pub(super) struct Uml {
    kernel: PathBuf,
    init: PathBuf,
    memory: u64,
    /// Where the file is that is its memory.
    memory_folder: PathBuf,
}

impl Uml {
    /// Looks for all that the machine needs, before anything is made. Its folder will be below
    /// `scratch`.
    ///
    /// # Errors
    /// Something is missing; the message names it and the way out.
    pub(super) fn find(memory: u64, scratch: &Path) -> Result<Uml, Failure> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Failure::failed(
                "User-Mode Linux runs on x86-64 only; as root `--machine host` uses the host's kernel",
            ));
        }
        if memory < MEMORY_MIN {
            return Err(Failure::usage(format!(
                "--memory {}: User-Mode Linux needs {} or more",
                show_size(memory),
                show_size(MEMORY_MIN)
            )));
        }
        let kernel = find("linux.uml", PACKAGE).map_err(|failure| {
            let more = "or run as root: the host's kernel then mounts the device";
            Failure::failed(format!("{failure}, {more}"))
        })?;
        let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
        check_ptrace(scope.unwrap_or_default().trim())?;
        let release = output(Command::new(&kernel).arg("--version"), "linux.uml")?;
        let modules = Path::new(MODULES).join(release.trim());
        let list = std::fs::read_to_string(modules.join("modules.dep")).unwrap_or_default();
        if guest::modules(&list, DISK_MODULE).is_empty() {
            return Err(Failure::failed(format!(
                "no {DISK_MODULE} in {}: `apt install --reinstall {PACKAGE}`",
                modules.display()
            )));
        }
        let init = std::env::current_exe().map_err(|error| Failure::io("this program", &error))?;
        let elsewhere = "install this program elsewhere";
        check_path(&init, 0, elsewhere)?;
        check_visible(&init, elsewhere)?;
        check_path(scratch, BELOW_SCRATCH, OTHER_FOLDER)?;
        let folders = [Path::new(SHM), scratch].map(|folder| (folder, memory_use(folder, memory)));
        let usable = folders.iter().find(|(_, why)| why.is_none());
        let Some((memory_folder, _)) = usable else {
            let [_, (folder, why)] = &folders;
            let why = why.as_deref().unwrap_or_default();
            return Err(Failure::failed(format!(
                "User-Mode Linux needs a folder for its memory, but {} {why}; {OTHER_FOLDER}",
                folder.display()
            )));
        };
        Ok(Uml {
            kernel,
            init,
            memory,
            memory_folder: memory_folder.to_path_buf(),
        })
    }

    /// Starts the machine in its folder. `answer` gets what the machine asks for. `kept` are
    /// processes that outlive it.
    ///
    /// # Errors
    /// The host refuses.
    pub(super) fn start(
        &self,
        folder: &Path,
        spec: &Spec,
        kept: Vec<Pid>,
        answer: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static,
    ) -> Result<Machine, Failure> {
        let failed = |error| Failure::io("the machine", &error);
        let text = serde_json::to_vec(spec).map_err(Failure::failed)?;
        let console = folder.join("console");
        let (line, its) = UnixStream::pair().map_err(failed)?;
        let mut kernel = Command::new(&self.kernel);
        kernel
            .arg(format!("mem={}M", self.memory >> 20))
            .args(["umid=m", "uml_dir=./"])
            .args(
                (0..spec.disks())
                    .map(|disk| format!("virtio_uml.device={}:2:{disk}", socket(disk))),
            )
            .args([
                "root=/dev/root",
                "rootfstype=hostfs",
                "rw",
                "quiet",
                "panic=-1",
            ])
            .args(["console=tty0", "con0=null,fd:1", "con=null", "ssl=null"])
            .arg(format!("ssl0=fd:{}", its.as_raw_fd()))
            .arg(format!("init={}", self.init.display()))
            .args(["--", "guest-init"])
            // UML takes a file `root_fs` of its working folder as a disk.
            .current_dir(folder)
            .env_clear()
            .env("HOME", folder)
            .env("TMPDIR", &self.memory_folder)
            .stdin(Stdio::null())
            .stdout(File::create(&console).map_err(failed)?)
            .stderr(Stdio::null())
            .process_group(0);
        // No other program is started meanwhile.
        fcntl_setfd(&its, FdFlags::empty()).map_err(|errno| failed(errno.into()))?;
        let process = kernel.spawn().map_err(failed)?;
        drop(its);
        let (told, last) = channel();
        std::thread::spawn(move || drop(told.send(listen(line, text, answer))));
        Ok(Machine {
            process,
            kept,
            console,
            last,
        })
    }
}

/// A running machine; its processes end with it.
pub(super) struct Machine {
    process: Child,
    kept: Vec<Pid>,
    /// What its kernel prints.
    console: PathBuf,
    /// Its last message.
    last: Receiver<Option<Vec<u8>>>,
}

impl Machine {
    /// Waits for the machine's end. `look` may end the wait.
    ///
    /// # Errors
    /// It dies, or cannot do what it was asked for; or that of `look`.
    pub(super) fn wait(
        mut self,
        look: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<Report, Failure> {
        let word = loop {
            match self.last.recv_timeout(LOOK_EVERY) {
                Ok(word) => break word,
                Err(RecvTimeoutError::Disconnected) => break None,
                // Helpers of a machine that was killed keep its line open.
                Err(RecvTimeoutError::Timeout) if self.has_ended() => {
                    break self.last.recv_timeout(LOOK_EVERY).ok().flatten();
                }
                Err(RecvTimeoutError::Timeout) => look()?,
            }
        };
        self.switch_off();
        let Some(word) = word else {
            let said = last_lines(&self.console, CONSOLE_LINES);
            return Err(Failure::failed(format!("the machine died\n{said}")));
        };
        let word: LastWord = serde_json::from_slice(&word).map_err(Failure::failed)?;
        word.map_err(Failure::failed)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    /// Waits until the machine has switched itself off.
    fn switch_off(&mut self) {
        let end = Instant::now() + OFF_MAX;
        while !self.has_ended() && Instant::now() < end {
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.process.id()).expect("a process id"));
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.process.wait();
        // Processes of the machine may have a session of their own.
        killed(&descendants::end_all(&self.kept).0);
    }
}

/// Shows the machine's output and answers what it asks for, first for what it is to do, until its
/// last message. `None` if it ends without one.
fn listen(
    mut line: UnixStream,
    spec: Vec<u8>,
    mut answer: impl FnMut(Vec<u8>) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let mut rest = VecDeque::from(spec);
    loop {
        match Frame::read(&mut line).ok().flatten()? {
            Frame::Output(bytes) => show(&bytes),
            Frame::Ask(request) => {
                if !request.is_empty() {
                    rest = answer(request).into();
                }
                let part = rest.drain(..rest.len().min(PART_BYTES)).collect();
                Frame::Answer(part).write(&mut line).ok()?;
            }
            Frame::End(word) => return Some(word),
            Frame::Answer(_) => return None,
        }
    }
}

/// Refuses a host on which no program may trace another one of its user.
fn check_ptrace(scope: &str) -> Result<(), Failure> {
    match scope {
        "2" | "3" => Err(Failure::failed(format!(
            "User-Mode Linux needs ptrace, and kernel.yama.ptrace_scope is {scope}: `sysctl kernel.yama.ptrace_scope=1`, or run as root"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a path that cannot stand in a kernel's command line, or is too long for a socket with
/// this many bytes more. `way_out` is for the message.
fn check_path(path: &Path, below: usize, way_out: &str) -> Result<(), Failure> {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = bytes
        .iter()
        .all(|byte| byte.is_ascii_graphic() && !b"\"',".contains(byte));
    let is_short = below == 0 || bytes.len() + below <= SOCKET_PATH_MAX;
    match (is_plain, is_short) {
        (true, true) => Ok(()),
        (false, _) => {
            let why = "has characters that the command line of a kernel cannot have";
            Err(bad_path(path, why, way_out))
        }
        (_, false) => Err(bad_path(path, "is too long", way_out)),
    }
}

/// Refuses a path that programs in the machine do not find.
pub(super) fn check_visible(path: &Path, way_out: &str) -> Result<(), Failure> {
    let hidden = HIDDEN.iter().find(|hidden| path.starts_with(hidden));
    hidden.map_or(Ok(()), |hidden| {
        let why = format!("cannot be seen in the machine, which has its own {hidden}");
        Err(bad_path(path, &why, way_out))
    })
}

fn bad_path(path: &Path, why: &str, way_out: &str) -> Failure {
    Failure::usage(format!("{}: this path {why}; {way_out}", path.display()))
}

/// Returns why a folder cannot have the file that is the machine's memory.
fn memory_use(folder: &Path, memory: u64) -> Option<String> {
    match statvfs(folder) {
        Err(errno) => Some(format!("cannot be used: {errno}")),
        Ok(fs) if fs.flags().contains(FsFlags::ST_NOEXEC) => Some("is mounted noexec".into()),
        Ok(_) if !device::has_room(folder, memory) => {
            Some(format!("has no room for {}", show_size(memory)))
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_a_machine_cannot_use_is_refused_with_a_way_out() {
        check_ptrace("").unwrap();
        check_ptrace("1").unwrap();
        assert!(
            check_ptrace("3")
                .unwrap_err()
                .message
                .contains("ptrace_scope is 3")
        );
        check_path(Path::new("/tmp/ftld-x"), 50, OTHER_FOLDER).unwrap();
        let long = "/tmp/".to_owned() + &"x".repeat(60);
        for (path, why) in [
            ("/tmp/a b", "characters"),
            ("/dev/shm/x", "has its own /dev"),
            (long.as_str(), "too long"),
        ] {
            let path = Path::new(path);
            let refused = check_path(path, 50, OTHER_FOLDER);
            let refused = refused.and_then(|()| check_visible(path, OTHER_FOLDER));
            let refused = refused.unwrap_err();
            assert!(refused.message.contains(why), "{refused}");
            assert!(refused.message.contains("--scratch"), "{refused}");
        }
        if cfg!(target_arch = "x86_64") {
            let small = Uml::find(MEMORY_MIN - 1, Path::new("/tmp")).unwrap_err();
            assert!(small.message.contains("needs 64 MiB or more"), "{small}");
        }
        assert_eq!(memory_use(Path::new("/"), 0), None);
        let much = memory_use(Path::new("/"), u64::MAX).unwrap();
        assert!(much.contains("no room for"), "{much}");
    }

    #[test]
    fn a_machine_that_ends_without_a_last_message_is_noticed() {
        let (mut machine, host) = UnixStream::pair().unwrap();
        machine.write_all(b"Kernel panic").unwrap();
        drop(machine);
        assert_eq!(listen(host, Vec::new(), |asked| asked), None);
        let (mut machine, host) = UnixStream::pair().unwrap();
        for asked in [&b""[..], b"", b"asked", b""] {
            Frame::Ask(asked.to_vec()).write(&mut machine).unwrap();
        }
        Frame::End(b"word".to_vec()).write(&mut machine).unwrap();
        let spec = [&[b'x'; PART_BYTES][..], b"y"].concat();
        let last = listen(host, spec, |asked| asked);
        assert_eq!(last, Some(b"word".to_vec()));
        for answer in [&[b'x'; PART_BYTES][..], b"y", b"asked", b""] {
            let read = Frame::read(&mut machine).unwrap();
            assert_eq!(read, Some(Frame::Answer(answer.to_vec())));
        }
    }
}
