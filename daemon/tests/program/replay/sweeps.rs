//! Sweeps over many machines: chunks of a plan, completion after an interruption, and rows held
//! against the plan.

use super::file;
use crate::host::Host;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SWEEP: [&str; 8] = [
    "uniform:requests=500",
    "--scheme",
    "pagemap,lazyftl,dftl",
    "--size",
    "4MiB",
    "--precondition",
    "fill",
    "--plan",
];

fn plan(host: &Host, more: &[&str]) -> PathBuf {
    let (code, plan, error) = host.run(&[&["compare"], &SWEEP[..], more].concat());
    assert_eq!(code, 0, "{error}");
    file(host, "jobs.ndjson", &plan)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A cluster of one machine, on which an array has at most two tasks.
fn submit(host: &Host, args: &[&str]) -> (bool, String) {
    let folder = host.folder.path();
    program(
        folder,
        "scontrol",
        "#!/bin/bash\necho 'MaxArraySize            = 3'\n",
    );
    program(
        folder,
        "sbatch",
        "#!/bin/bash\n\
         array=${1#--array=}; shift 2\n\
         echo \"tasks $array of $4\"\n\
         for range in ${array//,/ }; do\n\
         for task in $(seq ${range/-/ }); do SLURM_ARRAY_TASK_ID=$task bash \"$@\" || exit; done\n\
         done\n",
    );
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/slurm-array.sh");
    let output = Command::new("bash")
        .arg(script)
        .args(args)
        .env("PATH", path)
        .env("FTLD", env!("CARGO_BIN_EXE_ftld"))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into(),
    )
}

#[test]
fn an_interrupted_array_is_completed_by_the_same_command() {
    let host = Host::new();
    let jobs = plan(&host, &["--seeds", "1"]);
    let rows = host.folder.path().join("rows");
    let args = [jobs.to_str().unwrap(), rows.to_str().unwrap()];
    let (done, text) = submit(&host, &args);
    // Three jobs on two tasks: two jobs each, the second task has one.
    assert!(done && text.starts_with("tasks 1-2 of 2\n"), "{text}");
    let (one, two) = (rows.join("000001.ndjson"), rows.join("000002.ndjson"));
    let before = read(&one);
    assert_eq!((before.lines().count(), read(&two).lines().count()), (2, 1));
    let files = [one.to_str().unwrap(), two.to_str().unwrap()];
    let check = [&["compare", "--against", args[0], "--rows"][..], &files].concat();
    let (code, table, error) = host.run(&check);
    assert!(code == 0 && table.contains("lazyftl"), "{error}");

    // Killed in the middle of a line.
    let first = before.lines().next().unwrap();
    std::fs::write(&one, format!("{first}\n{}", &first[..100])).unwrap();
    std::fs::remove_file(&two).unwrap();
    host.fails(&check[..5], 1, &["000001.ndjson: line 2: not a row"]);
    let (done, text) = submit(&host, &args);
    assert!(done, "{text}");
    let after = read(&one);
    // The first row has its CPU seconds: it was not run again. The second was.
    assert!(after.starts_with(&format!("{first}\n")) && after.lines().count() == 2);
    let (code, _, error) = host.run(&check);
    assert_eq!(code, 0, "{error}");
    let (done, text) = submit(&host, &args);
    assert!(
        done && text.starts_with("all 3 jobs have a row in ") && read(&one) == after,
        "{text}"
    );
    // A task whose rows are there is not submitted again.
    std::fs::remove_file(&two).unwrap();
    let (done, text) = submit(&host, &args);
    assert!(done && text.starts_with("tasks 2-2 of 2\n"), "{text}");
    // Another K would place the jobs into other files, and run them twice.
    let (done, text) = submit(&host, &[args[0], args[1], "3"]);
    assert!(
        !done && text.contains("rows: has rows of another plan, or of another K: 2 jobs a task"),
        "{text}"
    );

    let (done, text) = submit(&host, &[args[0], args[1], "1"]);
    assert!(
        !done
            && text.contains("K is 1: 3 jobs need at least 2 per task, because MaxArraySize is 3"),
        "{text}"
    );
}

/// A file of something else is not touched, whether its last line ends or not.
#[test]
fn rows_are_not_appended_to_another_file() {
    let host = Host::new();
    let jobs = plan(&host, &[]);
    for text in ["what I wanted to buy", "what I\nwanted to buy"] {
        let notes = file(&host, "notes", text);
        let append = [
            "compare",
            "--job",
            jobs.to_str().unwrap(),
            "--append",
            notes.to_str().unwrap(),
        ];
        host.fails(&append, 1, &[notes.to_str().unwrap(), "row"]);
        assert_eq!(read(&notes), text);
    }
}

#[test]
fn rows_that_are_not_those_of_the_plan_are_named() {
    let host = Host::new();
    let jobs = plan(&host, &["--op", "7,20"]);
    let jobs = jobs.to_str().unwrap();
    let rows = host.folder.path().join("rows.ndjson");
    let run = ["compare", "--job", jobs, "--append", rows.to_str().unwrap()];
    let (code, out, error) = host.run(&run);
    assert_eq!((code, &*out), (0, ""), "{error}");
    let text = read(&rows);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6);
    let check = |name: &str, text: &str| {
        let path = file(&host, name, text);
        let args = ["compare", "--against", jobs, "--rows"];
        host.run(&[&args[..], &[path.to_str().unwrap()]].concat())
    };
    assert_eq!(check("all", &text).0, 0);
    let seed = "\"seed\":1";
    assert!(lines[0].contains(seed));
    let other = lines[0].replace(seed, "\"seed\":77");
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(lines[5].contains(&version));
    let old = lines[5].replace(&version, "\"version\":\"0.0.9\"");
    for (name, text, parts) in [
        (
            "missing",
            lines[1..].join("\n"),
            &[
                "1 missing",
                "jobs.ndjson: line 1: pagemap on uniform:requests=500",
            ][..],
        ),
        (
            "double",
            format!("{text}{}\n", lines[3]),
            &["1 double", "double: line 7: pagemap", "double: line 4"],
        ),
        (
            "foreign",
            format!("{text}{other}\n"),
            &["1 foreign", "foreign: line 7: pagemap", "seed 77 is not in"],
        ),
        (
            "empty",
            String::new(),
            &["1 empty, 6 missing", "empty: no row in it"],
        ),
        (
            "version",
            format!("{}\n{old}\n", lines[..5].join("\n")),
            &["1 of another program", "version: line 6: is of ftld 0.0.9"],
        ),
    ] {
        let (code, out, error) = check(name, &text);
        assert_eq!((code, &*out), (1, ""), "{name}: {error}");
        for part in parts {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
    // Rows of another program are not continued.
    std::fs::write(&rows, format!("{old}\n")).unwrap();
    host.fails(
        &run,
        1,
        &["rows.ndjson: has rows of ftld 0.0.9", "this is ftld"],
    );
    assert_eq!(read(&rows), format!("{old}\n"));
    // A run that failed is repeated, and the others of its chunk are not lost.
    let broken = file(
        &host,
        "two.ndjson",
        "{\"workload\":\"nosuch\"}\n{\"workload\":\"uniform:requests=9\",\"size\":\"1MiB\"}\n",
    );
    let rows = host.folder.path().join("two");
    let run = [
        "compare",
        "--job",
        broken.to_str().unwrap(),
        "--append",
        rows.to_str().unwrap(),
    ];
    for _ in 0..2 {
        host.fails(&run, 1, &["nosuch: no such file"]);
        assert_eq!(read(&rows).lines().count(), 2);
    }
}

#[test]
fn a_row_names_program_trace_and_machine() {
    let host = Host::new();
    let trace = file(&host, "t.csv", "0,W,0,4096\n");
    let row = super::replay(&host, &[trace.to_str().unwrap(), "--size", "1MiB"]);
    let sum = Command::new("sha256sum").arg(&trace).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(
        row["run"]["trace_sha256"].as_str(),
        sum.split_whitespace().next()
    );
    let name = read(Path::new("/proc/sys/kernel/hostname"));
    assert_eq!(row["run"]["host"], name.trim());
    assert!(row["run"]["rss_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(row["run"]["wall_seconds"].as_f64().unwrap() > 0.0);
    let made = super::replay(&host, &["uniform:requests=1", "--size", "1MiB"]);
    assert!(made["run"]["trace_sha256"].is_null());

    // A page has everything that is needed to repeat its runs.
    let page = host.folder.path().join("page.html");
    let args = ["compare", trace.to_str().unwrap(), "--size", "1MiB"];
    let scheme = ["--scheme", "pagemap", "--html", page.to_str().unwrap()];
    let (code, _, error) = host.run(&[&args[..], &scheme].concat());
    assert_eq!(code, 0, "{error}");
    let page = read(&page);
    let version = row["run"]["version"].as_str().unwrap();
    for part in [
        format!("<pre>ftld {} ", args.join(" ")),
        format!("ftld {version} "),
        format!("SHA-256 {}<", row["run"]["trace_sha256"].as_str().unwrap()),
        format!("<pre>ftld replay {}", trace.to_str().unwrap()),
    ] {
        assert!(page.contains(&part), "{part} is not in {page}");
    }
}

/// The trace does not exist either, so a message about it would show that the run began.
#[test]
fn an_unwritable_result_fails_before_any_run() {
    let host = Host::new();
    for option in ["--html", "--append"] {
        let file = "/nonexistent/results";
        host.fails(
            &["compare", "/nonexistent/trace.csv", option, file],
            1,
            &[
                option,
                "/nonexistent/results: there is no folder /nonexistent; create it",
            ],
        );
    }
    // Jobs print rows. A page of them is made from these rows.
    let page = host.folder.path().join("page.html");
    let (code, _, error) = host.run(&["compare", "--job", "-", "--html", page.to_str().unwrap()]);
    assert!(code == 2 && error.contains("--html"), "{error}");
    assert!(!page.exists());
}

/// The file ends in its second line. Nothing is run that would end in an error at its last line.
#[test]
fn a_trace_that_was_cut_off_is_refused_before_any_run() {
    let host = Host::new();
    let good = file(&host, "good.csv", "0,W,0,4096\n1,R,0,4096\n");
    let cut = file(&host, "cut.csv", "0,W,0,4096\n1,R,0\n2,W");
    let (good, cut) = (good.to_str().unwrap(), cut.to_str().unwrap());
    let device = ["--size", "1MiB", "--scheme", "pagemap"];
    let reason = ["cut.csv: line 2: 3 columns, not 4; expected plain"];
    host.fails(
        &[&["compare", "--ndjson", good, cut][..], &device].concat(),
        1,
        &reason,
    );
    let rows = host.folder.path().join("rows.ndjson");
    let append = ["compare", good, cut, "--append", rows.to_str().unwrap()];
    host.fails(&[&append[..], &device].concat(), 1, &reason);
    assert_eq!(read(&rows), "");
    host.fails(&[&["replay", cut][..], &device].concat(), 1, &reason);
    let short = file(&host, "short.csv", "0,W,0,4096\n1,R,0,40");
    let short = short.to_str().unwrap();
    std::fs::write(
        host.folder.path().join("whole"),
        read(Path::new(good)).repeat(1000),
    )
    .unwrap();
    let log = host.folder.path().join("whole");
    let zstd = Command::new("sh")
        .args([
            "-c",
            "gzip -c < \"$0\" | head -c 40 > \"$0.gz\"",
            log.to_str().unwrap(),
        ])
        .status();
    assert!(zstd.unwrap().success());
    let packed = format!("{}.gz", log.display());
    host.fails(
        &[&["replay", &packed][..], &device].concat(),
        1,
        &["whole.gz: after line ", "damaged or cut off: copy it again"],
    );
    // In a chunk of a sweep, the other jobs have their rows.
    let (_, plan, _) = host.run(&[&["compare", "--plan", cut, good, short][..], &device].concat());
    let jobs = file(&host, "jobs.ndjson", &plan);
    let (code, out, error) = host.run(&["compare", "--job", jobs.to_str().unwrap()]);
    let schemas: Vec<_> = out
        .lines()
        .map(|line| line.contains("\"ftld.replay/"))
        .collect();
    assert_eq!((code, schemas), (1, vec![false, true, true]), "{error}");
    assert!(error.contains("short.csv: line 2: the last line has no line end"));
}

#[test]
fn a_plan_of_another_version_is_refused() {
    let host = Host::new();
    let jobs = plan(&host, &[]);
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let text = read(&jobs);
    assert_eq!(text.matches(&version).count(), 3);
    let rows = host.folder.path().join("rows.ndjson");
    let (rows, jobs) = (rows.to_str().unwrap(), jobs.to_str().unwrap());
    assert_eq!(host.run(&["compare", "--job", jobs, "--append", rows]).0, 0);
    // Jobs written by hand have no version.
    let by_hand = file(&host, "hand", &text.replace(&format!("{version},"), ""));
    let check = ["compare", "--rows", rows, "--against"];
    for plan in [jobs, by_hand.to_str().unwrap()] {
        assert_eq!(host.run(&[&check[..], &[plan]].concat()).0, 0);
    }
    let old = file(
        &host,
        "old",
        &text.replace(&version, "\"version\":\"0.0.9\""),
    );
    let old = old.to_str().unwrap();
    host.fails(
        &["compare", "--job", old],
        1,
        &["old: a plan of ftld 0.0.9, this is ftld", "print it again"],
    );
    host.fails(
        &[&check[..], &[old]].concat(),
        1,
        &["old: is of ftld 0.0.9, ", "1 of another program"],
    );
    let mixed = file(
        &host,
        "mixed",
        &text.replacen(&version, "\"version\":\"0.0.9\"", 1),
    );
    host.fails(
        &["compare", "--job", mixed.to_str().unwrap()],
        1,
        &["mixed: jobs of ftld 0.0.9 and of ftld"],
    );
}
