//! All schemes, the same requests, the same bytes; and the figures that must not depend on the scheme.

use ftl_core::Lpn;
use ftl_core::schemes::SCHEMES;
use ftld_tests::host::Host;
use ftld_tests::rig::{self, Cells, Rig};
use ftld_tests::workload::{Kind, Workload};

const PAGES: u32 = 384;

/// Bytes of the whole device, and how many pages the host wrote, trimmed, and has mapped.
type Outcome = (Vec<u8>, [u64; 3]);

fn run(rig: &Rig, kind: Kind) -> Outcome {
    let mut host = Host::format(rig);
    let requests = if rig::long() { 30_000 } else { 3_000 };
    for op in Workload::new(kind, PAGES, rig.seed).take(requests) {
        host.run(&op).unwrap_or_else(|trouble| panic!("{}: {op:?}: {}", rig.path(), String::from(trouble)));
    }
    let mut bytes = vec![0; PAGES as usize * rig.profile.geometry.page_bytes as usize];
    host.ftl.read(0, Lpn::new(0), &mut bytes).unwrap_or_else(|error| panic!("{}: {error}", rig.path()));
    let stats = host.ftl.stats();
    (bytes, [stats.host_pages_written, stats.host_pages_trimmed, stats.mapped_pages])
}

#[test]
fn every_scheme_on_every_chip_holds_the_same_bytes_after_the_same_requests() {
    for kind in Kind::ALL {
        let mut first: Option<(String, Outcome)> = None;
        for (scheme, cells) in rig::matrix() {
            let rig = Rig::new(scheme, cells, PAGES);
            let outcome = run(&rig, kind);
            let Some((name, expected)) = &first else {
                first = Some((rig.path(), outcome));
                continue;
            };
            assert_eq!(
                outcome.1,
                expected.1,
                "{}: {} and {name} count the host's pages differently",
                kind.name(),
                rig.path()
            );
            assert!(outcome.0 == expected.0, "{}: {} and {name} hold different bytes", kind.name(), rig.path());
        }
    }
}

/// The same seed gives the same flash, operation for operation: a failure's command line is worth something.
#[test]
fn a_run_repeats_from_its_seed() {
    for scheme in SCHEMES {
        let rig = Rig::new(scheme, Cells::Mlc, PAGES);
        let once = || {
            let mut host = Host::format(&rig);
            host.ftl.chip_mut().store_mut().record();
            for op in Workload::new(Kind::Mixed, PAGES, rig.seed).take(600) {
                host.run(&op).unwrap_or_else(|trouble| panic!("{}: {}", rig.path(), String::from(trouble)));
            }
            host.cut_power().0.into_store().take_record()
        };
        let (one, other) = (once(), once());
        assert!(one.len() > 500 && one == other, "{}: two runs of one seed differ", rig.path());
    }
}
