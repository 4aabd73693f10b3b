//! Merges command line, environment and file into one validated [`Config`], in this order of
//! precedence.

mod image;
mod record;
mod shadow;
mod write_cache;

pub use image::ImageRequirements;
pub use image::{NewDevice, OP_DEFAULT, RawFlash, SIZE_DEFAULT};
pub(crate) use record::Record;
pub use shadow::ShadowOptions;

use crate::instance::{self, Dirs};
use crate::options::{DeviceArgs, DeviceOptions};
use crate::preset::{Preset, Use};
use crate::target::Target;
use crate::transport::nbd::TlsOptions;
use crate::volume::write_cache::CacheOptions;
use clap::Args;
use ftl_core::schemes::{self, Scheme};
use ftl_core::{Params, near_miss};
use ftld_kit::failure::Failure;
use ftld_kit::profile_file;
use ftld_kit::size::{is_decimal, parse_size};
use nand_model::{Profile, SHARDS_MAX, SlcRegion, Verify};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use strum::IntoStaticStr;

/// Units of atomicity that can be asked for, in bytes.
const ATOMIC_UNITS: RangeInclusive<u64> = 4096..=64 << 10;

/// Default address of the metrics.
pub const METRICS_DEFAULT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9917);

/// Latency model of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Latency {
    /// Host time only.
    #[default]
    None,
    /// Time of the emulated flash.
    Emulate,
}

impl Latency {
    /// Returns the name used on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Address of the HTTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// No HTTP.
    Off,
    /// This address, or an error.
    At(SocketAddr),
    /// [`METRICS_DEFAULT`], or the next free port if another process has it.
    Default,
}

/// Validated configuration of a daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Source of requests; `None` selects the machine's default.
    pub target: Option<Target>,
    /// Name of the instance.
    pub name: String,
    /// The image.
    pub image: PathBuf,
    /// Requirements on the image.
    pub requirements: ImageRequirements,
    /// Where HTTP is served.
    pub metrics: Metrics,
    /// Host names accepted by the HTTP server besides addresses and this machine's own names.
    pub metrics_hosts: Vec<String>,
    /// Latency model of requests.
    pub latency: Latency,
    /// When reads check data.
    pub verify: Verify,
    /// TLS options for NBD; `None` disables TLS.
    pub tls: Option<TlsOptions>,
    /// Whether the image is opened read-only.
    pub read_only: bool,
    /// The write cache; `None` for none.
    pub write_cache: Option<CacheOptions>,
    /// Whether the device announces a volatile cache.
    pub announces_cache: bool,
    /// Unit of atomicity in bytes; `None` for the usual one.
    pub atomic_unit: Option<u32>,
    /// The recording of all requests, if there is one.
    pub record: Option<Record>,
    /// Schemes that follow the requests.
    pub shadows: Vec<ShadowOptions>,
}

impl Config {
    /// Merges command line, environment and file, in that order, and performs all checks that do
    /// not need the image.
    ///
    /// # Errors
    /// An option, a variable or the configuration file is wrong; the message names it.
    pub fn new(args: &DeviceArgs, dirs: &Dirs) -> Result<Config, Failure> {
        Layers::read(args, dirs)?.config(dirs)
    }
}

/// Options by source, in order of precedence.
pub struct Layers {
    /// Options from command line and environment.
    typed: DeviceArgs,
    /// Path and content of the configuration file; empty without one.
    file: (Option<PathBuf>, FileOptions),
}

/// Content of a configuration file: the options and the target.
#[derive(Debug, Default)]
struct FileOptions {
    target: Option<String>,
    options: DeviceOptions,
}

impl Layers {
    /// Reads the configuration file, if there is one.
    ///
    /// # Errors
    /// The target is malformed, or the file is.
    pub fn read(args: &DeviceArgs, dirs: &Dirs) -> Result<Layers, Failure> {
        let path = match &args.config {
            Some(path) => Some(path.clone()),
            None => Some(dirs.config(&name_of(
                args.options.name.clone(),
                parse(args.target.as_deref())?.as_ref(),
            )?))
            .filter(|path| path.exists()),
        };
        let file = path
            .as_deref()
            .map_or(Ok(Default::default()), FileOptions::read)?;
        Ok(Layers {
            typed: args.clone(),
            file: (path, file),
        })
    }

    /// Returns the target, of the command line first.
    ///
    /// # Errors
    /// It is malformed.
    pub fn target(&self) -> Result<Option<Target>, Failure> {
        parse(
            self.typed
                .target
                .as_deref()
                .or(self.file.1.target.as_deref()),
        )
    }

    /// Returns the options; those of the command line come first.
    pub fn options(&self) -> DeviceOptions {
        self.typed.options.clone().or(self.file.1.options.clone())
    }

    /// Resolves the settings of the instance.
    ///
    /// # Errors
    /// An option is malformed or contradicts another one.
    pub fn config(&self, dirs: &Dirs) -> Result<Config, Failure> {
        let (target, options) = (self.target()?, self.options());
        let name = name_of(options.name.clone(), target.as_ref())?;
        Ok(Config {
            image: options.image.clone().unwrap_or_else(|| dirs.image(&name)),
            requirements: options.requirements()?,
            metrics: match &options.metrics {
                Some(text) => metrics_addr(text)?,
                None => Metrics::Default,
            },
            metrics_hosts: options.metrics_hosts(),
            latency: options.latency()?,
            verify: options.verify()?,
            tls: options.tls(target.as_ref())?,
            read_only: options.read_only,
            record: options.record()?,
            shadows: options.shadows()?,
            write_cache: options.write_cache()?,
            announces_cache: options.announces_cache()?,
            atomic_unit: options.atomic_unit()?,
            target,
            name,
        })
    }

    /// Returns the source of an option's value.
    pub fn origin(&self, key: &str) -> Option<String> {
        let says = |target: &Option<String>, options: &DeviceOptions| match key {
            "target" => target.is_some(),
            key => options.table().contains_key(key),
        };
        let typed = says(&self.typed.target, &self.typed.options);
        let in_file = says(&self.file.1.target, &self.file.1.options);
        if typed && self.typed.from_env.contains(key) {
            return Some(format!("FTLD_{}", key.replace('-', "_").to_uppercase()));
        }
        let file = self
            .file
            .0
            .as_ref()
            .filter(|_| in_file)
            .map(|path| path.display().to_string());
        typed.then(|| "command line".to_owned()).or(file)
    }
}

fn parse(target: Option<&str>) -> Result<Option<Target>, Failure> {
    target.map(Target::parse).transpose()
}

fn name_of(name: Option<String>, target: Option<&Target>) -> Result<String, Failure> {
    let name = name.unwrap_or_else(|| target.map_or("default".into(), Target::instance_name));
    instance::check_name(&name).map(|()| name)
}

impl FileOptions {
    fn read(path: &Path) -> Result<FileOptions, Failure> {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::usage(format!("configuration {}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let mut table: toml::Table = toml::from_str(&text).map_err(|error| wrong(&error))?;
        let target = match table.remove("target") {
            None => None,
            Some(toml::Value::String(target)) => Some(target),
            Some(other) => return Err(wrong(&format!("target = {other} is not a text"))),
        };
        let known: Vec<_> = std::iter::once("target".to_owned())
            .chain(DeviceOptions::keys())
            .collect();
        if let Some(key) = table.keys().find(|key| !known.contains(key)) {
            let hint = near_miss(key, known.iter().map(String::as_str));
            return Err(wrong(&format!(
                "no option `{key}`{hint}; there are {}",
                known.join(", ")
            )));
        }
        let options = toml::Value::Table(table).try_into();
        Ok(FileOptions {
            target,
            options: options.map_err(|error: toml::de::Error| wrong(&error.message()))?,
        })
    }
}

fn metrics_addr(text: &str) -> Result<Metrics, Failure> {
    if text == "off" {
        return Ok(Metrics::Off);
    }
    let with_host = if text.parse::<u16>().is_ok() {
        format!("127.0.0.1:{text}")
    } else {
        text.to_owned()
    };
    let addr = with_host
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next());
    let wrong = || {
        Failure::usage(format!(
            "--metrics {text:?} is not an address; write HOST:PORT or off"
        ))
    };
    addr.map(Metrics::At).ok_or_else(wrong)
}

impl DeviceOptions {
    /// Returns the names in `--metrics-host`, and the host of `--metrics`.
    fn metrics_hosts(&self) -> Vec<String> {
        let bound = self
            .metrics
            .as_deref()
            .and_then(|addr| addr.rsplit_once(':'))
            .map(|(host, _)| host);
        let named = self.metrics_host.iter().flat_map(|names| names.split(','));
        named
            .map(str::trim)
            .chain(bound)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Returns all option keys, as written in a file, in the order of the help.
    pub fn keys() -> impl Iterator<Item = String> {
        let command = DeviceOptions::augment_args(clap::Command::new("keys"));
        command
            .get_arguments()
            .map(|arg| arg.get_id().as_str().replace('_', "-"))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// Returns the paths among the values.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let files = [&self.tls_cert, &self.tls_key, &self.tls_client_ca];
        let all = files.into_iter().chain([&self.image, &self.record]);
        all.flatten().map(PathBuf::as_path)
    }

    /// Returns these options as a file's table; bytes of paths that are no UTF-8 are replaced.
    pub fn table(&self) -> toml::Table {
        let mut table = toml::Table::try_from(self).expect("plain data");
        table.retain(|_, value| *value != toml::Value::Boolean(false));
        table
    }

    /// Returns these options, with unset ones taken from `other`.
    fn or(self, other: DeviceOptions) -> DeviceOptions {
        DeviceOptions {
            preset: self.preset.or(other.preset),
            scheme: self.scheme.or(other.scheme),
            image: self.image.or(other.image),
            size: self.size.or(other.size),
            profile: self.profile.or(other.profile),
            slc_region: self.slc_region.or(other.slc_region),
            op: self.op.or(other.op),
            shards: self.shards.or(other.shards),
            metrics: self.metrics.or(other.metrics),
            metrics_host: self.metrics_host.or(other.metrics_host),
            latency: self.latency.or(other.latency),
            verify: self.verify.or(other.verify),
            tls: self.tls.or(other.tls),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            tls_client_ca: self.tls_client_ca.or(other.tls_client_ca),
            record: self.record.or(other.record),
            record_data: self.record_data.or(other.record_data),
            shadow: match self.shadow.is_empty() {
                true => other.shadow,
                false => self.shadow,
            },
            read_only: self.read_only || other.read_only,
            write_cache: self.write_cache.or(other.write_cache),
            cache_model: self.cache_model.or(other.cache_model),
            cache_tear: self.cache_tear.or(other.cache_tear),
            cache_plp: self.cache_plp || other.cache_plp,
            write_cache_announce: self.write_cache_announce.or(other.write_cache_announce),
            atomic_unit: self.atomic_unit.or(other.atomic_unit),
            name: self.name.or(other.name),
            set: other.set.into_iter().chain(self.set).collect(),
        }
    }

    /// Returns the unit of atomicity in bytes.
    fn atomic_unit(&self) -> Result<Option<u32>, Failure> {
        let Some(text) = &self.atomic_unit else {
            return Ok(None);
        };
        let bytes =
            parse_size(text).map_err(|why| Failure::usage(format!("--atomic-unit {why}")))?;
        if !bytes.is_power_of_two() || !ATOMIC_UNITS.contains(&bytes) {
            return Err(Failure::usage(format!(
                "--atomic-unit {text}: need a power of two from 4KiB to 64KiB"
            )));
        }
        if self.write_cache.is_some() {
            return Err(Failure::usage(
                "--atomic-unit: a write cache has a unit of its own; leave --write-cache out, or this",
            ));
        }
        Ok(u32::try_from(bytes).ok())
    }

    fn latency(&self) -> Result<Latency, Failure> {
        match self.latency.as_deref() {
            None | Some("none") => Ok(Latency::None),
            Some("emulate") => Ok(Latency::Emulate),
            Some(other) => Err(Failure::usage(format!(
                "--latency {other:?} is neither none nor emulate"
            ))),
        }
    }

    fn verify(&self) -> Result<Verify, Failure> {
        match self.verify.as_deref() {
            None | Some("always") => Ok(Verify::Always),
            Some("once") => Ok(Verify::Once),
            Some(other) => Err(Failure::usage(format!(
                "--verify {other:?} is neither always nor once"
            ))),
        }
    }

    /// Returns the TLS options, checked against the target.
    fn tls(&self, target: Option<&Target>) -> Result<Option<TlsOptions>, Failure> {
        const FILES: &str = "--tls-cert CERT.pem --tls-key KEY.pem";
        let by_uri = matches!(target, Some(Target::Nbd(uri)) if uri.tls);
        let given =
            self.tls_cert.is_some() || self.tls_key.is_some() || self.tls_client_ca.is_some();
        let mode = self
            .tls
            .as_deref()
            .unwrap_or(if given || by_uri { "require" } else { "off" });
        let required = match mode {
            "off" | "optional" if by_uri => {
                return Err(Failure::usage(format!(
                    "--tls {mode}: nbds:// means that TLS is required; write nbd://"
                )));
            }
            "off" => None,
            "optional" => Some(false),
            "require" => Some(true),
            other => {
                return Err(Failure::usage(format!(
                    "--tls {other:?} is none of off, optional, require"
                )));
            }
        };
        if let Some(ip) = target
            .and_then(Target::beyond_this_machine)
            .filter(|_| required != Some(true))
        {
            return Err(Failure::usage(format!(
                "{ip} can be reached from other machines, and NBD without TLS is neither private nor authenticated; \
                 add {FILES}, and --tls-client-ca CA.pem unless anybody may write; or use 127.0.0.1 or a unix socket"
            )));
        }
        let Some(required) = required else {
            return Ok(None);
        };
        match target {
            Some(Target::Ublk(_) | Target::NbdKernel(_) | Target::VhostUser(_)) => {
                Err(Failure::usage(
                    "TLS is for NBD addresses (nbds://HOST:PORT); leave the --tls options out",
                ))
            }
            Some(Target::Nbd(_)) | None => match (self.tls_cert.clone(), self.tls_key.clone()) {
                (Some(cert), Some(key)) => Ok(Some(TlsOptions {
                    required,
                    cert,
                    key,
                    client_ca: self.tls_client_ca.clone(),
                })),
                _ => Err(Failure::usage(format!(
                    "TLS needs a certificate and its key: add {FILES}"
                ))),
            },
        }
    }

    /// Returns these options, with unset ones taken from the preset.
    ///
    /// # Errors
    /// No preset has this name.
    pub fn with_preset(self) -> Result<DeviceOptions, Failure> {
        let Some(name) = self.preset.as_deref() else {
            return Ok(self);
        };
        let preset = Preset::find(name)?;
        let scheme = find_scheme(self.scheme.as_deref().unwrap_or(preset.scheme))?;
        let set = preset.params(scheme, Use::Device, &self.set);
        Ok(DeviceOptions {
            scheme: Some(scheme.name.into()),
            set,
            ..self.clone().or(preset.device())
        })
    }

    /// Resolves preset, profile and scheme into the requirements of an image.
    ///
    /// # Errors
    /// A name is unknown, or a value is out of range.
    pub fn requirements(&self) -> Result<ImageRequirements, Failure> {
        self.clone().with_preset()?.wish_as_is()
    }

    fn wish_as_is(&self) -> Result<ImageRequirements, Failure> {
        let profile = self.profile.as_deref().map(profile_file::find);
        let profile = self.with_slc_region(profile.transpose()?)?;
        let op = self.op.filter(|op| !(0.1..=1000.0).contains(op));
        if let Some(op) = op {
            return Err(Failure::usage(format!(
                "--op {op} is not a percentage from 0.1 to 1000"
            )));
        }
        if let Some(shards) = self.shards.filter(|n| !(1..=SHARDS_MAX).contains(n)) {
            return Err(Failure::usage(format!(
                "--shards {shards}: a device has 1 to {SHARDS_MAX} shards"
            )));
        }
        Ok(ImageRequirements {
            scheme: self.scheme.clone(),
            profile,
            size: self.size()?,
            op: self.op,
            shards: self.shards,
            params: self.params()?,
        })
    }

    /// Returns the profile with `--slc-region`, if that is given.
    fn with_slc_region(&self, profile: Option<Profile>) -> Result<Option<Profile>, Failure> {
        let Some(percent) = self.slc_region else {
            return Ok(profile);
        };
        let share = profile_file::slc_share(percent).ok_or_else(|| {
            Failure::usage(format!(
                "--slc-region {percent}: need 0.01 to 50 percent of the blocks"
            ))
        })?;
        let Some(profile) = profile else {
            return Err(Failure::usage(format!(
                "--slc-region {percent}: of which flash device? add --profile, such as tlc-16k"
            )));
        };
        let typical = SlcRegion::typical(&profile, share);
        let region = SlcRegion {
            share,
            ..profile.slc.unwrap_or(typical)
        };
        let slc = Some(region);
        let profile = Profile { slc, ..profile };
        let valid = profile.validate();
        valid.map_err(|why| Failure::usage(format!("--slc-region {percent}: {why}")))?;
        Ok(Some(profile))
    }

    fn size(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.size else {
            return Ok(None);
        };
        let mut size = parse_size(text).map_err(|why| Failure::usage(format!("--size {why}")))?;
        if is_decimal(text) {
            // 1GB is no multiple of 4 KiB: as many whole ones as fit.
            size -= size % 4096;
        }
        if size == 0 || !size.is_multiple_of(4096) {
            return Err(Failure::usage(format!(
                "--size {text}: {size} bytes are not a positive multiple of 4 KiB; write for example 512MiB"
            )));
        }
        Ok(Some(size))
    }

    fn params(&self) -> Result<Params, Failure> {
        let mut params = Params::default();
        for pair in &self.set {
            let wrong = || {
                Failure::usage(format!(
                    "--set {pair:?} is not KEY=VALUE; see `ftld schemes NAME` for the keys"
                ))
            };
            let (key, value) = pair
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(wrong)?;
            params.set(key, value);
        }
        Ok(params)
    }
}

/// Returns the scheme with this name.
///
/// # Errors
/// No scheme has it; the message has the nearest name.
pub fn find_scheme(name: &str) -> Result<&'static Scheme, Failure> {
    Scheme::find(name).ok_or_else(|| {
        let names: Vec<_> = schemes::all().map(|s| s.name).collect();
        let hint = near_miss(name, names.iter().copied());
        Failure::usage(format!(
            "no scheme {name:?}{hint}; there are {}",
            names.join(", ")
        ))
    })
}

/// Returns the value of `--verify`.
pub fn verify_name(verify: Verify) -> &'static str {
    match verify {
        Verify::Always => "always",
        Verify::Once => "once",
    }
}

#[cfg(test)]
mod tests;
