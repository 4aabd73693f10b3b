//! The text form of a plan, one line per step, so that a shrunk failure can be kept and read.
//!
//! Lines: `seed N`, `device KEY=VALUE...`, `param KEY=VALUE`, `chance FAULT PPB`, `wear N`, `bits
//! N`, `in_flight`, then the steps. Faults inside a restart follow its step after `;`. Empty lines
//! and lines that begin with `#` are ignored. README.md beside has a table of them.

mod read;
mod write;

#[cfg(test)]
mod tests {
    use crate::swarm::plan::{Plan, Step};
    use ftl_core::schemes::SCHEMES;

    #[test]
    fn every_plan_text_parses_back_unchanged() {
        for seed in 0..2_000 {
            let text = Plan::draw(SCHEMES, seed).to_string();
            let again = Plan::parse(&text, SCHEMES).unwrap_or_else(|why| panic!("{why}\n{text}"));
            assert_eq!(again.to_string(), text);
        }
    }

    #[test]
    fn duplicate_lines_are_refused_with_their_line_number() {
        let plan = Plan::draw(SCHEMES, 1).to_string();
        let device = plan
            .lines()
            .find(|line| line.starts_with("device"))
            .expect("a device");
        for twice in [
            "seed 3",
            device,
            "chance stale_read 1\nchance stale_read 2",
            "param x=1\nparam x=2",
        ] {
            let why = Plan::parse(&format!("{plan}{twice}\n"), SCHEMES)
                .err()
                .unwrap_or_default();
            assert!(
                why.starts_with("line ") && why.ends_with(" is given twice"),
                "{twice}: {why}"
            );
        }
        let again = plan.replacen(device, &format!("{device} op=7"), 1);
        let why = Plan::parse(&again, SCHEMES).err().unwrap_or_default();
        assert!(why.starts_with("line 2: device: op"), "{why}");
    }

    #[test]
    fn invalid_step_lines_are_refused() {
        for line in [
            "wrote 3 4",
            "write 3",
            "cut 1 torn intact mixed 3",
            "down kill ; inside what",
            "flush now",
        ] {
            assert!(line.parse::<Step>().is_err(), "{line}");
        }
    }
}
