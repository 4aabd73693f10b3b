//! Policies ([`Policy`]), and those that choose victims: `gc.policy`. A policy is a file here. It
//! reads the candidates and returns one; the collector empties it. All of them have the same input:
//! valid counts, the time since these changed, the order of closing, erase counts.
//!
//! The cost of no policy here grows with the device; `midas` and `mdc` (`placement/`), and
//! [`Candidates::best_of_all`], for schemes of other crates, look at every block. Blocks with equal
//! valid counts are on one list, the longest unchanged first. So the first block of every list is
//! enough for a policy that weighs age.

pub(crate) mod cat;
mod cost_benefit;
mod d_choices;
mod fifo;
mod rule;

use super::selected::Own;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
pub use rule::{
    Candidate, Candidates, DataBlock, Device, HostWrite, InvalidPage, NewPolicy, PageCopy, Policy,
};

/// The parameters, for the tables of schemes.
pub(crate) const POLICY_PARAM: ParamDoc = ParamDoc {
    key: "gc.policy",
    help: "victim selection: greedy (default), cost_benefit, fifo, d_choices or cat",
};
/// Parameter of `d_choices`.
pub(crate) const CHOICES_PARAM: ParamDoc = ParamDoc {
    key: "gc.choices",
    help: "number of blocks that d_choices samples, 1 to 1000 (default 10)",
};

/// Returns ftld's policy of this name. `None` is greedy: the block with the fewest valid pages,
/// which the victim index finds without a search. No policy is better if every page is equally
/// likely to be written (Yang, Misra, Rubenstein: *On the Optimality of Greedy Garbage Collection
/// for SSDs*, 2015). `own` completes the message about an unknown name.
pub(super) fn of_ftld(
    name: &str,
    params: &Params,
    own: &Own,
) -> Result<Option<Box<dyn Policy>>, FtlError> {
    let choices = params.get(CHOICES_PARAM.key, 10)?;
    if !(1..=1000).contains(&choices) {
        let text = format!("parameter gc.choices: {choices} is not within 1 to 1000");
        return Err(FtlError::Config(text));
    }
    Ok(match name {
        "greedy" => None,
        "cost_benefit" => Some(Box::new(cost_benefit::CostBenefit)),
        "fifo" => Some(Box::new(fifo::Fifo)),
        "d_choices" => Some(Box::new(d_choices::DChoices::new(choices))),
        "cat" => Some(Box::new(cat::Cat)),
        other => {
            return Err(FtlError::Config(format!(
                "parameter gc.policy: {other:?} is none of {}greedy, cost_benefit, fifo, d_choices, cat",
                own.names()
            )));
        }
    })
}

#[cfg(test)]
mod tests;
