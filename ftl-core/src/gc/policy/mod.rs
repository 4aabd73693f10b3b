//! Choice of the victim: `gc.policy`. A policy is a file here. It reads the candidates and returns
//! one; the collector empties it. All policies have the same input: valid counts, the time since
//! these changed, the order of closing, erase counts.
//!
//! No policy's cost grows with the device. Blocks with equal valid counts are on one list, the
//! longest unchanged first. So the first block of every list is enough for a policy that weighs
//! age.

pub(crate) mod cat;
mod cost_benefit;
mod d_choices;
mod fifo;
mod rule;

use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
pub use rule::{Candidate, Candidates, NewPolicy, VictimPolicy};

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

/// Returns the policy that the parameters select. `None` is greedy: the block with the fewest valid
/// pages, which the victim index finds without a search. No policy is better if every page is
/// equally likely to be written (Yang, Misra, Rubenstein: *On the Optimality of Greedy Garbage
/// Collection for SSDs*, 2015).
///
/// `own` has the policies of the scheme itself; the first of them is its default.
pub(crate) fn from_params(
    params: &Params,
    own: &[(&'static str, NewPolicy)],
) -> Result<Option<Box<dyn VictimPolicy>>, FtlError> {
    let default = own.first().map_or("greedy", |(name, _)| name);
    let name = params.get(POLICY_PARAM.key, default.to_string())?;
    if let Some((_, new)) = own.iter().find(|(known, _)| *known == name) {
        return new(params).map(Some);
    }
    let choices = params.get(CHOICES_PARAM.key, 10)?;
    if !(1..=1000).contains(&choices) {
        let text = format!("parameter gc.choices: {choices} is not within 1 to 1000");
        return Err(FtlError::Config(text));
    }
    Ok(match name.as_str() {
        "greedy" => None,
        "cost_benefit" => Some(Box::new(cost_benefit::CostBenefit)),
        "fifo" => Some(Box::new(fifo::Fifo)),
        "d_choices" => Some(Box::new(d_choices::DChoices::new(choices))),
        "cat" => Some(Box::new(cat::Cat)),
        other => {
            let own: String = own.iter().map(|(name, _)| format!("{name}, ")).collect();
            return Err(FtlError::Config(format!(
                "parameter gc.policy: {other:?} is none of {own}greedy, cost_benefit, fifo, d_choices, cat"
            )));
        }
    })
}

#[cfg(test)]
mod tests;
