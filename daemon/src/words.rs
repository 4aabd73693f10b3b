//! Words that complete a command line, for the scripts that `ftld completions` prints: names of
//! instances, and parameters of the schemes that the line chooses.

use crate::start;
use clap::ValueEnum;
use ftl_core::schemes::{self, SCHEMES, Scheme};
use ftld_device::instance::Dirs;
use ftld_device::preset::Preset;
use ftld_kit::failure::Failure;
use ftld_kit::output::print;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// What to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WordsOf {
    /// Names of instances, running or not
    Instances,
    /// Names of running instances
    Running,
    /// Names of instances that can start, or be removed
    Stopped,
    /// `KEY=` of the schemes that the line chooses
    Parameters,
}

/// `ftld words`: the words, a line each.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn words(dirs: &Dirs, of: WordsOf, line: &[OsString]) -> Result<(), Failure> {
    let found = match of {
        WordsOf::Parameters => parameters(line),
        of => instances(dirs, of),
    };
    let lines = found.iter().map(|word| format!("{word}\n"));
    print(&lines.collect::<String>())
}

fn instances(dirs: &Dirs, of: WordsOf) -> BTreeSet<String> {
    let names = dirs.names().into_iter().chain(start::names(dirs));
    let is_asked = |name: &String| match of {
        WordsOf::Running => dirs.holder(name).is_some(),
        WordsOf::Stopped => dirs.holder(name).is_none() && !dirs.is_of_another_user(name),
        _ => true,
    };
    names.filter(is_asked).collect()
}

/// Returns the keys of the schemes that the line names, directly or by a preset. Without a name
/// those of the default scheme; a comparison is of all.
fn parameters(line: &[OsString]) -> BTreeSet<String> {
    let words: Vec<_> = line.iter().filter_map(|word| word.to_str()).collect();
    let chosen = |option: &str| {
        let at = words.iter().rposition(|word| word.starts_with(option))?;
        let value = match words[at].strip_prefix(option)? {
            // bash makes a word of the sign.
            "" => *words[at + 1..].iter().find(|word| **word != "=")?,
            value => value.strip_prefix('=')?,
        };
        Some(value.split(','))
    };
    let by_preset = chosen("--preset").into_iter().flatten();
    let by_preset = by_preset.filter_map(|name| Some(Preset::find(name).ok()?.scheme));
    let names: Vec<_> = match chosen("--scheme") {
        Some(names) => names.collect(),
        None => by_preset.collect(),
    };
    let mut schemes: Vec<&Scheme> = names.into_iter().filter_map(Scheme::find).collect();
    if schemes.is_empty() {
        match words.contains(&"compare") {
            true => schemes.extend(schemes::all()),
            false => schemes.push(&SCHEMES[0]),
        }
    }
    let params = schemes.iter().flat_map(|scheme| scheme.all_params());
    params.map(|param| format!("{}=", param.key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_the_chosen_schemes() {
        let keys =
            |line: &str| parameters(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let dftl = keys("ftld create --scheme dftl --set");
        assert!(dftl.contains("dftl.cache=") && !dftl.contains("lazy.cache_pages="));
        for same in [
            "ftld --scheme=dftl --set",
            "ftld --scheme = dftl --set",
            "ftld --preset dftl-paper --set",
        ] {
            assert_eq!(keys(same), dftl, "{same}");
        }
        let default = keys("ftld --set");
        assert!(default.contains("lazy.cache_pages=") && !default.contains("dftl.cache="));
        let both = keys("ftld compare uniform --scheme lazyftl,dftl --set");
        assert!(both.is_superset(&dftl) && both.is_superset(&default));
        assert!(keys("ftld compare uniform --set").len() > both.len());
        assert_eq!(keys("ftld --scheme none --set"), default);
    }
}
