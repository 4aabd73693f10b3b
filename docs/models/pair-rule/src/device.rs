//! The device as a transition system for the model checker.

use crate::flash::{Content, Data, EraseCut, Fate, Label, Page, Stream, Use};
use crate::provisional;
use crate::space::{KEPT, Op};
use crate::state::{Allowed, Breach, Config, LPNS, Phase, SeededError, State, slot_of};
use stateright::{Model, Property};

/// Who asks for a flash operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum By {
    /// The host writes a logical page; a page that it had is overwritten. Code:
    /// `ftl-core/src/families/page_ram/mod.rs`: `write_page`; `ftl-core/src/space/append.rs`:
    /// `append_page`.
    Write,
    /// A stream is about to open a block whose last erase may have been interrupted. Code:
    /// `ftl-core/src/space/open.rs`: `allocate_block`.
    Open,
    /// FLUSH: pads the host's block until it is safe, then acknowledges. Code:
    /// `ftl-core/src/families/page_ram/mod.rs`: `make_durable`; `ftl-core/src/space/padding.rs`:
    /// `make_stream_safe`.
    Flush,
    /// Garbage collection moves the valid pages of a victim, then releases it. Code:
    /// `ftl-core/src/gc/collector.rs`: `evacuate`; `ftl-core/src/families/page_ram/reclaim.rs`:
    /// `copy_valid`; `ftl-core/src/space/release.rs`: `release`.
    Collect,
    /// Padding for released blocks that wait. Code: `ftl-core/src/space/padding.rs`:
    /// `pad_released`, `pad_oldest_released`.
    Hurry,
    /// The erase of a released block. Code: `ftl-core/src/space/release.rs`: `erase_one_released`.
    Reclaim,
    /// A checkpoint: makes everything safe, then names it. Code: `ftl-core/src/checkpoint/sets.rs`:
    /// `write`.
    Checkpoint,
    /// A mount. Code: `ftl-core/src/families/page_ram/recovery.rs`: `mount_from_checkpoint`.
    Mount,
}

/// A transition.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// One flash operation, which may be cut.
    Flash(By, Op, Fate),
    /// FLUSH finds everything safe and acknowledges at once.
    FlushSafe,
    /// Garbage collection chooses this victim. Code: `ftl-core/src/gc/collector.rs`: `collect`.
    Choose(usize),
    /// A block without valid pages is released. Code: `ftl-core/src/space/release.rs`: `release`.
    Release(usize),
    /// Power is back, and the mount reads the flash. Each unstable page, in the order of blocks and
    /// pages, reads well (0), has only its record left (1), or is lost (2).
    PowerOn(Vec<u8>),
}

impl Action {
    /// The action in the words of a trace; blocks by their names.
    pub fn describe(&self, state: &State) -> String {
        let name = |at: usize| format!("B{}", state.blocks[at].name.0);
        match self {
            Action::Flash(by, op, fate) => {
                let op = match op {
                    Op::Program(_, at, content) => {
                        format!(
                            "program {} in {}",
                            Page {
                                content: *content,
                                ..Page::BLANK
                            },
                            name(*at)
                        )
                    }
                    Op::Erase(at) => format!("erase {}", name(*at)),
                };
                let fate = match fate {
                    Fate::Done => String::new(),
                    Fate::ProgramCut(page, partner) => {
                        format!(" -- POWER CUT: page {page:?}, LSB partner {partner:?}")
                    }
                    Fate::EraseCut(EraseCut::Mixed(kept)) => {
                        format!(" -- POWER CUT: pages {kept:#b} survive")
                    }
                    Fate::EraseCut(cut) => format!(" -- POWER CUT: erase {cut:?}"),
                };
                format!("{by:?}: {op}{fate}")
            }
            Action::FlushSafe => "Flush: acknowledged".to_string(),
            Action::Choose(at) => format!("Collect: the victim is {}", name(*at)),
            Action::Release(at) => format!("Release: {}", name(*at)),
            Action::PowerOn(outcomes) if outcomes.is_empty() => {
                "power on: mount reads the flash".to_string()
            }
            Action::PowerOn(outcomes) => {
                let read =
                    |outcome: &u8| ["reads well", "keeps its record", "is lost"][*outcome as usize];
                let outcomes: Vec<&str> = outcomes.iter().map(read).collect();
                format!(
                    "power on: mount reads the flash; each unstable page: {}",
                    outcomes.join(", ")
                )
            }
        }
    }
}

/// The device.
pub struct Device {
    /// Its shape.
    pub config: Config,
}

impl Device {
    /// Returns the next operation of the requests in progress, or of the mount. Executes steps in
    /// RAM on the way.
    fn next_op(&self, state: &mut State) -> Option<(By, Op)> {
        let config = &self.config;
        match state.phase {
            Phase::Flushing => match state.make_stream_safe(config, Stream::Host) {
                Some(op) => Some((By::Flush, op)),
                None => {
                    acknowledge_flush(state);
                    None
                }
            },
            Phase::Checkpointing => self.checkpoint_op(state).map(|op| (By::Checkpoint, op)),
            Phase::Collecting => {
                let victim = state
                    .blocks
                    .iter()
                    .position(|block| block.used == Use::Victim)
                    .expect("one was chosen");
                match state.evacuate_op(config, victim) {
                    Ok(Some(op)) => Some((By::Collect, op)),
                    Ok(None) => {
                        state.phase = Phase::Serving;
                        None
                    }
                    Err(_) => unreachable!("a victim was chosen without room for its pages"),
                }
            }
            Phase::Mounting(_) => state.mount_op(config).map(|op| (By::Mount, op)),
            Phase::Serving | Phase::Off | Phase::Broken(_) => None,
        }
    }

    fn checkpoint_op(&self, state: &mut State) -> Option<Op> {
        let config = &self.config;
        let holds_set =
            |block: &crate::flash::Block| block.pages.iter().any(|page| slot_of(page).is_some());
        let programmed = state.blocks.iter().position(|block| {
            let ours = matches!(
                block.used,
                Use::Open {
                    stream: Stream::Checkpoint,
                    ..
                } | Use::Full
            );
            ours && holds_set(block)
        });
        let Some(at) = programmed else {
            // The set names pages: once it is valid, none of them may be lost.
            if let Some(pad) = state
                .make_safe(config)
                .filter(|_| !config.lacks(SeededError::CheckpointNamesUnsafe))
            {
                return Some(pad);
            }
            let slot = state
                .pages()
                .filter_map(slot_of)
                .max()
                .map_or(0, |slot| slot + 1);
            let set = Content::Set {
                slot,
                seq: state.last_seq() + 1,
            };
            return state.append(config, Stream::Checkpoint, set).ok();
        };
        if let Some(pad) = state.make_stream_safe(config, Stream::Checkpoint) {
            return Some(pad);
        }
        state.blocks[at].used = Use::Set;
        let mut kept: Vec<usize> = (0..state.blocks.len())
            .filter(|at| state.blocks[*at].used == Use::Set)
            .collect();
        kept.sort_by_key(|at| state.blocks[*at].pages.iter().filter_map(slot_of).max());
        let old = kept.len().saturating_sub(KEPT);
        kept.into_iter().take(old).for_each(|at| state.release(at));
        state.phase = Phase::Serving;
        None
    }

    fn serving(&self, state: &State, out: &mut Vec<Action>) {
        let (config, wanted) = (&self.config, self.config.threshold + 1);
        let free = state.free_blocks();
        let mut ops = Vec::new();
        let mut append = |by: By, stream: Stream, content: Content| {
            if state.room(config, stream) > 0 || free >= wanted {
                match state.append(config, stream, content) {
                    Ok(op @ Op::Erase(_)) if !ops.contains(&(By::Open, op)) => {
                        ops.push((By::Open, op))
                    }
                    Ok(op @ Op::Program(..)) => ops.push((by, op)),
                    _ => {}
                }
            }
        };
        if state.writes > 0 {
            for lpn in 0..LPNS as u8 {
                let (ver, seq) = (state.highest(lpn) + 1, state.last_seq() + 1);
                let label = Label(if config.writes == u8::MAX {
                    0
                } else {
                    config.writes - state.writes + 1
                });
                let data = Data {
                    lpn,
                    ver,
                    seq,
                    provisional: false,
                    torn: false,
                    label,
                };
                append(By::Write, Stream::Host, Content::Data(data));
            }
        }
        if state.released_blocks() > 0 && state.should_hurry(config, wanted, 0) {
            ops.extend(state.make_safe(config).map(|op| (By::Hurry, op)));
        }
        ops.extend(
            state
                .erasable(config)
                .map(|at| (By::Reclaim, Op::Erase(at))),
        );
        for (by, op) in ops {
            out.extend(
                state
                    .fates(config, op)
                    .into_iter()
                    .map(|fate| Action::Flash(by, op, fate)),
            );
        }
        if let Some(pad) = state.make_stream_safe(config, Stream::Host)
            && !config.lacks(SeededError::FlushWithoutPads)
        {
            out.extend(
                state
                    .fates(config, pad)
                    .into_iter()
                    .map(|fate| Action::Flash(By::Flush, pad, fate)),
            );
        } else {
            out.push(Action::FlushSafe);
        }
        if state.sets > 0 && free >= wanted {
            let mut begun = State {
                phase: Phase::Checkpointing,
                ..state.clone()
            };
            if let Some(op) = self.checkpoint_op(&mut begun) {
                out.extend(
                    state
                        .fates(config, op)
                        .into_iter()
                        .map(|fate| Action::Flash(By::Checkpoint, op, fate)),
                );
            }
        }
        for at in 0..state.blocks.len() {
            let block = &state.blocks[at];
            if block.used == Use::Full && block.valid() == 0 {
                out.push(Action::Release(at));
            } else if block.used == Use::Full
                && free < wanted
                && !state.should_hurry(config, wanted, 0)
                && state.blocks_to_move(config, at) <= free
            {
                out.push(Action::Choose(at));
            }
        }
    }
}

/// Everything acknowledged is safe: it is the least that a later mount may return.
fn acknowledge_flush(state: &mut State) {
    for lpn in 0..LPNS as u8 {
        let (ver, _) = state.current(lpn);
        state.allowed[lpn as usize] = Allowed {
            floor: ver,
            ceiling: ver.max(state.highest(lpn)),
        };
    }
    state.phase = Phase::Serving;
}

impl Model for Device {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![
            State::empty(&self.config),
            State::shared(&self.config),
            State::spread(&self.config),
        ]
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        match state.phase {
            Phase::Serving => self.serving(state, out),
            Phase::Off => {
                let unstable: Vec<_> = state.pages().filter(|page| page.unstable).collect();
                let mut choices = vec![Vec::new()];
                for page in unstable {
                    let outcomes: &[u8] = if page.data().is_some() {
                        &[0, 1, 2]
                    } else {
                        &[0, 2]
                    };
                    choices = choices
                        .iter()
                        .flat_map(|before: &Vec<u8>| {
                            outcomes
                                .iter()
                                .map(|outcome| before.iter().copied().chain([*outcome]).collect())
                        })
                        .collect();
                }
                out.extend(choices.into_iter().map(Action::PowerOn));
            }
            Phase::Broken(_) => {}
            _ => {
                let mut next = state.clone();
                let (by, op) = self
                    .next_op(&mut next)
                    .expect("states are left with an operation to do");
                out.extend(
                    state
                        .fates(&self.config, op)
                        .into_iter()
                        .map(|fate| Action::Flash(by, op, fate)),
                );
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let (config, mut state) = (&self.config, last.clone());
        match action {
            Action::Flash(by, op, fate) => {
                match by {
                    By::Write => state.writes -= (state.writes < u8::MAX) as u8,
                    By::Flush => state.phase = Phase::Flushing,
                    By::Checkpoint if state.phase == Phase::Serving => {
                        state.phase = Phase::Checkpointing;
                        state.sets -= 1;
                    }
                    By::Mount => {
                        // The steps in RAM on the way to this operation.
                        self.next_op(&mut state);
                    }
                    _ => {}
                }
                state.carry_out(config, op, fate);
            }
            Action::FlushSafe => acknowledge_flush(&mut state),
            Action::Choose(at) => {
                state.blocks[at].used = Use::Victim;
                state.phase = Phase::Collecting;
            }
            Action::Release(at) => state.release(at),
            Action::PowerOn(outcomes) => {
                let unstable = state.pages_mut().filter(|page| page.unstable);
                for (page, outcome) in unstable.zip(outcomes) {
                    match (outcome, &mut page.content) {
                        (0, _) => {}
                        (1, Content::Data(data)) => {
                            data.torn = true;
                            page.unstable = false;
                        }
                        _ => crate::space::lose(page),
                    }
                }
                state.read_flash(config);
            }
        }
        // Requests that need no further operation end here.
        let mut after = state.clone();
        if self.next_op(&mut after).is_none() {
            state = after;
        }
        state.normalise(config);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Device>> {
        let mut properties = vec![
            Property::always(
                "a mount returns what was flushed, or a later version",
                |_, state: &State| !matches!(state.phase, Phase::Broken(Breach::Returned(_))),
            ),
            Property::always(
                "a readable copy of everything flushed is on flash",
                |_, state: &State| state.bereft().is_none(),
            ),
            Property::always("a mount ends and finds a free block", |_, state: &State| {
                state.phase != Phase::Broken(Breach::Stuck)
            }),
            Property::always(
                "nothing is programmed after an interrupted erase",
                |_, state: &State| state.phase != Phase::Broken(Breach::Weak),
            ),
            Property::always(
                "nothing that the mapping table names is lost",
                |_, state: &State| state.pages().all(|page| !page.valid || page.has_record()),
            ),
            Property::sometimes(
                "a cut destroys a page that was complete",
                |device: &Device, state: &State| {
                    state.blocks.iter().any(|block| {
                        let last = block
                            .frontier
                            .checked_sub(1)
                            .filter(|last| block.pages[*last as usize].has_record());
                        let lost = |page: u32| block.pages[page as usize].content == Content::Lost;
                        last.is_some_and(|last| device.config.pairs.victims(last as u32).any(lost))
                            && !block.weak
                    })
                },
            ),
            Property::sometimes(
                "a released block waits for its erase",
                |device: &Device, state: &State| {
                    state.phase == Phase::Serving
                        && state.released_blocks() as usize > state.erasable(&device.config).count()
                },
            ),
            Property::sometimes("a mount withholds a block", |_, state: &State| {
                state.blocks.iter().any(|block| block.used == Use::Withheld)
            }),
            Property::sometimes("a mount moves a victim's pages", |_, state: &State| {
                state.is_mounting() && state.blocks.iter().any(|block| block.used == Use::Victim)
            }),
        ];
        if self.config.kept_back > 0 {
            properties.push(Property::sometimes(
                "a mount passes over another's pages",
                |device: &Device, state: &State| {
                    state.is_mounting()
                        && state.blocks.iter().any(|block| {
                            let standing = provisional::committed_pages(&device.config, block);
                            let provisional = |at: usize| {
                                block.pages[at].data().is_some_and(|data| data.provisional)
                            };
                            let mut pages = 0..block.frontier as usize;
                            block.used == Use::Free { confirmed: false }
                                && pages.any(|at| provisional(at) && standing >> at & 1 == 0)
                        })
                },
            ));
        }
        if self.config.sets > 1 {
            properties.push(Property::sometimes(
                "two checkpoints are kept",
                |_, state: &State| {
                    state
                        .blocks
                        .iter()
                        .filter(|block| block.used == Use::Set)
                        .count()
                        == KEPT
                },
            ));
        }
        properties
    }
}
