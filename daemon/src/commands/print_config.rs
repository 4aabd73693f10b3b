//! `ftld --print-config`: the effective configuration, and the source of each option.

use ftl_core::schemes::SCHEMES;
use ftld_device::config::{Config, Layers, METRICS_DEFAULT, OP_DEFAULT, SIZE_DEFAULT, verify_name};
use ftld_device::instance::Dirs;
use ftld_device::options::{DeviceArgs, DeviceOptions};
use ftld_device::stack::{self, Label};
use ftld_device::transport;
use ftld_kit::failure::Failure;
use ftld_kit::output::{print, print_json};
use nand_model::store::peek;
use nand_model::{ImageInfo, Profile};
use serde_json::json;
use toml::Value;

/// One option: its value, its source, and whether it is a default.
struct Entry {
    key: String,
    value: Value,
    origin: String,
    by_default: bool,
}

/// Prints every option as in a configuration file. Defaults are comments, so that the file can be
/// used unchanged.
///
/// # Errors
/// An option or the configuration file is wrong.
pub(crate) fn print_config(args: &DeviceArgs, dirs: &Dirs, as_json: bool) -> Result<(), Failure> {
    let layers = Layers::read(args, dirs)?;
    let entries = entries(&layers, dirs)?;
    if as_json {
        let of =
            |entry: &Entry| json!({"key": entry.key, "value": entry.value, "origin": entry.origin});
        return print_json(
            "config",
            json!({"options": entries.iter().map(of).collect::<Vec<_>>()}),
        );
    }
    let typed = layers.options();
    if let Some(path) = typed.paths().find(|path| path.to_str().is_none()) {
        return Err(Failure::usage(format!(
            "{}: this path is no UTF-8, and a configuration file is; give it on the command line, or \
             see the other values with --json",
            path.display()
        )));
    }
    print(&entries.iter().map(Entry::line).collect::<String>())
}

impl Entry {
    fn line(&self) -> String {
        let Entry {
            key,
            value,
            origin,
            by_default,
        } = self;
        let comment = if *by_default { "#" } else { "" };
        format!("{:<47} # {origin}\n", format!("{comment}{key} = {value}"))
    }
}

fn entries(layers: &Layers, dirs: &Dirs) -> Result<Vec<Entry>, Failure> {
    let config = layers.config(dirs)?;
    let typed = layers.options();
    let preset = typed.preset.as_ref().map(|name| format!("preset {name}"));
    let mut given = typed.with_preset()?.table();
    if let Some(target) = layers.target()? {
        given.insert("target".into(), target.to_string().into());
    }
    let image = peek(&config.image).ok().and_then(|info| {
        let label = stack::read_label(&config.image, &info).ok()?;
        Some((info, label))
    });
    let entry = |key: String| match given.get(&key) {
        Some(value) => {
            let origin = layers.origin(&key).or_else(|| preset.clone())?;
            Some(Entry {
                value: value.clone(),
                origin,
                by_default: false,
                key,
            })
        }
        None => {
            let of_image = image
                .as_ref()
                .and_then(|(info, label)| of_image(&key, info, label));
            let of_image = of_image.map(|value| (value, "the image"));
            let (value, origin) = of_image.or_else(|| default(&key, &config, dirs))?;
            Some(Entry {
                value,
                origin: origin.into(),
                by_default: true,
                key,
            })
        }
    };
    Ok(std::iter::once("target".to_owned())
        .chain(DeviceOptions::keys())
        .filter_map(entry)
        .collect())
}

/// Returns the value of an option stored in an image.
fn of_image(key: &str, info: &ImageInfo, label: &Label) -> Option<Value> {
    let set = || {
        label
            .params
            .iter()
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .collect::<toml::Table>()
    };
    Some(match key {
        "scheme" => label.scheme.name.into(),
        "profile" => info.profile.name.into(),
        "size" => info.size.to_string().into(),
        "op" => label.op_percent?.into(),
        "slc-region" => info.profile.slc?.percent().into(),
        "shards" => i64::from(info.shards()).into(),
        "set" => Value::Table(set()),
        _ => return None,
    })
}

/// Returns the default of an option, and its source.
fn default(key: &str, config: &Config, dirs: &Dirs) -> Option<(Value, &'static str)> {
    let value = match key {
        "target" => {
            let target = transport::default_target(&dirs.of(&config.name));
            return Some((target.to_string().into(), "what this machine can do"));
        }
        "scheme" => SCHEMES[0].name.into(),
        "image" => config.image.display().to_string().into(),
        "size" => SIZE_DEFAULT.to_string().into(),
        "profile" => Profile::default_profile().name.into(),
        "op" => OP_DEFAULT.into(),
        "shards" => 1.into(),
        "metrics" => METRICS_DEFAULT.to_string().into(),
        "latency" => config.latency.name().into(),
        "verify" => verify_name(config.verify).into(),
        "record-data" => "on".into(),
        "write-cache-announce" => "volatile".into(),
        "tls" => if config.tls.is_some() {
            "require"
        } else {
            "off"
        }
        .into(),
        "read-only" => config.read_only.into(),
        "name" => config.name.clone().into(),
        _ => return None,
    };
    Some((value, "default"))
}
