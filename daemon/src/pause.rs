//! `ftld pause`, `step` and `resume`: the device itself stands still for those who want to look at
//! it, for a limited time. Requests wait meanwhile and none fails ([`crate::volume`]); everything
//! that only looks goes on.

use crate::failure::Failure;
use crate::volume::{PAUSE_MAX, Step, Volume};
use ftl_core::Event;
use nand_model::Store;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long the answer to a step waits for the step to be done. Without requests it never is.
const STEP_PATIENCE: Duration = Duration::from_secs(5);
/// Events that the answer tells of.
const EVENTS_TOLD: usize = 20;

/// What is asked of a device.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// Stand still for so many seconds.
    Pause(f64),
    /// Go on until so many events were noted, and stand still again.
    Events(u64),
    /// Go on until so many requests were served, and stand still again.
    Requests(u64),
    /// Go on.
    Resume,
}

impl Turn {
    /// Does it. Blocks: until the extent at hand is done, or for a step, for some seconds.
    pub(crate) fn apply<S: Store + 'static>(&self, volume: &Volume<S>) -> Result<Value, Failure> {
        match *self {
            Turn::Pause(seconds) => {
                volume.pause(length(seconds)?)?;
                Ok(
                    json!({"paused": true, "text": format!("paused for {seconds} s; requests wait, `ftld step` and `ftld resume` go on")}),
                )
            }
            Turn::Events(count) => step(volume, Step::Events(count)),
            Turn::Requests(count) => step(volume, Step::Requests(count)),
            Turn::Resume => {
                let was = volume.resume();
                Ok(json!({"paused": false, "text": if was { "goes on" } else { "was not paused" }}))
            }
        }
    }
}

/// The time of a pause, if a pause may last so long.
///
/// # Errors
/// The time is not above zero, or longer than a pause may last.
pub fn length(seconds: f64) -> Result<Duration, Failure> {
    let length = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|length| !length.is_zero() && *length <= PAUSE_MAX);
    length.ok_or_else(|| {
        let most = PAUSE_MAX.as_secs();
        Failure::usage(format!(
            "a pause of {seconds} s: a pause lasts more than 0 and at most {most} s"
        ))
    })
}

fn step<S: Store + 'static>(volume: &Volume<S>, step: Step) -> Result<Value, Failure> {
    let from = volume.step(step)?;
    let until = Instant::now() + STEP_PATIENCE;
    let stepping = || volume.paused().is_some_and(|pause| pause.stepping);
    while stepping() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let noted = volume.noted_since(from, EVENTS_TOLD);
    let text = match (stepping(), noted.is_empty()) {
        (true, _) => "goes on until the step is done: nothing asks it to",
        (false, true) => "one step further, without an event",
        (false, false) => "one step further",
    };
    let told = |(number, event): &(u64, Event)| {
        json!({
            "number": number, "kind": event.kind.name(), "block": event.block.map(|block| block.raw()), "pages": event.pages,
            "began_ns": event.at, "took_ns": event.took,
        })
    };
    let events: Vec<_> = noted.iter().map(told).collect();
    Ok(json!({"paused": true, "stepping": stepping(), "events": events, "text": text}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_has_a_limit() {
        assert_eq!(length(1.5).unwrap(), Duration::from_millis(1500));
        for wrong in [0.0, -1.0, 600.1, f64::NAN, f64::INFINITY, 1e300] {
            assert!(
                length(wrong).unwrap_err().message.contains("at most 600 s"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn turns_are_plain_json() {
        for (turn, text) in [
            (Turn::Pause(30.0), r#"{"pause":30.0}"#),
            (Turn::Events(1), r#"{"events":1}"#),
            (Turn::Resume, r#""resume""#),
        ] {
            assert_eq!(serde_json::to_string(&turn).unwrap(), text);
            assert_eq!(serde_json::from_str::<Turn>(text).unwrap(), turn);
        }
    }
}
