//! Shrinks a failing plan while it still fails: delta debugging over its steps, then simpler parts.

/// A change that makes a plan simpler.
pub type Change<P> = Box<dyn Fn(&mut P)>;

/// A plan that consists of steps and other parts.
pub trait Shrink: Clone {
    /// One step.
    type Step;

    /// The steps.
    fn steps(&mut self) -> &mut Vec<Self::Step>;

    /// Changes that leave the number of steps. A change that was made is not listed again.
    fn changes(&self) -> Vec<Change<Self>>;
}

/// The smallest plan found for which `fails` returns true, as it does for `plan`.
pub fn smallest<P: Shrink>(plan: &P, fails: impl FnMut(&P) -> bool) -> P {
    let mut search = Search {
        best: plan.clone(),
        fails,
    };
    loop {
        let fewer = search.drop_steps();
        let simpler = search.simplify();
        if !fewer && !simpler {
            return search.best;
        }
    }
}

struct Search<P, F> {
    best: P,
    fails: F,
}

impl<P: Shrink, F: FnMut(&P) -> bool> Search<P, F> {
    /// Makes the change if the plan then still fails.
    fn accepts(&mut self, change: impl Fn(&mut P)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        let failed = (self.fails)(&candidate);
        if failed {
            self.best = candidate;
        }
        failed
    }

    /// Drops sequences of steps, long ones first; returns whether there were any.
    fn drop_steps(&mut self) -> bool {
        let before = self.best.steps().len();
        let mut length = before;
        while length > 0 {
            let mut at = 0;
            while at < self.best.steps().len() {
                let end = self.best.steps().len().min(at + length);
                if !self.accepts(|plan| drop(plan.steps().drain(at..end))) {
                    at += length;
                }
            }
            length /= 2;
        }
        self.best.steps().len() < before
    }

    /// Makes the other changes; returns whether there were any.
    fn simplify(&mut self) -> bool {
        let (mut at, mut any) = (0, false);
        while let Some(change) = self.best.changes().into_iter().nth(at) {
            if self.accepts(change) {
                any = true;
            } else {
                at += 1;
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Shrink, smallest};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Numbers {
        steps: Vec<u32>,
        spare: u32,
    }

    impl Shrink for Numbers {
        type Step = u32;

        fn steps(&mut self) -> &mut Vec<u32> {
            &mut self.steps
        }

        fn changes(&self) -> Vec<Change<Numbers>> {
            let halves = (0..self.steps.len()).filter(|at| self.steps[*at] > 0);
            let halves =
                halves.map(|at| -> Change<Numbers> { Box::new(move |plan| plan.steps[at] /= 2) });
            let spare: Change<Numbers> = Box::new(|plan| plan.spare = 0);
            halves.chain((self.spare > 0).then_some(spare)).collect()
        }
    }

    #[test]
    fn only_the_steps_and_values_that_the_failure_needs_are_left() {
        let plan = Numbers {
            steps: (0..100).collect(),
            spare: 7,
        };
        let needs =
            |plan: &Numbers| plan.steps.iter().any(|step| *step >= 70) && plan.steps.contains(&13);
        let small = smallest(&plan, needs);
        assert_eq!((small.steps.len(), small.spare), (2, 0));
        assert!(needs(&small));
    }
}
