use super::*;

fn dirs() -> Dirs {
    Dirs {
        config: "/c".into(),
        state: "/s".into(),
        runtime: "/r".into(),
    }
}

fn typed(target: Option<&str>, options: &DeviceOptions) -> Result<Config, Failure> {
    let target = target.map(str::to_owned);
    Config::new(
        &DeviceArgs {
            target,
            options: options.clone(),
            ..DeviceArgs::default()
        },
        &dirs(),
    )
}

fn with_file(text: &str, flags: &DeviceOptions) -> Result<Config, Failure> {
    let name = format!(
        "ftld-config-{}-{:?}.toml",
        std::process::id(),
        std::thread::current().id()
    );
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, text).unwrap();
    let config = Config::new(
        &DeviceArgs {
            config: Some(path.clone()),
            options: flags.clone(),
            ..DeviceArgs::default()
        },
        &dirs(),
    );
    std::fs::remove_file(&path).unwrap();
    config
}

#[test]
fn nothing_said_means_the_defaults() {
    let config = typed(None, &DeviceOptions::default()).unwrap();
    assert_eq!(
        (config.name.as_str(), config.image.as_path()),
        ("default", Path::new("/s/default.ftld"))
    );
    assert_eq!(
        (config.metrics, config.latency, config.read_only),
        (Metrics::Default, Latency::None, false)
    );
    assert_eq!(
        (config.target, config.requirements),
        (None, ImageRequirements::default())
    );
}

#[test]
fn flags_win_over_the_file() {
    let file = "target = \"/dev/ublkb3\"\nsize = \"2GiB\"\nop = 12.5\nread-only = true\nprofile = \"slc-2k\"\n\
                [set]\n\"gc.policy\" = \"greedy\"\n\"gc.free_threshold\" = 4\n";
    let flags = DeviceOptions {
        size: Some("1GiB".into()),
        set: vec!["gc.free_threshold=9".into()],
        metrics: Some("off".into()),
        ..DeviceOptions::default()
    };
    let config = with_file(file, &flags).unwrap();
    assert_eq!(
        (
            config.name.as_str(),
            config.requirements.size,
            config.requirements.op
        ),
        ("ublkb3", Some(1 << 30), Some(12.5))
    );
    assert_eq!((config.metrics, config.read_only), (Metrics::Off, true));
    let params: Vec<_> = config.requirements.params.iter().collect();
    assert_eq!(
        params,
        [("gc.free_threshold", "9"), ("gc.policy", "greedy")]
    );
}

#[test]
fn a_misspelt_key_in_the_file_is_named() {
    let failure = with_file("sise = \"1GiB\"\n", &DeviceOptions::default()).unwrap_err();
    assert!(
        failure
            .message
            .contains("no option `sise` (did you mean \"size\"?)"),
        "{failure}"
    );
}

#[test]
fn beyond_this_machine_nbd_needs_tls() {
    let files = DeviceOptions {
        tls_cert: Some("c".into()),
        tls_key: Some("k".into()),
        tls_client_ca: Some("ca".into()),
        ..DeviceOptions::default()
    };
    let with = |target: &str, mode: Option<&str>, base: &DeviceOptions| {
        let options = DeviceOptions {
            tls: mode.map(str::to_owned),
            ..base.clone()
        };
        typed(Some(target), &options).map(|config| config.tls)
    };
    let required = with("nbd://192.0.2.1", None, &files).unwrap().unwrap();
    assert_eq!(
        (required.required, required.client_ca.is_some()),
        (true, true)
    );
    assert_eq!(
        with("nbds://localhost", None, &files).unwrap().unwrap(),
        required
    );
    assert!(
        !with("nbd://localhost", Some("optional"), &files)
            .unwrap()
            .unwrap()
            .required
    );
    assert_eq!(with("nbd://localhost", Some("off"), &files).unwrap(), None);
    assert_eq!(
        with("nbd://localhost", None, &DeviceOptions::default()).unwrap(),
        None
    );
    for (target, mode, options, part) in [
        (
            "nbd://192.0.2.1",
            None,
            &DeviceOptions::default(),
            "add --tls-cert",
        ),
        (
            "nbd://192.0.2.1",
            Some("optional"),
            &files,
            "192.0.2.1 can be reached from other machines",
        ),
        (
            "nbds://192.0.2.1",
            None,
            &DeviceOptions::default(),
            "needs a certificate",
        ),
        (
            "nbds://localhost",
            Some("optional"),
            &files,
            "nbds:// means that TLS is required",
        ),
        ("/dev/ublkb0", None, &files, "TLS is for NBD addresses"),
    ] {
        let failure = with(target, mode, options).unwrap_err();
        assert!(failure.message.contains(part), "{target}: {failure}");
    }
}

#[test]
fn wrong_values_name_their_option() {
    let device = |change: &dyn Fn(&mut DeviceOptions)| {
        let mut options = DeviceOptions::default();
        change(&mut options);
        typed(None, &options).unwrap_err().message
    };
    let cases = [
        (
            device(&|o| o.size = Some("1000".into())),
            "multiple of 4 KiB",
        ),
        (
            device(&|o| o.size = Some("big".into())),
            "--size \"big\" is not a size",
        ),
        (
            device(&|o| o.profile = Some("qlc".into())),
            "no profile \"qlc\" (did you mean \"qlc-16k\"?); there are mlc-4k",
        ),
        (device(&|o| o.op = Some(f64::NAN)), "--op NaN"),
        (
            device(&|o| o.metrics = Some("nowhere".into())),
            "--metrics \"nowhere\"",
        ),
        (
            device(&|o| o.latency = Some("slow".into())),
            "--latency \"slow\"",
        ),
        (
            device(&|o| o.tls = Some("maybe".into())),
            "--tls \"maybe\" is none of",
        ),
        (
            device(&|o| o.tls = Some("require".into())),
            "add --tls-cert CERT.pem --tls-key KEY.pem",
        ),
        (
            device(&|o| o.tls_cert = Some("c".into())),
            "needs a certificate and its key",
        ),
        (
            device(&|o| o.set = vec!["x".into()]),
            "--set \"x\" is not KEY=VALUE",
        ),
        (device(&|o| o.name = Some("a/b".into())), "--name"),
    ];
    for (message, part) in cases {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_write_cache_that_cannot_be_is_refused_with_the_way_out() {
    let of = |size: &str| DeviceOptions {
        write_cache: Some(size.into()),
        ..DeviceOptions::default()
    };
    let cache = typed(None, &of("2MiB")).unwrap().write_cache.unwrap();
    assert_eq!(
        (cache.bytes, cache.model.name(), cache.tear),
        (2 << 20, "any", None)
    );
    let with = |change: fn(&mut DeviceOptions), size: Option<&str>| {
        let mut options = of(size.unwrap_or("2MiB"));
        if size.is_none() {
            options.write_cache = None;
        }
        change(&mut options);
        typed(None, &options).unwrap_err().message
    };
    let none = |_: &mut DeviceOptions| {};
    for (message, part) in [
        (
            with(none, Some("64KiB")),
            "at least 1 MiB; leave the option out",
        ),
        (
            with(none, Some("1048577")),
            "not a multiple of 4 KiB; write for example 2 MiB",
        ),
        (with(none, Some("1024TiB")), "choose a smaller one"),
        (
            with(|o| o.read_only = true, Some("1MiB")),
            "leave one of the two out",
        ),
        (with(|o| o.cache_plp = true, None), "add --write-cache SIZE"),
        (
            with(|o| o.cache_tear = Some(512), None),
            "--cache-tear is about a write cache",
        ),
        (
            with(
                |o| o.write_cache_announce = Some("none".into()),
                Some("1MiB"),
            ),
            "add --cache-plp, or leave one of the two out",
        ),
        (
            with(|o| o.write_cache_announce = Some("no".into()), None),
            "neither volatile nor none",
        ),
        (
            with(|o| o.cache_tear = Some(700), Some("1MiB")),
            "none of 512, 1024",
        ),
        (
            with(|o| o.atomic_unit = Some("16KiB".into()), Some("1MiB")),
            "a write cache has a unit of its own",
        ),
        (
            with(|o| o.atomic_unit = Some("5000".into()), None),
            "--atomic-unit 5000: need a power of two from 4KiB to 64KiB",
        ),
        (
            with(|o| o.atomic_unit = Some("2KiB".into()), None),
            "need a power of two from 4KiB to 64KiB",
        ),
        (
            with(|o| o.cache_model = Some("none".into()), Some("1MiB")),
            "none of any, ordered, lost",
        ),
        (
            with(
                |o| (o.cache_plp, o.cache_model) = (true, Some("any".into())),
                Some("1MiB"),
            ),
            "leave one of the two out",
        ),
    ] {
        assert!(
            message.contains(part) && !message.contains('\n'),
            "{message}"
        );
    }
}

#[test]
fn a_write_cache_takes_at_most_half_of_the_memory_to_spare() {
    use super::write_cache::cache_bytes;
    let spare = Some(8 << 20);
    assert_eq!(cache_bytes("4MiB", spare), Ok(4 << 20));
    let failure = cache_bytes("4100KiB", spare).unwrap_err();
    assert!(failure.message.contains("to spare is 4 MiB"), "{failure}");
    assert_eq!(cache_bytes("1GiB", None), Ok(1 << 30));
    assert_eq!(cache_bytes("1MiB", spare), Ok(1 << 20), "the smallest");
}

/// Two values of each option key, as written in a file.
fn samples(key: &str) -> [&'static str; 2] {
    match key {
        "preset" => ["\"lazyftl-paper\"", "\"dopftl-paper\""],
        "scheme" => ["\"dftl\"", "\"pagemap\""],
        "profile" => ["\"slc-2k\"", "\"mlc-4k\""],
        "image" | "tls-cert" | "tls-key" | "tls-client-ca" | "record" => ["\"/a\"", "\"/b\""],
        "size" => ["\"64MiB\"", "\"128MiB\""],
        "slc-region" => ["5.0", "6.0"],
        "op" => ["8.0", "9.0"],
        "shards" => ["2", "3"],
        "metrics" => ["\"off\"", "\"127.0.0.1:1\""],
        "metrics-host" => ["\"a\"", "\"b\""],
        "latency" => ["\"emulate\"", "\"none\""],
        "verify" => ["\"once\"", "\"always\""],
        "tls" => ["\"optional\"", "\"require\""],
        "record-data" => ["\"off\"", "\"on\""],
        "shadow" => ["[\"dftl\"]", "[\"pagemap:op=28\"]"],
        "write-cache" => ["\"1MiB\"", "\"2MiB\""],
        "write-cache-announce" => ["\"none\"", "\"volatile\""],
        "atomic-unit" => ["\"8KiB\"", "\"16KiB\""],
        "cache-model" => ["\"ordered\"", "\"lost\""],
        "cache-tear" => ["512", "1024"],
        "read-only" | "cache-plp" => ["true", "true"],
        "name" => ["\"a\"", "\"b\""],
        "set" => ["{\"gc.policy\" = \"greedy\"}", "{\"gc.policy\" = \"fifo\"}"],
        other => {
            panic!("option {other} has no sample: add one, so that every source of it is tested")
        }
    }
}

/// Other options that an option needs.
fn companions(key: &str) -> &'static str {
    match key {
        "tls" | "tls-client-ca" => "tls-cert = \"/c\"\ntls-key = \"/k\"\n",
        "tls-cert" => "tls-key = \"/k\"\n",
        "tls-key" => "tls-cert = \"/c\"\n",
        "record-data" => "record = \"/r\"\n",
        "slc-region" => "profile = \"tlc-16k\"\n",
        "cache-model" | "cache-tear" | "cache-plp" => "write-cache = \"1MiB\"\n",
        _ => "",
    }
}

fn options_of(text: &str) -> DeviceOptions {
    toml::from_str(text).unwrap()
}

/// A key that a source lacks is ignored there, silently: a `tls-client-ca` in a file that is
/// ignored admits clients without a certificate.
#[test]
fn every_option_has_every_source_and_the_same_effect_from_each() {
    for key in DeviceOptions::keys() {
        let [one, other] = samples(&key);
        let of = |value: &str| options_of(&format!("{key} = {value}\n"));
        let typed_text = |value: &str| match value.trim_matches('"') {
            "{\"gc.policy\" = \"greedy\"}" => "gc.policy=greedy".to_owned(),
            "[\"dftl\"]" => "dftl".to_owned(),
            plain => plain.to_owned(),
        };
        // From a file, below what is typed.
        let from_file = DeviceOptions::default().or(of(one));
        assert_eq!(from_file, of(one), "{key} from a file");
        assert!(from_file.table().contains_key(&key), "{key} from a file");
        let both = of(one).or(of(other));
        if key == "set" {
            assert_eq!(both.set, ["gc.policy=fifo", "gc.policy=greedy"]);
        } else {
            assert_eq!(both, of(one), "{key}: what is typed has priority");
        }
        // From the command line, and from the environment under the name that is documented.
        let command = DeviceOptions::augment_args(clap::Command::new("ftld"));
        let id = key.replace('-', "_");
        let arg = command
            .get_arguments()
            .find(|arg| arg.get_id() == id.as_str());
        let variable = format!("FTLD_{}", id.to_uppercase());
        let has = arg.and_then(|arg| arg.get_env());
        assert_eq!(has, Some(std::ffi::OsStr::new(&variable)), "{key}");
        let flag = match one {
            "true" => vec![format!("--{key}")],
            value => vec![format!("--{key}"), typed_text(value)],
        };
        let words = std::iter::once("ftld".to_owned()).chain(flag);
        let matches = command.try_get_matches_from(words).unwrap();
        let typed_options = <DeviceOptions as clap::FromArgMatches>::from_arg_matches(&matches);
        assert_eq!(typed_options.unwrap(), of(one), "{key} on the command line");
        // The configuration is the same, and not the default.
        let text = format!("{}{key} = {one}\n", companions(&key));
        let typed_config = typed(None, &options_of(&text)).unwrap();
        let file_config = with_file(&text, &DeviceOptions::default()).unwrap();
        assert_eq!(file_config, typed_config, "{key}");
        // A certificate without its key, and the other way round, is refused.
        let without = typed(None, &options_of(companions(&key)));
        assert_ne!(Ok(file_config), without, "{key} has no effect");
    }
}

#[test]
fn what_a_preset_gives_is_taken_and_gives_way_to_every_other_source() {
    for preset in crate::preset::PRESETS {
        let name = format!("preset = {:?}\n", preset.name);
        let given = preset.device().table();
        assert!(!given.is_empty(), "{}", preset.name);
        let whole = options_of(&name).with_preset().unwrap().table();
        for (key, value) in &given {
            assert_eq!(whole.get(key), Some(value), "{}: {key}", preset.name);
            let own = samples(key).map(|sample| options_of(&format!("{key} = {sample}\n")));
            let own = own
                .into_iter()
                .find(|own| own.table().get(key) != Some(value));
            let typed = own.unwrap();
            let options = typed.clone().or(options_of(&name)).with_preset().unwrap();
            assert_eq!(options.table().get(key), typed.table().get(key), "{key}");
        }
    }
}
