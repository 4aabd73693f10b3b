//! Answers to the options of a negotiation, one function each.
//!
//! Invariants: every option is answered, except `EXPORT_NAME`, which has no error reply. Before TLS
//! that is required, no answer reveals the export. Power failure has no effect.

use super::parse::{parse_go, parse_queries};
use super::{End, Handshake, Security, Session, Step};
use crate::transport::nbd::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, Mode, info, option, push_option_reply, reply, u16_at,
};
use ftld_kit::convert::to_u32;

impl Handshake<'_> {
    pub(super) fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        match option {
            option::ABORT => {
                push_option_reply(out, option, reply::ACK, &[]);
                return Step::End(End::Aborted);
            }
            option::EXPORT_NAME if self.security == Security::Required => {
                return Step::End(End::NoTls);
            }
            option::EXPORT_NAME => return self.export_name(data, out),
            _ => {}
        }
        if let Some(n) = self.full {
            let text = format!("all {n} connections are taken; close one and try again");
            return fail(out, option, reply::ERR_POLICY, &text);
        }
        match option {
            option::STARTTLS => self.start_tls(data, out),
            _ if self.security == Security::Required => tls_first(option, out),
            option::LIST => self.list(data, out),
            option::INFO | option::GO => self.go(option, data, out),
            option::STRUCTURED_REPLY => self.raise(option, Mode::Structured, data, out),
            option::EXTENDED_HEADERS => self.raise(option, Mode::Extended, data, out),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, data, out)
            }
            _ => fail(out, option, reply::ERR_UNSUP, "unknown option"),
        }
    }

    fn start_tls(&self, data: &[u8], out: &mut Vec<u8>) -> Step {
        match self.security {
            Security::Plain => fail(
                out,
                option::STARTTLS,
                reply::ERR_UNSUP,
                "this server was started without TLS",
            ),
            Security::Secured => fail(
                out,
                option::STARTTLS,
                reply::ERR_INVALID,
                "this is TLS already",
            ),
            _ if !data.is_empty() => fail(
                out,
                option::STARTTLS,
                reply::ERR_INVALID,
                "STARTTLS takes no data",
            ),
            Security::Offered | Security::Required => {
                ack(out, option::STARTTLS);
                Step::StartTls
            }
        }
    }

    /// Serves EXPORT_NAME. It has no error reply, so any mismatch ends the session.
    fn export_name(&mut self, name: &[u8], out: &mut Vec<u8>) -> Step {
        let fits = name.len() <= self.limits.name_len && self.export.answers_to(name);
        if !fits || self.full.is_some() || self.mode == Mode::Extended {
            return Step::End(End::Name);
        }
        out.extend_from_slice(&self.export.size.to_be_bytes());
        out.extend_from_slice(&self.export.flags(self.mode).to_be_bytes());
        if !self.no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        self.done()
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Step {
        if !data.is_empty() {
            return fail(out, option::LIST, reply::ERR_INVALID, "LIST takes no data");
        }
        let name = self.export.info.name.as_bytes();
        let parts = [
            &to_u32(name.len()).to_be_bytes()[..],
            name,
            self.export.info.description.as_bytes(),
        ];
        push_option_reply(out, option::LIST, reply::SERVER, &parts);
        ack(out, option::LIST)
    }

    fn raise(&mut self, option: u32, mode: Mode, data: &[u8], out: &mut Vec<u8>) -> Step {
        if !data.is_empty() {
            return fail(out, option, reply::ERR_INVALID, "this option takes no data");
        }
        if self.mode == mode {
            return fail(out, option, reply::ERR_INVALID, "already negotiated");
        }
        if self.mode == Mode::Extended {
            return fail(
                out,
                option,
                reply::ERR_EXT_HEADER_REQD,
                "extended headers are already negotiated",
            );
        }
        assert_ne!(mode, Mode::Simple, "option {option} chooses simple replies");
        self.mode = mode;
        ack(out, option)
    }

    fn go(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        let Some((name, wanted)) = parse_go(data) else {
            return fail(
                out,
                option,
                reply::ERR_INVALID,
                "malformed request for an export",
            );
        };
        if let Some(step) = self.wrong_name(option, name, out) {
            return step;
        }
        assert!(
            wanted.len().is_multiple_of(2),
            "{} bytes of requested items, which have two each",
            wanted.len()
        );
        self.export_info(option, wanted, out);
        ack(out, option);
        if option == option::GO {
            self.done()
        } else {
            Step::More
        }
    }

    fn export_info(&self, option: u32, wanted: &[u8], out: &mut Vec<u8>) {
        let mut tell = |kind: u16, parts: [&[u8]; 3]| {
            let [a, b, c] = parts;
            push_option_reply(out, option, reply::INFO, &[&kind.to_be_bytes(), a, b, c]);
        };
        let export = self.export;
        tell(
            info::EXPORT,
            [
                &export.size.to_be_bytes(),
                &export.flags(self.mode).to_be_bytes(),
                &[],
            ],
        );
        let preferred = export.preferred.to_be_bytes();
        tell(
            info::BLOCK_SIZE,
            [
                &1u32.to_be_bytes(),
                &preferred,
                &self.limits.payload.to_be_bytes(),
            ],
        );
        let asked = |kind: u16| wanted.chunks_exact(2).any(|w| u16_at(w, 0) == kind);
        if asked(info::NAME) {
            tell(info::NAME, [export.info.name.as_bytes(), &[], &[]]);
        }
        if asked(info::DESCRIPTION) && !export.info.description.is_empty() {
            tell(
                info::DESCRIPTION,
                [export.info.description.as_bytes(), &[], &[]],
            );
        }
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        if self.mode == Mode::Simple {
            return fail(
                out,
                option,
                reply::ERR_INVALID,
                "negotiate structured replies first",
            );
        }
        let set = option == option::SET_META_CONTEXT;
        if set {
            // Even a failed request cancels an earlier choice.
            self.base_allocation = false;
        }
        let Some((name, queries)) = parse_queries(data) else {
            return fail(out, option, reply::ERR_INVALID, "malformed metadata query");
        };
        if let Some(step) = self.wrong_name(option, name, out) {
            return step;
        }
        let wanted = if set {
            queries.contains(&BASE_ALLOCATION.as_bytes())
        } else {
            queries.is_empty()
                || queries
                    .iter()
                    .any(|q| *q == b"base:" || *q == BASE_ALLOCATION.as_bytes())
        };
        if wanted {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            push_option_reply(
                out,
                option,
                reply::META_CONTEXT,
                &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()],
            );
        }
        self.base_allocation |= set && wanted;
        ack(out, option)
    }

    fn wrong_name(&self, option: u32, name: &[u8], out: &mut Vec<u8>) -> Option<Step> {
        if name.len() > self.limits.name_len {
            return Some(fail(
                out,
                option,
                reply::ERR_TOO_BIG,
                "export name too long",
            ));
        }
        if !self.export.answers_to(name) {
            let text = format!(
                "no such export; this server has '{}'",
                self.export.info.name
            );
            return Some(fail(out, option, reply::ERR_UNKNOWN, &text));
        }
        None
    }

    fn done(&self) -> Step {
        assert!(
            self.full.is_none(),
            "a client was admitted while all {:?} connections were taken",
            self.full
        );
        assert_ne!(
            self.security,
            Security::Required,
            "transmission begins without the TLS that is required"
        );
        assert!(
            !(self.base_allocation && self.mode == Mode::Simple),
            "a metadata context was agreed on with simple replies"
        );
        Step::Done(Session {
            mode: self.mode,
            base_allocation: self.base_allocation,
        })
    }
}

fn ack(out: &mut Vec<u8>, option: u32) -> Step {
    push_option_reply(out, option, reply::ACK, &[]);
    Step::More
}

pub(super) fn tls_first(option: u32, out: &mut Vec<u8>) -> Step {
    fail(
        out,
        option,
        reply::ERR_TLS_REQD,
        "this server requires TLS: connect with nbds://",
    )
}

pub(super) fn fail(out: &mut Vec<u8>, option: u32, kind: u32, text: &str) -> Step {
    push_option_reply(out, option, kind, &[text.as_bytes()]);
    Step::More
}
