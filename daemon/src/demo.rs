//! `ftld demo`: a small device with a load of its own, in memory where there is room, and its page.
//!
//! Everything that it writes is below one folder, which goes with it; after a `kill -9` the next
//! demo removes it. After an injected power cut it starts again on the same image.

use crate::crash_test::has_room;
use crate::load::{Pattern, RATES, Setting};
use crate::serve::{How, serve};
use clap::Args;
use ftld_device::config::Config;
use ftld_device::instance::Dirs;
use ftld_device::options::{DeviceArgs, DeviceOptions};
use ftld_device::status::InstanceInfo;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::interrupt;
use ftld_kit::size::parse_size;
use ftld_lab::crashes::Scratch;
use nix::unistd::{AccessFlags, access};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

/// Name of the first demo; others get a number.
const NAME: &str = "demo";
/// Most demos at once.
const DEMOS_MAX: u32 = 100;
/// Folder that is in memory on most hosts.
const SHM: &str = "/dev/shm";

/// Arguments of `ftld demo`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DemoArgs {
    /// Flash translation layer; see `ftld schemes`
    #[arg(long, value_name = "NAME", default_value = "lazyftl")]
    scheme: String,
    /// Size that a host sees
    #[arg(long, default_value = "128MiB")]
    size: String,
    /// Over-provisioning in percent of the size
    #[arg(long, value_name = "PERCENT", default_value_t = 7.0)]
    op: f64,
    /// Parameter of the scheme or its policies
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Scheme that follows the load beside it, such as dftl:op=28; repeatable
    #[arg(long, value_name = "SCHEME[:KEY=VALUE,...]")]
    shadow: Vec<String>,
    /// What the load does at first; the page has buttons for it
    #[arg(long, value_enum, default_value_t = Pattern::Uniform)]
    load: Pattern,
    /// Requests per second
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(i64::from(*RATES.start())..=i64::from(*RATES.end())))]
    rate: u32,
    /// Address of the page [default: 127.0.0.1:9917, or the next free port]
    #[arg(long, value_name = "ADDR", env = "FTLD_METRICS")]
    metrics: Option<String>,
    /// Open no browser
    #[arg(long)]
    no_open: bool,
}

/// Serves until Ctrl-C.
///
/// # Errors
/// The arguments do not fit, or the device fails.
pub(crate) fn demo(args: &DemoArgs, dirs: &Dirs, json: bool) -> Result<(), Failure> {
    // From here on Ctrl-C ends the demo in order.
    let is_over = interrupt::flag()?;
    let folder = Scratch::create_in(&place(&args.size)?)?;
    let config = config(args, dirs, folder.path())?;
    let setting = Setting {
        pattern: args.load,
        rate: args.rate,
    };
    let mut how = How {
        json,
        load: Some(setting),
        opens_page: !args.no_open,
        ..How::default()
    };
    loop {
        if is_over.load(Relaxed) {
            return Ok(());
        }
        match serve(&config, dirs, how, None) {
            Err(cut) if cut.exit == Exit::PowerCut => {
                eprintln!(
                    "ftld: the power of the flash was cut; it starts again on the same image"
                );
                how.opens_page = false;
            }
            ended => return ended,
        }
    }
}

/// Returns the device, whose files are in `folder`.
fn config(args: &DemoArgs, dirs: &Dirs, folder: &Path) -> Result<Config, Failure> {
    let names = (1..=DEMOS_MAX).map(|number| match number {
        1 => NAME.to_owned(),
        _ => format!("{NAME}{number}"),
    });
    // A demo that was killed leaves its name to the next one.
    let mut free = names.filter(|name| dirs.holder(name).is_none());
    let options = DeviceOptions {
        name: Some(free.next().unwrap_or_else(|| NAME.to_owned())),
        scheme: Some(args.scheme.clone()),
        size: Some(args.size.clone()),
        op: Some(args.op),
        set: args.set.clone(),
        shadow: args.shadow.clone(),
        metrics: args.metrics.clone(),
        image: Some(folder.join("image")),
        ..DeviceOptions::default()
    };
    let socket = folder.join("socket");
    let device = DeviceArgs {
        target: Some(format!("nbd+unix:///?socket={}", socket.display())),
        options,
        ..DeviceArgs::default()
    };
    // The user's configuration files are for devices that stay.
    let dirs = Dirs {
        config: folder.to_owned(),
        ..dirs.clone()
    };
    Config::new(&device, &dirs)
}

/// Returns the folder for temporary files: in memory, if there is room for twice the device.
///
/// # Errors
/// The size is none.
fn place(size: &str) -> Result<PathBuf, Failure> {
    let bytes = parse_size(size).map_err(Failure::usage)?.saturating_mul(2);
    let shm = Path::new(SHM);
    let is_ours = access(shm, AccessFlags::W_OK).is_ok();
    Ok(match is_ours && has_room(shm, bytes) {
        true => shm.to_owned(),
        false => std::env::temp_dir(),
    })
}

/// Names the page, and opens it in the browser of this desktop, if there is one and it is asked
/// for.
pub(crate) fn show_page(facts: &InstanceInfo, opens: bool) {
    let Some(url) = facts
        .metrics
        .as_deref()
        .and_then(|url| url.strip_suffix("metrics"))
    else {
        return;
    };
    eprintln!(
        "ftld: the page of {} is {url}; Ctrl-C ends the demo",
        facts.name
    );
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    if !opens || !has_desktop {
        return;
    }
    let opened = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Ok(mut browser) = opened {
        // It ends once the browser has the address.
        std::thread::spawn(move || drop(browser.wait()));
    }
}
