//! Reads the text of a device. Every error names the key, the reason and, for a key that does not
//! exist, the nearest that does.

use crate::failure::Failure;
use crate::output::counted;
use ftl_core::near_miss;
use nand_model::{
    Cache, Capacity, Ecc, Energy, ErrorLaw, ErrorModel, Geometry, MultiPlane, PageOrder, PageTimes,
    Pairing, Profile, SlcRegion, Suspend, Timing,
};
use toml::{Table, Value};

/// Every key outside a table, then those of each table.
pub(super) const SHAPE: &[&str] = &[
    "name",
    "source",
    "channels",
    "chips",
    "dies",
    "planes",
    "multi_plane",
    "cache_program",
    "cache_read",
    "blocks",
    "pages_per_block",
    "page_bytes",
    "spare_bytes",
    "bits_per_cell",
    "pairing",
    "page_order",
    "programs_per_page",
];
const TABLES: &[(&str, &[&str])] = &[
    (
        "time_us",
        &[
            "read",
            "short_read",
            "program",
            "spare_program",
            "erase",
            "bus",
            "controller",
            "suspend_erase",
            "suspend_program",
            "resume",
        ],
    ),
    (
        "wear",
        &["endurance", "factory_bad_permille", "max_bad_permille"],
    ),
    (
        "slc_mode",
        &["region_percent", "read_us", "program_us", "endurance"],
    ),
    ("ecc", &["codeword_bytes", "correctable_bits", "retries"]),
    ("energy", &["read_uj", "program_uj", "erase_uj", "byte_nj"]),
    (
        "bit_errors",
        &[
            "model",
            "e",
            "a",
            "k",
            "b",
            "m",
            "n",
            "g",
            "p",
            "q",
            "reads_max",
        ],
    ),
];

/// Orders of the pages of a block, by name.
pub(super) const ORDERS: [(&str, PageOrder); 3] = [
    ("any", PageOrder::Any),
    ("ascending", PageOrder::Ascending),
    ("consecutive", PageOrder::Consecutive),
];

/// Returns the device that a text describes.
///
/// # Errors
/// The text is no TOML; a key is unknown, missing or has a wrong value; or no such device can
/// exist.
pub fn from_toml(text: &str) -> Result<Profile, Failure> {
    let file: Table = toml::from_str(text).map_err(Failure::usage)?;
    check_keys(&file)?;
    let shape = Keys::new("", &file);
    let device = device(&shape, &file)?;
    let device = device.named(shape.text("name")?, shape.text_or("source", "")?);
    device.validate().map_err(Failure::usage)?;
    if matches!(device.capacity, Capacity::Blocks(_)) {
        device.geometry.check_planes().map_err(Failure::usage)?;
    }
    match Profile::find(device.name) {
        Some(known) if differs(known, &device) => Err(Failure::usage(format!(
            "name: {:?} is a built-in profile, and this device is another; choose another name",
            device.name
        ))),
        _ => Ok(device),
    }
}

fn differs(known: &Profile, device: &Profile) -> bool {
    let same_source = Profile {
        source: known.source,
        ..*device
    };
    *known != same_source
}

fn check_keys(file: &Table) -> Result<(), Failure> {
    let tables = TABLES.iter().map(|(name, _)| *name);
    let top: Vec<&str> = SHAPE.iter().copied().chain(tables).collect();
    check_table("", file, &top)?;
    for (name, known) in TABLES {
        match file.get(*name) {
            Some(Value::Table(table)) => check_table(&format!("{name}."), table, known)?,
            Some(_) => {
                let text = format!("`{name}` is no table: write [{name}]");
                return Err(Failure::usage(text));
            }
            None => {}
        }
    }
    Ok(())
}

fn check_table(at: &str, table: &Table, known: &[&str]) -> Result<(), Failure> {
    let unknown = table.keys().find(|key| !known.contains(&key.as_str()));
    unknown.map_or(Ok(()), |key| {
        let hint = near_miss(key, known.iter().copied());
        let text = format!("no key `{at}{key}`{hint}; there are {}", known.join(", "));
        Err(Failure::usage(text))
    })
}

/// The keys of one table; absent tables are empty.
struct Keys<'a> {
    at: &'static str,
    table: Option<&'a Table>,
}

impl<'a> Keys<'a> {
    fn new(at: &'static str, table: &'a Table) -> Keys<'a> {
        let table = Some(table);
        Keys { at, table }
    }

    fn of(file: &'a Table, name: &str, at: &'static str) -> Keys<'a> {
        let table = file.get(name).and_then(Value::as_table);
        Keys { at, table }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.table.and_then(|table| table.get(key))
    }

    fn needed(&self, key: &str) -> Result<&'a Value, Failure> {
        self.get(key).ok_or_else(|| {
            let key = format!("key `{}{key}`", self.at);
            let whole = "`ftld profiles mlc-4k --toml` prints a whole file";
            Failure::usage(format!("{key} is missing; {whole}"))
        })
    }

    fn wrong(&self, key: &str, value: &Value, need: &str) -> Failure {
        Failure::usage(format!("{}{key} = {value}: need {need}", self.at))
    }

    fn text(&self, key: &str) -> Result<&'a str, Failure> {
        let value = self.needed(key)?;
        let text = value.as_str();
        text.ok_or_else(|| self.wrong(key, value, "a text"))
    }

    fn text_or(&self, key: &str, absent: &'static str) -> Result<&'a str, Failure> {
        self.get(key).map_or(Ok(absent), |_| self.text(key))
    }

    fn number(&self, key: &str) -> Result<u32, Failure> {
        let value = self.needed(key)?;
        let number = value.as_integer().and_then(|n| u32::try_from(n).ok());
        number.ok_or_else(|| self.wrong(key, value, "a whole number from 0 to 4294967295"))
    }

    fn number_or(&self, key: &str, absent: u32) -> Result<u32, Failure> {
        self.get(key).map_or(Ok(absent), |_| self.number(key))
    }

    fn is_set(&self, key: &str) -> Result<bool, Failure> {
        let of = |value: &Value| {
            let set = value.as_bool();
            set.ok_or_else(|| self.wrong(key, value, "true or false"))
        };
        self.get(key).map_or(Ok(false), of)
    }

    fn byte(&self, key: &str) -> Result<u8, Failure> {
        let (value, number) = (self.needed(key)?, self.number(key)?);
        u8::try_from(number).map_err(|_| self.wrong(key, value, "up to 255"))
    }

    fn real(&self, key: &str) -> Result<f64, Failure> {
        let value = self.needed(key)?;
        real(value).ok_or_else(|| self.wrong(key, value, "a number"))
    }

    /// An energy in units of `unit_pj`, as picojoules.
    fn energy(&self, key: &str, unit_pj: f64) -> Result<u64, Failure> {
        let value = self.needed(key)?;
        let most = 1e12 / unit_pj;
        let fits = |n: &f64| (0.0..=most).contains(n);
        let pj = real(value)
            .filter(fits)
            .map(|n| (n * unit_pj).round() as u64);
        pj.ok_or_else(|| self.wrong(key, value, &format!("a number from 0 to {most} (1 J)")))
    }

    fn time(&self, key: &str) -> Result<u64, Failure> {
        let value = self.needed(key)?;
        nanoseconds(value).ok_or_else(|| self.wrong(key, value, MICROSECONDS))
    }

    fn time_or(&self, key: &str, absent: u64) -> Result<u64, Failure> {
        self.get(key).map_or(Ok(absent), |_| self.time(key))
    }

    fn time_if(&self, key: &str) -> Result<Option<u64>, Failure> {
        self.get(key).map(|_| self.time(key)).transpose()
    }

    /// One time for all pages of a word line, or one for each.
    fn page_times(&self, key: &str, bits: u8) -> Result<PageTimes, Failure> {
        let value = self.needed(key)?;
        let Value::Array(list) = value else {
            return Ok([self.time(key)?; 4]);
        };
        let pages = counted(bits.into(), "page");
        let need = format!("a number of microseconds, or a list of one for each of {pages}");
        let wrong = || self.wrong(key, value, &need);
        let times: Option<Vec<u64>> = list.iter().map(nanoseconds).collect();
        let times = times.ok_or_else(wrong)?;
        match (times.last(), times.len() == usize::from(bits)) {
            (Some(last), true) => {
                let mut all = [*last; 4];
                for (at, time) in all.iter_mut().zip(&times) {
                    *at = *time;
                }
                Ok(all)
            }
            _ => Err(wrong()),
        }
    }
}

const MICROSECONDS: &str = "a number of microseconds from 0 to an hour";

fn real(value: &Value) -> Option<f64> {
    match value {
        Value::Float(n) => Some(*n),
        Value::Integer(n) => i32::try_from(*n).ok().map(f64::from),
        _ => None,
    }
}

/// Microseconds as nanoseconds.
fn nanoseconds(value: &Value) -> Option<u64> {
    const HOUR_US: u64 = 3_600_000_000;
    match value {
        Value::Integer(us) => {
            let us = u64::try_from(*us).ok().filter(|us| *us <= HOUR_US)?;
            Some(us * 1000)
        }
        Value::Float(us) if (0.0..=3.6e9).contains(us) => Some((us * 1000.0).round() as u64),
        _ => None,
    }
}

fn device(shape: &Keys<'_>, file: &Table) -> Result<Profile, Failure> {
    let bits = shape.byte("bits_per_cell")?;
    if !(1..=4).contains(&bits) {
        return Err(Failure::usage(format!(
            "bits_per_cell = {bits}: need 1 to 4"
        )));
    }
    let (chips, dies_per_chip) = (shape.number_or("chips", 1)?, shape.number_or("dies", 1)?);
    let ways = chips
        .checked_mul(dies_per_chip)
        .ok_or_else(|| Failure::usage(format!("{chips} chips of {dies_per_chip} dies")))?;
    let capacity = match shape.get("blocks") {
        None => Capacity::BySize,
        Some(_) => Capacity::Blocks(shape.number("blocks")?),
    };
    let geometry = Geometry {
        channels: shape.number_or("channels", 1)?,
        ways,
        planes: shape.number_or("planes", 1)?,
        multi_plane: multi_plane(shape)?,
        blocks: match capacity {
            Capacity::Blocks(blocks) => blocks,
            Capacity::BySize => 0,
        },
        pages_per_block: shape.number("pages_per_block")?,
        page_bytes: shape.number("page_bytes")?,
        oob_bytes: shape.number("spare_bytes")?,
    };
    let wear = Keys::of(file, "wear", "wear.");
    let ecc = Keys::of(file, "ecc", "ecc.");
    let device = Profile {
        name: "device",
        source: "",
        capacity,
        dies_per_chip,
        geometry,
        timing: Timing {
            cache: Cache {
                program: shape.is_set("cache_program")?,
                read: shape.is_set("cache_read")?,
            },
            ..timing(&Keys::of(file, "time_us", "time_us."), bits)?
        },
        order: order(shape)?,
        nop: shape.byte("programs_per_page")?,
        pairing: pairing(shape, bits)?,
        slc: None,
        endurance: wear.number("endurance")?,
        factory_bad_permille: wear.number("factory_bad_permille")?,
        max_bad_permille: wear.number("max_bad_permille")?,
        ecc: Ecc {
            codeword_bytes: ecc.number("codeword_bytes")?,
            bits: ecc.number("correctable_bits")?,
            retries: ecc.number_or("retries", 0)?,
        },
        error_model: error_model(&Keys::of(file, "bit_errors", "bit_errors."))?,
        energy: energy(file)?,
    };
    let slc = match file.get("slc_mode") {
        Some(_) => Some(slc(&Keys::of(file, "slc_mode", "slc_mode."), &device)?),
        None => None,
    };
    Ok(Profile { slc, ..device })
}

/// The region in SLC mode; absent figures are typical ones.
fn slc(keys: &Keys<'_>, device: &Profile) -> Result<SlcRegion, Failure> {
    let (value, percent) = (keys.needed("region_percent")?, keys.real("region_percent")?);
    let share = slc_share(percent);
    let need = "a percentage of the blocks, 0.01 to 50";
    let share = share.ok_or_else(|| keys.wrong("region_percent", value, need))?;
    let typical = SlcRegion::typical(device, share);
    Ok(SlcRegion {
        share,
        read_ns: keys.time_or("read_us", typical.read_ns)?,
        program_ns: keys.time_or("program_us", typical.program_ns)?,
        endurance: keys.number_or("endurance", typical.endurance)?,
    })
}

/// Kinds of multi-plane commands, by name.
pub(super) const MULTI_PLANE: [(&str, MultiPlane); 3] = [
    ("off", MultiPlane::Off),
    ("same_page", MultiPlane::SamePage),
    ("any_page", MultiPlane::AnyPage),
];

fn multi_plane(shape: &Keys<'_>) -> Result<MultiPlane, Failure> {
    let name = shape.text_or("multi_plane", "off")?;
    let known = MULTI_PLANE.iter().find(|(known, _)| *known == name);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let names = MULTI_PLANE.map(|(name, _)| name);
        let hint = near_miss(name, names);
        let names = names.join(", ");
        Failure::usage(format!("multi_plane {name:?}{hint}: there are {names}"))
    })
}

/// Returns the share of a region in hundredths of a percent, as [`SlcRegion::share`]; `None` if it
/// is no share that a region can have.
pub fn slc_share(percent: f64) -> Option<u32> {
    let is_share = (0.01..=50.0).contains(&percent);
    is_share.then(|| (percent * 100.0).round() as u32)
}

fn timing(times: &Keys<'_>, bits: u8) -> Result<Timing, Failure> {
    let read_ns = times.page_times("read", bits)?;
    Ok(Timing {
        read_ns,
        partial_read_ns: times.time_or("short_read", read_ns[0])?,
        program_ns: times.page_times("program", bits)?,
        oob_program_ns: times.time_or("spare_program", 0)?,
        erase_ns: times.time("erase")?,
        bus_ns: times.time_or("bus", 0)?,
        controller_ns: times.time_or("controller", 0)?,
        suspend: Suspend {
            erase_ns: times.time_if("suspend_erase")?,
            program_ns: times.time_if("suspend_program")?,
            resume_ns: times.time_or("resume", 0)?,
        },
        cache: Cache::NONE,
    })
}

fn energy(file: &Table) -> Result<Option<Energy>, Failure> {
    if file.get("energy").is_none() {
        return Ok(None);
    }
    let keys = Keys::of(file, "energy", "energy.");
    Ok(Some(Energy {
        read_pj: keys.energy("read_uj", 1e6)?,
        program_pj: keys.energy("program_uj", 1e6)?,
        erase_pj: keys.energy("erase_uj", 1e6)?,
        byte_pj: match keys.get("byte_nj") {
            Some(_) => keys.energy("byte_nj", 1e3)?,
            None => 0,
        },
    }))
}

fn order(shape: &Keys<'_>) -> Result<PageOrder, Failure> {
    let name = shape.text("page_order")?;
    let known = ORDERS.iter().find(|(known, _)| *known == name);
    known.map(|(_, order)| *order).ok_or_else(|| {
        let names = ORDERS.map(|(name, _)| name);
        let hint = near_miss(name, names);
        let names = names.join(", ");
        Failure::usage(format!("page_order {name:?}{hint}: there are {names}"))
    })
}

fn pairing(shape: &Keys<'_>, bits: u8) -> Result<Pairing, Failure> {
    let value = match shape.get("pairing") {
        None if bits == 1 => return Ok(Pairing::None),
        None => shape.needed("pairing")?,
        Some(value) => value,
    };
    if let Some(name) = value.as_str() {
        return Pairing::parse(name, bits).map_err(|reason| {
            let hint = match near_miss(name, Pairing::NAMES) {
                _ if Pairing::NAMES.contains(&name) => String::new(),
                hint => hint,
            };
            let names = Pairing::NAMES.join(", ");
            let names = format!("there are {names}, or a list of word lines");
            Failure::usage(format!("{reason}{hint}; {names}"))
        });
    }
    let need = "a name, or a list of word lines such as [[0, 2], [1, 4]]";
    let page = |page: &Value| page.as_integer().and_then(|page| u32::try_from(page).ok());
    let line = |line: &Value| -> Option<Vec<u32>> { line.as_array()?.iter().map(page).collect() };
    let lines: Option<Vec<Vec<u32>>> = value
        .as_array()
        .and_then(|lines| lines.iter().map(line).collect());
    let lines = lines.ok_or_else(|| shape.wrong("pairing", value, need))?;
    let pairing = Pairing::from_word_lines(bits, &lines);
    pairing.map_err(|reason| Failure::usage(format!("pairing: {reason}")))
}

fn error_model(keys: &Keys<'_>) -> Result<ErrorModel, Failure> {
    let constants = TABLES.last().map_or(&[][..], |(_, keys)| &keys[1..]);
    let given = constants.iter().find(|key| keys.get(key).is_some());
    match (keys.get("model"), given) {
        (Some(_), None) => {
            let name = keys.text("model")?;
            let named = ErrorModel::NAMED.iter().find(|(known, _)| *known == name);
            named.map(|(_, model)| *model).ok_or_else(|| {
                let names = ErrorModel::NAMED.map(|(name, _)| name);
                let hint = near_miss(name, names);
                let names = names.join(", ");
                let known = format!("there are {names}, or write constants");
                Failure::usage(format!("bit_errors.model {name:?}{hint}: {known}"))
            })
        }
        (Some(_), Some(key)) => Err(Failure::usage(format!(
            "bit_errors has a model and the constant `{key}`: need one of the two"
        ))),
        // Without any key, the model is the one to name as missing.
        (None, None) => keys.needed("model").map(|_| ErrorModel::Slc),
        (None, Some(_)) => Ok(ErrorModel::Own(ErrorLaw {
            e: keys.real("e")?,
            a: keys.real("a")?,
            k: keys.real("k")?,
            b: keys.real("b")?,
            m: keys.real("m")?,
            n: keys.real("n")?,
            g: keys.real("g")?,
            p: keys.real("p")?,
            q: keys.real("q")?,
            reads_max: keys.real("reads_max")?,
        })),
    }
}
