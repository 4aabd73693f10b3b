//! Completeness checks: an unregistered scheme compiles without an error, and an undocumented one
//! is hard to find.

use ftl_core::schemes::SCHEMES;
use ftl_core::{Params, Start};
use ftld_battery::rig::{self, Rig};
use ftld_tests::suite;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn folders() -> BTreeSet<String> {
    let schemes = repository().join("ftl-core/src/schemes");
    let entries = std::fs::read_dir(&schemes)
        .unwrap_or_else(|error| panic!("{}: {error}", schemes.display()));
    let folders = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir());
    folders
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

fn document(path: &str) -> String {
    let path = repository().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the first cells of the rows of the first table after `text`.
fn documented(document: &str, text: &str) -> Vec<String> {
    let (_, document) = document.split_once(text).expect(text);
    let rows = document
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'));
    rows.skip(2)
        .map(|row| {
            row.split('`')
                .nth(1)
                .expect("a row begins with a name in backticks")
                .to_string()
        })
        .collect()
}

#[test]
fn every_folder_is_a_registered_scheme_and_every_scheme_has_a_folder() {
    let registered: BTreeSet<String> = SCHEMES
        .iter()
        .map(|scheme| scheme.name.to_string())
        .collect();
    assert_eq!(registered.len(), SCHEMES.len(), "two schemes share a name");
    assert_eq!(folders(), registered);
}

#[test]
fn every_scheme_has_one_row_in_the_documentation() {
    let registered: BTreeSet<String> = SCHEMES
        .iter()
        .map(|scheme| scheme.name.to_string())
        .collect();
    let page = document("docs/SCHEMES.md");
    for before in ["# Schemes", "Fidelity as in the descriptors"] {
        let documented = documented(&page, before);
        assert_eq!(
            documented.iter().cloned().collect::<BTreeSet<_>>(),
            registered,
            "the table after {before:?}"
        );
        assert_eq!(
            documented.len(),
            registered.len(),
            "{before:?}: a row twice"
        );
    }
    let readme = document("README.md");
    for name in &registered {
        assert!(readme.contains(&format!("`{name}`")), "README.md: {name}");
    }
    let count = format!("{} published flash translation layers", registered.len());
    assert!(readme.contains(&count), "README.md: {count}");
}

#[test]
fn descriptors_are_not_empty_and_parameter_keys_are_unique() {
    for scheme in SCHEMES {
        for text in [scheme.title, scheme.paper, scheme.mapping, scheme.ram] {
            assert!(
                !text.trim().is_empty(),
                "{}: an empty description",
                scheme.name
            );
        }
        let keys: BTreeSet<_> = scheme.all_params().map(|param| param.key).collect();
        assert_eq!(
            keys.len(),
            scheme.all_params().count(),
            "{}: a parameter twice",
            scheme.name
        );
        assert!(
            scheme.all_params().all(|param| !param.help.is_empty()),
            "{}: a parameter without help",
            scheme.name
        );
    }
}

/// Returns the bounds of a value in an error: the words, the least and the most.
fn bounds(text: &str) -> Option<(&str, u64, Option<u64>)> {
    let at = ["at least ", "within ", "between "]
        .iter()
        .find_map(|words| text.find(words))?;
    let mut numbers = text[at..]
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok());
    Some((&text[at..], numbers.next()?, numbers.next()))
}

/// The remedy that an error names is valid, and values beyond it are not.
#[test]
fn bounds_in_error_messages_are_the_accepted_bounds() {
    let mut found = 0;
    for (scheme, cells) in suite::matrix() {
        let refusal = |key: &str, value: u64| {
            let mut params = Params::default();
            params.set(key, &value.to_string());
            match Rig::laid_out(
                scheme,
                cells,
                cells.profile(),
                512,
                rig::OVER_PROVISIONING,
                params,
                suite::seed(),
            ) {
                Ok(rig) => scheme
                    .start(rig.blank(), &rig.config, Start::Format)
                    .err()
                    .map(|error| error.to_string()),
                Err(why) => Some(why),
            }
        };
        for param in scheme.all_params() {
            for wrong in [0, 1000] {
                let Some(text) = refusal(param.key, wrong) else {
                    continue;
                };
                let Some((words, least, most)) = bounds(&text) else {
                    continue;
                };
                let mut expect = |value: u64, refused: bool| {
                    let said = refusal(param.key, value).unwrap_or_default();
                    assert_eq!(
                        said.ends_with(words),
                        refused,
                        "{}: {value} beside {text:?}: {said:?}",
                        scheme.name
                    );
                    found += 1;
                };
                expect(least, false);
                if least > 0 {
                    expect(least - 1, true);
                }
                if let Some(most) = most {
                    expect(most, false);
                    expect(most + 1, true);
                }
            }
        }
    }
    assert!(found > 80, "{found} bounds are named");
}

/// A file that no program names never runs.
#[test]
fn every_file_of_the_suites_is_a_module() {
    for (folder, list) in [
        ("tests/tests/suites", "main.rs"),
        ("tests/tests/daemon", "main.rs"),
        ("tests/tests/suites/regressions", "mod.rs"),
        ("tests/battery/tests/judge", "main.rs"),
        ("nand-model/tests/suites", "main.rs"),
        ("daemon/device/tests/nbd", "main.rs"),
        ("daemon/tests/program", "main.rs"),
    ] {
        let folder = repository().join(folder);
        let modules = std::fs::read_to_string(folder.join(list)).unwrap();
        for entry in std::fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let module = name.strip_suffix(".rs").unwrap_or(&name);
            assert!(
                name == list || modules.contains(&format!("mod {module};")),
                "{name} is not in {list}"
            );
        }
    }
}

/// Doc comments of the model name the corresponding code: "Code: `path`: `function`".
#[test]
fn functions_that_the_model_names_exist() {
    let sources = repository().join("docs/models/pair-rule/src");
    let mut found = 0;
    for entry in std::fs::read_dir(&sources).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let comments = text
            .lines()
            .map(|line| line.trim().strip_prefix("///").unwrap_or("\n"));
        let comments = comments.collect::<String>();
        for names in comments
            .lines()
            .filter_map(|comment| comment.split_once("Code:"))
        {
            let (mut path, mut code) = (None, String::new());
            for name in names.1.split('`').skip(1).step_by(2) {
                if name.contains('/') {
                    code = std::fs::read_to_string(repository().join(name)).unwrap_or_default();
                    path = Some(name);
                } else {
                    let (path, file) = (path.expect("a path comes first"), file.display());
                    let is_there = ["(", "<"]
                        .iter()
                        .any(|after| code.contains(&format!("fn {name}{after}")));
                    assert!(
                        is_there,
                        "{file} names `{name}` of {path}, which has no such function"
                    );
                    found += 1;
                }
            }
        }
    }
    assert!(found > 50, "{found} functions are named");
}
