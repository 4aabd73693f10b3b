//! Plans as text: [`Device`] and [`Parts`] on the first line, then a [`Step`] per line.

use super::{Device, Parts, Plan, Step};
use crate::plan_text;
use ftl_core::schemes::Scheme;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fmt::{Display, Formatter};

/// Maximum pages of a handwritten device: such a run takes minutes.
const MOST_PAGES: u32 = 1 << 20;

/// The first line.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Head {
    seed: u64,
    scheme: String,
    device: Device,
    #[serde(default, skip_serializing_if = "plan_text::is_default")]
    parts: Parts,
}

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let head = Head {
            seed: self.seed,
            scheme: self.scheme.name.to_owned(),
            device: self.device.clone(),
            parts: self.parts.clone(),
        };
        plan_text::write(f, &head, &self.steps)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&plan_text::line(self))
    }
}

impl Plan {
    /// Reads the text form of a plan for one of `schemes`.
    ///
    /// # Errors
    /// They name the line, the wrong word, and the valid ones.
    pub fn parse(text: &str, schemes: &'static [Scheme]) -> Result<Plan, String> {
        let (head, steps): (Head, Vec<Step>) = plan_text::read(text)?;
        let Head {
            seed,
            scheme,
            device,
            parts,
        } = head;
        if !(1..=MOST_PAGES).contains(&device.pages) {
            let pages = device.pages;
            return Err(format!(
                "device: {pages} pages are not within 1 to {MOST_PAGES}"
            ));
        }
        let mut keys = BTreeSet::new();
        let params = device.params.iter().map(|(key, _)| &**key);
        let faults = parts.rates.iter().map(|(fault, _)| fault.name());
        for key in params.chain(faults) {
            if !keys.insert(key) {
                return Err(format!("{key} is given twice"));
            }
        }
        for (step, number) in steps.iter().zip(1..) {
            device
                .has_room_for(step)
                .map_err(|why| format!("step {number}: {why}"))?;
        }
        Ok(Plan {
            seed,
            scheme: named(&scheme, schemes)?,
            device,
            parts,
            steps,
        })
    }
}

/// The scheme of this name.
fn named(name: &str, schemes: &'static [Scheme]) -> Result<&'static Scheme, String> {
    let names = || {
        let names: Vec<_> = schemes.iter().map(|scheme| scheme.name).collect();
        names.join(", ")
    };
    let found = schemes.iter().find(|scheme| scheme.name == name);
    found.ok_or_else(|| format!("no scheme {name:?}; there are {}", names()))
}

#[cfg(test)]
mod tests {
    use crate::swarm::plan::Plan;
    use ftl_core::schemes::SCHEMES;

    fn refusal(text: &str) -> String {
        Plan::parse(text, SCHEMES).err().unwrap_or_default()
    }

    #[test]
    fn every_plan_text_parses_back_unchanged() {
        for seed in 0..2_000 {
            let plan = Plan::draw(SCHEMES, seed);
            let text = plan.to_string();
            let again = Plan::parse(&text, SCHEMES).unwrap_or_else(|why| panic!("{why}\n{text}"));
            assert_eq!(again.to_string(), text);
            let (before, after) = (&plan, &again);
            assert_eq!(
                (before.seed, before.scheme.name),
                (after.seed, after.scheme.name)
            );
            assert_eq!(
                (&before.device, &before.parts),
                (&after.device, &after.parts)
            );
            assert!(before.steps == after.steps, "{text}");
        }
    }

    #[test]
    fn values_given_twice_are_refused_by_name() {
        let head = r#"{"seed":1,"scheme":"dftl","device":{"chip":"mlc","pages_per_block":16,"dies":[1,1],"pages":80,"op_percent":7"#;
        assert_eq!(refusal(&format!("{head}}}}}\n\"sync\"")), "");
        for (tail, twice) in [
            (r#","op_percent":7}}"#, "`op_percent`"),
            (r#"},"seed":3}"#, "`seed`"),
            (
                r#","params":[["dftl.cache","1"],["dftl.cache","2"]]}}"#,
                "dftl.cache is given twice",
            ),
            (
                r#"},"parts":{"rates":[["stale_read",1],["stale_read",2]]}}"#,
                "stale_read is given twice",
            ),
        ] {
            let why = refusal(&format!("{head}{tail}"));
            assert!(why.ends_with(twice), "{twice}: {why}");
        }
    }

    #[test]
    fn invalid_lines_are_refused_with_their_number_and_the_valid_words() {
        let plan = Plan::draw(SCHEMES, 1).to_string();
        let lines = plan.lines().count();
        for (step, why) in [
            (
                r#"{"wrote":[3,4]}"#,
                "unknown variant `wrote`, expected one of `do`, `batch`, `cut`,",
            ),
            (r#"{"do":{"write":{"lpn":3}}}"#, "missing field `count`"),
            (
                r#"{"do":{"trim":{"lpn":3,"count":1,"fua":true}}}"#,
                "unknown field `fua`, expected `lpn` or `count`",
            ),
            (
                r#"{"down":["kill",{"within":[]}]}"#,
                "unknown field `within`, expected `crash` or `inside`",
            ),
            (r#"{"age":-1}"#, "invalid value: integer `-1`, expected u32"),
            ("flush", "; a plan has one JSON value per line"),
        ] {
            let refusal = refusal(&format!("# A comment.\n{plan}{step}\n"));
            let line = format!("line {}, column ", lines + 2);
            assert!(
                refusal.starts_with(&line) && refusal.contains(why),
                "{step}: {refusal}"
            );
        }
        for (old, new, why) in [
            (r#""scheme":""#, r#""scheme":"x"#, "no scheme \"x"),
            (
                r#""pages":"#,
                r#""pages":9999"#,
                " pages are not within 1 to 1048576",
            ),
        ] {
            let refusal = refusal(&plan.replacen(old, new, 1));
            assert!(refusal.contains(why), "{why}: {refusal}");
        }
    }
}
