//! `--mount-options`: options of a mount that change what a power cut leaves.

use super::file_system::{FileSystem, NONE};
use clap::builder::PossibleValue;
use ftld_kit::failure::Failure;

/// An option with a name.
struct Named {
    name: &'static str,
    /// File system that has it.
    fs: &'static str,
    /// What the kernel gets.
    options: &'static str,
    /// What it changes.
    what: &'static str,
}

/// No option, on any file system.
const DEFAULTS: &str = "defaults";

/// All of them; Linux 6.12, Documentation/admin-guide/ext4.rst, xfs.rst, Documentation/filesystems/
/// f2fs.rst, and btrfs(5).
static ALL: [Named; 8] = [
    Named {
        name: "noauto_da_alloc",
        fs: "ext4",
        options: "noauto_da_alloc",
        what: "a rename over a file, or a close of a truncated one, starts no write-back of its data",
    },
    Named {
        name: "data=journal",
        fs: "ext4",
        options: "data=journal",
        what: "data goes to the journal first",
    },
    Named {
        name: "data=writeback",
        fs: "ext4",
        options: "data=writeback",
        what: "a length may be durable before its data",
    },
    Named {
        name: "journal_async_commit",
        fs: "ext4",
        options: "journal_async_commit,data=writeback",
        what: "a commit block does not wait for its transaction's blocks; with data=writeback",
    },
    Named {
        name: "wsync",
        fs: "xfs",
        options: "wsync",
        what: "a name is durable when the call that changes it returns",
    },
    Named {
        name: "flushoncommit",
        fs: "btrfs",
        options: "flushoncommit",
        what: "a commit writes all data before it",
    },
    Named {
        name: "notreelog",
        fs: "btrfs",
        options: "notreelog",
        what: "an fsync commits the whole file system",
    },
    Named {
        name: "fsync_mode=strict",
        fs: "f2fs",
        options: "fsync_mode=strict",
        what: "an fsync makes names durable, as on ext4",
    },
];

/// Returns the names, each with its line for the help.
pub(super) fn names() -> Vec<PossibleValue> {
    let named = ALL.iter().map(|option| {
        PossibleValue::new(option.name).help(format!("{}: {}", option.fs, option.what))
    });
    named
        .chain([PossibleValue::new(DEFAULTS).help("none of these")])
        .collect()
}

/// Returns what the kernel gets for these names.
///
/// # Errors
/// A name is of another file system, or two contradict each other.
pub(super) fn of(names: &[String], fs: Option<&FileSystem>) -> Result<String, Failure> {
    let mut found: Vec<&str> = Vec::new();
    for name in names.iter().filter(|name| *name != DEFAULTS) {
        let fs = fs.map_or(NONE, |fs| fs.name);
        let named = ALL.iter().find(|option| option.name == name);
        let options = match named {
            Some(option) if option.fs == fs => option.options,
            _ => {
                let its = ALL.iter().filter(|option| option.fs == fs);
                let its: Vec<_> = its.map(|option| option.name).chain([DEFAULTS]).collect();
                return Err(Failure::usage(format!(
                    "--mount-options {name}: --fs {fs} does not have it, but {}",
                    its.join(", ")
                )));
            }
        };
        for option in options.split(',').filter(|option| !found.contains(option)) {
            let key = |option: &str| option.split('=').next().map(str::to_owned);
            if let Some(other) = found.iter().find(|other| key(other) == key(option)) {
                return Err(Failure::usage(format!(
                    "--mount-options {name}: {option} contradicts {other}; leave one out"
                )));
            }
        }
        let new: Vec<_> = options
            .split(',')
            .filter(|new| !found.contains(new))
            .collect();
        found.extend(new);
    }
    Ok(found.join(","))
}

#[cfg(test)]
mod tests {
    use super::super::file_system;
    use super::*;

    #[test]
    fn names_become_options_of_their_own_file_system_only() {
        let get = |names: &[&str], fs: &str| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            of(&names, file_system::of(fs)).map_err(|failure| failure.message)
        };
        let all = "journal_async_commit,data=writeback,noauto_da_alloc";
        for (names, fs, wanted) in [
            (&[][..], "ext4", ""),
            (&["defaults"], "xfs", ""),
            (
                &["journal_async_commit", "data=writeback", "noauto_da_alloc"],
                "ext4",
                all,
            ),
            (&["fsync_mode=strict"], "f2fs", "fsync_mode=strict"),
        ] {
            assert_eq!(get(names, fs).unwrap(), wanted);
        }
        for (names, fs, wanted) in [
            (
                &["wsync"][..],
                "ext4",
                "does not have it, but noauto_da_alloc, data=journal",
            ),
            (&["wsync"], NONE, "--fs none does not have it, but defaults"),
            (
                &["data=journal", "journal_async_commit"],
                "ext4",
                "contradicts data=journal",
            ),
        ] {
            let refused = get(names, fs).unwrap_err();
            assert!(refused.contains(wanted), "{refused}");
        }
    }
}
