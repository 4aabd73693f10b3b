//! Prints a device as the text that describes it.

use super::read::{MULTI_PLANE, ORDERS};
use crate::convert::to_f64;
use crate::output::counted;
use nand_model::{
    Capacity, Energy, ErrorModel, MultiPlane, PageOrder, PageTimes, PairTable, Pairing, Profile,
};
use toml::Value;

/// Returns the text of a device, with a comment for every key.
pub fn to_toml(device: &Profile) -> String {
    let (g, t, ecc) = (&device.geometry, &device.timing, &device.ecc);
    let bits = device.bits();
    let mut text = String::from(
        "# A flash device of ftld. Use it as --profile FILE.toml; docs/NAND.md describes the keys.\n",
    );
    let mut put = |key: &str, value: String, note: &str| {
        let entry = format!("{key} = {value}");
        text += &match note {
            "" => format!("{entry}\n"),
            note => format!("{entry:<28}# {note}\n"),
        };
    };
    put("name", quoted(device.name), "");
    put("source", quoted(device.source), "");
    put("channels", g.channels.to_string(), "");
    let chips = g.ways / device.dies_per_chip;
    put("chips", chips.to_string(), "per channel");
    put("dies", device.dies_per_chip.to_string(), "per chip");
    put("planes", g.planes.to_string(), "per die");
    put(
        "multi_plane",
        quoted(multi_plane(g.multi_plane)),
        "commands: off, same_page or any_page",
    );
    for (key, is_set) in [
        ("cache_program", t.cache.program),
        ("cache_read", t.cache.read),
    ] {
        put(
            key,
            is_set.to_string(),
            "the next transfer beside the array",
        );
    }
    match device.capacity {
        Capacity::Blocks(blocks) => put("blocks", blocks.to_string(), "of the device"),
        Capacity::BySize => put("# blocks", "4096".into(), "absent: as many as --size needs"),
    }
    put("pages_per_block", g.pages_per_block.to_string(), "");
    put("page_bytes", g.page_bytes.to_string(), "");
    put("spare_bytes", g.oob_bytes.to_string(), "per page");
    put("bits_per_cell", bits.to_string(), "");
    put("pairing", pairing(device), "");
    put("page_order", quoted(order(device.order)), "");
    put(
        "programs_per_page",
        device.nop.to_string(),
        "between erases",
    );
    text += "\n[time_us]\n";
    let mut put = |key: &str, value: String| text += &format!("{key} = {value}\n");
    put("read", page_times(&t.read_ns, bits));
    put("short_read", time(t.partial_read_ns));
    put("program", page_times(&t.program_ns, bits));
    put("spare_program", time(t.oob_program_ns));
    put("erase", time(t.erase_ns));
    put("bus", time(t.bus_ns));
    put("controller", time(t.controller_ns));
    for (key, ns) in [
        ("suspend_erase", t.suspend.erase_ns),
        ("suspend_program", t.suspend.program_ns),
    ] {
        match ns {
            Some(ns) => put(key, time(ns)),
            None => put(
                &format!("# {key}"),
                "20  # absent: reads wait for the end".into(),
            ),
        }
    }
    put("resume", time(t.suspend.resume_ns));
    put("\n[wear]\nendurance", device.endurance.to_string());
    put(
        "factory_bad_permille",
        device.factory_bad_permille.to_string(),
    );
    put("max_bad_permille", device.max_bad_permille.to_string());
    if let Some(region) = device.slc {
        put("\n[slc_mode]\nregion_percent", region.percent().to_string());
        put("read_us", time(region.read_ns));
        put("program_us", time(region.program_ns));
        put("endurance", region.endurance.to_string());
    }
    put("\n[ecc]\ncodeword_bytes", ecc.codeword_bytes.to_string());
    put("correctable_bits", ecc.bits.to_string());
    put("retries", ecc.retries.to_string());
    text += &energy(device.energy);
    text + "\n[bit_errors]\n" + &bit_errors(device.error_model)
}

/// Returns a device in two lines for humans.
pub fn summary(device: &Profile) -> String {
    let (g, t) = (&device.geometry, &device.timing);
    let bits = device.bits();
    let chips = g.ways / device.dies_per_chip;
    let dies = if g.dies() == 1 {
        "1 die".to_owned()
    } else {
        let of_chip = device.dies_per_chip;
        format!(
            "{} of {} of {}",
            counted(g.channels.into(), "channel"),
            counted(chips.into(), "chip"),
            counted(of_chip.into(), "die")
        )
    };
    let slc = device.slc.map_or_else(String::new, |region| {
        format!(
            "\x20 {} % of the blocks in SLC mode, {} pages each: read {}, program {} us; {} cycles\n",
            region.percent(),
            device.slc_pages(),
            time(region.read_ns),
            time(region.program_ns),
            region.endurance
        )
    });
    format!(
        "{} of {} pages of {}+{} bytes per block, {dies} of {}; pairing {}, pages programmed {}, {}\n\
         \x20 read {}, program {}, erase {} us; {} cycles\n{slc}",
        device.cell().to_uppercase(),
        g.pages_per_block,
        g.page_bytes,
        g.oob_bytes,
        counted(g.planes.into(), "plane"),
        device.pairing.name(),
        match device.order {
            PageOrder::Any => "in any order",
            PageOrder::Ascending => "upwards",
            PageOrder::Consecutive => "in page order",
        },
        counted(device.nop.into(), "time"),
        page_times(&t.read_ns, bits),
        page_times(&t.program_ns, bits),
        time(t.erase_ns),
        device.endurance
    )
}

fn quoted(text: &str) -> String {
    Value::String(text.into()).to_string()
}

/// Returns the name of a page order.
pub fn order(order: PageOrder) -> &'static str {
    let named = ORDERS.iter().find(|(_, known)| *known == order);
    named.map_or("any", |(name, _)| name)
}

fn energy(energy: Option<Energy>) -> String {
    let Some(energy) = energy else {
        return "\n# [energy]                    # absent: not counted\n\
                # read_uj = 0.825             # of a page; program_uj, erase_uj, byte_nj alike\n"
            .into();
    };
    let Energy {
        read_pj,
        program_pj,
        erase_pj,
        byte_pj,
    } = energy;
    let lines = [
        ("read_uj", read_pj, 1e6),
        ("program_uj", program_pj, 1e6),
        ("erase_uj", erase_pj, 1e6),
        ("byte_nj", byte_pj, 1e3),
    ];
    let line = |(key, pj, unit): (&str, u64, f64)| format!("{key} = {:?}\n", to_f64(pj) / unit);
    format!("\n[energy]\n{}", lines.map(line).concat())
}

fn multi_plane(kind: MultiPlane) -> &'static str {
    let named = MULTI_PLANE.iter().find(|(_, known)| *known == kind);
    named.map_or("off", |(name, _)| name)
}

fn pairing(device: &Profile) -> String {
    match device.pairing {
        Pairing::Random { seed, span } => quoted(&format!("random:{seed}:{span}")),
        Pairing::Table { .. } => {
            let pairs = PairTable::new(device.pairing, device.geometry.pages_per_block);
            let lines: Vec<_> = pairs
                .word_lines()
                .iter()
                .map(|line| format!("{line:?}"))
                .collect();
            format!("[{}]", lines.join(", "))
        }
        rule => quoted(rule.name()),
    }
}

/// Nanoseconds as microseconds.
fn time(ns: u64) -> String {
    match (ns / 1000, ns % 1000) {
        (us, 0) => us.to_string(),
        (us, rest) => format!("{us}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

fn page_times(times: &PageTimes, bits: u8) -> String {
    let of_part = &times[..usize::from(bits)];
    if of_part.iter().all(|time| time == &times[0]) {
        return time(times[0]);
    }
    let list: Vec<_> = of_part.iter().map(|ns| time(*ns)).collect();
    format!("[{}]", list.join(", "))
}

fn bit_errors(model: ErrorModel) -> String {
    if let Some(name) = model.name() {
        return format!("model = {}\n", quoted(name));
    }
    let law = model.law();
    let constants = [
        ("e", law.e),
        ("a", law.a),
        ("k", law.k),
        ("b", law.b),
        ("m", law.m),
        ("n", law.n),
        ("g", law.g),
        ("p", law.p),
        ("q", law.q),
        ("reads_max", law.reads_max),
    ];
    let lines = constants.map(|(key, value)| format!("{key} = {value:?}\n"));
    lines.concat()
}
