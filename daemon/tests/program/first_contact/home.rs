//! A user without HOME, or without a home that can be written.

use crate::host::Host;
use nix::unistd::{User, geteuid};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const NOBODY: u32 = 65534;

/// The program without the variables that name folders, and not as root.
pub(super) fn ordinary_user(host: &Host, home: Option<&str>, args: &[&str]) -> Command {
    let folder = host.folder.path();
    let program = folder.join("ftld");
    // Another process copies it: if this one did, a fork of another thread would inherit the file
    // open for writing, and nobody could run it.
    let mut copy = Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_ftld")).arg(&program);
    assert!(copy.status().unwrap().success());
    for path in [folder, &program] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&program);
    for (key, _) in std::env::vars_os() {
        if ["FTLD_", "XDG_"]
            .iter()
            .any(|of| key.to_string_lossy().starts_with(of))
        {
            command.env_remove(key);
        }
    }
    match home {
        Some(home) => command.env("HOME", home),
        None => command.env_remove("HOME"),
    };
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(folder).args(args);
    command
}

#[test]
fn without_home_the_user_database_has_it() {
    let host = Host::new();
    let uid = match geteuid() {
        root if root.is_root() => NOBODY.into(),
        user => user,
    };
    let home = User::from_uid(uid)
        .unwrap()
        .map_or("/".into(), |user| user.dir);
    let image = home.join(".local/state/ftld/disk.ftld");
    let target = [
        "--metrics",
        "off",
        "--name",
        "disk",
        "nbd+unix:///?socket=disk.sock",
    ];
    for command in ["doctor", "rm", "list"] {
        let args = match command {
            "doctor" => [&["doctor", "--json"], &target[..]].concat(),
            "rm" => vec!["rm", "disk"],
            other => vec![other],
        };
        let output = ordinary_user(&host, None, &args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        match command {
            "doctor" => {
                let report: Value = serde_json::from_str(&out).unwrap();
                let findings = report["findings"].as_array().unwrap();
                let state = findings
                    .iter()
                    .find(|found| found["what"] == "state folder");
                let said = state.unwrap()["text"].as_str().unwrap();
                let folder = image.parent().unwrap().display().to_string();
                assert!(said.starts_with(&folder), "{said}");
                // The user `nobody` has no home; a user who has one can use it.
                let is_bad = state.unwrap()["verdict"] == "bad";
                assert_eq!(
                    is_bad,
                    said.ends_with("; choose another with FTLD_STATE_DIR"),
                    "{said}"
                );
            }
            "rm" => {
                assert_eq!(output.status.code(), Some(3), "{error}");
                let missing = format!("ftld: {}: no such image", image.display());
                assert!(error.starts_with(&missing), "{error}");
            }
            _ => assert_eq!(output.status.code(), Some(0), "{error}"),
        }
    }
}

/// An image without a folder is in the current one; the doctor checks that folder.
#[test]
fn the_doctor_looks_where_a_bare_name_is() {
    let host = Host::new();
    let mine = host.folder.path().join("mine");
    fs::create_dir(&mine).unwrap();
    fs::set_permissions(&mine, Permissions::from_mode(0o777)).unwrap();
    let args = [
        "doctor",
        "--json",
        "--metrics",
        "off",
        "--image",
        "disk.ftld",
    ];
    let mut doctor = ordinary_user(&host, Some(mine.to_str().unwrap()), &args);
    let output = doctor.current_dir(&mine).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let state = findings
        .iter()
        .find(|found| found["what"] == "state folder");
    assert_eq!(state.unwrap()["verdict"], "ok", "{report}");
}
