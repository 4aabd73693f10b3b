//! Paper modes by name: scheme, device, parameters and measurement method of a publication.
//!
//! A preset supplies values for unset options only, so every part of it can be changed. Its
//! parameters apply to every scheme that has them. So another scheme runs as the paper's authors
//! ran their comparators: `--preset mnftl-paper --scheme dftl`.
//!
//! Invariants: a live device keeps flushed and acknowledged data. Paper parameters that violate
//! this are kept separate and are for simulation only.

use crate::method::{Precondition, ResponseUnit};
use crate::options::DeviceOptions;
use ftl_core::schemes::Scheme;
use ftld_kit::failure::Failure;

/// A paper mode.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// One line: the publication, and the choices made where the paper is silent.
    pub title: &'static str,
    /// Scheme, unless an option names another.
    pub scheme: &'static str,
    /// Device profile.
    pub profile: &'static str,
    /// Device size; `None` derives it from the profile.
    pub size: Option<&'static str>,
    /// Over-provisioning in percent.
    pub op: f64,
    /// Parameters, applied to the schemes that have them.
    pub params: &'static [(&'static str, &'static str)],
    /// Parameters that may lose flushed or acknowledged data when power fails or the daemon dies:
    /// for simulation only.
    pub unsafe_params: &'static [(&'static str, &'static str)],
    /// Preconditioning.
    pub precondition: Precondition,
    /// Unit of a response time.
    pub response_unit: ResponseUnit,
}

/// Use of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A live device: data must survive.
    Device,
    /// `ftld replay` and `ftld compare`.
    Simulation,
}

/// MNFTL and the comparators in its Table 2. The table's page-level rows reveal the device. Pages
/// written and copied, in blocks, minus the erases are 4,352 blocks in every row. That is 1 GiB and
/// the 256 log blocks of Superblock FTL, erased at the beginning. They leave GFTL less than its 16
/// % of extra blocks.
const MNFTL: Preset = Preset {
    name: "mnftl-paper",
    title: "MNFTL, DAC 2011, Table 2: the 1 GiB that it uses of 8 GB, new; a record counts as one page; RAM takes no time",
    scheme: "mnftl",
    profile: "mnftl-region",
    size: Some("1GiB"),
    op: 1.0,
    params: &[
        ("wear.policy", "none"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
        ("gc.placement", "single"),
        ("dftl.cache", "65536"),
        ("tpftl.cache", "65536"),
        ("gftl.extra", "1"),
        ("gftl.slice_always", "true"),
    ],
    unsafe_params: &[("nand.pair_policy", "none")],
    precondition: Precondition::New,
    response_unit: ResponseUnit::PerRecord,
};

const LAZYFTL: Preset = Preset {
    name: "lazyftl-paper",
    title: "LazyFTL, SIGMOD 2011: 1 GB of SLC, 128 buffer or log blocks, 14 cached mapping pages; marks in spare bytes cost nothing",
    scheme: "lazyftl",
    profile: "lazyftl",
    size: None,
    op: 7.0,
    params: &[
        ("lazy.buffer_blocks", "128"),
        ("lazy.cache_pages", "14"),
        ("log.blocks", "128"),
        ("bast.victim", "least_valid"),
        ("asast.victim", "least_valid"),
        ("last.sequential", "8"),
        ("last.large_request", "4096"),
        ("wear.policy", "none"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
    ],
    unsafe_params: &[],
    precondition: Precondition::Trace,
    response_unit: ResponseUnit::PerPage,
};

const DOPFTL: Preset = Preset {
    name: "dopftl-paper",
    title: "DOPFTL: a cache of a 64th of the table, as in its example of 32 MB for 2 TB; device and size are ours, 4 GiB for 1.2 TB",
    scheme: "dopftl",
    profile: "mlc-4k",
    size: Some("4GiB"),
    op: 7.0,
    // 1/64 of the table: 4 bytes for each of 1 Mi pages.
    params: &[
        ("dop.cache", "65536"),
        ("dftl.cache", "65536"),
        ("tpftl.cache", "65536"),
        ("wear.policy", "none"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
    ],
    unsafe_params: &[("nand.pair_policy", "none")],
    precondition: Precondition::Fill,
    response_unit: ResponseUnit::PerRequest,
};

/// ROSE on the device of its Table 1. The log area is 2.5 % of the blocks; another 2.5 % is for
/// schemes without log blocks. The device is new, as the paper's erase counts on its smallest trace
/// show.
const ROSE: Preset = Preset {
    name: "rose-paper",
    title: "ROSE, IEEE TC 2011: 80 GB of SLC, new, 16,384 log blocks, age weight 1, alpha 0.5, blocks swapped 10 erases apart; takes 1.5 GB of RAM",
    scheme: "rose",
    profile: "rose",
    size: None,
    op: 3.0,
    params: &[
        ("log.blocks", "16384"),
        ("last.large_request", "8192"),
        ("maro.cost_unit", "us"),
        ("maro.age_weight", "1"),
        ("maro.alpha", "0.5"),
        ("wear.gap", "10"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
    ],
    unsafe_params: &[],
    precondition: Precondition::New,
    response_unit: ResponseUnit::PerRequest,
};

const MLAM: Preset = Preset {
    name: "mlam-paper",
    title: "MLAM, JSA 2010: 32 GB of MLC on 4 channels, a buffer of 32 MB flushed from 10 to 50 % free; new; a write is done when it is in the buffer",
    scheme: "mlam",
    profile: "mlam",
    size: None,
    op: 7.0,
    params: &[
        ("mlam.buffer", "33554432"),
        ("mlam.low", "0.1"),
        ("mlam.high", "0.5"),
        ("mlam.candidates", "4"),
        ("wear.policy", "none"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
    ],
    unsafe_params: &[("nand.pair_policy", "none")],
    precondition: Precondition::New,
    response_unit: ResponseUnit::PerRequest,
};

/// Parameters of every simulation, for the schemes that have them. Acknowledged writes that are not
/// flushed need no protection there: no daemon can be killed.
const SIMULATION: &[(&str, &str)] = &[("mlam.ack", "buffer"), ("leaftl.ack", "buffer")];

/// Returns these parameters, each as KEY=VALUE, and those of every simulation that they do not set.
pub fn for_simulation(scheme: &Scheme, own: &[String]) -> Vec<String> {
    let added = SIMULATION
        .iter()
        .filter(|(key, _)| scheme.knows(key) && !has(own, key));
    added
        .map(|(key, value)| format!("{key}={value}"))
        .chain(own.iter().cloned())
        .collect()
}

/// Returns whether a list of KEY=VALUE has this key.
fn has(pairs: &[String], key: &str) -> bool {
    pairs
        .iter()
        .any(|pair| pair.split_once('=').is_some_and(|(own, _)| own == key))
}

/// All presets. A comparator uses the preset of the paper that measured it.
pub const PRESETS: &[Preset] = &[
    MNFTL,
    Preset {
        name: "superblock-paper",
        scheme: "superblock",
        ..MNFTL
    },
    Preset {
        name: "dftl-paper",
        scheme: "dftl",
        ..MNFTL
    },
    Preset {
        name: "gftl-paper",
        scheme: "gftl",
        ..MNFTL
    },
    LAZYFTL,
    Preset {
        name: "bast-paper",
        scheme: "bast",
        ..LAZYFTL
    },
    Preset {
        name: "fast-paper",
        scheme: "fast",
        ..LAZYFTL
    },
    Preset {
        name: "last-paper",
        scheme: "last",
        ..LAZYFTL
    },
    Preset {
        name: "asast-paper",
        scheme: "asast",
        ..LAZYFTL
    },
    // As many replacement blocks as fit: the scheme has no table of their pages.
    Preset {
        name: "nftl1-paper",
        scheme: "nftl1",
        params: &[("wear.policy", "none"), ("scrub.hours", "0")],
        ..LAZYFTL
    },
    // The same; a list has at most 16 blocks.
    Preset {
        name: "nftln-paper",
        scheme: "nftln",
        params: &[
            ("nftln.max_length", "16"),
            ("wear.policy", "none"),
            ("scrub.hours", "0"),
        ],
        ..LAZYFTL
    },
    ROSE,
    MLAM,
    DOPFTL,
    Preset {
        name: "tpftl-paper",
        scheme: "tpftl",
        ..DOPFTL
    },
];

impl Preset {
    /// Returns the preset with this name.
    ///
    /// # Errors
    /// No preset has this name; the message lists the names.
    pub fn find(name: &str) -> Result<&'static Preset, Failure> {
        PRESETS
            .iter()
            .find(|preset| preset.name == name)
            .ok_or_else(|| {
                let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
                let hint = ftl_core::near_miss(name, names.iter().copied());
                Failure::usage(format!(
                    "no preset {name:?}{hint}; there are {}",
                    names.join(", ")
                ))
            })
    }

    /// Returns the preset's device options, without scheme and parameters.
    pub fn device(&self) -> DeviceOptions {
        DeviceOptions {
            profile: Some(self.profile.into()),
            size: self.size.map(str::to_owned),
            op: Some(self.op),
            ..DeviceOptions::default()
        }
    }

    /// Returns the parameters for a scheme, each as KEY=VALUE: those of the preset that the scheme
    /// has and `own` does not override, then `own`.
    pub fn params(&self, scheme: &Scheme, to: Use, own: &[String]) -> Vec<String> {
        let apart = if to == Use::Simulation {
            self.unsafe_params
        } else {
            &[]
        };
        let mine = self
            .params
            .iter()
            .chain(apart)
            .filter(|(key, _)| scheme.knows(key) && !has(own, key));
        mine.map(|(key, value)| format!("{key}={value}"))
            .chain(own.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::Profile;

    /// Parameters allowed only in a simulation.
    const UNSAFE: [(&str, &str); 3] = [
        ("nand.pair_policy", "none"),
        ("mlam.ack", "buffer"),
        ("leaftl.ack", "buffer"),
    ];

    #[test]
    fn every_preset_has_a_layout_for_every_use() {
        for preset in PRESETS {
            let scheme = Scheme::find(preset.scheme).expect(preset.name);
            let profile = Profile::find(preset.profile).expect(preset.name);
            for to in [Use::Device, Use::Simulation] {
                let options = DeviceOptions {
                    set: preset.params(scheme, to, &[]),
                    ..preset.device()
                };
                let requirements = options.requirements().expect(preset.name);
                let layout = scheme.layout(
                    profile,
                    requirements.size.unwrap_or(0),
                    preset.op / 100.0,
                    &requirements.params,
                );
                layout.unwrap_or_else(|error| panic!("{}: {error}", preset.name));
            }
        }
    }

    #[test]
    fn a_live_device_under_a_preset_gives_nothing_up() {
        for preset in PRESETS {
            assert!(
                UNSAFE.iter().all(|pair| !preset.params.contains(pair)),
                "{}",
                preset.name
            );
            let options = DeviceOptions {
                preset: Some(preset.name.into()),
                ..DeviceOptions::default()
            };
            let requirements = options.requirements().unwrap();
            assert_eq!(requirements.scheme.as_deref(), Some(preset.scheme));
            assert_eq!(
                requirements.profile.map(|profile| profile.name),
                Some(preset.profile)
            );
            assert!(
                requirements
                    .params
                    .iter()
                    .all(|pair| !UNSAFE.contains(&pair)),
                "{}",
                preset.name
            );
        }
    }

    #[test]
    fn a_simulation_acknowledges_in_ram_unless_it_is_told_otherwise() {
        let of = |scheme: &str, own: &[&str]| {
            let own: Vec<String> = own.iter().map(|pair| (*pair).to_owned()).collect();
            for_simulation(Scheme::find(scheme).unwrap(), &own)
        };
        assert_eq!(
            of("mlam", &["mlam.low=0.2"]),
            ["mlam.ack=buffer", "mlam.low=0.2"]
        );
        assert_eq!(of("mlam", &["mlam.ack=journal"]), ["mlam.ack=journal"]);
        assert_eq!(of("leaftl", &[]), ["leaftl.ack=buffer"]);
        assert_eq!(of("pagemap", &[]), Vec::<String>::new());
    }

    #[test]
    fn options_win_over_a_preset_and_foreign_parameters_are_left_out() {
        let options = DeviceOptions {
            preset: Some("mnftl-paper".into()),
            scheme: Some("dftl".into()),
            op: Some(28.0),
            set: vec!["dftl.cache=4096".into()],
            ..DeviceOptions::default()
        };
        let requirements = options.requirements().unwrap();
        assert_eq!(
            (requirements.scheme.as_deref(), requirements.op),
            (Some("dftl"), Some(28.0))
        );
        let params: Vec<_> = requirements
            .params
            .iter()
            .filter(|(key, _)| key.contains("cache") || key.starts_with("page."))
            .collect();
        assert_eq!(params, [("dftl.cache", "4096")]);
    }
}
