//! Paper modes by name: the scheme, the device, the parameters and the way of measuring of a
//! publication.
//!
//! One table. A preset fills in what no option says, so every part of it can be changed. Its
//! parameters go to the schemes that have them, so another scheme runs under it as the paper's
//! authors ran their comparators: `--preset mnftl-paper --scheme dftl`.
//!
//! What always holds: a live device keeps what was flushed and what was acknowledged. What a paper
//! leaves out at the cost of that stands apart and is for simulation alone.

use crate::failure::Failure;
use crate::method::{Average, Precondition};
use crate::options::DeviceOptions;
use ftl_core::schemes::Scheme;

/// A paper mode.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name on the command line.
    pub name: &'static str,
    /// One line: whose it is, and what was chosen where the paper is silent.
    pub title: &'static str,
    /// The scheme, unless another one is named.
    pub scheme: &'static str,
    /// The device.
    pub profile: &'static str,
    /// Size that the host sees; `None` follows from the profile.
    pub size: Option<&'static str>,
    /// Over-provisioning in percent.
    pub op: f64,
    /// Parameters, for the schemes that have them.
    pub params: &'static [(&'static str, &'static str)],
    /// Parameters that give up what was flushed or acknowledged, when power fails or the daemon
    /// dies: for simulation alone.
    pub unsafe_params: &'static [(&'static str, &'static str)],
    /// What is written before measuring.
    pub precondition: Precondition,
    /// What one response time is.
    pub average: Average,
}

/// What a preset is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A live device, which has to keep data.
    Device,
    /// `ftld replay` and `ftld compare`.
    Simulation,
}

/// MNFTL and what its Table 2 has beside it. The table's page-level rows give away the device:
/// pages written and copied, in blocks, less the erases are 4,352 blocks in every row, 1 GiB and
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
    precondition: Precondition::None,
    average: Average::PerRecord,
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
    precondition: Precondition::Touched,
    average: Average::PerPage,
};

const DOPFTL: Preset = Preset {
    name: "dopftl-paper",
    title: "DOPFTL: a cache of a 64th of the table, as in its example of 32 MB for 2 TB; device and size are ours, 4 GiB for 1.2 TB",
    scheme: "dopftl",
    profile: "mlc-4k",
    size: Some("4GiB"),
    op: 7.0,
    // A 64th of 4 bytes for each of 1 Mi pages.
    params: &[
        ("dop.cache", "65536"),
        ("dftl.cache", "65536"),
        ("tpftl.cache", "65536"),
        ("wear.policy", "none"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
    ],
    unsafe_params: &[],
    precondition: Precondition::Fill,
    average: Average::PerRequest,
};

/// ROSE on its Table 1's device, whose log area is 2.5 % of the blocks; as little again is for
/// schemes without log blocks. New, as the erases that the paper counts on its smallest trace say.
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
    precondition: Precondition::None,
    average: Average::PerRequest,
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
        // Not published. With 0.5 the share of a superblock that is buffered, a few hundredths,
        // hardly counts beside its age.
        ("mlam.alpha", "0.05"),
        ("wear.policy", "none"),
        ("scrub.hours", "0"),
        ("ckpt.interval", "0"),
    ],
    unsafe_params: &[("mlam.ack", "buffer")],
    precondition: Precondition::None,
    average: Average::PerRequest,
};

/// Every preset. A comparator has that of the paper that measured it.
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
    // Replacement blocks as many as there is room for: it has no table of their pages.
    Preset {
        name: "nftl1-paper",
        scheme: "nftl1",
        params: &[("wear.policy", "none"), ("scrub.hours", "0")],
        ..LAZYFTL
    },
    // So are its blocks; a list has 16 at most.
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
    /// The preset of this name.
    ///
    /// # Errors
    /// There is no preset of this name; the message lists them.
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

    /// What it says of the device, but for scheme and parameters.
    pub(crate) fn device(&self) -> DeviceOptions {
        DeviceOptions {
            profile: Some(self.profile.into()),
            size: self.size.map(str::to_owned),
            op: Some(self.op),
            ..DeviceOptions::default()
        }
    }

    /// The parameters of a scheme under it, each as KEY=VALUE: its own where the scheme has them
    /// and `own` does not say otherwise, then `own`.
    pub(crate) fn params(&self, scheme: &Scheme, to: Use, own: &[String]) -> Vec<String> {
        let apart = if to == Use::Simulation {
            self.unsafe_params
        } else {
            &[]
        };
        let said = |key: &str| {
            own.iter()
                .any(|pair| pair.split_once('=').is_some_and(|(own, _)| own == key))
        };
        let mine = self
            .params
            .iter()
            .chain(apart)
            .filter(|(key, _)| scheme.knows(key) && !said(key));
        mine.map(|(key, value)| format!("{key}={value}"))
            .chain(own.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::Profile;

    /// Parameters that only a simulation may have.
    const UNSAFE: [(&str, &str); 2] = [("nand.pair_policy", "none"), ("mlam.ack", "buffer")];

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
                let wish = options.wish().expect(preset.name);
                let layout = scheme.layout(
                    profile,
                    wish.size.unwrap_or(0),
                    preset.op / 100.0,
                    &wish.params,
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
            let wish = options.wish().unwrap();
            assert_eq!(wish.scheme.as_deref(), Some(preset.scheme));
            assert_eq!(
                wish.profile.map(|profile| profile.name),
                Some(preset.profile)
            );
            assert!(
                wish.params.iter().all(|pair| !UNSAFE.contains(&pair)),
                "{}",
                preset.name
            );
        }
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
        let wish = options.wish().unwrap();
        assert_eq!(
            (wish.scheme.as_deref(), wish.op),
            (Some("dftl"), Some(28.0))
        );
        let params: Vec<_> = wish
            .params
            .iter()
            .filter(|(key, _)| key.contains("cache") || key.starts_with("page."))
            .collect();
        assert_eq!(params, [("dftl.cache", "4096")]);
    }
}
