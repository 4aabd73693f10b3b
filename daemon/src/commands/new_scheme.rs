//! `ftld new-scheme`: a crate to write a scheme in, from the one in `docs/examples/my-scheme`.

use ftl_core::schemes::Scheme;
use ftld_kit::failure::Failure;
use ftld_kit::output::{print, print_json};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Address and tag of the release that this program is of.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// Name of the example, as a crate and in paths.
const EXAMPLE: (&str, &str) = ("my-scheme", "my_scheme");
/// The crates of ftld that it uses: what its manifest says, and their folders.
const CRATES: [(&str, &str); 4] = [
    ("../../../ftl-core", "ftl-core"),
    ("../../../nand-model", "nand-model"),
    ("../../../daemon", "daemon"),
    ("../../../tests/battery", "tests/battery"),
];
/// Names that the crate cannot have besides words of Rust: those of the crates that it uses.
const TAKEN: [&str; 9] = [
    "alloc",
    "core",
    "ftl-core",
    "ftld",
    "ftld-battery",
    "ftld-core",
    "nand-model",
    "std",
    "test",
];
/// Words of Rust.
const WORDS: &str = "abstract as async await become box break const continue crate do dyn else \
                     enum extern false final fn for gen if impl in let loop macro match mod move \
                     mut override priv pub ref return self static struct super trait true try type \
                     typeof unsafe unsized use virtual where while yield";

/// What the author writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    Map,
    Policy,
    Both,
}

/// `ftld new-scheme`. `clone`: the folder of ftld's source; without one, the release.
///
/// # Errors
/// The name is no name for a crate or a scheme, the folder exists, or it cannot be written.
pub(crate) fn new_scheme(
    name: &str,
    parts: Parts,
    clone: Option<&Path>,
    as_json: bool,
) -> Result<(), Failure> {
    check_name(name)?;
    let dependencies = dependencies(clone)?;
    let folder = Path::new(name);
    fs::create_dir(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Failure::failed(format!(
            "{name} exists here; use another name, or remove it"
        )),
        _ => Failure::io(name, &error),
    })?;
    let files = files(name, parts, &dependencies);
    for (path, text) in &files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.map_err(|error| Failure::io(path.display(), &error))?;
    }
    let edit = match parts {
        Parts::Map => "src/map.rs",
        Parts::Policy => "src/policy.rs",
        Parts::Both => "src/map.rs and src/policy.rs",
    };
    if as_json {
        let files: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
        return print_json("new-scheme", json!({"folder": name, "files": files}));
    }
    let beside = match parts {
        Parts::Map => format!("pagemap,{name}"),
        Parts::Policy | Parts::Both => {
            format!("{name} --set gc.policy=greedy,{}", name.replace('-', "_"))
        }
    };
    print(&format!(
        "{name}: a scheme in a crate of its own; edit {edit}. The first build takes a minute or two.\n  \
         cd {name} && cargo test -- --nocapture              judge it\n  \
         cargo run --release --features program -- compare uniform zipf --size 256MiB --scheme {beside}\n"
    ))
}

/// Checks that a crate and a scheme can have this name.
fn check_name(name: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    let why = if !begins || !name.chars().all(good) || name.len() > 32 {
        "a name has up to 32 of a-z, 0-9 and -, and begins with a letter"
    } else if TAKEN.contains(&name) || WORDS.split_whitespace().any(|word| word == name) {
        "Rust or ftld uses this name"
    } else if Scheme::find(name).is_some() {
        "ftld has a scheme of this name"
    } else {
        return Ok(());
    };
    Err(Failure::usage(format!(
        "{name:?} is no name for a new scheme: {why}"
    )))
}

/// Returns what the manifest says of each of [`CRATES`].
fn dependencies(clone: Option<&Path>) -> Result<Vec<String>, Failure> {
    let Some(clone) = clone else {
        return Ok(vec![
            format!("git = {REPOSITORY:?}, tag = {TAG:?}");
            CRATES.len()
        ]);
    };
    let source = clone.canonicalize();
    let source = source.map_err(|error| Failure::io(clone.display(), &error))?;
    let path_of = |folder: &str| {
        let path = source.join(folder);
        if !path.join("Cargo.toml").is_file() {
            let shown = clone.display();
            let text = format!("{shown} is no clone of ftld: it has no {folder}/Cargo.toml");
            return Err(Failure::usage(text));
        }
        let path = path.to_str().ok_or_else(|| {
            Failure::usage(format!("{} is not UTF-8, as a manifest is", path.display()))
        })?;
        Ok(format!("path = {}", toml::Value::from(path)))
    };
    CRATES.iter().map(|(_, folder)| path_of(folder)).collect()
}

/// Returns the files of the crate by path.
fn files(name: &str, parts: Parts, dependencies: &[String]) -> Vec<(&'static str, String)> {
    let renamed = |text: &str| {
        let named = text.replace(EXAMPLE.0, name);
        named.replace(EXAMPLE.1, &name.replace('-', "_"))
    };
    // Before the paths of the clone, which may contain the example's name.
    let mut manifest = renamed(include_str!("../../template/manifest.toml"));
    for ((path, _), dependency) in CRATES.iter().zip(dependencies) {
        manifest = manifest.replace(&format!("path = {path:?}"), dependency);
    }
    let scheme = with_parts(include_str!("../../template/lib.rs"), parts);
    let mut files = vec![
        ("src/lib.rs", scheme),
        ("src/main.rs", include_str!("../../template/main.rs").into()),
        (
            "tests/battery.rs",
            include_str!("../../template/battery.rs").into(),
        ),
    ];
    if parts != Parts::Policy {
        files.push(("src/map.rs", include_str!("../../template/map.rs").into()));
    }
    if parts != Parts::Map {
        files.push((
            "src/policy.rs",
            include_str!("../../template/policy.rs").into(),
        ));
    }
    for (_, text) in &mut files {
        *text = renamed(text);
    }
    files.insert(0, ("Cargo.toml", manifest));
    files.push((".gitignore", "/target\n".into()));
    files
}

/// Returns the source of the scheme with these parts of the author's; ftld's stand for the others.
fn with_parts(source: &str, parts: Parts) -> String {
    let (removed, changed): (&[&str], &[(&str, &str)]) = match parts {
        Parts::Both => (&[], &[]),
        Parts::Map => (
            &["mod policy;", "use policy::", "    const POLICIES:"],
            &[
                ("{NewPolicy, PageMapScheme}", "PageMapScheme"),
                (
                    "its map (`map.rs`) and its policy (`policy.rs`)",
                    "its map (`map.rs`)",
                ),
                ("its map and its policies", "and its map"),
            ],
        ),
        Parts::Policy => (
            &["mod map;", "use map::"],
            &[
                ("{NewPolicy", "{FlatMap, NewPolicy"),
                ("type Map = MyMap", "type Map = FlatMap"),
                ("8 B per logical", "4 B per logical"),
                (
                    "its map (`map.rs`) and its policy (`policy.rs`)",
                    "its policy (`policy.rs`)",
                ),
            ],
        ),
    };
    let stays = |line: &&str| !removed.iter().any(|start| line.starts_with(start));
    let kept: Vec<&str> = source.lines().filter(stays).collect();
    let mut text = kept.join("\n") + "\n";
    for (old, new) in changed {
        text = text.replace(old, new);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(path: &str, parts: Parts) -> String {
        let dependencies = dependencies(None).unwrap();
        let files = files("own-rule", parts, &dependencies);
        let found = files.into_iter().find(|(known, _)| *known == path);
        found.map(|(_, text)| text).unwrap_or_default()
    }

    #[test]
    fn a_crate_has_its_name_and_the_release() {
        let manifest = text_of("Cargo.toml", Parts::Both);
        assert!(manifest.contains("name = \"own-rule\""), "{manifest}");
        assert_eq!(manifest.matches("git = ").count(), 4, "{manifest}");
        assert!(!manifest.contains("path = \".."), "{manifest}");
        assert!(text_of("src/main.rs", Parts::Both).contains("own_rule::SCHEME"));
        for path in [
            "src/lib.rs",
            "src/main.rs",
            "tests/battery.rs",
            "Cargo.toml",
        ] {
            let text = text_of(path, Parts::Both);
            assert!(
                !text.contains(EXAMPLE.0) && !text.contains(EXAMPLE.1),
                "{text}"
            );
        }
    }

    #[test]
    fn a_crate_has_the_parts_that_were_asked_for() {
        let both = text_of("src/lib.rs", Parts::Both);
        assert_eq!(
            both,
            include_str!("../../template/lib.rs").replace("my-scheme", "own-rule")
        );
        let map = text_of("src/lib.rs", Parts::Map);
        assert!(
            map.contains("type Map = MyMap") && !map.to_lowercase().contains("policy"),
            "{map}"
        );
        assert!(text_of("src/policy.rs", Parts::Map).is_empty());
        let policy = text_of("src/lib.rs", Parts::Policy);
        let has_no_map = !policy.contains("MyMap") && !policy.contains("map.rs");
        assert!(
            policy.contains("type Map = FlatMap") && has_no_map,
            "{policy}"
        );
        assert!(text_of("src/map.rs", Parts::Policy).is_empty());
        assert!(!text_of("src/policy.rs", Parts::Policy).is_empty());
    }

    #[test]
    fn a_name_that_cargo_or_the_table_refuses_is_refused() {
        for name in [
            "",
            "My-Scheme",
            "2q",
            "a_b",
            "a/b",
            "-",
            "match",
            "std",
            "dftl",
            "ftld",
        ] {
            let error = check_name(name).unwrap_err().message;
            assert!(error.contains("is no name for a new scheme"), "{error}");
        }
        assert!(check_name("my-scheme").is_ok() && check_name("sepbit2").is_ok());
    }
}
