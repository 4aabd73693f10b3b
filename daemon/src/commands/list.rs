//! `ftld list`: running instances, and images of stopped ones.

use super::found::Found;
use super::instances::is_in_use;
use ftld_device::instance::{Dirs, check_name};
use ftld_device::status::page_of;
use ftld_device::target::Target;
use ftld_kit::convert::index;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{Tone, print, print_json, print_text, table, width, wrapped};
use ftld_kit::path_json;
use ftld_kit::size::show_size;
use nand_model::store::peek;
use serde::Serialize;
use serde_json::json;

/// `ftld list`; with `all` also the images of instances that do not run.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn list(dirs: &Dirs, all: bool, as_json: bool) -> Result<(), Failure> {
    let names = dirs.names();
    let mut instances: Vec<_> = names.iter().map(|name| Listed::of(dirs, name)).collect();
    if all {
        let stopped = images(dirs)
            .into_iter()
            .filter(|name| !names.contains(name));
        instances.extend(stopped.map(|name| Listed::of_image(dirs, &name)));
    }
    if as_json {
        return print_json("list", json!({"instances": instances}));
    }
    if instances.is_empty() {
        let hint = match images(dirs).len() {
            0 => String::new(),
            images => format!("; `ftld list --all` shows {images} stopped"),
        };
        return print(&format!("no instance is running{hint}\n"));
    }
    let heading = [
        "NAME",
        "STATE",
        "SCHEME",
        "SIZE",
        "WAF",
        "PAGE",
        "TARGET OR IMAGE",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(instances.iter().map(Listed::cells));
    let mut text = table(&rows, width(), |row, column| match (row, column) {
        (1.., STATE) => Tone::of_state(&rows[row][column]),
        _ => Tone::Plain,
    });
    let is_waiting = |one: &&Listed| [CLEAN, UNCLEAN].contains(&&*one.state);
    if let Some(Listed { name, .. }) = instances.iter().find(is_waiting) {
        let line = start_line(name);
        text += &wrapped(&format!(
            "\n`{line}` starts {name} again; unclean: a power cut, a kill or a crash, and the start recovers."
        ));
    }
    print_text(&text)
}

/// `ftld list --names`: every running or stopped instance, a line each.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn names(dirs: &Dirs) -> Result<(), Failure> {
    let mut all = dirs.names();
    all.extend(images(dirs));
    all.sort();
    all.dedup();
    print(
        &all.iter()
            .fold(String::new(), |text, name| text + name + "\n"),
    )
}

/// Index of the state in a row of `ftld list`.
const STATE: usize = 1;

/// State of an image after a clean shutdown.
const CLEAN: &str = "stopped";
/// State of an image after a power cut, a kill or a crash.
const UNCLEAN: &str = "unclean";

/// Returns the command that starts the instance of this name: a device has the name of its target.
pub(crate) fn start_line(name: &str) -> String {
    match Target::parse(&format!("/dev/{name}")) {
        Ok(target) => format!("ftld {target}"),
        Err(_) => format!("ftld --name {name} TARGET"),
    }
}

/// Adds the state of the image and the command that starts the instance to the failure of a command
/// that needs it running.
pub(super) fn with_image(dirs: &Dirs, name: &str, failure: Failure) -> Failure {
    if failure.exit != Exit::NotRunning {
        return failure;
    }
    let left = match &*Listed::of_image(dirs, name).state {
        CLEAN => "after a clean shutdown",
        UNCLEAN => "after a power cut, a kill or a crash, from which the start recovers",
        _ => return failure,
    };
    let image = dirs.image(name);
    let line = start_line(name);
    Failure::new(
        Exit::NotRunning,
        format!(
            "instance {name:?} is not running; `{line}` starts it on {} {left}",
            image.display()
        ),
    )
}

/// Returns the names of the default images.
pub(super) fn images(dirs: &Dirs) -> Vec<String> {
    let entries = std::fs::read_dir(&dirs.state).into_iter().flatten();
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter_map(|name| Some(name.strip_suffix(".ftld")?.to_owned()));
    let mut names: Vec<_> = names.filter(|name| check_name(name).is_ok()).collect();
    names.sort();
    names
}

/// An instance or an image, as `ftld list` shows it.
#[derive(Default, Serialize)]
struct Listed {
    name: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// `None` if the image cannot be read.
    #[serde(flatten)]
    device: Option<Device>,
    /// `None` if it does not serve.
    #[serde(flatten)]
    service: Option<Service>,
}

#[derive(Serialize)]
struct Device {
    scheme: String,
    profile: String,
    size_bytes: u64,
    shards: usize,
}

#[derive(Serialize)]
struct Service {
    target: String,
    uptime_seconds: f64,
    write_amplification: Option<f64>,
    metrics: Option<String>,
}

impl Listed {
    fn of(dirs: &Dirs, name: &str) -> Listed {
        let found = Found::of(dirs, name);
        let mut listed = Listed {
            name: found.name,
            state: found.state,
            pid: found.pid,
            ..Listed::default()
        };
        if let Some(status) = found.status {
            listed.image = Some(status.image.image);
            listed.device = Some(Device {
                scheme: status.scheme,
                profile: status.profile,
                size_bytes: status.size_bytes,
                shards: status.shards.len(),
            });
            listed.service = Some(Service {
                target: status.target,
                uptime_seconds: status.uptime_seconds,
                write_amplification: status.write_amplification,
                metrics: status.metrics,
            });
        }
        listed
    }

    fn of_image(dirs: &Dirs, name: &str) -> Listed {
        let path = dirs.image(name);
        let mut listed = Listed {
            name: name.into(),
            state: "unreadable".into(),
            image: Some(path_json::shown(&path)),
            ..Listed::default()
        };
        if let Ok(info) = peek(&path) {
            let state = match info.clean {
                true => CLEAN,
                false if is_in_use(&path) => "in use",
                false => UNCLEAN,
            };
            listed.state = state.into();
            listed.device = Some(Device {
                shards: index(info.shards()),
                scheme: info.scheme,
                profile: info.profile.name.into(),
                size_bytes: info.size,
            });
        }
        listed
    }

    /// Returns the cells of its row.
    fn cells(&self) -> [String; 7] {
        let (device, service) = (self.device.as_ref(), self.service.as_ref());
        let size = device.map(|device| show_size(device.size_bytes));
        let ratio = service.and_then(|service| service.write_amplification);
        let metrics = service.and_then(|service| service.metrics.as_deref());
        // One that is stopped has no target; `ftld status` shows both.
        let target = service.map(|service| service.target.clone());
        let cells = [
            Some(self.name.clone()),
            Some(self.state.clone()),
            device.map(|device| device.scheme.clone()),
            size,
            ratio.map(|ratio| format!("{ratio:.2}")),
            metrics.map(|metrics| page_of(metrics).to_owned()),
            target.or(self.image.clone()),
        ];
        cells.map(|cell| cell.unwrap_or_else(|| "-".into()))
    }
}
