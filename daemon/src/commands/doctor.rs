//! `ftld doctor`: checks all prerequisites of a device on this machine, changes nothing, and prints
//! a fix for each missing one.

use crate::control::{self, Request};
use ftld_device::config::{Config, METRICS_DEFAULT, Metrics, SIZE_DEFAULT};
use ftld_device::instance::Dirs;
use ftld_device::options::DeviceArgs;
use ftld_device::stack;
use ftld_device::status::Status;
use ftld_device::target::Target;
use ftld_device::transport;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{Tone, print_json, print_text, wrapped};
use ftld_kit::size::show_size;
use nand_model::store::peek;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Upper estimate of a daemon's memory; it is locked, so that a device never waits for itself.
const LOCKED_BYTES: u64 = 256 << 20;

/// Result of one check.
struct Finding {
    what: &'static str,
    verdict: Verdict,
    text: String,
}

enum Verdict {
    Good,
    /// An optional feature is missing.
    Note,
    /// The device cannot be served.
    Bad(Exit),
}

impl Finding {
    fn new(what: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
        Finding {
            what,
            verdict,
            text: text.into(),
        }
    }

    fn of(what: &'static str, found: Result<String, Failure>) -> Finding {
        match found {
            Ok(text) => Finding::new(what, Verdict::Good, text),
            Err(failure) => Finding::new(what, Verdict::Bad(failure.exit), failure.message),
        }
    }

    /// Reduces a failure to a note: the requested device does not need it.
    fn only_noted(mut self) -> Finding {
        if matches!(self.verdict, Verdict::Bad(_)) {
            self.verdict = Verdict::Note;
        }
        self
    }

    fn tone(&self) -> Tone {
        match self.verdict {
            Verdict::Good => Tone::Good,
            Verdict::Note => Tone::Warning,
            Verdict::Bad(_) => Tone::Bad,
        }
    }

    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Good => "ok",
            Verdict::Note => "note",
            Verdict::Bad(_) => "BAD",
        }
    }
}

/// Runs and prints all checks; fails with the exit code that serving would have.
///
/// # Errors
/// A prerequisite of serving is missing; the exit code is that of serving.
pub(crate) fn doctor(args: &DeviceArgs, dirs: &Dirs, as_json: bool) -> Result<(), Failure> {
    let config = Config::new(args, dirs)?;
    let findings = findings(&config, dirs);
    if as_json {
        let of = |f: &Finding| json!({"what": f.what, "verdict": f.word().to_lowercase(), "text": f.text});
        print_json(
            "doctor",
            json!({"findings": findings.iter().map(of).collect::<Value>()}),
        )?;
    } else {
        let line = |f: &Finding| {
            let line = wrapped(&format!("{:<5} {:<14}  {}", f.word(), f.what, f.text));
            f.tone().paint(f.word()) + &line[f.word().len()..]
        };
        print_text(&findings.iter().map(line).collect::<String>())?;
    }
    let bad: Vec<_> = findings
        .iter()
        .filter(|f| matches!(f.verdict, Verdict::Bad(_)))
        .collect();
    match bad.first().map(|finding| &finding.verdict) {
        Some(&Verdict::Bad(exit)) => {
            let what: Vec<_> = bad.iter().map(|finding| finding.what).collect();
            Err(Failure::new(
                exit,
                format!("not ready: {}", what.join(", ")),
            ))
        }
        _ => Ok(()),
    }
}

fn findings(config: &Config, dirs: &Dirs) -> Vec<Finding> {
    let target = config
        .target
        .clone()
        .unwrap_or_else(|| transport::default_target(&dirs.of(&config.name)));
    let by_kernel = target.in_kernel();
    let mut findings = vec![kernel()];
    for (what, tried) in [
        ("ublk", Target::Ublk(0)),
        ("kernel's NBD", Target::NbdKernel(0)),
    ] {
        let found = transport::probe(&tried, false)
            .map(|()| format!("{tried} and similar targets can be served"));
        let meant = std::mem::discriminant(&tried) == std::mem::discriminant(&target);
        let finding = Finding::of(what, found);
        findings.push(if meant { finding } else { finding.only_noted() });
    }
    findings.push(Finding::new("NBD", Verdict::Good, "sockets need nothing"));
    if by_kernel {
        findings.extend([rights(&target), memory()]);
    }
    findings.push(Finding::of(
        "state folder",
        writable("FTLD_STATE_DIR", stack::folder_of(&config.image)),
    ));
    findings.push(Finding::of(
        "run folder",
        writable("FTLD_RUNTIME_DIR", &dirs.runtime),
    ));
    findings.push(room(config));
    findings.push(Finding::of("image", image(config)));
    findings.push(Finding::of("instance", instance(config, dirs, &target)));
    let metrics = match config.metrics {
        Metrics::Off => return findings,
        Metrics::At(addr) => port(addr, dirs).map_err(|failure| {
            let advice = "choose another with --metrics ADDR, or off";
            Failure::new(failure.exit, format!("{failure}; {advice}"))
        }),
        Metrics::Default => port(METRICS_DEFAULT, dirs).or_else(|failure| match failure.exit {
            Exit::InUse => Ok(format!("{failure}: the next free port serves")),
            _ => Err(failure),
        }),
    };
    findings.push(Finding::of("metrics", metrics));
    findings
}

/// Returns what is known to be wrong with the ublk of a kernel.
fn broken_ublk(release: &str) -> Option<&'static str> {
    // https://github.com/ubicloud/ubiblk/pull/480
    let hangs = release.starts_with("6.17.") && release.ends_with("-aws");
    hangs.then_some(
        "ublk of Ubuntu's kernel for AWS hangs when a device is added; serve NBD, or take another kernel",
    )
}

fn kernel() -> Finding {
    match nix::sys::utsname::uname() {
        Ok(name) => {
            let release = name.release().to_string_lossy();
            match broken_ublk(&release) {
                Some(why) => {
                    Finding::new("kernel", Verdict::Note, format!("Linux {release}: {why}"))
                }
                None => Finding::new("kernel", Verdict::Good, format!("Linux {release}")),
            }
        }
        Err(error) => Finding::new("kernel", Verdict::Note, error.to_string()),
    }
}

fn rights(target: &Target) -> Finding {
    let found = match geteuid().is_root() {
        true => Ok("root".into()),
        false => {
            let way_out =
                "run ftld as root, or serve NBD instead: `ftld 'nbd+unix:///?socket=ftld.sock'`";
            Err(Failure::new(
                Exit::Permission,
                format!("{target} needs root: {way_out}"),
            ))
        }
    };
    Finding::of("rights", found)
}

/// Checks the memory lock limit: the daemon of a block device locks its memory; root may without a
/// limit.
fn memory() -> Finding {
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(0, |(soft, _)| soft);
    if geteuid().is_root() || limit >= LOCKED_BYTES {
        return Finding::new("locked memory", Verdict::Good, "may be locked");
    }
    let text = format!(
        "at most {} may be locked: when memory is short, the device may deadlock; raise it with `ulimit -l` or LimitMEMLOCK=",
        show_size(limit)
    );
    Finding::new("locked memory", Verdict::Note, text)
}

/// Returns the folder itself, or its nearest existing ancestor.
fn existing(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

fn writable(variable: &str, folder: &Path) -> Result<String, Failure> {
    let there = existing(folder);
    access(&there, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| {
        let there = match there == folder {
            true => "cannot write to it".to_owned(),
            false => format!("cannot create it in {}", there.display()),
        };
        let folder = folder.display();
        let message = format!("{folder}: {there}: {error}; choose another with {variable}");
        Failure::new(Exit::Permission, message)
    })?;
    Ok(folder.display().to_string())
}

fn room(config: &Config) -> Finding {
    let folder = existing(stack::folder_of(&config.image));
    let free = match statvfs(&folder) {
        Ok(fs) => fs.blocks_available() * fs.fragment_size(),
        Err(error) => {
            return Finding::new(
                "room",
                Verdict::Note,
                format!("{}: {error}", folder.display()),
            );
        }
    };
    let (size, has) = match peek(&config.image) {
        Ok(info) => {
            let has = std::fs::metadata(&config.image).map_or(0, |meta| {
                std::os::unix::fs::MetadataExt::blocks(&meta) * 512
            });
            (info.profile.geometry.data_bytes(), has)
        }
        Err(_) => (config.requirements.size.unwrap_or(SIZE_DEFAULT), 0),
    };
    let (free_text, more) = (show_size(free), show_size(size.saturating_sub(has)));
    match free >= size.saturating_sub(has) {
        true => Finding::new(
            "room",
            Verdict::Good,
            format!(
                "{free_text} free in {}, the image may take {more} more",
                folder.display()
            ),
        ),
        false => {
            let text = format!(
                "{free_text} free in {}, but the image may take {more} more: then writes get ENOSPC until there is room; \
                 choose a smaller --size or another --image",
                folder.display()
            );
            Finding::new("room", Verdict::Note, text)
        }
    }
}

fn image(config: &Config) -> Result<String, Failure> {
    let path = config.image.display();
    if !config.image.exists() {
        return Ok(format!("{path} will be created"));
    }
    let info = peek(&config.image).map_err(|error| stack::image_failure(&error))?;
    stack::fits(config, &info)?;
    let stop = if info.clean {
        "clean shutdown"
    } else {
        "unclean shutdown, or in use"
    };
    Ok(format!(
        "{path}: {} on {}, {stop}",
        show_size(info.size),
        info.profile.name
    ))
}

fn instance(config: &Config, dirs: &Dirs, target: &Target) -> Result<String, Failure> {
    let name = &config.name;
    if let Some(pid) = dirs.holder(name) {
        let message = format!(
            "{name:?} is running already (pid {pid}); stop it with `ftld stop {name}` or choose another --name"
        );
        return Err(Failure::new(Exit::InUse, message));
    }
    if let Some(left) = transport::orphaned_target(&target.instance_name()) {
        return Err(transport::orphan_error(name, &left));
    }
    Ok(format!("the name {name:?} is free"))
}

fn port(addr: SocketAddr, dirs: &Dirs) -> Result<String, Failure> {
    match TcpListener::bind(addr) {
        Ok(_) => Ok(format!("{addr} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let url = format!("http://{addr}/metrics");
            let ours = dirs.names().into_iter().find(|name| {
                control::ask::<Status>(dirs, name, &Request::Status {})
                    .is_ok_and(|status| status.metrics.as_ref() == Some(&url))
            });
            let who = ours.map_or("another program".into(), |name| {
                format!("instance {name:?}")
            });
            Err(Failure::new(
                Exit::InUse,
                format!("{addr} is taken by {who}"),
            ))
        }
        Err(error) => Err(Failure::io(addr, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_a_broken_ublk_is_known() {
        assert!(broken_ublk("6.17.0-1007-aws").is_some());
        for good in [
            "6.17.0-8-generic",
            "6.12.90+deb13-cloud-amd64",
            "6.1.0-40-amd64",
        ] {
            assert_eq!(broken_ublk(good), None, "{good}");
        }
    }
}
