//! Workload options: generators, their keys, and errors that suggest the nearest name.

use super::sizes::Sizes;
use super::{Shape, Workload, stand_in, usr_2};
use crate::convert::whole;
use crate::error::ValueError;
use crate::size::parse_size;
use std::collections::BTreeMap;

/// Workload generator.
#[derive(Clone, Copy)]
pub struct Generator {
    /// Name before the colon.
    pub name: &'static str,
    /// Description in one line.
    pub title: &'static str,
    /// Specific keys, besides the common ones.
    pub keys: &'static [Key],
    /// Text of another generator that this one is an alias of.
    alias: Option<&'static str>,
}

/// Key and its meaning.
#[derive(Clone, Copy)]
pub struct Key {
    /// Name before the `=`.
    pub name: &'static str,
    /// Meaning and default in one line.
    pub help: &'static str,
}

const fn key(name: &'static str, help: &'static str) -> Key {
    Key { name, help }
}

const fn generator(name: &'static str, title: &'static str, keys: &'static [Key]) -> Generator {
    Generator {
        name,
        title,
        keys,
        alias: None,
    }
}

/// Keys of all generators with random requests.
pub const COMMON: &[Key] = &[
    key("requests", "how many, such as 250K [1M]"),
    key("read", "share of the requests that read, such as 30% [0%]"),
    key(
        "size",
        "4KiB, mean:3.17KiB, or a mixture with shares 4KiB/70+64KiB/30 [4KiB]",
    ),
    key(
        "align",
        "addresses are multiples of it [the largest power of two in a fixed size; 512 for a mean]",
    ),
    key("span", "bytes of the device that are used [all]"),
    key("rate", "requests per second, for --arrival trace [1000]"),
];

/// All generators.
pub const GENERATORS: &[Generator] = &[
    generator("uniform", "every address alike", &[]),
    generator(
        "hotcold",
        "two classes of addresses, the hot ones in front",
        &[
            key("hot", "share of the addresses that are hot [20%]"),
            key("access", "share of the requests that go there [80%]"),
        ],
    ),
    generator(
        "zipf",
        "popularity falls with the power of the rank; ranks are scattered",
        &[key("theta", "that power [0.99]")],
    ),
    generator(
        "sequential",
        "one behind the other, from the start again at the end",
        &[],
    ),
    generator(
        "mixed",
        "a sequential stream among uniform requests",
        &[key("sequential", "share of the stream's requests [50%]")],
    ),
    generator(
        usr_2::NAME,
        "stand-in for MSR usr_2 as LazyFTL's authors scaled it: touched addresses and spread of their popularity as published",
        &[key(
            "order",
            "scattered, or runs: the requests of a pass over an extent behind each other [scattered]",
        )],
    ),
    stand_in::MNFTL[0],
    stand_in::MNFTL[1],
    stand_in::MNFTL[2],
    stand_in::MNFTL[3],
    stand_in::MNFTL[4],
    stand_in::MNFTL[5],
    stand_in::ROSE[0],
    stand_in::ROSE[1],
    stand_in::ROSE[2],
    stand_in::ROSE[3],
    stand_in::ROSE[4],
    stand_in::ROSE[5],
];

impl Generator {
    /// Creates a generator that is another one with preset values.
    pub(super) const fn stand_in(
        name: &'static str,
        title: &'static str,
        alias: &'static str,
    ) -> Generator {
        Generator {
            name,
            title,
            keys: &[],
            alias: Some(alias),
        }
    }

    /// Returns the expanded text, if this generator is an alias with preset keys.
    pub fn stands_for(&self) -> Option<&'static str> {
        self.alias
    }

    fn find(name: &str) -> Option<&'static Generator> {
        GENERATORS.iter().find(|generator| generator.name == name)
    }
}

type Values<'a> = BTreeMap<&'a str, &'a str>;

pub(super) fn parse(text: &str) -> Option<Result<Workload, ValueError>> {
    let (name, pairs) = text.split_once(':').unwrap_or((text, ""));
    let named = Generator::find(name)?;
    let build = || {
        // The stand-in's values come first, so that the user's values override them.
        let (basis, filled) = named
            .alias
            .and_then(|alias| alias.split_once(':'))
            .unwrap_or((name, ""));
        let generator = Generator::find(basis).expect("stands for one that is there");
        assert!(
            generator.alias.is_none(),
            "{} stands for {basis}, which stands for another",
            named.name
        );
        let mut values = Values::new();
        for pair in filled
            .split(',')
            .chain(pairs.split(','))
            .filter(|pair| !pair.is_empty())
        {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| ValueError::Text(pair.into(), "KEY=VALUE"))?;
            known(generator, key)?;
            values.insert(key, value);
        }
        workload(named.name, generator, &values)
    };
    Some(build().map_err(|error| error.of(&format!("workload {name}"))))
}

fn known(generator: &Generator, key: &str) -> Result<(), ValueError> {
    let common = COMMON.iter().filter(|_| generator.name != usr_2::NAME);
    let keys = common.chain(generator.keys).map(|key| key.name);
    let keys: Vec<_> = keys.collect();
    if keys.contains(&key) {
        return Ok(());
    }
    let (meant, keys) = (meant(key, &keys), keys.join(", "));
    let text = format!("no key {key:?}{meant}; there are {keys}");
    Err(ValueError::Misfit(text))
}

/// Returns `, did you mean …?` if one of the names is near.
pub(crate) fn meant(text: &str, names: &[&str]) -> String {
    let near = names
        .iter()
        .map(|name| (strsim::jaro(text, name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.filter(|(likeness, _)| *likeness > 0.7)
        .map_or(String::new(), |(_, name)| {
            format!(", did you mean {name:?}?")
        })
}

fn workload(
    name: &'static str,
    generator: &Generator,
    values: &Values<'_>,
) -> Result<Workload, ValueError> {
    let share = |key, default| {
        values
            .get(key)
            .map_or(Ok(default), |text| share(text))
            .map_err(|error| error.of(key))
    };
    let size = |key| {
        values
            .get(key)
            .map(|text| parse_size(text))
            .transpose()
            .map_err(|error| error.of(key))
    };
    let shape = match generator.name {
        "hotcold" => Shape::HotCold {
            hot: share("hot", 0.2)?,
            access: share("access", 0.8)?,
        },
        "zipf" => Shape::Zipf {
            theta: positive("theta", values, 0.99)?,
        },
        "sequential" => Shape::Sequential,
        "mixed" => Shape::Mixed {
            sequential: share("sequential", 0.5)?,
        },
        usr_2::NAME => Shape::Usr2(
            values
                .get("order")
                .map_or(Ok(usr_2::Order::Scattered), |text| text.parse())?,
        ),
        "uniform" => Shape::Uniform,
        name => unreachable!("the generator {name} has no shape"),
    };
    let sizes =
        Sizes::parse(values.get("size").unwrap_or(&"4KiB")).map_err(|error| error.of("size"))?;
    let (align, span) = (size("align")?, size("span")?);
    if align.is_some_and(|align| !align.is_power_of_two()) {
        return Err(ValueError::Misfit("align: not a power of two".into()));
    }
    Ok(Workload {
        generator: name,
        shape,
        requests: values
            .get("requests")
            .map_or(Ok(1_000_000), |text| count(text))
            .map_err(|error| error.of("requests"))?,
        read: share("read", 0.0)?,
        sizes,
        align,
        span,
        rate: positive("rate", values, 1_000.0)?,
    })
}

/// Parses `30%` or `0.3`.
fn share(text: &str) -> Result<f64, ValueError> {
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.parse().map(|percent: f64| percent / 100.0),
        None => text.parse(),
    };
    let form = "a share; write for example 30% or 0.3";
    number
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| ValueError::Text(text.into(), form))
}

/// Parses `250000`, `250K`, `1.5M` or `2G`, with powers of 1000.
fn count(text: &str) -> Result<u64, ValueError> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (number, unit) = text.split_at(number.len());
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => f64::NAN,
    };
    let count = number.parse::<f64>().unwrap_or(f64::NAN) * unit;
    if (1.0..1e15).contains(&count) {
        return Ok(whole(count.round()));
    }
    let form = "a count; write for example 250000, 250K or 1.5M";
    Err(ValueError::Text(text.into(), form))
}

fn positive(key: &str, values: &Values<'_>, default: f64) -> Result<f64, ValueError> {
    let Some(text) = values.get(key) else {
        return Ok(default);
    };
    let number = text
        .parse()
        .ok()
        .filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| ValueError::Text((*text).into(), "a positive number").of(key))
}
