//! States mounted on the host's own kernel, as root: by a shell command for each, or for a check
//! that stays up.

use super::checks::{self, CheckStatesArgs};
use super::file_system::FileSystem;
use super::stays_up::StaysUp;
use super::{programs, show};
use ftld_kit::descendants;
use ftld_kit::failure::Failure;
use ftld_lab::crashes::Resident;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the options of a mount beside other states of the same file system.
fn options(fs: &FileSystem, more: &str) -> String {
    let options = ["loop", fs.mount_options, more];
    let given = options.iter().filter(|options| !options.is_empty());
    given.copied().collect::<Vec<_>>().join(",")
}

/// Returns the command that mounts a state and runs the check on it.
pub(super) fn command(fs: &FileSystem, more: &str, check: &str) -> String {
    let (name, options) = (fs.name, options(fs, more));
    // The check may end in a comment, or in the text of a redirection.
    format!(
        "export FTLD_FILES=\"$FTLD_WORK/files\"; mkdir \"$FTLD_FILES\"; \
         mount -t {name} -o {options} \"$FTLD_IMAGE\" \"$FTLD_FILES\" || exit 1; \
         (\n{check}\n); rc=$?; umount \"$FTLD_FILES\"; exit $rc"
    )
}

/// Asks a check that stays up about the states that standard input names. Returns the exit code of
/// a check that cannot be run; 0 at the end.
///
/// # Errors
/// The check cannot be started, or a state cannot be unmounted.
pub(super) fn checked(args: &CheckStatesArgs, fs: &FileSystem) -> Result<i32, Failure> {
    let work = std::env::var_os("FTLD_WORK").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = work.join("files");
    let failed = |error: io::Error| Failure::io("the check", &error);
    descendants::adopt().map_err(failed)?;
    std::fs::create_dir(&folder).map_err(|error| Failure::io(folder.display(), &error))?;
    let start = || {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(&args.check).env("FTLD_FILES", &folder);
        shell.process_group(0);
        Resident::start(shell, |mut shell| shell.spawn()).map_err(failed)
    };
    let mut check = StaysUp::new(&start);
    let options = options(fs, &args.mount_options);
    while let Some(asked) = checks::next() {
        let verdict = match mounted(fs, &options, &asked.image, &folder) {
            Err(why) => Ok(format!("the mount fails: {why}")),
            Ok(()) => check.judge(&folder, &asked.mark, &show)?,
        };
        match verdict {
            Err(code) => return Ok(code),
            Ok(verdict) => {
                let mut out = io::stdout().lock();
                let told = writeln!(out, "{verdict}").and_then(|()| out.flush());
                told.map_err(|error| Failure::io("the verdict", &error))?;
            }
        }
    }
    Ok(0)
}

fn mounted(fs: &FileSystem, options: &str, image: &Path, folder: &Path) -> Result<(), Failure> {
    let mut mount = Command::new("mount");
    mount.args(["-t", fs.name, "-o", options]);
    mount.arg(image).arg(folder);
    programs::run(mount, "mount")
}

#[cfg(test)]
mod tests {
    use super::super::file_system;
    use super::*;

    #[test]
    fn the_exit_code_of_a_check_on_a_mounted_state_is_its_own() {
        let fs = file_system::of("xfs").expect("a file system");
        // Stands for programs that take root.
        let programs =
            "mkdir() { :; }\nmount() { test \"$4\" = loop,nouuid,wsync; }\numount() { :; }\n";
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
                .arg(programs.to_owned() + &command(fs, "wsync", check));
            let code = shell.status().expect("a shell").code();
            assert_eq!(code, Some(wanted), "{check}");
        }
    }
}
