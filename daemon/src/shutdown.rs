//! When a daemon ends, and what becomes of its device.

use crate::transport::StopHow;

/// Somebody wants the daemon to end, or something changed while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGTERM or SIGINT.
    Signal,
    /// `ftld stop`.
    Stop,
    /// `ftld stop --force`.
    ForcedStop,
    /// Time to look again whether the holder is still there.
    Look,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Go on as if nothing had happened.
    Serve,
    /// Flush, say who holds the device, go on until they let go.
    FlushAndWait,
    /// End.
    End(StopHow),
}

/// Remembers what was asked so far.
#[derive(Debug, Default)]
pub struct Shutdown {
    asked: bool,
    signalled: bool,
}

impl Shutdown {
    /// Decides; `held` tells whether somebody has the device open.
    pub fn decide(&mut self, event: Event, held: bool) -> Action {
        let second_signal = event == Event::Signal && self.signalled;
        self.signalled |= event == Event::Signal;
        self.asked |= event != Event::Look;
        match event {
            Event::Look if !self.asked || held => Action::Serve,
            Event::ForcedStop => Action::End(StopHow::Remove),
            _ if !held => Action::End(StopHow::Remove),
            _ if second_signal => Action::End(StopHow::Leave),
            _ => Action::FlushAndWait,
        }
    }

    /// Whether somebody asked for the end and it waits for a holder.
    pub fn waiting(&self) -> bool {
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Event::*;

    #[test]
    fn nobody_holds_it_then_the_first_word_ends_it() {
        for event in [Signal, Stop, ForcedStop] {
            assert_eq!(
                Shutdown::default().decide(event, false),
                Action::End(StopHow::Remove)
            );
        }
        assert_eq!(
            Shutdown::default().decide(Look, false),
            Action::Serve,
            "nobody asked"
        );
    }

    #[test]
    fn held_it_waits_and_ends_by_itself() {
        let mut shutdown = Shutdown::default();
        assert_eq!(shutdown.decide(Signal, true), Action::FlushAndWait);
        assert_eq!(shutdown.decide(Look, true), Action::Serve);
        assert_eq!(shutdown.decide(Look, false), Action::End(StopHow::Remove));
    }

    #[test]
    fn only_a_second_signal_leaves_it_and_only_force_removes_it() {
        let mut shutdown = Shutdown::default();
        assert_eq!(shutdown.decide(Stop, true), Action::FlushAndWait);
        assert_eq!(
            shutdown.decide(Stop, true),
            Action::FlushAndWait,
            "asking again changes nothing"
        );
        assert_eq!(
            shutdown.decide(Signal, true),
            Action::FlushAndWait,
            "the first signal"
        );
        assert_eq!(shutdown.decide(Signal, true), Action::End(StopHow::Leave));
        assert_eq!(
            shutdown.decide(ForcedStop, true),
            Action::End(StopHow::Remove)
        );
    }
}
