//! Options of a device as typed, not yet checked. `config.rs` merges and checks them; the lists in
//! `daemon/src/cli.rs` say which commands show them.

use clap::Args;
use ftld_kit::failure::Failure;
use ftld_kit::path_json;
use nand_model::SHARDS_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Which device: the target, and options from the command line, the environment and a file.
#[derive(Args, Clone, Debug, Default)]
pub struct DeviceArgs {
    /// /dev/ublkbN, /dev/nbdN, nbd://HOST:PORT[/EXPORT], nbd+unix:///[EXPORT]?socket=PATH or
    /// vhost-user:///PATH; without one, ublk if the kernel has it, else an NBD unix socket
    #[arg(env = "FTLD_TARGET")]
    pub target: Option<String>,
    /// Read options from a TOML file [default: /etc/ftld/NAME.toml, if there is one]
    #[arg(long, value_name = "FILE", env = "FTLD_CONFIG")]
    pub config: Option<PathBuf>,
    /// The device itself.
    #[command(flatten)]
    pub options: DeviceOptions,
    /// Keys of the options that came from the environment.
    #[arg(skip)]
    pub from_env: BTreeSet<String>,
}

/// Options of a device, on the command line and in a file alike.
#[derive(Args, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct DeviceOptions {
    /// Name of the instance [default: that of the target]
    #[arg(long, value_name = "NAME", env = "FTLD_NAME")]
    pub name: Option<String>,
    /// Image file; created if missing [default: NAME.ftld in the folder of images]
    #[arg(long, value_name = "PATH", env = "FTLD_IMAGE")]
    #[serde(serialize_with = "path_json::serialize")]
    pub image: Option<PathBuf>,
    /// Refuse writes and leave the image unchanged
    #[arg(long, env = "FTLD_READ_ONLY")]
    pub read_only: bool,
    /// Scheme, flash device and parameters of a paper; explicit options have priority; see `ftld
    /// presets`
    #[arg(long, value_name = "NAME", env = "FTLD_PRESET")]
    pub preset: Option<String>,
    /// Flash translation layer; see `ftld schemes` [default: lazyftl]
    #[arg(long, value_name = "NAME", env = "FTLD_SCHEME")]
    pub scheme: Option<String>,
    /// Size that the host sees [default: 1GiB]
    #[arg(long, value_name = "SIZE", env = "FTLD_SIZE")]
    pub size: Option<String>,
    /// Flash device: a name of `ftld profiles`, or a TOML file [default: mlc-4k]
    #[arg(long, value_name = "NAME|FILE.toml", env = "FTLD_PROFILE")]
    pub profile: Option<String>,
    /// Over-provisioning in percent of the size [default: 7]
    #[arg(long, value_name = "PERCENT", env = "FTLD_OP", value_parser = percent, allow_hyphen_values = true)]
    pub op: Option<f64>,
    /// Parameter of the scheme or its policies; repeatable [default: as `ftld schemes NAME` shows]
    #[arg(
        long,
        value_name = "KEY=VALUE",
        env = "FTLD_SET",
        value_delimiter = ' '
    )]
    #[serde(
        deserialize_with = "set_table",
        serialize_with = "as_table",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub set: Vec<String>,
    /// Share of the blocks of a new image in SLC mode, such as 5%: the host's writes go there
    /// first; for a flash device of several bits per cell [default: none, or that of the file]
    #[arg(long, value_name = "PERCENT", env = "FTLD_SLC_REGION", value_parser = percent, allow_hyphen_values = true)]
    pub slc_region: Option<f64>,
    /// Number of flash chips of a new image, 1 to 16; requests to different ones run in parallel
    /// [default: 1]
    #[arg(long, value_name = "N", env = "FTLD_SHARDS", value_parser = shards, allow_negative_numbers = true)]
    pub shards: Option<u32>,
    /// Address for the live page, /metrics, /healthz and /status, or `off` [default:
    /// 127.0.0.1:9917, or the next free port]
    #[arg(long, value_name = "ADDR|off", env = "FTLD_METRICS")]
    pub metrics: Option<String>,
    /// Comma-separated host names accepted at the metrics address, besides IP addresses, localhost
    /// and this machine's name
    #[arg(long, value_name = "NAMES", env = "FTLD_METRICS_HOST")]
    pub metrics_host: Option<String>,
    /// Duration of a request: none, as fast as the host; emulate, no shorter than on the emulated
    /// flash [default: none]
    #[arg(long, value_name = "none|emulate", env = "FTLD_LATENCY")]
    pub latency: Option<String>,
    /// When a read computes the check of a page's data: always, or once since the page was written
    /// or the image was opened [default: always]
    #[arg(long, value_name = "always|once", env = "FTLD_VERIFY")]
    pub verify: Option<String>,
    /// Record every request into a new file, for `ftld replay` and `ftld inspect`
    #[arg(long, value_name = "FILE", env = "FTLD_RECORD")]
    #[serde(serialize_with = "path_json::serialize")]
    pub record: Option<PathBuf>,
    /// Whether a recording contains the data: on or off [default: on]
    #[arg(long, value_name = "on|off", env = "FTLD_RECORD_DATA")]
    pub record_data: Option<String>,
    /// Scheme that follows the requests without data, such as dftl:op=28; the page and `ftld
    /// status` show it beside the device; repeatable
    #[arg(
        long,
        value_name = "SCHEME[:KEY=VALUE,...]",
        env = "FTLD_SHADOW",
        value_delimiter = ' '
    )]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shadow: Vec<String>,
    /// Volatile write cache of this size, such as 16MiB: writes wait in it for a FLUSH, and a power
    /// cut loses them [default: none]
    #[arg(long, value_name = "SIZE", env = "FTLD_WRITE_CACHE")]
    pub write_cache: Option<String>,
    /// What a power cut leaves of the write cache: any, each unit new, old or lost; ordered, the
    /// first writes; lost, nothing [default: any]
    #[arg(long, value_name = "any|ordered|lost", env = "FTLD_CACHE_MODEL")]
    pub cache_model: Option<String>,
    /// Bytes of a unit that the write cache keeps or loses whole: 512, 1024, 2048 or 4096 [default:
    /// 4096, or a page if that is less]
    #[arg(long, value_name = "BYTES", env = "FTLD_CACHE_TEAR")]
    pub cache_tear: Option<u32>,
    /// Power-loss protection: a power cut loses nothing of the write cache
    #[arg(long, env = "FTLD_CACHE_PLP")]
    pub cache_plp: bool,
    /// Whether the device announces a volatile write cache: with none, as drives with power-loss
    /// protection do, the kernel sends no FLUSH, and every write is durable when it completes
    /// [default: volatile]
    #[arg(long, value_name = "volatile|none", env = "FTLD_WRITE_CACHE_ANNOUNCE")]
    pub write_cache_announce: Option<String>,
    /// Aligned write that a power cut leaves old or new as a whole, such as 16KiB: a page or a part
    /// of one. ublk and vhost-user announce it as the physical block; recordings have it [default:
    /// the largest power of two up to 4KiB that divides the page]
    #[arg(long, value_name = "SIZE", env = "FTLD_ATOMIC_UNIT")]
    pub atomic_unit: Option<String>,
    /// TLS for NBD: off, optional or require [default: require with a certificate or nbds://, else
    /// off]
    #[arg(long, value_name = "off|optional|require", env = "FTLD_TLS")]
    pub tls: Option<String>,
    /// PEM file of the NBD server's certificate, followed by the chain to its authority
    #[arg(long, value_name = "PEM", env = "FTLD_TLS_CERT")]
    #[serde(serialize_with = "path_json::serialize")]
    pub tls_cert: Option<PathBuf>,
    /// PEM file of the certificate's private key
    #[arg(long, value_name = "PEM", env = "FTLD_TLS_KEY")]
    #[serde(serialize_with = "path_json::serialize")]
    pub tls_key: Option<PathBuf>,
    /// PEM file of authorities; every NBD client needs a certificate from one of them; without it
    /// all clients are admitted
    #[arg(long, value_name = "PEM", env = "FTLD_TLS_CLIENT_CA")]
    #[serde(serialize_with = "path_json::serialize")]
    pub tls_client_ca: Option<PathBuf>,
}

/// Reads a percentage, with or without its sign: `7`, `7%`.
///
/// # Errors
/// The text is no percentage.
pub fn percent(text: &str) -> Result<f64, Failure> {
    if text.starts_with("--") {
        return Err(Failure::usage(format!(
            "a percentage is missing before {text}"
        )));
    }
    let number = text.trim();
    let number = number.strip_suffix('%').unwrap_or(number).trim_end();
    let wrong = format!("{text:?} is not a percentage; write for example 7 or 12.5%");
    let number = number
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| Failure::usage(wrong))
}

/// Reads a number of shards.
fn shards(text: &str) -> Result<u32, Failure> {
    let number = text.parse().ok().filter(|n| (1..=SHARDS_MAX).contains(n));
    number.ok_or_else(|| Failure::usage(format!("a device has 1 to {SHARDS_MAX} shards")))
}

fn set_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let pair = |(key, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok(format!("{key}={text}")),
        toml::Value::Integer(number) => Ok(format!("{key}={number}")),
        toml::Value::Float(number) => Ok(format!("{key}={number}")),
        toml::Value::Boolean(yes) => Ok(format!("{key}={yes}")),
        _ => Err(serde::de::Error::custom(format!(
            "set.{key} is not a plain value"
        ))),
    };
    BTreeMap::deserialize(deserializer)?
        .into_iter()
        .map(pair)
        .collect()
}

fn as_table<S: Serializer>(pairs: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().filter_map(|pair| pair.split_once('=')))
}
