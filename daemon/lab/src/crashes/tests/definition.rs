//! Contents that the cursor leaves open, compared with the definition of a FLUSH on random
//! recordings; equality of states.

use super::*;
use crate::crashes::content::Content;
use proptest::prelude::*;

/// A request of a random recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random {
    pub(super) kind: Kind,
    pub(super) unit: u64,
    pub(super) units: u64,
    pub(super) value: u8,
    /// How many later requests begin before it ends.
    overlaps: usize,
    pub(super) fua: bool,
    pub(super) fails: bool,
}

pub(super) fn random() -> impl Strategy<Value = Random> {
    let kinds = prop::sample::select(vec![
        Kind::Write,
        Kind::Write,
        Kind::Trim,
        Kind::Flush,
        Kind::Mark,
    ]);
    let shape = (kinds, 0u64..6, 1u64..4, 1u8..4, 0usize..3);
    (shape, any::<bool>(), 0u8..8).prop_map(|((kind, unit, units, value, overlaps), fua, fails)| {
        Random {
            kind,
            unit,
            units,
            value,
            overlaps,
            fua,
            fails: fails == 0 && kind != Kind::Mark,
        }
    })
}

/// A request with its moments.
pub(super) struct Timed {
    pub(super) of: Random,
    pub(super) begin: u64,
    pub(super) end: u64,
}

pub(super) fn timed(requests: &[Random]) -> Vec<Timed> {
    // Request i begins at 10 i and ends behind the begin of `overlaps` later ones.
    let mut all: Vec<Timed> = (0..)
        .zip(requests)
        .map(|(i, of)| Timed {
            of: *of,
            begin: 10 * i + 1,
            end: 10 * (i + of.overlaps as u64) + 2 + (i % 5),
        })
        .collect();
    all.sort_by_key(|request| request.end);
    for (i, request) in (0..).zip(&mut all) {
        // No two moments are equal.
        request.end = request.end * 1000 + i;
        request.begin *= 1000;
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The cursor leaves open the same contents as the definition of a FLUSH.
    #[test]
    fn open_contents_follow_from_the_definition(requests in prop::collection::vec(random(), 1..14)) {
        let requests = timed(&requests);
        prop_assume!(requests.iter().any(|at| at.of.kind != Kind::Flush || !at.of.fails));
        let mut recorder = Recorder::new(9);
        for request in &requests {
            let of = request.of;
            let moment = |seq| Moment { seq, ns: seq };
            let moments = (moment(request.begin), moment(request.end));
            let errno = if of.fails { 5 } else { 0 };
            let (range, data) = match of.kind {
                Kind::Flush if of.fua => ((of.unit * UNIT, of.units * UNIT), Vec::new()),
                Kind::Flush | Kind::Mark => ((0, 0), Vec::new()),
                Kind::Write => (
                    (of.unit * UNIT, of.units * UNIT),
                    vec![of.value; usize::try_from(of.units * UNIT).unwrap()],
                ),
                _ => ((of.unit * UNIT, of.units * UNIT), Vec::new()),
            };
            let fua = of.kind == Kind::Flush && of.fua;
            recorder.push(of.kind, fua, errno, range, moments, &data);
        }
        let saved = recorder.save();
        let timeline = saved.timeline();
        let mut cursor = Cursor::new(&timeline);
        while let Some(event) = cursor.step() {
            let point = cursor.point();
            let now = timeline.events[event].end;
            for unit in 0..9 {
                let expected = allowed(&requests, unit, now);
                let found: BTreeSet<u8> = match point.open.iter().find(|open| u64::from(open.unit) == unit) {
                    Some(open) => open.candidates.iter().map(|id| value(&timeline, *id)).collect(),
                    None => {
                        let slot = timeline.written.binary_search(&(unit as u32));
                        let content = slot.map_or(ZEROS, |slot| point.durable[slot]);
                        BTreeSet::from([value(&timeline, content)])
                    }
                };
                prop_assert_eq!(&found, &expected, "unit {} at {}", unit, now);
            }
            // Sums are those of a state that is built from nothing, and equal for equal states
            // alone.
            let mut states = Vec::new();
            for choice in models::cache(&point, &Losses::default(), 8, 5) {
                let state = models::State::of(&point, &choice, &timeline.contents);
                let (mut sum, mut contents) = (0u128, Vec::new());
                state.each(|slot, content| {
                    let unit = timeline.written[slot as usize];
                    sum = sum.wrapping_add(timeline.contents.term(unit, content));
                    contents.push(content);
                });
                prop_assert_eq!(sum, state.sum);
                states.push((contents, sum));
            }
            for (one, its_sum) in &states {
                for (other, sum) in &states {
                    prop_assert_eq!(one == other, its_sum == sum, "{:?} and {:?}", one, other);
                }
            }
        }
    }
}

pub(super) fn value(timeline: &Timeline, content: Content) -> u8 {
    let mut bytes = vec![0; 4096];
    timeline.contents.read(content, &mut bytes).unwrap();
    bytes[0]
}

/// Contents that a unit may have after a cut at `now`, request by request.
pub(super) fn allowed(requests: &[Timed], unit: u64, now: u64) -> BTreeSet<u8> {
    let touches = |of: &Random| (of.unit..of.unit + of.units).contains(&unit);
    let is_change = |of: &Random| matches!(of.kind, Kind::Write | Kind::Trim);
    let content = |of: &Random| if of.kind == Kind::Write { of.value } else { 0 };
    let covers = |flush: &Timed| {
        flush.of.kind == Kind::Flush
            && !flush.of.fails
            && flush.end <= now
            && (!flush.of.fua || touches(&flush.of))
    };
    let is_durable = |change: &Timed| {
        !change.of.fails
            && requests
                .iter()
                .any(|flush| covers(flush) && change.end < flush.begin)
    };
    let mut contents = BTreeSet::from([0]);
    for change in requests
        .iter()
        .filter(|at| is_change(&at.of) && touches(&at.of))
    {
        if change.end <= now && is_durable(change) {
            contents.clear();
        }
        if change.end <= now || change.begin < now {
            contents.insert(content(&change.of));
        }
    }
    contents
}

/// A failed write may have had no effect: a part written after it then changes only that part of
/// the older content.
#[test]
fn a_part_written_after_a_failed_write_leaves_the_rest_as_it_was() {
    let mut recorder = Recorder::new(2);
    recorder.entry(Kind::Write, 0, UNIT, &[1; 4096]);
    recorder.flush();
    let moments = (recorder.moment(), recorder.moment());
    recorder.push(Kind::Write, false, 5, (0, UNIT), moments, &[2; 4096]);
    recorder.entry(Kind::Write, 0, 512, &[3; 512]);
    let saved = recorder.save();
    let timeline = saved.timeline();
    let mut cursor = Cursor::new(&timeline);
    while cursor.step().is_some() {}
    let point = cursor.point();
    let open = point.open.iter().find(|open| open.unit == 0).unwrap();
    let ends = |id: &Content| {
        let mut bytes = vec![0; 4096];
        timeline.contents.read(*id, &mut bytes).unwrap();
        (bytes[0], bytes[4095])
    };
    let found: BTreeSet<(u8, u8)> = open.candidates.iter().map(ends).collect();
    let expected = BTreeSet::from([(1, 1), (2, 2), (3, 1)]);
    assert!(found.is_superset(&expected), "{found:?}");
}

/// The check may want another content under another mark.
#[test]
fn an_equal_state_is_checked_again_under_another_mark() {
    let mut recorder = Recorder::new(4);
    recorder.write(0, "a");
    recorder.flush();
    recorder.mark("first");
    recorder.mark("second");
    let saved = recorder.save();
    let args = CrashesArgs {
        at: At::Mark,
        ..saved.args("[ $FTLD_MARK != first ]")
    };
    let (report, _) = saved.explored(&args).unwrap();
    assert_eq!((report.checked, report.failed), (2, 1), "{report:?}");
}
