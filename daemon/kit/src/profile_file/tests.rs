use super::*;
use nand_model::{Energy, ErrorLaw, ErrorModel, MultiPlane, Pairing, SlcRegion, Suspend};

#[test]
fn a_device_that_is_printed_and_read_back_is_the_same() {
    let mut devices = PROFILES.to_vec();
    for (name, bits) in [("adjacent", 3), ("staggered", 4), ("random:7:5", 2)] {
        let mut own = PROFILES[0].named("own", "a \"sheet\" # of ours");
        own.pairing = Pairing::parse(name, bits).unwrap();
        own.geometry.ways = 6;
        own.dies_per_chip = 3;
        own.timing.read_ns = [1, 1_500, 56_500, 56_500];
        own.timing.controller_ns = 12_345;
        own.timing.suspend = Suspend {
            erase_ns: (bits > 2).then_some(20_500),
            program_ns: (bits < 4).then_some(0),
            resume_ns: 1_001,
        };
        if bits == 4 {
            own.timing.program_ns = [1_000, 2_000, 3_001, 4_010];
        }
        if bits == 2 {
            own.timing.read_ns = [25_000, 1, 1, 1];
        }
        own.error_model = ErrorModel::Own(ErrorLaw {
            e: 1.5e-9,
            q: 2.0,
            ..ErrorModel::Tlc72l.law()
        });
        devices.push(own);
    }
    let mut metered = PROFILES[0].named("metered", "");
    metered.energy = Some(Energy {
        read_pj: 825_001,
        program_pj: 9_900_000,
        erase_pj: 1_000_000_000_000,
        byte_pj: 990,
    });
    devices.push(metered);
    let mut joint = PROFILES[0].named("joint", "");
    for kind in [MultiPlane::SamePage, MultiPlane::AnyPage] {
        (joint.geometry.planes, joint.geometry.multi_plane) = (4, kind);
        joint.timing.bus_ns = 1_000;
        (joint.timing.cache.program, joint.timing.cache.read) = (true, kind == MultiPlane::AnyPage);
        devices.push(joint);
    }
    let lines: Vec<Vec<u32>> = (0..32).map(|line| vec![2 * line, 2 * line + 1]).collect();
    let mut table = PROFILES[0].named("table", "");
    table.geometry.pages_per_block = 64;
    table.pairing = Pairing::from_word_lines(2, &lines).unwrap();
    devices.push(table);
    for (share, endurance) in [(1, 7), (533, 30_000), (5_000, 1)] {
        let mut region = Profile::find("tlc-16k").unwrap().named("region", "");
        region.slc = Some(SlcRegion {
            share,
            read_ns: 20_500,
            program_ns: 200_001,
            endurance,
        });
        devices.push(region);
    }
    for device in devices {
        let text = to_toml(&device);
        assert_eq!(from_toml(&text), Ok(device), "{text}");
    }
}

/// The text of the default device with one line replaced.
fn changed(line: &str, by: &str) -> Result<Profile, Failure> {
    let text = to_toml(&PROFILES[0].named("mine", ""));
    let lines: Vec<_> = text
        .lines()
        .map(|own| if own.starts_with(line) { by } else { own })
        .collect();
    assert!(lines.contains(&by), "{line}");
    from_toml(&lines.join("\n"))
}

#[test]
fn a_wrong_file_gets_one_message_with_the_key_and_the_reason() {
    assert!(changed("erase = ", "erase = 3_000").is_ok());
    let suspends = changed("# suspend_program", "suspend_program = 25.5").unwrap();
    assert_eq!(suspends.timing.suspend.program_ns, Some(25_500));
    assert_eq!(suspends.timing.suspend.erase_ns, None);
    // The name of a built-in device is free for that device alone.
    let known = to_toml(&PROFILES[0]);
    assert!(from_toml(&known).is_ok());
    let reason = from_toml(&known.replace("channels = 1", "channels = 2"))
        .unwrap_err()
        .message;
    assert!(
        reason.contains("\"mlc-4k\" is a built-in profile"),
        "{reason}"
    );
    for (line, by, parts) in [
        (
            "chips",
            "chps = 1",
            &["no key `chps`", "did you mean \"chips\"?"][..],
        ),
        (
            "erase",
            "erese = 1",
            &["no key `time_us.erese`", "\"erase\"?"],
        ),
        ("[wear]", "[were]", &["no key `were`", "\"wear\"?"]),
        (
            "# suspend_erase",
            "suspend_erese = 20",
            &["no key `time_us.suspend_erese`", "\"suspend_erase\"?"],
        ),
        (
            "# suspend_erase",
            "suspend_erase = -1",
            &["time_us.suspend_erase = -1", "microseconds"],
        ),
        (
            "# suspend_erase",
            "suspend_erase = 3500",
            &["suspend_erase of 3.5ms, a whole erase takes 3.5ms: need less"],
        ),
        (
            "# suspend_program",
            "suspend_program = 1300",
            &["suspend_program of 1.3ms", "a whole program takes 1.3ms"],
        ),
        (
            "resume",
            "resume = 5",
            &["need suspend_erase or suspend_program"],
        ),
        ("erase", "", &["key `time_us.erase` is missing", "--toml"]),
        ("[wear]", "", &["no key `time_us.endurance`"]),
        (
            "pages_per_block",
            "pages_per_block = 0",
            &["0 pages per block"],
        ),
        ("page_bytes", "page_bytes = 1000", &["1000 page bytes"]),
        ("planes", "planes = -1", &["planes = -1", "whole number"]),
        (
            "# [energy]",
            "[energy]\nread_uj = -1",
            &["energy.read_uj = -1", "0 to 1000000 (1 J)"],
        ),
        (
            "# [energy]",
            "[energy]\nread_uj = 1\nprogram_uj = 1e9",
            &["energy.program_uj = 1000000000", "0 to 1000000 (1 J)"],
        ),
        (
            "# [energy]",
            "[energy]\nread_uj = 1\nprogram_uj = 1",
            &["key `energy.erase_uj` is missing"],
        ),
        (
            "# [energy]",
            "[energy]\nread_nj = 1",
            &["no key `energy.read_nj`", "\"read_uj\""],
        ),
        (
            "cache_read",
            "cache_read = true",
            &["cache_program and cache_read", "a time of the bus above 0"],
        ),
        (
            "cache_program",
            "cache_program = 1",
            &["cache_program = 1", "true or false"],
        ),
        ("planes", "planes = 0", &["planes is 0"]),
        (
            "planes",
            "planes = 3\nblocks = 4096",
            &["blocks = 4096 do not divide into 3 planes", "such as 4098"],
        ),
        (
            "multi_plane",
            "multi_plane = \"same\"",
            &["multi_plane \"same\"", "off, same_page, any_page"],
        ),
        (
            "multi_plane",
            "multi_plane = \"same_page\"",
            &["multi_plane with planes = 1: need 2 to 16"],
        ),
        ("dies", "dies = 0", &["ways is 0"]),
        ("channels", "channels = \"four\"", &["channels = \"four\""]),
        ("# blocks", "blocks = 0", &["blocks is 0"]),
        ("name", "name = \"a b\"", &["name \"a b\""]),
        (
            "bits_per_cell",
            "bits_per_cell = 3",
            &["time_us.program = [500, 1300]", "for each of 3 pages"],
        ),
        (
            "bits_per_cell",
            "bits_per_cell = 9",
            &["bits_per_cell = 9", "need 1 to 4"],
        ),
        (
            "pairing",
            "pairing = \"dist33\"",
            &["no pairing \"dist33\"", "\"dist3\"?"],
        ),
        (
            "pairing",
            "pairing = [[0, 1], [1, 2]]",
            &["page 1 is on two word lines"],
        ),
        (
            "pairing",
            "pairing = [[0, 1], [2, 3]]",
            &["word lines of 4 pages, a block has 128"],
        ),
        (
            "pairing",
            "pairing = 3",
            &["pairing = 3", "a name, or a list"],
        ),
        ("page_order", "page_order = \"any\"", &["in page order"]),
        (
            "page_order",
            "page_order = \"up\"",
            &["page_order \"up\"", "ascending"],
        ),
        (
            "programs_per_page",
            "programs_per_page = 4",
            &["programmed once"],
        ),
        (
            "program = ",
            "program = [1, 2, 3]",
            &["time_us.program = [1, 2, 3]", "2 pages"],
        ),
        (
            "program = ",
            "program = -5",
            &["time_us.program = -5", "microseconds"],
        ),
        (
            "read = ",
            "read = nan",
            &["time_us.read = nan", "microseconds"],
        ),
        ("erase", "erase = 1e12", &["time_us.erase", "to an hour"]),
        ("endurance", "endurance = 0", &["endurance of 0"]),
        ("factory", "factory_bad_permille = 400", &["400 of 1000"]),
        ("codeword", "codeword_bytes = 0", &["of 0 bytes"]),
        (
            "model",
            "model = \"mlc-2ym\"",
            &["\"mlc-2ym\"", "\"mlc-2ynm\"?"],
        ),
        ("model", "e = 1.0", &["key `bit_errors.a` is missing"]),
        ("model", "model = \"slc\"\ne = 1.0", &["one of the two"]),
        ("model", "", &["key `bit_errors.model` is missing"]),
        ("[ecc]", "[ecc", &["TOML parse error"]),
    ] {
        let reason = changed(line, by).unwrap_err().message;
        for part in parts {
            assert!(reason.contains(part), "{by}: {reason}, not {part}");
        }
    }
}

#[test]
fn a_profile_is_found_by_name_or_by_path() {
    assert_eq!(find("slc-2k").unwrap().name, "slc-2k");
    let reason = find("mlc-8").unwrap_err().message;
    assert!(reason.contains("did you mean \"mlc-4k\"?"), "{reason}");
    let reason = find("./no-such-file").unwrap_err().message;
    assert!(reason.contains("profile ./no-such-file: "), "{reason}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let mine = PROFILES[1].named("mine", "");
    std::fs::write(&path, to_toml(&mine)).unwrap();
    assert_eq!(find(path.to_str().unwrap()).unwrap(), mine);
    assert_eq!(
        first_difference(&mine, &PROFILES[1]).as_deref(),
        Some("name")
    );
    let mut slow = mine;
    slow.timing.erase_ns += 1;
    assert_eq!(first_difference(&mine, &slow).as_deref(), Some("erase"));
    let mut suspends = mine;
    suspends.timing.suspend.erase_ns = Some(1);
    for (one, other) in [(&mine, &suspends), (&suspends, &mine)] {
        let key = first_difference(one, other);
        assert_eq!(key.as_deref(), Some("suspend_erase"));
    }
    let reason = find(folder.path().to_str().unwrap()).unwrap_err().message;
    assert!(reason.contains("not a file"), "{reason}");
}

#[test]
fn a_region_in_slc_mode_needs_its_share_alone() {
    let tlc = Profile::find("tlc-16k").unwrap().named("mine", "");
    let with = |lines: &str| from_toml(&format!("{}\n[slc_mode]\n{lines}\n", to_toml(&tlc)));
    let region = with("region_percent = 5").unwrap().slc;
    assert_eq!(region, Some(SlcRegion::typical(&tlc, 500)));
    let own = with("region_percent = 2.5\nread_us = 20\nprogram_us = 160\nendurance = 9").unwrap();
    let expected = SlcRegion {
        share: 250,
        read_ns: 20_000,
        program_ns: 160_000,
        endurance: 9,
    };
    assert_eq!(own.slc, Some(expected));
    for (lines, parts) in [
        (
            "read_us = 20",
            &["key `slc_mode.region_percent` is missing"][..],
        ),
        (
            "region_percent = 0",
            &["slc_mode.region_percent = 0", "0.01 to 50"],
        ),
        ("region_percent = 51", &["slc_mode.region_percent = 51"]),
        (
            "region_percent = 5\nendurance = 0",
            &["0 cycles in SLC mode"],
        ),
        (
            "region = 5",
            &["no key `slc_mode.region`", "\"region_percent\"?"],
        ),
    ] {
        let reason = with(lines).unwrap_err().message;
        assert!(parts.iter().all(|part| reason.contains(part)), "{reason}");
    }
    let slc = to_toml(&Profile::find("slc-2k").unwrap().named("mine", ""));
    let reason = from_toml(&(slc + "\n[slc_mode]\nregion_percent = 5\n"));
    assert!(reason.unwrap_err().message.contains("1 bit per cell"));
}
