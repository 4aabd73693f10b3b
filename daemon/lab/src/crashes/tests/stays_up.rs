//! Checks that stay up; some end or are late.

use super::*;
use crate::crashes::Mounts;

/// Answers as [`COMMITTED`] does; `$1` is appended to each start.
const SERVER: &str = r#"echo started >> "$STARTS"
while IFS="$(printf '\t')" read -r image mark; do
  if [ -z "$mark" ] || [ "$(dd if="$image" bs=4096 skip="$mark" count=1 2> /dev/null | cut -c1-3)" = "r$mark " ]
  then echo ok; else echo "record $mark is missing"; fi
done"#;

fn served(saved: &Saved, check: &str) -> CrashesArgs {
    CrashesArgs {
        server: true,
        jobs: Some(1),
        ..saved.args(check)
    }
}

#[test]
fn a_server_gives_the_verdicts_of_a_program() {
    for with_flush in [true, false] {
        let saved = commits(with_flush);
        let starts = saved.folder.path().join("starts");
        let check = format!("STARTS={}\n{SERVER}", starts.display());
        let (program, _) = saved.explored(&saved.args(COMMITTED)).unwrap();
        let (server, _) = saved.explored(&served(&saved, &check)).unwrap();
        assert_eq!(
            (server.checked, server.failed),
            (program.checked, program.failed)
        );
        assert_eq!(std::fs::read_to_string(starts).unwrap(), "started\n");
        if let Some(failed) = server.cases.first() {
            assert_eq!(failed.said, "not ok");
            assert!(failed.output.ends_with("is missing"), "{failed:?}");
        }
    }
}

#[test]
fn a_server_that_ends_or_is_late_fails_its_state_alone() {
    let saved = commits(true);
    // The state of mark 3 ends it; the next state has a new server.
    for (answer, said) in [
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "ended by signal 9"),
        ("sleep 60", "no answer within 1 s"),
    ] {
        let check =
            format!("while read -r line; do case $line in *3) {answer} ;; esac; echo ok; done");
        let args = CrashesArgs {
            at: At::Mark,
            timeout: Duration::from_secs(1),
            ..served(&saved, &check)
        };
        let (report, _) = saved.explored(&args).unwrap();
        assert_eq!(
            (report.failed, report.points),
            (1, 10),
            "{said}: {report:?}"
        );
        assert!(report.cases[0].said.starts_with(said), "{report:?}");
    }
}

#[test]
fn a_server_that_is_none_is_one_message() {
    let saved = commits(true);
    for (check, why) in [
        ("true", "it ended without an answer"),
        (
            "read line; printf 'ok\\nok\\n'; sleep 60",
            "it answered before it was asked",
        ),
        (
            "read line; exec >&-; sleep 60",
            "it closed its standard output",
        ),
        ("no-such-checker", "cannot be run (exit code 127)"),
        ("read line; yes | tr -d '\\n'", "has no end after"),
    ] {
        let failure = saved
            .explored(&served(&saved, check))
            .map(drop)
            .unwrap_err();
        assert!(failure.message.contains(why), "{check}: {failure}");
    }
}

/// Stands for the program that mounts states: it is asked for path, case and mark.
#[test]
fn who_mounts_states_gets_the_case_and_the_report_shows_what_was_typed() {
    let saved = commits(true);
    let asked = saved.folder.path().join("asked");
    let command = format!(
        "while IFS= read -r line; do echo \"$line\" >> {}; echo 'exit code 3'; done",
        asked.display()
    );
    let mounts = Mounts {
        command,
        stays_up: true,
        options: vec!["--fs".into(), "xfs".into()],
    };
    let args = CrashesArgs {
        at: At::Mark,
        jobs: Some(1),
        failures: 0,
        mounts: Some(mounts),
        ..saved.args("./typed")
    };
    let (report, _) = saved.explored(&args).unwrap();
    assert_eq!(
        (report.failed, report.cases[0].said.as_str()),
        (10, "exit code 3")
    );
    let asked = std::fs::read_to_string(asked).unwrap();
    let marks = asked.lines().map(|line| {
        let [image, case, mark] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line:?}")
        };
        assert!(image.ends_with("/image"), "{line:?}");
        assert!(Case::parse(case).is_ok(), "{line:?}");
        mark.to_owned()
    });
    let mut marks: Vec<_> = marks.collect();
    marks.sort();
    marks.dedup();
    let all: Vec<_> = (0..10).map(|mark: u32| mark.to_string()).collect();
    assert_eq!(marks, all);
    let again = report.command(&report.cases[0].case);
    assert!(again.contains(" --check ./typed --case "), "{again}");
    assert!(again.ends_with(" --fs xfs"), "{again}");
}
