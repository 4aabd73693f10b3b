use super::*;

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
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
            "--block <N>; see `ftld inject bad-block --help`",
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
