//! A check leaves no process, mount or file. One that hangs, mounts or daemonises affects one
//! verdict.

use super::*;
use ftld_device::sys::{mounts, process_alive};
use std::path::Path;

/// Checks one state.
fn one(saved: &Saved, check: &str, timeout_ms: u64) -> Report {
    let args = CrashesArgs {
        at: At::Mark,
        every: 100,
        jobs: Some(1),
        timeout: Duration::from_millis(timeout_ms),
        ..saved.args(check)
    };
    let (report, _) = saved.explored(&args).unwrap();
    assert_eq!(report.checked, 1, "{report:?}");
    report
}

/// Nothing of the explorations below a folder is left: no scratch folder and no mount.
fn assert_clean(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.starts_with("ftld-crashes-"), "{name} is left");
    }
    let mounts = mounts::read(Path::new("/proc/self/mountinfo")).unwrap();
    let left = mounts.iter().find(|mount| mount.path.starts_with(folder));
    assert!(left.is_none(), "{:?} is mounted", left.unwrap().path);
}

fn pid_in(file: &Path) -> i32 {
    std::fs::read_to_string(file)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

/// A check forgets a mount: the host's files below it stay, whether the check has a mount namespace
/// of its own or mounts in the explorer's. Where it may not mount at all, it exits with code 7.
#[test]
fn a_forgotten_mount_is_not_crossed() {
    let saved = commits(true);
    let theirs = saved.folder.path().join("theirs");
    std::fs::create_dir(&theirs).unwrap();
    std::fs::write(theirs.join("file"), "of the host").unwrap();
    let outside = format!("nsenter -t {} -m", std::process::id());
    for enter in ["", &outside] {
        let theirs = theirs.display();
        let mount =
            format!("mkdir $FTLD_WORK/m && {enter} mount --bind {theirs} $FTLD_WORK/m || exit 7;");
        let report = one(&saved, &mount, 20_000);
        let may_mount = report.failed == 0;
        assert!(
            may_mount || report.cases[0].said == "exit code 7",
            "{report:?}"
        );
        let hung = one(&saved, &format!("{mount} sleep 60"), 2_000);
        let said = ["exit code 7", "no answer within 2 s"][usize::from(may_mount)];
        assert_eq!(hung.cases[0].said, said, "{hung:?}");
    }
    assert_eq!(
        std::fs::read_to_string(theirs.join("file")).unwrap(),
        "of the host"
    );
    assert_clean(saved.folder.path());
}

/// A daemon leaves its session and its parent, and still ends with its check, one that hangs or
/// not.
#[test]
fn a_daemon_ends_with_its_check() {
    let saved = commits(true);
    let file = saved.folder.path().join("pid");
    let daemon = format!(
        "(env -i setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 60' > /dev/null 2>&1 &)
        while [ ! -e {0} ]; do sleep 0.01; done",
        file.display()
    );
    for (and_then, timeout, failed) in [("", 20_000, 0), ("; sleep 60", 2_000, 1)] {
        let report = one(&saved, &format!("{daemon}{and_then}"), timeout);
        assert_eq!(report.failed, failed, "{report:?}");
        assert!(!process_alive(pid_in(&file)), "the daemon runs on");
        std::fs::remove_file(&file).unwrap();
    }
    assert_clean(saved.folder.path());
}

/// Only the end of an output is kept, and endless output is no hang.
#[test]
fn output_has_a_bound() {
    let saved = commits(true);
    let report = one(&saved, "yes; exit 1", 2_000);
    assert_eq!(report.cases[0].said, "no answer within 2 s");
    assert_eq!(report.cases[0].output.len(), 16 << 10);
    let report = one(&saved, "seq 100000; echo the end; exit 3", 20_000);
    assert_eq!(report.cases[0].said, "exit code 3");
    assert!(report.cases[0].output.ends_with("100000\nthe end\n"));
}

/// A folder that its owner may not write is removed as well.
#[test]
fn a_folder_without_permissions_is_removed() {
    let saved = commits(true);
    let check =
        "mkdir -p $FTLD_WORK/a/b && touch $FTLD_WORK/a/b/c && chmod 0 $FTLD_WORK/a/b $FTLD_WORK/a";
    assert_eq!(one(&saved, check, 20_000).failed, 0);
    assert_clean(saved.folder.path());
}

/// The next exploration removes the folder of a killed one; that of a running one stays.
#[test]
fn a_scratch_folder_of_the_dead_is_removed() {
    let saved = commits(true);
    let args = saved.args("true");
    let dead = saved.folder.path().join("ftld-crashes-dead");
    std::fs::create_dir_all(dead.join("0/work")).unwrap();
    let living = Scratch::create(&args).unwrap();
    assert!(!dead.exists());
    let other = Scratch::create(&args).unwrap();
    assert!(living.path().exists() && other.path() != living.path());
    drop((living, other));
    assert_clean(saved.folder.path());
}

/// A report that is finished is printed and written as far as possible.
#[test]
fn a_file_that_fails_does_not_take_the_report_with_it() {
    let saved = commits(true);
    let page = saved.folder.path().join("page.html");
    let args = CrashesArgs {
        junit: Some("/dev/full".into()),
        html: Some(page.clone()),
        ..saved.args("true")
    };
    let failure = crashes(&args, true).unwrap_err();
    assert!(failure.message.contains("--junit /dev/full"), "{failure}");
    assert!(
        std::fs::read_to_string(page)
            .unwrap()
            .contains("No state failed.")
    );
}
