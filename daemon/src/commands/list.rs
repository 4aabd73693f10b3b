//! `ftld list`: running instances, and images of stopped ones.

use super::found::Found;
use super::instances::is_in_use;
use crate::start;
use ftld_device::instance::Dirs;
use ftld_device::status::page_of;
use ftld_device::transport;
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
    let stopped: Vec<_> = start::names(dirs)
        .into_iter()
        .filter(|name| !names.contains(name))
        .collect();
    if all {
        instances.extend(stopped.iter().map(|name| Listed::of_image(dirs, name)));
    }
    if as_json {
        return print_json("list", json!({"instances": instances}));
    }
    if instances.is_empty() {
        let hint = match stopped.len() {
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
    text += &ways_on(&instances);
    print_text(&text)
}

/// Returns the commands that go on with instances that do not run.
fn ways_on(instances: &[Listed]) -> String {
    let ways = [
        (
            "ftld start ",
            "serves again; after a power cut or an unclean end it recovers",
        ),
        ("ftld recover ", "reattaches the device"),
        ("ftld rm ", "removes what is left"),
    ];
    let lines = ways.iter().filter_map(|(command, effect)| {
        let next = instances.iter().filter_map(|one| one.next.as_deref());
        let of: Vec<_> = next.filter_map(|next| next.strip_prefix(command)).collect();
        // One device at a time.
        let of = match *command == "ftld recover " {
            true => of.first().copied().unwrap_or_default().to_owned(),
            false => of.join(" "),
        };
        (!of.is_empty()).then(|| wrapped(&format!("`{command}{of}` {effect}.")))
    });
    let lines: String = lines.collect();
    match lines.is_empty() {
        true => lines,
        false => format!("\n{lines}"),
    }
}

/// Index of the state in a row of `ftld list`.
const STATE: usize = 1;

/// State of an image after a clean shutdown.
const CLEAN: &str = "clean";
/// State of an image whose flash lost power.
const POWER_CUT: &str = "power cut";
/// State of an image after a kill of its daemon or a crash of the host.
const UNCLEAN: &str = "unclean";

/// Adds to the failure of a command that needs an instance running how it ended, and the command
/// that starts it.
pub(super) fn with_image(dirs: &Dirs, name: &str, failure: Failure) -> Failure {
    if failure.exit != Exit::NotRunning {
        return failure;
    }
    let left = Listed::of_image(dirs, name);
    let Some(next) = &left.next else {
        return failure;
    };
    let ended = match &*left.state {
        CLEAN => "it ended cleanly; `{}` serves it again",
        POWER_CUT => "a power cut ended it; `{}` recovers and serves it again",
        _ => "it ended uncleanly, by a kill or a crash; `{}` recovers and serves it again",
    };
    let message = format!(
        "instance {name:?} is not running: {}",
        ended.replace("{}", next)
    );
    Failure::new(Exit::NotRunning, message)
}

/// Prints an instance that does not run as JSON, if it has an image.
pub(super) fn print_stopped(dirs: &Dirs, name: &str) -> Result<(), Failure> {
    let left = Listed::of_image(dirs, name);
    match left.next.is_some() {
        true => print_json("stopped", left),
        false => Ok(()),
    }
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
    /// Command that goes on with one that does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
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
        let is_dead = found.state == "dead";
        if is_dead || found.state == "quiesced" {
            let left = Listed::of_image(dirs, name);
            let device = transport::orphaned_target(name);
            let of_device = device.map_or(format!("ftld rm {name}"), |device| {
                format!("ftld recover {device}")
            });
            return match left.next.is_some() && is_dead {
                true => left,
                false => Listed {
                    state: found.state,
                    next: left.next.clone().or(Some(of_device)),
                    ..left
                },
            };
        }
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
        let path = start::image(dirs, name);
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
                false if info.power_cut => POWER_CUT,
                false => UNCLEAN,
            };
            listed.next = (state != "in use").then(|| format!("ftld start {name}"));
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
