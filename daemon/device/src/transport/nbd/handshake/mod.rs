//! Fixed newstyle negotiation as a state machine: bytes in, bytes out, no socket.
//!
//! Invariants: the device is not accessed. An unknown option is answered and negotiation continues.
//! An option is parsed only when all its data has arrived, and at most [`Limits::option_len`] of it
//! is stored. A peer that breaks the framing, or sends too many options, is disconnected.
//! Agreements in plaintext are void after an upgrade to TLS. A byte between STARTTLS and its reply
//! ends the session, because an attacker in the middle could have injected it.

mod options;
mod parse;

use super::export::Export;
use super::limits::Limits;
use super::wire::{GREETING_MAGIC, Mode, OPTION_MAGIC, handshake, option, reply, u32_at, u64_at};
use ftld_kit::convert::{index, to_u32};
use options::{fail, tls_first};

/// Agreed parameters of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// Framing of replies.
    pub mode: Mode,
    /// Whether BLOCK_STATUS is permitted.
    pub base_allocation: bool,
}

impl Session {
    /// Parameters of the kernel's own client on a socket handed to it: no handshake, simple
    /// replies.
    pub const SIMPLE: Session = Session {
        mode: Mode::Simple,
        base_allocation: false,
    };
}

/// State of TLS in a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS is not available.
    Plain,
    /// The client may start TLS.
    Offered,
    /// The client must start TLS before the server reveals anything.
    Required,
    /// TLS is active.
    Secured,
}

/// Next step of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    More,
    /// TLS begins with the next byte, once the reply is sent; then [`Handshake::secured`] is
    /// called.
    StartTls,
    /// Transmission begins with the next byte.
    Done(Session),
    /// The session ends once the reply is sent.
    End(End),
}

/// Reason for the end of a session without transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// The client sent ABORT.
    #[error("the client aborted")]
    Aborted,
    /// The client set handshake flags that were not offered.
    #[error("unknown handshake flags")]
    Flags,
    /// TLS is required, and the client's protocol variant cannot request it.
    #[error("TLS is required")]
    NoTls,
    /// Plaintext where only TLS may follow.
    #[error("plaintext after STARTTLS")]
    Injected,
    /// An option does not start with its magic number.
    #[error("bad option magic")]
    Magic,
    /// More options than allowed.
    #[error("too many options")]
    TooMany,
    /// Option data beyond its limit.
    #[error("oversized option")]
    TooBig,
    /// `EXPORT_NAME` names an unknown export, or comes at a time when it cannot be served; it has
    /// no error reply.
    #[error("export name refused")]
    Name,
}

enum State {
    Flags,
    Option,
    Skip(u32),
}

/// One negotiation.
pub struct Handshake<'a> {
    export: &'a Export,
    limits: &'a Limits,
    security: Security,
    full: Option<usize>,
    state: State,
    options: u32,
    no_zeroes: bool,
    mode: Mode,
    base_allocation: bool,
}

impl<'a> Handshake<'a> {
    /// Starts a negotiation; the greeting is the first message to send. With `full` no client is
    /// admitted, and the refusal gives this number of connections in use.
    pub fn new(
        export: &'a Export,
        limits: &'a Limits,
        security: Security,
        full: Option<usize>,
    ) -> Self {
        Handshake {
            export,
            limits,
            security,
            full,
            state: State::Flags,
            options: 0,
            no_zeroes: false,
            mode: Mode::Simple,
            base_allocation: false,
        }
    }

    /// Returns the server's first message.
    pub(crate) fn greeting() -> [u8; 18] {
        let mut bytes = [0; 18];
        bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        bytes[16..]
            .copy_from_slice(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
        bytes
    }

    /// Returns the largest number of bytes that must be available at once.
    pub fn want(&self) -> usize {
        16 + index(self.limits.option_len)
    }

    /// Records the upgrade: negotiation starts again, except for the number of options.
    pub fn secured(&mut self) {
        assert!(
            matches!(self.security, Security::Offered | Security::Required),
            "TLS began with security {:?}",
            self.security
        );
        assert!(
            matches!(self.state, State::Option),
            "TLS began in the middle of a message"
        );
        self.security = Security::Secured;
        self.mode = Mode::Simple;
        self.base_allocation = false;
    }

    /// Processes one message at the front of `input`; returns the number of bytes consumed and the
    /// next step. Zero bytes and [`Step::More`] mean that the message is not complete.
    pub fn advance(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        match self.state {
            State::Flags => self.client_flags(input),
            State::Option => self.option(input, out),
            State::Skip(left) => {
                assert!(left > 0, "option data is skipped beyond its end");
                let n = input.len().min(index(left));
                let left = left - to_u32(n);
                self.state = if left == 0 {
                    State::Option
                } else {
                    State::Skip(left)
                };
                (n, Step::More)
            }
        }
    }

    fn client_flags(&mut self, input: &[u8]) -> (usize, Step) {
        if input.len() < 4 {
            return (0, Step::More);
        }
        let flags = u32_at(input, 0);
        if flags & !u32::from(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES) != 0 {
            return (4, Step::End(End::Flags));
        }
        if flags & u32::from(handshake::FIXED_NEWSTYLE) == 0 {
            match self.security {
                Security::Required => return (4, Step::End(End::NoTls)),
                _ => self.security = Security::Plain,
            }
        }
        self.no_zeroes = flags & u32::from(handshake::NO_ZEROES) != 0;
        self.state = State::Option;
        (4, Step::More)
    }

    fn option(&mut self, input: &[u8], out: &mut Vec<u8>) -> (usize, Step) {
        if input.len() >= 8 && u64_at(input, 0) != OPTION_MAGIC {
            return (0, Step::End(End::Magic));
        }
        if input.len() < 16 {
            return (0, Step::More);
        }
        let (option, length) = (u32_at(input, 8), u32_at(input, 12));
        if self.options >= self.limits.options {
            return (0, Step::End(End::TooMany));
        }
        if length > self.limits.option_len {
            self.options += 1;
            return (16, self.oversized(option, length, out));
        }
        let Some(data) = input[16..].get(..index(length)) else {
            return (0, Step::More);
        };
        self.options += 1;
        let before = out.len();
        let step = self.answer(option, data, out);
        assert!(
            self.options <= self.limits.options,
            "option {} of at most {}",
            self.options,
            self.limits.options
        );
        if step == Step::StartTls && input.len() > 16 + data.len() {
            out.truncate(before);
            return (0, Step::End(End::Injected));
        }
        (16 + data.len(), step)
    }

    fn oversized(&mut self, option: u32, length: u32, out: &mut Vec<u8>) -> Step {
        if option == option::EXPORT_NAME || length > self.limits.option_skip {
            return Step::End(End::TooBig);
        }
        self.state = State::Skip(length);
        if self.security == Security::Required {
            return tls_first(option, out);
        }
        let limit = self.limits.option_len;
        fail(
            out,
            option,
            reply::ERR_TOO_BIG,
            &format!("option data is limited to {limit} bytes"),
        )
    }
}

#[cfg(test)]
mod tests;
