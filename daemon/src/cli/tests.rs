use super::help::{GROUPS, OPTIONS, command_of};
use super::*;
use ftl_core::schemes::SCHEMES;
use ftld_device::config::{OP_DEFAULT, SIZE_DEFAULT};
use ftld_kit::size::show_size;
use nand_model::Profile;

#[test]
fn the_command_line_is_sound() {
    command().debug_assert();
}

fn parsed(line: &str) -> Result<Cli, String> {
    let words = line.split_whitespace().map(OsString::from);
    Cli::parse_args(words.collect()).map_err(|failure| failure.message)
}

#[test]
fn json_may_stand_before_a_command() {
    assert!(parsed("ftld --json list").unwrap().json);
    assert!(parsed("ftld --json --size 1GiB").unwrap().json);
    assert!(!parsed("ftld list").unwrap().json);
}

#[test]
fn wrong_use_is_one_line_with_a_way_out() {
    for (line, message) in [
        (
            "ftld stauts",
            "no command \"stauts\" (did you mean \"status\"?), and no target",
        ),
        ("ftld --json stauts", "did you mean \"status\"?"),
        (
            "ftld restart c",
            "no command \"restart\"; `ftld start NAME`",
        ),
        (
            "ftld start",
            "not provided: <NAME>...; see `ftld start --help`",
        ),
        ("ftld mark --name demo x", "'--name'"),
        ("ftld inject clear --name demo", "'--name'"),
        ("ftld c", "no command \"c\", and no target"),
        (
            "ftld frobnicate now",
            "no command \"frobnicate\", and no target",
        ),
        ("ftld create --sise 1", "--size'; see `ftld create --help`"),
        (
            "ftld replay",
            "not provided: <WORKLOAD>; see `ftld replay --help`",
        ),
        (
            "ftld inject bad-block",
            "<--block <N>|--count <K>>; see `ftld inject bad-block --help`",
        ),
        (
            "ftld crash-test --check true",
            "not provided: <COMMAND>...; see `ftld crash-test --help`",
        ),
        (
            "ftld crash-test --check true --fs ntfs -- true {}",
            "possible values: ext4, xfs, btrfs, f2fs, none",
        ),
        (
            "ftld pause --for 5h",
            "is no unit of time; write 500us, 50ms, 30s or 5m; see `ftld pause --help`",
        ),
    ] {
        let error = parsed(line).unwrap_err();
        assert!(error.contains(message), "{line}: {error}");
        assert!(!error.contains('\n'), "{line}: {error}");
    }
}

#[test]
fn json_may_stand_behind_any_command() {
    for line in [
        &["ftld", "list", "--json"][..],
        &["ftld", "inject", "power-cut", "--json"],
        &["ftld", "--json"],
    ] {
        assert!(Cli::try_parse_from(line).unwrap().json, "{line:?}");
    }
}

#[test]
fn lengths_of_a_pause_are_read_as_people_write_them() {
    assert_eq!(
        ["30", "10min", "500ms"].map(|t| seconds(t).unwrap()),
        [30.0, 600.0, 0.5]
    );
    for wrong in ["5h", "-1s", "11m", "0"] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}

/// Words of a help page are as far apart as its lines allow, and none is broken.
#[test]
fn every_help_page_fits_its_terminal_without_a_broken_word() {
    fn pages(command: &clap::Command, width: usize, name: &str) {
        let mut page = command.clone().term_width(width);
        let long = page.render_long_help().to_string();
        let wide = command
            .clone()
            .term_width(1000)
            .render_long_help()
            .to_string();
        let words = |text: &str| {
            let words = text.split_whitespace().map(str::to_owned);
            words.collect::<Vec<_>>()
        };
        assert_eq!(words(&long), words(&wide), "{name} at {width}");
        for line in long.lines().filter(|line| line.chars().count() > width) {
            let longest = words(line).iter().map(|word| word.chars().count()).max();
            assert!(longest > Some(width / 2), "{name} at {width}: {line}");
        }
        for below in command.get_subcommands() {
            pages(below, width, &format!("{name} {}", below.get_name()));
        }
    }
    for width in [60, 80, 100] {
        let mut command = command_of(width);
        command.build();
        pages(&command, width, "ftld");
    }
}

#[test]
fn a_command_shows_the_options_that_matter_to_it() {
    let shown = |name: &str| {
        let mut command = command();
        let command = command.find_subcommand_mut(name).unwrap();
        command.render_help().to_string()
    };
    let [create, recover, doctor] = ["create", "recover", "doctor"].map(shown);
    assert!(
        create.contains("--scheme") && !create.contains("--metrics"),
        "{create}"
    );
    assert!(
        recover.contains("--metrics") && !recover.contains("--scheme"),
        "{recover}"
    );
    assert!(
        doctor.contains("--tls-cert") && !doctor.contains("--cache-tear"),
        "{doctor}"
    );
    // Accepted all the same: a line of serving can be taken over.
    assert!(parsed("ftld create --metrics off").is_ok());
}

#[test]
fn the_help_has_every_command_in_one_group() {
    let command = command();
    let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).collect();
    grouped.retain(|name| **name != "help");
    grouped.sort_unstable();
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    let mut shown: Vec<_> = shown.map(clap::Command::get_name).collect();
    shown.sort_unstable();
    assert!(grouped.iter().map(|name| **name).eq(shown), "{grouped:?}");
    let help = command.clone().render_help().to_string();
    for part in [
        "\nServe:\n  demo ",
        "\nFaults:\n  inject ",
        "\nArguments:\n  [TARGET]",
        "\nInstance:\n      --config",
        "\nNew image:\n      --preset",
        "\nOptions:\n  -h, --help",
    ] {
        assert!(help.contains(part), "{part:?} is not in {help}");
    }
}

#[test]
fn the_help_of_serving_has_every_option_under_one_heading_and_its_default() {
    let command = command();
    let mut grouped: Vec<_> = OPTIONS.iter().flat_map(|(_, ids)| *ids).collect();
    // Of `ftld create` alone, and of clap.
    grouped.retain(|id| !["age", "help", "version"].contains(id));
    grouped.sort_unstable();
    let shown = command
        .get_arguments()
        .filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    let mut shown: Vec<_> = shown.map(|arg| arg.get_id().as_str()).collect();
    shown.sort_unstable();
    assert!(grouped.iter().map(|id| **id).eq(shown), "{grouped:?}");
    let help = |id: &str| {
        let arg = command.get_arguments().find(|arg| arg.get_id() == id);
        arg.and_then(|arg| Some(arg.get_help()?.to_string()))
            .unwrap_or_default()
    };
    for (id, default) in [
        ("scheme", SCHEMES[0].name.to_owned()),
        ("size", show_size(SIZE_DEFAULT).replace(' ', "")),
        ("profile", Profile::default_profile().name.to_owned()),
        ("op", OP_DEFAULT.to_string()),
        ("shards", "1".to_owned()),
    ] {
        let text = help(id);
        assert!(
            text.contains(&format!("[default: {default}]")),
            "{id}: {text}"
        );
    }
}

#[test]
fn the_name_of_an_instance_comes_first_and_may_be_left_out() {
    for (line, name) in [
        ("ftld mark demo order-17", Some("demo")),
        ("ftld mark order-17", None),
    ] {
        let Some(Command::Mark { name: found, text }) = parsed(line).unwrap().command else {
            panic!("{line}");
        };
        assert_eq!((found.as_deref(), text.as_str()), (name, "order-17"));
    }
    for (line, name) in [
        ("ftld inject clear demo --kind slow", Some("demo")),
        ("ftld inject clear --kind slow", None),
        ("ftld inject slow demo --extra 5ms --for 10s", Some("demo")),
    ] {
        let Some(Command::Inject(inject)) = parsed(line).unwrap().command else {
            panic!("{line}");
        };
        assert_eq!(inject.into_parts().0.as_deref(), name, "{line}");
    }
}
