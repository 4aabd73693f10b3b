//! The screen of `ftld top`: instances above, the selected one below.

use super::screen::{Column, Instance, Screen};
use crate::rates::{Latency, Rates, show_ns};
use ftld_device::status::{BlockState, Figures, Status};
use ftld_device::volume::Wear;
use ftld_kit::convert::whole;
use ftld_kit::size::show_size;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use strum::VariantNames;

/// Least width for causes beside the facts; narrower frames show them below.
const WIDE: u16 = 84;
/// Minimum columns of a name.
const NAME_LEAST: usize = 8;
/// Lines of the selected instance, its frame included.
const DETAILS: u16 = 12;
/// Width of the bar of the largest cause.
const BAR: f64 = 24.0;
const KEYS: &str = " \u{2191}\u{2193} select  <> sort  + - slower, faster  h help  q quit";
const HELP: &str = "\
Up, Down, Home, End   select an instance
< >, Left, Right, F6  sort by the next or the last column, largest first
+ -                   ask half as often, twice as often; every 0.1 s to 1 h
h, ?, F1              show or hide this
q, F10, Ctrl-C        quit

All figures are those of the last interval. WAF: flash programs per page written. P99, mean and the \
other times: reads and writes as the host saw them, interpolated within a bucket of the histogram. \
QUEUE: requests in flight. GC pages/s: pages that garbage collection copied. FREE: erased blocks. \
Shadow: ~ lacks requests, ! has ended. A narrow terminal has fewer columns.";

/// A column: its title, and the terminals that have it.
struct Shape {
    column: Option<Column>,
    title: &'static str,
    /// Narrow terminals leave out the columns with the largest numbers.
    rank: usize,
}

const fn shape(title: &'static str, rank: usize, column: Option<Column>) -> Shape {
    Shape {
        column,
        title,
        rank,
    }
}

static SHAPES: [Shape; 11] = [
    shape("NAME", 0, Some(Column::Name)),
    shape("STATE", 1, None),
    shape("SCHEME", 10, None),
    shape("READ/s", 3, Some(Column::Read)),
    shape("WRITE/s", 2, Some(Column::Write)),
    shape("IOPS", 7, Some(Column::Requests)),
    shape("P99", 5, Some(Column::Latency)),
    shape("QUEUE", 8, None),
    shape("WAF", 4, Some(Column::Amplification)),
    shape("GC pages/s", 9, Some(Column::Gc)),
    shape("FREE", 6, Some(Column::Free)),
];

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame, screen: &Screen) {
    let rows = screen.sorted().len().max(1);
    let table_height = u16::try_from(rows + 1).unwrap_or(u16::MAX);
    let [head, table, details, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(table_height),
        Constraint::Min(DETAILS),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let delay = screen.delay().as_secs_f64();
    let title = match screen.sorted().len() {
        1 => format!(" ftld: 1 instance, every {delay:.3} s"),
        n => format!(" ftld: {n} instances, every {delay:.3} s"),
    };
    frame.render_widget(Line::from(title).bold(), head);
    frame.render_widget(Line::from(KEYS).reversed(), keys);
    if screen.help() {
        let help = Paragraph::new(HELP).wrap(Wrap { trim: false });
        return frame.render_widget(
            help.block(Block::bordered().title(" Keys ")),
            table.union(details),
        );
    }
    match (screen.heard(), screen.selected()) {
        (false, _) => frame.render_widget(" asking the instances ...", table),
        (true, None) => {
            let none = " no instance is running; `ftld TARGET` starts one, `ftld doctor` checks prerequisites";
            frame.render_widget(
                Paragraph::new(none).wrap(Wrap { trim: false }),
                table.union(details),
            );
        }
        (true, Some(selected)) => {
            instances(frame, table, screen);
            instance(frame, details, selected);
        }
    }
}

fn instances(frame: &mut Frame, area: Rect, screen: &Screen) {
    let rows = screen.sorted();
    let fitting = fitting(&rows, area.width.into());
    let heads = fitting.iter().map(|(shape, _)| {
        let sorted = shape.column == Some(screen.sorted_by());
        let text = aligned(shape, shape.title.to_owned());
        Cell::from(if sorted { text.underlined() } else { text })
    });
    let cells = rows.iter().map(|one| {
        let cells = fitting
            .iter()
            .map(|(shape, _)| Cell::from(aligned(shape, cell(one, shape.title))));
        Row::new(cells).style(style(one))
    });
    let widths = fitting.iter().map(|(shape, width)| match shape.title {
        "NAME" => Constraint::Min(*width),
        _ => Constraint::Length(*width),
    });
    let table = Table::new(cells, widths.collect::<Vec<_>>())
        .header(Row::new(heads).bold())
        .row_highlight_style(Style::new().reversed());
    let mut state = TableState::new().with_selected(screen.selected_row());
    frame.render_stateful_widget(table, area, &mut state);
}

/// Returns the columns that fit, each with the width of its widest cell: a number is never cut.
fn fitting(rows: &[&Instance], width: usize) -> Vec<(&'static Shape, u16)> {
    let widest = |shape: &Shape| {
        let cells = rows
            .iter()
            .map(|one| cell(one, shape.title).chars().count());
        let widest = cells.max().unwrap_or(0).max(shape.title.len());
        // A name may be cut; it has the columns that are left.
        if shape.title == "NAME" {
            widest.min(NAME_LEAST)
        } else {
            widest
        }
    };
    let widths: Vec<_> = SHAPES.iter().map(|shape| (shape, widest(shape))).collect();
    let kept = |most: usize| widths.iter().filter(move |(shape, _)| shape.rank <= most);
    let needs = |most: usize| kept(most).map(|(_, wide)| wide + 1).sum::<usize>() - 1;
    let most = (0..SHAPES.len()).rev().find(|most| needs(*most) <= width);
    kept(most.unwrap_or(0))
        .map(|(shape, wide)| (*shape, u16::try_from(*wide).unwrap_or(u16::MAX)))
        .collect()
}

/// Names on the left, numbers on the right.
fn aligned(shape: &Shape, text: String) -> Text<'static> {
    let left = ["NAME", "STATE", "SCHEME"].contains(&shape.title);
    Text::from(text).alignment(if left {
        Alignment::Left
    } else {
        Alignment::Right
    })
}

fn style(instance: &Instance) -> Style {
    match &*instance.found.state {
        "serving" => Style::new(),
        "failed" | "dead" => Style::new().red(),
        _ => Style::new().yellow(),
    }
}

fn cell(instance: &Instance, title: &str) -> String {
    let rate = |show: fn(&Rates) -> String| instance.rates.as_ref().map_or("-".into(), show);
    let fact =
        |show: fn(&Status) -> String| (instance.found.status.as_deref()).map_or("-".into(), show);
    match title {
        "NAME" => instance.name().into(),
        "STATE" => instance.found.state.clone(),
        "SCHEME" => fact(|status| status.scheme.clone()),
        "READ/s" => rate(|rates| show_size(whole(rates.read_bytes))),
        "WRITE/s" => rate(|rates| show_size(whole(rates.written_bytes))),
        "IOPS" => rate(|rates| format!("{:.0}", rates.requests)),
        "P99" => rate(|rates| {
            rates
                .latency
                .map_or("-".into(), |latency| show_ns(latency.p99))
        }),
        "WAF" => rate(|rates| two_digits(rates.write_amplification)),
        "GC pages/s" => rate(|rates| format!("{:.0}", rates.gc_pages)),
        "QUEUE" => fact(|status| {
            status
                .host
                .iter()
                .map(|op| op.in_flight)
                .sum::<u64>()
                .to_string()
        }),
        "FREE" => fact(|status| status.blocks_of(BlockState::Free).to_string()),
        _ => "-".into(),
    }
}

fn two_digits(number: Option<f64>) -> String {
    number.map_or("-".into(), |number| format!("{number:.2}"))
}

/// The selected instance.
fn instance(frame: &mut Frame, area: Rect, instance: &Instance) {
    let frame_of = Block::bordered().title(format!(" {} ", instance.name()));
    let inner = frame_of.inner(area);
    frame.render_widget(frame_of, area);
    let [top, graph] = Layout::vertical([Constraint::Min(6), Constraint::Length(3)]).areas(inner);
    let (facts, causes) = (facts(instance), causes(instance));
    if area.width < WIDE {
        let both = [facts, causes].concat();
        let both = Paragraph::new(both).wrap(Wrap { trim: false });
        frame.render_widget(both, top);
    } else {
        let [left, right] = Layout::horizontal([Constraint::Fill(4), Constraint::Fill(3)])
            .spacing(1)
            .areas(top);
        let facts = Paragraph::new(facts).wrap(Wrap { trim: false });
        frame.render_widget(facts, left);
        frame.render_widget(Paragraph::new(causes), right);
    }
    let shown: Vec<u64> = instance
        .requests
        .iter()
        .rev()
        .take(graph.width.into())
        .rev()
        .copied()
        .collect();
    let title = format!(
        "requests per second, at most {}",
        shown.iter().max().unwrap_or(&0)
    );
    let graph_of = Sparkline::default()
        .data(&shown)
        .block(Block::new().title(title.dim()));
    frame.render_widget(graph_of, graph);
}

fn facts(instance: &Instance) -> Vec<Line<'static>> {
    let Some(status) = &instance.found.status else {
        return vec![Line::from(format!("state: {}", instance.found.state))];
    };
    let mut lines = vec![Line::from(format!(
        "{} on {}, {} of {} flash",
        status.scheme,
        status.profile,
        show_size(status.size_bytes),
        show_size(status.raw_bytes)
    ))];
    lines.push(Line::from(status.target.clone()));
    lines.push(Line::from(format!(
        "page {}",
        status.page().unwrap_or("off")
    )));
    lines.push(Line::from("        mean      p50      p99    p99.9").dim());
    let rates = instance.rates.as_ref();
    let times = rates.and_then(|rates| rates.latency);
    lines.push(Line::from(match times {
        Some(Latency {
            mean,
            p50,
            p99,
            p999,
        }) => {
            format!(
                "{:>12} {:>8} {:>8} {:>8}",
                show_ns(mean),
                show_ns(p50),
                show_ns(p99),
                show_ns(p999)
            )
        }
        None => "no reads or writes".into(),
    }));
    let blocks = BlockState::VARIANTS.iter().zip(status.blocks);
    let blocks = blocks.filter(|(_, count)| *count > 0);
    let mut blocks: Vec<_> = blocks
        .map(|(state, count)| format!("{state} {count}"))
        .collect();
    blocks.sort();
    lines.push(Line::from(format!("blocks: {}", blocks.join(", "))));
    let Wear { min, max, mean, .. } = status.wear.wear;
    lines.push(Line::from(format!(
        "erases per block: {min} to {max}, mean {mean:.1} of {}",
        status.wear.rated
    )));
    let notes = [
        status.failure.as_ref(),
        status.writes_failing.as_ref(),
        Some(&status.read_only_reason),
        status.host_behind.as_ref(),
    ];
    let notes = notes.into_iter().flatten().filter(|note| !note.is_empty());
    lines.extend(notes.map(|note| Line::from(note.clone()).yellow()));
    lines
}

/// Flash programs per page written, as bars.
fn causes(instance: &Instance) -> Vec<Line<'static>> {
    let status = instance.found.status.as_ref();
    let lifetime = status.and_then(|status| status.write_amplification);
    let rates = instance.rates.as_ref();
    let now = two_digits(rates.and_then(|rates| rates.write_amplification));
    let head = format!("WAF {now}, lifetime {}", two_digits(lifetime));
    let mut lines = vec![Line::from(head)];
    let by_cause = rates.map_or(&[][..], |rates| &rates.by_cause);
    let most = by_cause.first().map_or(1.0, |(_, of)| *of);
    lines.extend(by_cause.iter().map(|(cause, of)| {
        let bar = "\u{2588}".repeat(whole(BAR * of / most) as usize);
        let colour = if *cause == "host" {
            Style::new().green()
        } else {
            Style::new().yellow()
        };
        Line::from(vec![
            Span::raw(format!("{cause:<14} {of:>5.2} ")),
            Span::styled(bar, colour),
        ])
    }));
    lines.extend(status.map_or_else(Vec::new, |status| shadows(status)));
    lines
}

/// The schemes that follow the requests, beside the device since the first of them began.
fn shadows(status: &Status) -> Vec<Line<'static>> {
    let Some(first) = status.shadows.first() else {
        return Vec::new();
    };
    let row = |name: &str, of: &Figures, mark: &str| {
        let p99 = of.write_p99_ns.map_or("-".into(), show_ns);
        let ratio = mark.to_owned() + &two_digits(of.write_amplification);
        let erases = of.erases;
        Line::from(format!("{name:<14.14} {ratio:>6} {erases:>8} {p99:>9}"))
    };
    let head = Line::from("shadow            WAF   erases write p99").dim();
    let own = status.shadows.iter().map(|shadow| match shadow.failure {
        Some(_) => row(&shadow.name, &shadow.figures, "!").red(),
        None if !shadow.exact => row(&shadow.name, &shadow.figures, "~").yellow(),
        None => row(&shadow.name, &shadow.figures, ""),
    });
    let device = row("the device", &first.live, "");
    [head, device].into_iter().chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::super::screen::tests::serving;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyModifiers};
    use std::time::Duration;

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen)).unwrap();
        terminal.backend().to_string()
    }

    fn line<'a>(text: &'a str, with: &str) -> &'a str {
        (text.lines().find(|line| line.contains(with)))
            .unwrap_or_else(|| panic!("no {with:?} in\n{text}"))
    }

    #[test]
    fn instances_their_rates_and_the_selected_one_are_shown() {
        let mut screen = Screen::new(Duration::from_secs(1));
        assert!(drawn(&screen, 80, 24).contains("asking the instances"));
        screen.update(vec![]);
        assert!(drawn(&screen, 80, 24).contains("no instance is running"));
        screen.update(vec![serving("demo", 1.0, 0)]);
        screen.update(vec![serving("demo", 2.0, 2048), serving("other", 2.0, 0)]);
        let text = drawn(&screen, 100, 24);
        let words: Vec<_> = line(&text, "lazyftl  ").split_whitespace().collect();
        let expected = [
            "\"demo", "serving", "lazyftl", "0", "B", "8", "MiB", "2048", "24.8", "\u{b5}s", "3",
            "1.50", "1024", "12\"",
        ];
        assert_eq!(words[..14], expected, "{text}");
        assert!(text.contains("WAF 1.50, lifetime 1.50"), "{text}");
        assert!(line(&text, "gc     ").contains("0.50"), "{text}");
        assert!(text.contains("requests per second, at most 2048"), "{text}");
        assert!(text.contains("erases per block: 1 to 9"), "{text}");
        assert!(
            line(&text, "the device ").contains("1.50        7"),
            "{text}"
        );
        let shadow = line(&text, "dftl:op=28 ");
        assert!(shadow.contains(" ~1.75        7         -"), "{text}");
    }

    /// A cell that is cut from the left is another number.
    #[test]
    fn no_number_is_cut_at_any_width() {
        let mut screen = Screen::new(Duration::from_secs(1));
        screen.update(vec![serving("demo", 1.0, 0)]);
        // 123.46 MiB/s: the longest cells that a size has.
        screen.update(vec![serving("demo", 2.0, 31606)]);
        let one = screen.selected().unwrap();
        let whole: Vec<_> = SHAPES.iter().map(|shape| cell(one, shape.title)).collect();
        assert!(whole.contains(&"123.46 MiB".to_owned()), "{whole:?}");
        for width in [40, 60, 80, 100, 132] {
            let text = drawn(&screen, width, 40);
            let row = text.lines().nth(2).unwrap().trim_matches('"').trim_end();
            let shown = fitting(&[one], width.into());
            let cells: Vec<_> = shown
                .iter()
                .map(|(shape, _)| cell(one, shape.title))
                .collect();
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(row), words(&cells.join(" ")), "{width}: {text}");
            assert!(cells.len() >= 4, "{width}: {text}");
            // The selected instance: a narrow screen shows all that a wide one shows.
            for part in ["24.8 \u{b5}s", "31606", "mean 4.5 of"] {
                let all = text.replace(['"', '\n', '\u{2502}'], " ");
                assert!(words(&all).contains(part), "{width}: no {part} in {text}");
            }
        }
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_a_tiny_one_does_no_harm() {
        let mut screen = Screen::new(Duration::from_secs(1));
        screen.update(vec![serving("demo", 1.0, 0)]);
        assert!(drawn(&screen, 100, 24).contains("SCHEME"));
        let narrow = drawn(&screen, 60, 24);
        assert!(
            !narrow.contains("SCHEME") && narrow.contains("FREE"),
            "{narrow}"
        );
        for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 2)] {
            drawn(&screen, width, height);
        }
        screen.press(KeyCode::Char('h'), KeyModifiers::NONE);
        assert!(drawn(&screen, 80, 24).contains("select an instance"));
    }
}
