//! `ftld start`: a stopped instance, served again as it was.
//!
//! Scheme, flash device and size are in the image. Target, page and the other options of the last
//! start are in a file beside the default images, in the form of a configuration file, but for a
//! recording, whose file is new at each start.
//!
//! The file is a convenience: a daemon that cannot write it serves, and says so. It is replaced as
//! a whole, so that a power failure leaves the old or the new one.

use crate::detach;
use ftl_core::near_miss;
use ftld_device::config::{Config, ImageRequirements};
use ftld_device::instance::{Dirs, check_name};
use ftld_device::options::{DeviceArgs, DeviceOptions};
use ftld_device::target::{Endpoint, NbdUri, Target};
use ftld_kit::failure::{Exit, Failure};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf, absolute};
use toml::{Table, Value};

/// Options that the image has, or that hold for one start alone.
const NOT_KEPT: [&str; 11] = [
    "name",
    "preset",
    "scheme",
    "size",
    "profile",
    "op",
    "set",
    "slc-region",
    "shards",
    "record",
    "record-data",
];
/// First line of the file.
const MARK: &str = "# of `ftld start`, version 1\n";
/// Options that are paths.
const PATHS: [&str; 5] = ["config", "image", "tls-cert", "tls-key", "tls-client-ca"];

/// Keeps how an instance is started, for `ftld start`.
pub(crate) fn keep(dirs: &Dirs, config: &Config, args: &DeviceArgs) {
    let path = dirs.start(&config.name);
    let kept = options(dirs, config, args).and_then(|table| {
        std::fs::create_dir_all(&dirs.state)?;
        let mut file = tempfile::NamedTempFile::new_in(&dirs.state)?;
        file.write_all((MARK.to_owned() + &table.to_string()).as_bytes())?;
        // Otherwise a host that crashes may leave an empty file.
        file.as_file().sync_all()?;
        file.persist(&path)?;
        Ok(())
    });
    if let Err(error) = kept {
        let name = &config.name;
        tracing::warn!(
            "{}: {error}; `ftld start {name}` will not know the options of this start",
            path.display()
        );
    }
}

/// Returns the options of the command line and the environment, as a configuration file has them.
fn options(dirs: &Dirs, config: &Config, args: &DeviceArgs) -> std::io::Result<Table> {
    let mut table = args.options.table();
    table.retain(|key, _| !NOT_KEPT.contains(&key));
    if let Some(path) = &args.config {
        table.insert("config".into(), text(path)?);
    }
    if config.image != dirs.image(&config.name) {
        table.insert("image".into(), text(&config.image)?);
    }
    for key in PATHS {
        if let Some(Value::String(path)) = table.get(key) {
            let path = absolute(path)?;
            table.insert(key.into(), text(&path)?);
        }
    }
    if let Some(target) = args.target.as_ref().and(config.target.clone()) {
        table.insert("target".into(), at_fixed_path(target)?.to_string().into());
    }
    Ok(table)
}

/// Returns a path as text.
fn text(path: &Path) -> std::io::Result<Value> {
    let text = path.to_str().map(Value::from);
    text.ok_or_else(|| std::io::Error::other(format!("{} is no UTF-8", path.display())))
}

/// Returns a target that is the same from every folder.
fn at_fixed_path(target: Target) -> std::io::Result<Target> {
    Ok(match target {
        Target::Nbd(NbdUri {
            endpoint: Endpoint::Unix(path),
            export,
            tls,
        }) => Target::Nbd(NbdUri {
            endpoint: Endpoint::Unix(absolute(path)?),
            export,
            tls,
        }),
        other => other,
    })
}

/// Returns how an instance was started; without a file, with its name alone.
///
/// # Errors
/// The file cannot be read, or is none of this version.
pub(crate) fn kept(dirs: &Dirs, name: &str) -> Result<DeviceArgs, Failure> {
    let path = dirs.start(name);
    let mut args = DeviceArgs {
        options: DeviceOptions {
            name: Some(name.into()),
            ..DeviceOptions::default()
        },
        // A device has the name of its instance.
        target: Target::parse(&format!("/dev/{name}"))
            .ok()
            .map(|target| target.to_string()),
        ..DeviceArgs::default()
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(args),
        Err(error) => return Err(Failure::io(path.display(), &error)),
    };
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "{}: {why}; start the instance with its options, `ftld --name {name} TARGET`, which replaces the file",
            path.display()
        ))
    };
    if !text.starts_with(MARK) {
        return Err(wrong(&"no options of a start of this version"));
    }
    let mut table: Table = toml::from_str(&text).map_err(|error| wrong(&error))?;
    let mut take = |key: &str| match table.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    args.target = take("target").or(args.target);
    args.config = take("config").map(PathBuf::from);
    let options: Result<DeviceOptions, toml::de::Error> = Value::Table(table).try_into();
    args.options = DeviceOptions {
        name: args.options.name,
        ..options.map_err(|error| wrong(&error.message()))?
    };
    Ok(args)
}

/// Returns the sorted names of the instances that have an image, or options of a start, in the
/// folder of the images.
pub(crate) fn names(dirs: &Dirs) -> Vec<String> {
    let entries = std::fs::read_dir(&dirs.state).into_iter().flatten();
    let files = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let names = files.filter_map(|file| {
        let name = file.strip_suffix(".ftld").map(str::to_owned);
        name.or_else(|| {
            let name = file.strip_suffix(".start")?;
            // An image elsewhere that is gone leaves nothing to start.
            image(dirs, name).exists().then(|| name.to_owned())
        })
    });
    let mut names: Vec<_> = names.filter(|name| check_name(name).is_ok()).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the configuration with which a stopped instance starts.
///
/// # Errors
/// It runs, or there is no image to continue on; the message names it.
pub(crate) fn configuration(dirs: &Dirs, name: &str) -> Result<(Config, DeviceArgs), Failure> {
    check_name(name).map_err(|_| {
        Failure::usage(format!(
            "{name:?} is not the name of an instance; `ftld list --all` shows all"
        ))
    })?;
    if let Some(pid) = dirs.holder(name) {
        return Err(Failure::new(
            Exit::InUse,
            format!(
                "instance {name:?} is already running (pid {pid}); `ftld status {name}` shows it"
            ),
        ));
    }
    let args = kept(dirs, name)?;
    let mut config = Config::new(&args, dirs)?;
    // The image has them, whatever a configuration file would give a new one.
    config.requirements = ImageRequirements::default();
    if !config.image.exists() {
        let known = names(dirs);
        let hint = near_miss(name, known.iter().map(String::as_str));
        return Err(Failure::new(
            Exit::NotRunning,
            format!(
                "{}: no such image of an instance {name:?}{hint}; `ftld list --all` shows all, `ftld --name {name} \
                 TARGET` serves a new one",
                config.image.display()
            ),
        ));
    }
    Ok((config, args))
}

/// Returns the image of a stopped instance: the one of its last start, or the default one.
pub(crate) fn image(dirs: &Dirs, name: &str) -> PathBuf {
    let of_start = kept(dirs, name).and_then(|args| Config::new(&args, dirs));
    of_start.map_or_else(|_| dirs.image(name), |config| config.image)
}

/// `ftld start`: starts each in the background. Each prints its ready line or its failure, and what
/// fails does not keep the others.
///
/// # Errors
/// None; the exit code is that of the first that failed.
pub(crate) fn start(names: &[String], as_json: bool) -> Result<(), Failure> {
    let mut first = None;
    for name in names {
        let words = ["start", "--detached", name].map(OsString::from);
        let json = as_json.then(|| OsString::from("--json"));
        let ended = detach::launch(words.into_iter().chain(json));
        let code = ended.unwrap_or_else(|failure| {
            eprintln!("ftld: {name}: {failure}");
            Some(failure.exit.code().into())
        });
        first = first.or(code);
    }
    match first {
        Some(code) => std::process::exit(code),
        None => Ok(()),
    }
}
