//! Tells the program the git revision of its source, for the rows of `ftld replay`: that of the
//! repository, or the one from which cargo made a package. `FTLD_REVISION` overrides both.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// The commit that `cargo package` noted, as long as git abbreviates it here.
fn of_package() -> Option<String> {
    let note = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let commit = note.split("\"sha1\": \"").nth(1)?.split('"').next()?;
    let dirty = if note.contains("\"dirty\": true") {
        "-dirty"
    } else {
        ""
    };
    Some(format!("{}{dirty}", commit.get(..12)?))
}

fn main() {
    println!("cargo:rerun-if-env-changed=FTLD_REVISION");
    // A change of these makes the revision `dirty`, and builds the program again in any case.
    for source in [
        "build.rs",
        "Cargo.toml",
        "src",
        "device/src",
        "kit/src",
        "lab/src",
        "traces/src",
        "../Cargo.lock",
    ] {
        println!("cargo:rerun-if-changed={source}");
    }
    for source in ["../ftl-core/src", "../nand-model/src"] {
        println!("cargo:rerun-if-changed={source}");
    }
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo:rerun-if-changed={log}");
    }
    // A copy of the source inside another repository has no revision there.
    let own = || {
        git(&["ls-files", "--error-unmatch", "build.rs"])?;
        git(&[
            "describe",
            "--always",
            "--dirty",
            "--abbrev=12",
            "--exclude=*",
        ])
    };
    let told = std::env::var("FTLD_REVISION").ok();
    if let Some(revision) = told
        .filter(|text| !text.is_empty())
        .or_else(own)
        .or_else(of_package)
    {
        println!("cargo:rustc-env=FTLD_BUILT_REVISION={revision}");
    }
}
