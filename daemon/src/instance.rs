//! An instance: a name, its image, and a runtime folder that only one daemon holds at a time.
//!
//! What always holds: the folder is ours alone (mode 0700), the `pid` file is locked for as long as the daemon lives, so a
//! killed daemon leaves files but no lock and the next one takes over.

use crate::failure::{Exit, Failure};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where images lie by default, where running daemons can be found, and where their configuration files lie.
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
    /// `/etc/ftld`, `/var/lib/ftld` and `/run/ftld` for root, the XDG folders for others; `FTLD_CONFIG_DIR`, `FTLD_STATE_DIR` and
    /// `FTLD_RUNTIME_DIR` override.
    pub fn from_env() -> Dirs {
        let uid = nix::unistd::geteuid();
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let of_user = |xdg: &str, below_home: &str| {
            let home = || var("HOME").unwrap_or_else(|| "/".into()).join(below_home);
            var(xdg).unwrap_or_else(home).join("ftld")
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
            let shared = || std::env::temp_dir().join(format!("ftld-{uid}"));
            var("XDG_RUNTIME_DIR").map_or_else(shared, |dir| dir.join("ftld"))
        });
        Dirs { config, state, runtime }
    }

    /// Configuration file of an instance.
    pub fn config(&self, name: &str) -> PathBuf {
        self.config.join(format!("{name}.toml"))
    }

    /// Where an instance in the background writes its log.
    pub fn log(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.log"))
    }

    /// Default image of an instance.
    pub fn image(&self, name: &str) -> PathBuf {
        self.state.join(format!("{name}.ftld"))
    }

    /// Runtime folder of an instance.
    pub fn of(&self, name: &str) -> PathBuf {
        self.runtime.join(name)
    }

    /// Control socket of an instance.
    pub fn control(&self, name: &str) -> PathBuf {
        self.of(name).join("control.sock")
    }

    /// Names of all runtime folders, running or left behind, in order.
    pub fn names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.runtime) else { return Vec::new() };
        let names = entries.flatten().filter(|e| e.path().join("pid").exists());
        let mut names: Vec<_> = names.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Process that holds the instance, if one does.
    pub fn holder(&self, name: &str) -> Option<u32> {
        let mut file = File::open(self.of(name).join("pid")).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let held = Flock::lock(file, FlockArg::LockSharedNonblock).is_err();
        text.trim().parse().ok().filter(|_| held)
    }
}

/// Says what is wrong with an instance name, if anything is.
pub fn check_name(name: &str) -> Result<(), Failure> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let start = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if start && name.len() <= 64 && name.bytes().all(plain) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{name:?} cannot name an instance: up to 64 letters, digits, '.', '_' or '-', a letter or digit first; choose one with \
         --name NAME"
    )))
}

/// A name that this process holds.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    _lock: Flock<File>,
}

impl Instance {
    /// Takes the name. Exit 7 if another daemon has it.
    pub fn take(dirs: &Dirs, name: &str) -> Result<Instance, Failure> {
        let dir = dirs.of(name);
        make_private_dir(&dirs.runtime, 0o755)?;
        make_private_dir(&dir, 0o700)?;
        let path = dir.join("pid");
        let failed = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut lock = loop {
            let lock = Flock::lock(open_pid(&path).map_err(failed)?, FlockArg::LockExclusiveNonblock);
            let lock = lock.map_err(|_| in_use(dirs, name))?;
            // A daemon that ended meanwhile may have removed the file that was opened.
            if fs::metadata(&path).is_ok_and(|now| lock.metadata().is_ok_and(|ours| ours.ino() == now.ino())) {
                break lock;
            }
        };
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
        Ok(Instance { dir, _lock: lock })
    }

    /// The runtime folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        for file in ["control.sock", "nbd.sock", "pid"] {
            let _ = fs::remove_file(self.dir.join(file));
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

fn open_pid(path: &Path) -> std::io::Result<File> {
    let flags = nix::fcntl::OFlag::O_NOFOLLOW.bits();
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o644).custom_flags(flags).open(path)
}

fn in_use(dirs: &Dirs, name: &str) -> Failure {
    let pid = dirs.holder(name).map_or(String::new(), |pid| format!(" (pid {pid})"));
    Failure::new(
        Exit::InUse,
        format!("instance {name:?} is already running{pid}; stop it with `ftld stop {name}` or choose another --name"),
    )
}

/// Makes the folder if it is missing and refuses one that somebody else could have put there.
fn make_private_dir(dir: &Path, mode: u32) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(dir.display(), &error);
    DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(failed)?;
    let meta = fs::symlink_metadata(dir).map_err(failed)?;
    let owner = nix::unistd::geteuid().as_raw();
    if meta.is_dir() && (meta.uid() == owner || meta.uid() == 0) && meta.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("{}: others could write to it; remove it or set FTLD_RUNTIME_DIR", dir.display());
    Err(Failure::new(Exit::Permission, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs(test: &str) -> Dirs {
        let root = std::env::temp_dir().join(format!("ftld-instance-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        Dirs { config: root.join("etc"), state: root.join("state"), runtime: root.join("run") }
    }

    #[test]
    fn a_name_is_held_by_one_and_taken_over_from_the_dead() {
        let dirs = dirs("hold");
        let first = Instance::take(&dirs, "a").unwrap();
        assert_eq!(dirs.holder("a"), Some(std::process::id()));
        let refused = Instance::take(&dirs, "a").unwrap_err();
        assert_eq!(refused.exit, Exit::InUse);
        assert!(refused.message.contains("already running (pid "), "{refused}");
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
    fn names_cannot_leave_their_folder() {
        for name in ["ublkb0", "a", "A.b_c-d", &"x".repeat(64)] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", "a/b", "-a", "a b", "é", &"x".repeat(65)] {
            assert!(check_name(name).unwrap_err().message.contains("--name"), "{name}");
        }
    }

    #[test]
    fn a_runtime_folder_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dirs = dirs("open");
        fs::create_dir_all(dirs.of("a")).unwrap();
        fs::set_permissions(dirs.of("a"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(Instance::take(&dirs, "a").unwrap_err().exit, Exit::Permission);
        fs::remove_dir_all(dirs.runtime.parent().unwrap()).unwrap();
    }
}
