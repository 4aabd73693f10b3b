//! End of processes that a command of the user started.
//!
//! A process that is a *subreaper*, or the first one of a machine, is the parent of every
//! descendant whose own parent has died, in whatever session or group it is. So children are all
//! that has to be killed, again and again until there are none.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, Instant};

/// Longest wait for processes that were killed.
const REAP_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to reap them.
const REAP_EVERY: Duration = Duration::from_millis(1);

/// Makes this process the parent of descendants whose parent has died.
///
/// # Errors
/// The kernel refuses it.
pub fn adopt() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// Kills and reaps the children of this process except `kept`, and all that they started. Returns
/// how each ended, and the processes that do not end.
pub fn end_all(kept: &[Pid]) -> (Vec<WaitStatus>, Vec<Pid>) {
    let give_up = Instant::now() + REAP_MAX;
    let mut ended = Vec::new();
    loop {
        let mut children = children();
        children.retain(|pid| !kept.contains(pid));
        if children.is_empty() || Instant::now() >= give_up {
            return (ended, children);
        }
        for pid in children {
            let _ = kill(pid, Signal::SIGKILL);
            match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(_) => {}
                Ok(status) => ended.push(status),
            }
        }
        std::thread::sleep(REAP_EVERY);
    }
}

/// Ends the children of this process, and all that they started, as [`end_all`]. Those that run
/// this program too get a SIGTERM first, and this much time, during which all others end: a daemon
/// removes its device once nobody uses it any more.
pub fn end_all_after(patience: Duration) {
    let give_up = Instant::now() + patience;
    let program = |pid: &str| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program("self");
    let mut asked = Vec::new();
    while Instant::now() < give_up {
        let children = children();
        if children.is_empty() {
            return;
        }
        for pid in children {
            if program(&pid.to_string()) != own {
                let _ = kill(pid, Signal::SIGKILL);
            } else if !asked.contains(&pid) {
                let _ = kill(pid, Signal::SIGTERM);
                asked.push(pid);
            }
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
        std::thread::sleep(REAP_EVERY);
    }
    end_all(&[]);
}

/// Returns whether this process has a child, dead or alive. This costs one call, however many
/// processes the host has.
fn has_children() -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags) != Err(Errno::ECHILD)
}

/// Returns the children of this process.
fn children() -> Vec<Pid> {
    if !has_children() {
        return Vec::new();
    }
    let own = Pid::this().as_raw().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name may contain spaces and brackets; state and parent follow the last bracket.
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        parent == Some(&own)
    };
    let name = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        OsStr::to_str(&name)?.parse().ok()
    };
    let processes = processes.filter_map(name).filter(is_child);
    processes.map(Pid::from_raw).collect()
}
