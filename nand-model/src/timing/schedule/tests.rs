//! Where reads start, and that no work is lost or done twice.

use super::*;
use crate::rng::SplitMix;

const SUSPEND: Suspend = Suspend {
    erase_ns: Some(50),
    program_ns: Some(10),
    resume_ns: 7,
};
const READ: Nanos = 30;
const PROGRAM: Nanos = 400;
const ERASE: Nanos = 2000;

fn page(raw: u32) -> Ppn {
    Ppn::new(raw)
}

/// One die without a bus that erases pages 0 to 63 from instant 0 on.
fn erasing(suspend: Suspend) -> Schedule {
    let mut schedule = Schedule::new(suspend, 1, 1);
    assert_eq!(schedule.erase(0, 0, (page(0), page(63)), ERASE), ERASE);
    schedule
}

fn program(schedule: &mut Schedule, at: Nanos, ppn: u32) -> Nanos {
    schedule.program_run(at, (0, 0), [(page(ppn), PROGRAM)].into_iter(), 0)
}

#[test]
fn a_read_waits_for_the_suspension_and_the_rest_for_the_read() {
    let mut die = erasing(SUSPEND);
    assert_eq!(die.sense(100, 0, page(70), READ), 100 + 50 + READ);
    // While the erase is suspended, reads follow each other and it is suspended once.
    assert_eq!(die.sense(120, 0, page(71), READ), 100 + 50 + 2 * READ);
    let erased = ERASE + 2 * READ + 7;
    assert_eq!(die.busy_until(), erased);
    // The erase resumes later, and can be suspended again.
    assert_eq!(die.sense(1000, 0, page(70), READ), 1000 + 50 + READ);
    let erased = erased + READ + 7;
    assert_eq!(program(&mut die, 1500, 80), erased + PROGRAM);
    // Shortly before the end, the end comes first; the program has not begun then.
    assert_eq!(die.sense(erased - 20, 0, page(70), READ), erased + READ);
    assert_eq!(die.busy_until(), erased + READ + PROGRAM);
    // A program is suspended in its own time.
    let at = erased + READ + 100;
    assert_eq!(die.sense(at, 0, page(70), READ), at + 10 + READ);
}

#[test]
fn without_a_suspension_time_a_read_waits_for_the_end() {
    let erase_ns = None;
    let mut die = erasing(Suspend {
        erase_ns,
        ..SUSPEND
    });
    program(&mut die, 0, 80);
    assert_eq!(die.sense(100, 0, page(70), READ), ERASE + READ);
    assert_eq!(die.busy_until(), ERASE + READ + PROGRAM);
    let mut die = erasing(Suspend {
        program_ns: None,
        ..SUSPEND
    });
    program(&mut die, 0, 80);
    assert_eq!(die.sense(100, 0, page(70), READ), 150 + READ);
    let programmed = ERASE + READ + 7 + PROGRAM;
    assert_eq!(
        die.sense(programmed - 100, 0, page(70), READ),
        programmed + READ
    );
}

#[test]
fn a_read_waits_for_the_program_and_the_erase_of_its_own_page() {
    let mut die = erasing(SUSPEND);
    let programmed = program(&mut die, 0, 80);
    assert_eq!(die.sense(10, 0, page(80), READ), programmed + READ);
    assert_eq!(die.sense(10, 0, page(63), READ), ERASE + READ);
    assert_eq!(die.sense(10, 0, page(64), READ), 10 + 50 + READ);
}

#[test]
fn a_read_finds_the_gap_before_reads_that_were_issued_for_later() {
    let mut die = Schedule::new(SUSPEND, 1, 1);
    assert_eq!(die.sense(1000, 0, page(1), READ), 1000 + READ);
    assert_eq!(die.sense(10, 0, page(2), READ), 10 + READ);
    // A read that is too long for the gap between the two starts after the later one.
    assert_eq!(die.sense(35, 0, page(3), 990), 1000 + READ + 990);
    assert_eq!(die.busy_until(), 1000 + READ + 990);
}

#[test]
fn a_transfer_finds_the_gap_before_transfers_of_later_programs() {
    let mut device = Schedule::new(SUSPEND, 2, 1);
    let run = [(page(64), PROGRAM), (page(65), PROGRAM)];
    assert_eq!(
        device.program_run(0, (0, 0), run.into_iter(), 20),
        2 * (20 + PROGRAM)
    );
    // The bus transfers until 20, and from 420 to 440.
    let read = |at| [(page(at), READ)].into_iter();
    assert_eq!(device.read_run(0, (1, 0), read(1), 20), READ + 20);
    assert_eq!(device.read_run(380, (1, 0), read(1), 20), 440 + 20);
    // The die stays suspended until the last page of a run is sensed.
    let run = [(page(1), READ), (page(2), READ)];
    let done = device.read_run(100, (0, 0), run.into_iter(), 20);
    assert_eq!(done, 100 + 10 + 2 * (READ + 20));
    // The second program waited for its transfer: that gap takes 20 of the delay.
    assert_eq!(device.dies[0].end(), 2 * (20 + PROGRAM) + 2 * READ + 7);
}

/// Random work with instants that go back: spans never overlap, all work is done, and a read waits
/// for other reads and one suspension at most.
#[test]
fn no_work_is_lost_and_no_read_waits_for_writes() {
    let mut rng = SplitMix::new(11);
    let mut die = Schedule::new(SUSPEND, 1, 1);
    let (mut now, mut worked, mut splits) = (0, 0, 0);
    for step in 0..500_u32 {
        now += rng.below(60);
        if rng.one_in(3) {
            let writes = die.dies[0].spans.iter().filter(|s| s.write.is_some());
            let before = writes.count();
            // GC also issues reads for a later instant.
            let ahead = if rng.one_in(4) { 2000 } else { 0 };
            let end = die.sense(now + ahead, 0, page(1), READ);
            let spans = &die.dies[0].spans;
            let reads = spans.iter().filter(|s| s.write.is_none() && s.end > now);
            let bound = now + ahead + 50 + READ * reads.count() as u64;
            assert!(end <= bound, "step {step}: {end}, at most {bound}");
            splits += spans.iter().filter(|s| s.write.is_some()).count() - before;
            worked += READ;
        } else if rng.one_in(4) {
            die.erase(now, 0, (page(64), page(127)), ERASE);
            worked += ERASE;
        } else {
            program(&mut die, now, 64 + step);
            worked += PROGRAM;
        }
        let spans = &die.dies[0].spans;
        assert!(
            spans.iter().all(|span| span.start < span.end)
                && spans
                    .iter()
                    .zip(spans.iter().skip(1))
                    .all(|(one, next)| one.end <= next.start),
            "step {step}"
        );
    }
    let spans = die.dies[0].spans.iter();
    let done: Nanos = spans.map(|span| span.end - span.start).sum();
    assert!(splits > 10 && die.dies[0].forgotten == 0, "{splits} splits");
    assert_eq!(done, worked + 7 * splits as u64);
}

#[test]
fn at_the_limit_the_oldest_spans_are_forgotten_and_nothing_starts_in_them() {
    let mut die = Schedule::new(SUSPEND, 1, 1);
    for n in 0..2 * SPANS_MAX as u64 {
        program(&mut die, 0, 64 + n as u32);
    }
    assert_eq!(die.dies[0].spans.len(), SPANS_MAX);
    let kept = SPANS_MAX as u64 * PROGRAM;
    assert_eq!(die.dies[0].forgotten, kept);
    assert_eq!(die.sense(0, 0, page(1), READ), kept + READ);
}

#[test]
fn a_read_fits_before_work_that_cannot_be_suspended() {
    let suspend = Suspend {
        program_ns: None,
        ..SUSPEND
    };
    let mut die = Schedule::new(suspend, 1, 1);
    program(&mut die, 10_000, 64);
    assert_eq!(die.sense(10, 0, page(1), READ), 10 + READ);
    assert_eq!(die.sense(10, 0, page(64), READ), die.dies[0].end());
}

#[test]
fn a_read_waits_for_the_spare_bytes_of_its_own_page() {
    let mut die = Schedule::new(SUSPEND, 1, 1);
    die.erase(0, 0, (page(64), page(127)), ERASE);
    let done = die.program_oob(0, 0, page(1), 300);
    assert_eq!(done, ERASE + 300);
    assert_eq!(die.sense(100, 0, page(1), READ), done + READ);
    assert!(die.sense(100, 0, page(2), READ) < done);
}

#[test]
fn a_transfer_of_nothing_does_not_wait_for_the_bus() {
    let mut device = Schedule::new(SUSPEND, 2, 1);
    device.program_run(0, (1, 0), [(page(64), PROGRAM)].into_iter(), 100);
    let copied = device.program_run(60, (0, 0), [(page(1), PROGRAM)].into_iter(), 0);
    assert_eq!(copied, 60 + PROGRAM);
}
