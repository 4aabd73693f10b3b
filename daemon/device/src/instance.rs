//! An instance: a name, its image, and a runtime folder that one daemon at a time holds.
//!
//! Invariants: only the owner can enter the folder (mode 0700) and open its `pid` file (0600). The
//! daemon keeps the file locked while it lives. A killed daemon leaves files but no lock, so the
//! next daemon can take over.

use ftld_kit::failure::{Exit, Failure};
use ftld_kit::private_lock::{PrivateLock, is_held, is_open_to_others};
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Folders of default images, running instances and configuration files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// Configuration files: `NAME.toml`.
    pub config: PathBuf,
    /// Default images: `NAME.ftld`.
    pub state: PathBuf,
    /// One folder per instance.
    pub runtime: PathBuf,
}

impl Dirs {
    /// Returns `/etc/ftld`, `/var/lib/ftld` and `/run/ftld` for root, the XDG folders for others.
    /// `FTLD_CONFIG_DIR`, `FTLD_STATE_DIR` and `FTLD_RUNTIME_DIR` override them.
    pub fn from_env() -> Dirs {
        let uid = nix::unistd::geteuid();
        let var = |name: &str| {
            std::env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(|value| std::path::absolute(&value).unwrap_or_else(|_| value.into()))
        };
        let of_user = |xdg: &str, below_home: &str| {
            // A service may run without HOME.
            let known = || Some(nix::unistd::User::from_uid(uid).ok()??.dir);
            let home = || var("HOME").or_else(known).unwrap_or_else(|| "/".into());
            let folder = var(xdg).unwrap_or_else(|| home().join(below_home));
            folder.join("ftld")
        };
        let config = var("FTLD_CONFIG_DIR").unwrap_or_else(|| match uid.is_root() {
            true => "/etc/ftld".into(),
            false => of_user("XDG_CONFIG_HOME", ".config"),
        });
        let state = var("FTLD_STATE_DIR").unwrap_or_else(|| match uid.is_root() {
            true => "/var/lib/ftld".into(),
            false => of_user("XDG_STATE_HOME", ".local/state"),
        });
        let runtime = var("FTLD_RUNTIME_DIR").unwrap_or_else(|| {
            if uid.is_root() {
                return "/run/ftld".into();
            }
            // Not in /tmp: another user could create the folder first.
            var("XDG_RUNTIME_DIR").map_or_else(|| state.join("run"), |dir| dir.join("ftld"))
        });
        Dirs {
            config,
            state,
            runtime,
        }
    }

    /// Returns the configuration file of an instance.
    pub(crate) fn config(&self, name: &str) -> PathBuf {
        self.config.join(format!("{name}.toml"))
    }

    /// Returns the log file of an instance in the background.
    pub fn log(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.log"))
    }

    /// Returns the default image of an instance.
    pub fn image(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.ftld"))
    }

    /// Returns the file with the options of an instance's last start.
    pub fn start(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.start"))
    }

    /// Returns the runtime folder of an instance.
    pub fn of(&self, name: &str) -> PathBuf {
        self.runtime.join(name)
    }

    /// Returns the control socket of an instance.
    pub fn control(&self, name: &str) -> PathBuf {
        self.of(name).join("control.sock")
    }

    /// Returns the sorted names of all runtime folders, running or left behind. Includes visible
    /// folders of other users.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.runtime) else {
            return Vec::new();
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<_> = names
            .filter(|name| self.is_of_another_user(name) || self.of(name).join("pid").exists())
            .collect();
        names.sort();
        names
    }

    /// Returns whether the instance's folder exists and is closed to this user.
    pub fn is_of_another_user(&self, name: &str) -> bool {
        self.of(name)
            .join("pid")
            .try_exists()
            .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    /// Returns whether the instance's folder belongs to this user.
    pub fn is_of_this_user(&self, name: &str) -> bool {
        let owner = fs::symlink_metadata(self.of(name)).map(|meta| meta.uid());
        owner.is_ok_and(|owner| owner == nix::unistd::geteuid().as_raw())
    }

    /// Returns the process that holds the instance, if any, without taking a lock.
    pub fn holder(&self, name: &str) -> Option<u32> {
        let mut file = File::open(self.of(name).join("pid")).ok()?;
        let held = is_held(&file);
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        text.trim().parse().ok().filter(|_| held)
    }
}

/// Checks an instance name.
///
/// # Errors
/// The name has characters that are not allowed in a file name or a label, or is too long.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let start = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric());
    if start && name.len() <= 64 && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{name:?} cannot name an instance: up to 64 letters, digits, '.', '_' or '-', a letter or digit first; choose one with \
         --name NAME"
    )))
}

/// Instance name held by this process.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    lock: Option<PrivateLock>,
    taken_over: bool,
}

impl Instance {
    /// Takes the name.
    ///
    /// # Errors
    /// Exit 7 if another daemon holds it; 6 if other users could write to its folder.
    pub fn take(dirs: &Dirs, name: &str) -> Result<Instance, Failure> {
        assert!(
            !name.is_empty() && !name.contains('/') && !name.starts_with('.'),
            "instance {name:?} is not the name of a folder"
        );
        let dir = dirs.of(name);
        let path = dir.join("pid");
        let failed = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut lock = loop {
            // The parent also contains sockets for other users.
            let shared = if nix::unistd::geteuid().is_root() {
                0o755
            } else {
                0o700
            };
            make_folder(&dirs.runtime, shared)?;
            make_folder(&dir, 0o700)?;
            make_private(&dir)?;
            drop_open_pid(dirs, name)?;
            match PrivateLock::take(&path) {
                Ok(lock) => break lock.ok_or_else(|| in_use(dirs, name))?,
                // An ending daemon removed the folder.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        };
        let taken_over = lock.was_left();
        lock.sign().map_err(failed)?;
        Ok(Instance {
            dir,
            lock: Some(lock),
            taken_over,
        })
    }

    /// Returns whether the previous daemon with this name died.
    pub fn taken_over(&self) -> bool {
        self.taken_over
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        for file in ["control.sock", "nbd.sock"] {
            let _ = fs::remove_file(self.dir.join(file));
        }
        if let Some(lock) = self.lock.take() {
            lock.remove();
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Removes a `pid` file that other users could open, as created by older versions. Any user may
/// hold its lock, so the lock proves nothing; an answer on the control socket proves a daemon.
fn drop_open_pid(dirs: &Dirs, name: &str) -> Result<(), Failure> {
    let path = dirs.of(name).join("pid");
    if !fs::symlink_metadata(&path).is_ok_and(|meta| is_open_to_others(&meta)) {
        return Ok(());
    }
    if UnixStream::connect(dirs.control(name)).is_ok() {
        return Err(in_use(dirs, name));
    }
    // Its daemon died. The new file is signed to record that.
    let renew = fs::remove_file(&path).and_then(|()| match PrivateLock::take(&path)? {
        Some(mut lock) => lock.sign(),
        None => Ok(()),
    });
    renew.map_err(|error| Failure::io(path.display(), &error))
}

fn in_use(dirs: &Dirs, name: &str) -> Failure {
    let pid = dirs
        .holder(name)
        .map_or(String::new(), |pid| format!(" (pid {pid})"));
    Failure::new(
        Exit::InUse,
        format!(
            "instance {name:?} is already running{pid}; stop it with `ftld stop {name}` or choose another --name"
        ),
    )
}

/// Remedy for a runtime folder that cannot be used. Without XDG_RUNTIME_DIR it is in the folder of
/// the images.
const OTHER_RUNTIME: &str = "choose other folders with FTLD_STATE_DIR and FTLD_RUNTIME_DIR";

/// Creates the folder if missing, with this mode regardless of the umask. Rejects a folder that
/// another user could have created.
fn make_folder(dir: &Path, mode: u32) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(dir.display(), &error);
    let missing = !dir.exists();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Failure::folder(dir, &error, OTHER_RUNTIME))?;
    let meta = fs::symlink_metadata(dir).map_err(failed)?;
    let owner = nix::unistd::geteuid().as_raw();
    if !(meta.is_dir() && (meta.uid() == owner || meta.uid() == 0) && meta.mode() & 0o022 == 0) {
        let message = format!(
            "{}: others could write to it; set FTLD_RUNTIME_DIR to a folder of this user",
            dir.display()
        );
        return Err(Failure::new(Exit::Permission, message));
    }
    if missing {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(failed)?;
    }
    Ok(())
}

/// Closes the folder to other users: older versions' service units left it open.
fn make_private(dir: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(dir.display(), &error);
    if is_open_to_others(&fs::symlink_metadata(dir).map_err(failed)?) {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(test: &str) -> Dirs {
        let root =
            std::env::temp_dir().join(format!("ftld-instance-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Dirs {
            config: root.join("etc"),
            state: root.join("state"),
            runtime: root.join("run"),
        }
    }

    #[test]
    fn a_name_is_held_by_one_and_taken_over_from_the_dead() {
        let dirs = dirs("hold");
        let first = Instance::take(&dirs, "a").unwrap();
        assert_eq!(dirs.holder("a"), Some(std::process::id()));
        let refused = Instance::take(&dirs, "a").unwrap_err();
        assert_eq!(refused.exit, Exit::InUse);
        assert!(
            refused.message.contains("already running (pid "),
            "{refused}"
        );
        assert_eq!(dirs.names(), ["a"]);
        drop(first);
        assert!(dirs.names().is_empty());
        fs::create_dir_all(dirs.of("a")).unwrap();
        fs::write(dirs.of("a").join("pid"), "4242\n").unwrap();
        assert_eq!(dirs.holder("a"), None, "nobody holds the lock");
        let _second = Instance::take(&dirs, "a").unwrap();
        fs::remove_dir_all(dirs.runtime.parent().unwrap()).unwrap();
    }

    #[test]
    fn looking_never_keeps_a_start_from_its_name() {
        use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
        let (dirs, done) = (dirs("look"), AtomicBool::new(false));
        let taken = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        dirs.holder("a");
                    }
                });
            }
            let taken: Vec<_> = (0..500)
                .map(|_| Instance::take(&dirs, "a").map(drop))
                .collect();
            done.store(true, Relaxed);
            taken
        });
        let refused: Vec<_> = taken.into_iter().filter_map(Result::err).collect();
        assert!(
            refused.is_empty(),
            "{} of 500 refused: {}",
            refused.len(),
            refused[0]
        );
        fs::remove_dir_all(dirs.runtime.parent().unwrap()).unwrap();
    }

    #[test]
    fn what_an_older_version_left_open_is_closed_and_its_lock_means_nothing() {
        let dirs = dirs("older");
        fs::create_dir_all(dirs.of("a")).unwrap();
        let pid = dirs.of("a").join("pid");
        fs::write(&pid, "4242\n").unwrap();
        for (path, mode) in [(dirs.of("a"), 0o755), (pid.clone(), 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let stranger = File::open(&pid).unwrap();
        let lock = libc::flock {
            l_type: libc::F_RDLCK as _,
            l_whence: 0,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        nix::fcntl::fcntl(&stranger, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).unwrap();
        let instance = Instance::take(&dirs, "a").unwrap();
        assert!(instance.taken_over());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&dirs.of("a")), mode(&pid)), (0o700, 0o600));
        drop(instance);
        fs::remove_dir_all(dirs.runtime.parent().unwrap()).unwrap();
    }

    #[test]
    fn names_cannot_leave_their_folder() {
        for name in ["ublkb0", "a", "A.b_c-d", &"x".repeat(64)] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", "a/b", "-a", "a b", "é", &"x".repeat(65)] {
            assert!(
                check_name(name).unwrap_err().message.contains("--name"),
                "{name}"
            );
        }
    }

    #[test]
    fn a_runtime_folder_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dirs = dirs("open");
        fs::create_dir_all(dirs.of("a")).unwrap();
        fs::set_permissions(dirs.of("a"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(
            Instance::take(&dirs, "a").unwrap_err().exit,
            Exit::Permission
        );
        fs::remove_dir_all(dirs.runtime.parent().unwrap()).unwrap();
    }
}
