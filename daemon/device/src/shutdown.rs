//! Shutdown decisions: when a daemon ends, and whether its device is removed.

use crate::transport::StopHow;

/// Stop request, or a state change while a stop waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGTERM or SIGINT.
    Signal,
    /// `ftld stop`.
    Stop,
    /// `ftld stop --force`.
    ForcedStop,
    /// Periodic check whether the device is still open.
    Look,
}

/// Reaction to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Continue serving.
    Serve,
    /// Flush, report the holders of the device, and serve until they close it.
    FlushAndWait,
    /// Stop the daemon.
    End(StopHow),
}

/// State of the stop requests so far.
#[derive(Debug, Default)]
pub struct Shutdown {
    asked: bool,
    signalled: bool,
}

impl Shutdown {
    /// Returns the reaction to `event`; `held` is whether the device is open.
    pub fn decide(&mut self, event: Event, held: bool) -> Action {
        let second_signal = event == Event::Signal && self.signalled;
        self.signalled |= event == Event::Signal;
        self.asked |= event != Event::Look;
        assert!(
            self.asked || !self.signalled,
            "a signal is no request to stop"
        );
        match event {
            Event::Look if !self.asked || held => Action::Serve,
            Event::ForcedStop => Action::End(StopHow::Remove),
            _ if !held => Action::End(StopHow::Remove),
            _ if second_signal => Action::End(StopHow::Leave),
            _ => Action::FlushAndWait,
        }
    }

    /// Returns whether a stop was requested and waits for a holder.
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
