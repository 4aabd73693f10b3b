//! `ftld new-scheme`: the folder that it writes, and what it refuses.

use crate::host::Host;
use std::path::Path;

/// Runs the command in the folder of this machine. Returns exit code, output and error.
fn new_scheme(host: &Host, args: &[&str]) -> (i32, String, String) {
    let mut command = host.command(&["new-scheme"]);
    command.args(args).current_dir(host.folder.path());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().expect("not killed");
    (code, text(output.stdout), text(output.stderr))
}

#[test]
fn a_new_scheme_is_a_folder_and_never_replaces_one() {
    let host = Host::new();
    let file = |path: &str| std::fs::read_to_string(host.folder.path().join(path)).unwrap();
    let (code, out, error) = new_scheme(&host, &["my-rule", "--policy"]);
    assert_eq!(code, 0, "{error}");
    assert!(
        out.contains("cargo test") && out.contains("src/policy.rs"),
        "{out}"
    );
    assert!(file("my-rule/Cargo.toml").contains("git = "));
    let (code, _, error) = new_scheme(&host, &["my-rule"]);
    assert!(
        code == 1 && error.contains("my-rule exists here"),
        "{code}: {error}"
    );
    assert!(!host.folder.path().join("my-rule/src/map.rs").exists());

    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let clone = clone.to_str().unwrap();
    let (code, out, error) = new_scheme(&host, &["my-map", "--map", "--path", clone, "--json"]);
    assert_eq!(code, 0, "{error}");
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["folder"], "my-map");
    let manifest = file("my-map/Cargo.toml");
    assert_eq!(manifest.matches(clone).count(), 4, "{manifest}");
}

#[test]
fn a_new_scheme_is_refused_with_one_line() {
    let host = Host::new();
    for (args, part) in [
        (&["My_Rule"][..], "a-z, 0-9 and -"),
        (&["dftl"][..], "ftld has a scheme of this name"),
        (&["match"][..], "uses this name"),
        (&["my-rule", "--path", "/"][..], "no clone of ftld"),
        (&["my-rule", "--map", "--policy"][..], "--policy"),
    ] {
        let (code, _, error) = new_scheme(&host, args);
        assert!(
            code == 2 && error.contains(part),
            "{args:?}: {code}: {error}"
        );
    }
    assert!(!host.folder.path().join("my-rule").exists());
}
