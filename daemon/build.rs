//! Tells the program the git revision of its source, for the rows of `ftld replay`. Without a
//! repository, and without `FTLD_REVISION`, it has none.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn main() {
    println!("cargo:rerun-if-env-changed=FTLD_REVISION");
    // A change of these makes the revision `dirty`, and builds the program again in any case.
    for source in [
        "build.rs",
        "Cargo.toml",
        "src",
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
    if let Some(revision) = told.filter(|text| !text.is_empty()).or_else(own) {
        println!("cargo:rustc-env=FTLD_BUILT_REVISION={revision}");
    }
}
