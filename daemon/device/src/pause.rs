//! `ftld pause`, `step` and `resume`: pause the device for inspection, for a limited time. Requests
//! wait meanwhile and none fails ([`crate::volume`]); read-only inspection continues.

use crate::volume::write_cache::Outcome;
use crate::volume::{PAUSE_MAX, Step, Volume};
use ftl_core::Event;
use ftld_kit::convert::to_u64;
use ftld_kit::failure::Failure;
use ftld_kit::output::counted;
use nand_model::Pbn;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Longest wait for a step to finish. A step without requests, or whose requests cause no event,
/// does not finish.
const STEP_PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of events in the answer.
const EVENTS_TOLD: usize = 20;

/// Pause commands to a device.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum PauseCommand {
    /// Pause for this number of seconds.
    Pause(f64),
    /// Resume until this number of events was noted, then pause again.
    Events(u64),
    /// Resume until this number of requests was served, then pause again.
    Requests(u64),
    /// Resume.
    Resume,
    /// While paused: answer what a power cut with this seed would leave of the write cache.
    CacheOutcome(Option<u64>),
}

/// Answer to a command. It has no tag: its variant follows from the command.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PauseAnswer {
    /// To a command that pauses, steps or resumes.
    State(PauseState),
    /// To [`PauseCommand::CacheOutcome`].
    Cache(CacheOutcome),
}

/// State of a device after a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PauseState {
    /// Whether it is paused.
    pub(crate) paused: bool,
    /// Whether the step is still in progress; only after a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stepping: Option<bool>,
    /// Newest events of the step; only after a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<NotedEvent>>,
    /// The state in words.
    pub text: String,
}

/// An event of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotedEvent {
    /// The shard.
    pub(crate) shard: usize,
    /// Number among the events of its shard.
    pub number: u64,
    /// Kind of operation.
    pub kind: String,
    /// See [`Event::block`].
    pub block: Option<u32>,
    /// Pages copied or written.
    pub pages: u32,
    /// Emulated start time, ns.
    pub(crate) began_ns: u64,
    /// Emulated duration, ns.
    pub took_ns: u64,
}

/// What a power cut would leave of the write cache; `None` without one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheOutcome {
    /// The outcome.
    pub outcome: Option<Outcome>,
}

impl PauseState {
    fn of(paused: bool, text: String) -> PauseAnswer {
        PauseAnswer::State(PauseState {
            paused,
            text,
            ..PauseState::default()
        })
    }
}

impl PauseCommand {
    /// Executes the command. Blocks until the extent in progress is done, or some seconds for a
    /// step.
    ///
    /// # Errors
    /// The device is not paused, or the length is out of range.
    pub fn apply(&self, volume: &Volume) -> Result<PauseAnswer, Failure> {
        match *self {
            PauseCommand::Pause(seconds) => {
                volume.pause(length(seconds)?)?;
                let text = format!("paused for {seconds} s; requests wait; `ftld resume` ends it");
                Ok(PauseState::of(true, text))
            }
            PauseCommand::Events(count) => step(volume, Step::Events(count)),
            PauseCommand::Requests(count) => step(volume, Step::Requests(count)),
            PauseCommand::CacheOutcome(seed) => {
                let outcome = volume.cache_outcome(seed)?;
                Ok(PauseAnswer::Cache(CacheOutcome { outcome }))
            }
            PauseCommand::Resume => Ok(match volume.resume() {
                true => PauseState::of(false, "resumed".into()),
                false => PauseState::of(false, "was not paused".into()),
            }),
        }
    }
}

/// Returns the length of a pause, if it is within the limit.
///
/// # Errors
/// The length is not above zero, or exceeds the limit.
pub fn length(seconds: f64) -> Result<Duration, Failure> {
    let length = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|length| !length.is_zero() && *length <= PAUSE_MAX);
    let most = PAUSE_MAX.as_secs();
    let text = format!("a pause of {seconds} s: a pause lasts more than 0 and at most {most} s");
    length.ok_or_else(|| Failure::usage(text))
}

fn step(volume: &Volume, step: Step) -> Result<PauseAnswer, Failure> {
    let from = volume.step(step)?;
    let until = Instant::now() + STEP_PATIENCE;
    let stepping = || volume.paused().is_some_and(|pause| pause.stepping);
    while stepping() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let noted = volume.noted_since(&from, EVENTS_TOLD);
    let text: String = match (stepping(), to_u64(noted.len()), step) {
        (true, _, _) => {
            "step pending: it goes on until its events or requests have come; `ftld pause` ends it"
                .into()
        }
        (false, 0, _) => "step done, without an event".into(),
        // An extent is executed completely, so more events than wanted may come.
        (false, came, Step::Events(wanted)) if came > wanted => {
            let last = counted(came - wanted, "more event");
            format!("step done; the request that caused the last one caused {last}")
        }
        (false, _, _) => "step done".to_owned(),
    };
    let told = |(shard, number, event): &(usize, u64, Event)| NotedEvent {
        shard: *shard,
        number: *number,
        kind: event.kind.name().into(),
        block: event.block.map(Pbn::raw),
        pages: event.pages,
        began_ns: event.at,
        took_ns: event.took,
    };
    Ok(PauseAnswer::State(PauseState {
        paused: true,
        stepping: Some(stepping()),
        events: Some(noted.iter().map(told).collect()),
        text,
    }))
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
        for (command, text) in [
            (PauseCommand::Pause(30.0), r#"{"pause":30.0}"#),
            (PauseCommand::Events(1), r#"{"events":1}"#),
            (PauseCommand::Resume, r#""resume""#),
            (
                PauseCommand::CacheOutcome(None),
                r#"{"cache-outcome":null}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&command).unwrap(), text);
            assert_eq!(serde_json::from_str::<PauseCommand>(text).unwrap(), command);
        }
    }
}
