use super::parse::{parse_go, parse_queries};
use super::*;
use crate::transport::nbd::export::ExportInfo;
use crate::transport::nbd::wire::BASE_ALLOCATION;
use proptest::prelude::*;

fn export() -> Export {
    let info = ExportInfo {
        name: "disk".into(),
        description: "a disk".into(),
    };
    Export {
        info,
        size: 1 << 30,
        read_only: false,
        volatile_cache: true,
        preferred: 4096,
    }
}

fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Runs input through a handshake in pieces; returns all output and the last step.
fn run(pieces: &[&[u8]]) -> (Vec<u8>, Step, Vec<u8>) {
    run_with(Security::Plain, pieces)
}

fn run_with(security: Security, pieces: &[&[u8]]) -> (Vec<u8>, Step, Vec<u8>) {
    let (export, limits) = (export(), Limits::default());
    let mut machine = Handshake::new(&export, &limits, security, None);
    let (mut input, mut out) = (Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let (taken, step) = machine.advance(&input, &mut out);
            input.drain(..taken);
            match step {
                Step::More if taken > 0 => {}
                Step::More => break,
                step => return (out, step, input),
            }
        }
    }
    (out, Step::More, input)
}

#[test]
fn go_ends_with_the_next_byte_left_alone() {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    bytes.extend(option_bytes(
        option::GO,
        &[0, 0, 0, 4, b'd', b'i', b's', b'k', 0, 0],
    ));
    bytes.push(0x25);
    let (_, step, rest) = run(&[&bytes]);
    assert_eq!(
        step,
        Step::Done(Session {
            mode: Mode::Structured,
            base_allocation: false
        })
    );
    assert_eq!(rest, [0x25]);
}

#[test]
fn a_query_count_that_lies_is_refused() {
    assert_eq!(parse_queries(&[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), None);
    assert_eq!(parse_queries(&[0xff, 0xff, 0xff, 0xff]), None);
    assert_eq!(parse_go(&[0, 0, 0, 0, 0, 1]), None);
    assert_eq!(
        parse_go(&[0, 0, 0, 0, 0, 1, 0, 3]),
        Some((&[][..], &[0, 3][..]))
    );
}

#[test]
fn a_failed_choice_of_contexts_clears_an_earlier_one() {
    let mut query = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 15];
    query.extend(BASE_ALLOCATION.as_bytes());
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    bytes.extend(option_bytes(option::SET_META_CONTEXT, &query));
    let go = option_bytes(option::GO, &[0; 6]);
    let (_, step, _) = run(&[&bytes, &go]);
    assert_eq!(
        step,
        Step::Done(Session {
            mode: Mode::Structured,
            base_allocation: true
        })
    );
    bytes.extend(option_bytes(option::SET_META_CONTEXT, &[1]));
    let (_, step, _) = run(&[&bytes, &go]);
    assert_eq!(
        step,
        Step::Done(Session {
            mode: Mode::Structured,
            base_allocation: false
        })
    );
}

fn query(name: &str, wanted: &str) -> Vec<u8> {
    let [name_len, wanted_len] = [name, wanted].map(|text| (text.len() as u32).to_be_bytes());
    [
        &name_len,
        name.as_bytes(),
        &1u32.to_be_bytes(),
        &wanted_len,
        wanted.as_bytes(),
    ]
    .concat()
}

proptest! {
    /// The last SET_META_CONTEXT decides the context, STRUCTURED_REPLY and EXTENDED_HEADERS the
    /// mode.
    #[test]
    fn options_in_any_order_leave_what_was_agreed(choices in prop::collection::vec(0..10u32, 0..10)) {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        let mut agreed = Session { mode: Mode::Simple, base_allocation: false };
        for choice in choices {
            let (kind, data) = match choice {
                0 => (option::STRUCTURED_REPLY, Vec::new()),
                1 => (option::EXTENDED_HEADERS, Vec::new()),
                2 => (option::LIST, Vec::new()),
                3 => (option::INFO, vec![0; 6]),
                4 => (option::LIST_META_CONTEXT, query("disk", "base:allocation")),
                5 => (option::LIST_META_CONTEXT, query("disk", "other:context")),
                6 | 7 => (option::SET_META_CONTEXT, query("disk", "base:allocation")),
                8 => (option::SET_META_CONTEXT, query("nothing", "base:allocation")),
                _ => (99, vec![1, 2, 3]),
            };
            bytes.extend(option_bytes(kind, &data));
            match kind {
                option::STRUCTURED_REPLY if agreed.mode == Mode::Simple => agreed.mode = Mode::Structured,
                option::EXTENDED_HEADERS => agreed.mode = Mode::Extended,
                option::SET_META_CONTEXT if agreed.mode != Mode::Simple => agreed.base_allocation = choice != 8,
                _ => {}
            }
        }
        bytes.extend(option_bytes(option::GO, &[0; 6]));
        prop_assert_eq!(run(&[&bytes]).1, Step::Done(agreed));
    }
}

#[test]
fn what_is_agreed_before_tls_does_not_count_after_it() {
    let (export, limits) = (export(), Limits::default());
    let mut machine = Handshake::new(&export, &limits, Security::Offered, None);
    let mut out = Vec::new();
    machine.advance(&3u32.to_be_bytes(), &mut out);
    machine.advance(&option_bytes(option::EXTENDED_HEADERS, &[]), &mut out);
    assert_eq!(
        machine
            .advance(&option_bytes(option::STARTTLS, &[]), &mut out)
            .1,
        Step::StartTls
    );
    machine.secured();
    let (_, step) = machine.advance(&option_bytes(option::GO, &[0; 6]), &mut out);
    assert_eq!(
        step,
        Step::Done(Session {
            mode: Mode::Simple,
            base_allocation: false
        })
    );
}

#[test]
fn a_byte_behind_starttls_ends_the_session_unanswered() {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(option::STARTTLS, &[]));
    let with_more = [&bytes[..], &option_bytes(option::LIST, &[])].concat();
    for security in [Security::Offered, Security::Required] {
        let (out, step, _) = run_with(security, &[&with_more]);
        assert_eq!((out.len(), step), (0, Step::End(End::Injected)));
    }
    assert_eq!(run_with(Security::Required, &[&bytes]).1, Step::StartTls);
}

#[test]
fn a_client_that_cannot_ask_for_tls_is_cut_off_where_it_is_required() {
    assert_eq!(
        run_with(Security::Required, &[&[0; 4]]).1,
        Step::End(End::NoTls)
    );
    let bytes = [
        &3u32.to_be_bytes()[..],
        &option_bytes(option::EXPORT_NAME, b"disk"),
    ]
    .concat();
    assert_eq!(
        run_with(Security::Required, &[&bytes]).1,
        Step::End(End::NoTls)
    );
    assert!(matches!(
        run_with(Security::Offered, &[&bytes]).1,
        Step::Done(_)
    ));
}

fn any_option() -> impl Strategy<Value = Vec<u8>> {
    (
        0u32..13,
        prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..40),
    )
        .prop_map(|(option, data)| option_bytes(option, &data))
}

proptest! {
    #[test]
    fn how_bytes_are_cut_up_does_not_matter(
        options in prop::collection::vec(any_option(), 0..40),
        tail in prop::collection::vec(any::<u8>(), 0..30),
        cuts in prop::collection::vec(1usize..60, 1..30),
    ) {
        let mut bytes = 3u32.to_be_bytes().to_vec();
        options.iter().for_each(|o| bytes.extend(o));
        bytes.extend(tail);
        let (whole, step, _) = run(&[&bytes]);
        let mut rest = &bytes[..];
        let mut pieces = Vec::new();
        for cut in cuts.iter().cycle() {
            let (piece, tail) = rest.split_at(rest.len().min(*cut));
            pieces.push(piece);
            rest = tail;
            if rest.is_empty() { break; }
        }
        let (parts, last, _) = run(&pieces);
        prop_assert_eq!(whole, parts);
        prop_assert_eq!(step, last);
    }
}
