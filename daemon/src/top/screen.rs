//! State of the screen of `ftld top`, and the effect of keys. Does not use the terminal.

use super::DELAYS;
use crate::commands::Found;
use crate::rates::Rates;
use ftld_device::status::BlockState;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use strum::VariantArray;

/// Largest number of rounds in a graph.
pub(super) const HISTORY: usize = 240;

/// Columns by which the instances can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, VariantArray)]
pub(super) enum Column {
    Name,
    Read,
    Write,
    Requests,
    Latency,
    Amplification,
    Gc,
    Free,
}

/// Action that a key requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    Continue,
    Quit,
    /// Ask the instances this often from now on.
    Delay(Duration),
}

/// An instance, and what it did lately.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    /// Its last answer.
    pub(super) found: Found,
    /// Rates since the answer before; `None` before the second one.
    pub(super) rates: Option<Rates>,
    /// Requests per second, oldest first.
    pub(super) requests: VecDeque<u64>,
}

impl Instance {
    /// Returns the instance's name.
    pub(super) fn name(&self) -> &str {
        &self.found.name
    }

    fn key(&self, column: Column) -> f64 {
        let rates = self.rates.as_ref();
        let rate = |of: fn(&Rates) -> f64| rates.map_or(0.0, of);
        match column {
            Column::Name => 0.0,
            Column::Read => rate(|rates| rates.read_bytes),
            Column::Write => rate(|rates| rates.written_bytes),
            Column::Requests => rate(|rates| rates.requests),
            Column::Latency => rate(|rates| rates.latency.map_or(0.0, |latency| latency.p99)),
            Column::Amplification => rate(|rates| rates.write_amplification.unwrap_or(0.0)),
            Column::Gc => rate(|rates| rates.gc_pages),
            Column::Free => -(self.found.status.as_ref())
                .map_or(0.0, |of| f64::from(of.blocks_of(BlockState::Free))),
        }
    }
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    instances: BTreeMap<String, Instance>,
    /// Whether any round was heard.
    heard: bool,
    selected: String,
    sorted_by: Column,
    delay: Duration,
    help: bool,
}

impl Screen {
    /// Creates a screen that has heard nothing.
    pub(super) fn new(delay: Duration) -> Screen {
        Screen {
            instances: BTreeMap::new(),
            heard: false,
            selected: String::new(),
            sorted_by: Column::Name,
            delay,
            help: false,
        }
    }

    /// Returns the time between two rounds of questions.
    pub(super) fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns whether any round was heard.
    pub(super) fn heard(&self) -> bool {
        self.heard
    }

    /// Returns whether the keys are explained.
    pub(super) fn help(&self) -> bool {
        self.help
    }

    /// Returns the column by which the instances are sorted.
    pub(super) fn sorted_by(&self) -> Column {
        self.sorted_by
    }

    /// Takes the answers of a round. Instances that are gone leave the screen.
    pub(super) fn update(&mut self, round: Vec<Found>) {
        self.heard = true;
        let mut before = std::mem::take(&mut self.instances);
        for found in round {
            let before = before.remove(&found.name);
            let last = before
                .as_ref()
                .and_then(|before| before.found.status.as_ref());
            // After a restart the counters begin at 0.
            let same = last
                .zip(found.status.as_ref())
                .filter(|(a, b)| a.pid == b.pid);
            let rates = same.map(|(last, status)| Rates::between(last, status));
            let mut requests = before.map_or_else(VecDeque::new, |before| before.requests);
            if let Some(rates) = &rates {
                requests.push_back(rates.requests.round() as u64);
                if requests.len() > HISTORY {
                    requests.pop_front();
                }
            }
            let name = found.name.clone();
            let instance = Instance {
                found,
                rates,
                requests,
            };
            self.instances.insert(name, instance);
        }
        if !self.instances.contains_key(&self.selected) {
            self.selected = (self.sorted().first()).map_or(String::new(), |one| one.name().into());
        }
    }

    /// Returns the instances in the order of the screen: by name, or largest first.
    pub(super) fn sorted(&self) -> Vec<&Instance> {
        let mut sorted: Vec<_> = self.instances.values().collect();
        let column = self.sorted_by;
        sorted.sort_by(|a, b| b.key(column).total_cmp(&a.key(column)));
        sorted
    }

    /// Returns the selected instance.
    pub(super) fn selected(&self) -> Option<&Instance> {
        self.instances.get(&self.selected)
    }

    /// Returns its place in the order of the screen.
    pub(super) fn selected_row(&self) -> Option<usize> {
        (self.sorted().iter()).position(|instance| instance.name() == self.selected)
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyCode, with: KeyModifiers) -> Next {
        match key {
            KeyCode::Char('c') if with.contains(KeyModifiers::CONTROL) => return Next::Quit,
            KeyCode::Char('q') | KeyCode::F(10) => return Next::Quit,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.help = !self.help,
            KeyCode::Esc => self.help = false,
            KeyCode::Up | KeyCode::Char('k') => self.select(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select(1),
            KeyCode::Home => self.select(isize::MIN),
            KeyCode::End => self.select(isize::MAX),
            KeyCode::Char('>' | '.') | KeyCode::Right | KeyCode::F(6) => self.sort(1),
            KeyCode::Char('<' | ',') | KeyCode::Left => self.sort(Column::VARIANTS.len() - 1),
            KeyCode::Char('+') => return self.set_delay(2.0),
            KeyCode::Char('-') => return self.set_delay(0.5),
            _ => {}
        }
        Next::Continue
    }

    fn select(&mut self, by: isize) {
        let sorted = self.sorted();
        let Some(last) = sorted.len().checked_sub(1) else {
            return;
        };
        let row = self.selected_row().unwrap_or(0);
        self.selected = sorted[row.saturating_add_signed(by).min(last)]
            .name()
            .into();
    }

    fn sort(&mut self, by: usize) {
        let now = (Column::VARIANTS.iter()).position(|column| *column == self.sorted_by);
        let next = (now.unwrap_or(0) + by) % Column::VARIANTS.len();
        self.sorted_by = Column::VARIANTS[next];
    }

    fn set_delay(&mut self, factor: f64) -> Next {
        let (shortest, longest) = DELAYS.clone().into_inner();
        let seconds = (self.delay.as_secs_f64() * factor).clamp(shortest, longest);
        self.delay = Duration::from_secs_f64(seconds);
        Next::Delay(self.delay)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rates::Latency;
    use ftld_device::status::{Figures, Shadow, Status};
    use ftld_device::volume::{BOUNDS_NS, HistogramView, Op};
    use nand_model::Cause;

    /// An instance that has served `requests` writes of 4 KiB by the second `at`.
    pub(in crate::top) fn serving(name: &str, at: f64, requests: u64) -> Found {
        let mut status = Status {
            name: name.into(),
            pid: 7,
            state: "serving".into(),
            scheme: "lazyftl".into(),
            uptime_seconds: at,
            page_bytes: 4096,
            host_written_bytes: 4096 * requests,
            write_amplification: Some(1.5),
            latency_bounds_ns: BOUNDS_NS,
            ..Status::default()
        };
        let write = &mut status.host[Op::Write.index()];
        (write.completed, write.bytes) = (requests, 4096 * requests);
        (write.in_flight, write.wall.counts[0]) = (3, requests);
        write.wall.sum_ns = 20_000 * requests;
        status.nand[Cause::Host.index()].programs = requests;
        status.nand[Cause::Gc.index()].programs = requests / 2;
        status.scheme_stats.counters.gc_pages_moved = requests / 2;
        status.blocks[BlockState::Free as usize] = 12;
        let wear = &mut status.wear;
        (wear.wear.min, wear.wear.max, wear.wear.mean) = (1, 9, 4.5);
        wear.rated = 3000;
        let figures = |programs| {
            let histogram = HistogramView::default();
            Figures::new((100, programs, 7), 4096, [&histogram, &histogram])
        };
        status.shadows = vec![Shadow {
            name: "dftl:op=28".into(),
            figures: figures(175),
            live: figures(150),
            ..Shadow::default()
        }];
        Found::from(Box::new(status))
    }

    fn silent(name: &str) -> Found {
        Found {
            name: name.into(),
            pid: None,
            state: "dead".into(),
            status: None,
        }
    }

    fn names(screen: &Screen) -> Vec<&str> {
        screen.sorted().iter().map(|one| one.name()).collect()
    }

    #[test]
    fn instances_are_sorted_and_the_selection_follows_its_instance() {
        let mut screen = Screen::new(Duration::from_secs(1));
        assert!(screen.selected().is_none());
        let round = |at, a, b| vec![serving("a", at, a), serving("b", at, b)];
        screen.update(round(1.0, 100, 100));
        assert_eq!(screen.selected().unwrap().name(), "a");
        assert_eq!(screen.selected().unwrap().rates, None);
        screen.update(round(2.0, 150, 400));
        assert_eq!(names(&screen), ["a", "b"]);
        let none = KeyModifiers::NONE;
        for _ in 0..2 {
            screen.press(KeyCode::Right, none);
        }
        assert_eq!(screen.sorted_by(), Column::Write);
        assert_eq!(names(&screen), ["b", "a"]);
        assert_eq!(screen.selected_row(), Some(1));
        screen.press(KeyCode::Up, none);
        screen.press(KeyCode::Up, none);
        assert_eq!(screen.selected().unwrap().name(), "b");
        assert_eq!(screen.selected().unwrap().requests, [300]);
        screen.press(KeyCode::End, none);
        assert_eq!(screen.selected().unwrap().name(), "a");
        screen.press(KeyCode::Left, none);
        assert_eq!(screen.sorted_by(), Column::Read);
    }

    #[test]
    fn every_column_sorts_by_what_it_shows() {
        // By each column the instance of its name is first; all others are equal.
        let first_by = |column: Column| {
            let mut free = 5;
            let mut rates = Rates {
                latency: Some(Latency {
                    mean: 9.0,
                    p50: 9.0,
                    p99: 1.0,
                    p999: 9.0,
                }),
                ..Rates::default()
            };
            match column {
                Column::Name => {}
                Column::Read => rates.read_bytes = 2.0,
                Column::Write => rates.written_bytes = 2.0,
                Column::Requests => rates.requests = 2.0,
                Column::Latency => {
                    rates.latency = Some(Latency {
                        mean: 1.0,
                        p50: 1.0,
                        p99: 2.0,
                        p999: 1.0,
                    });
                }
                Column::Amplification => rates.write_amplification = Some(2.0),
                Column::Gc => rates.gc_pages = 2.0,
                Column::Free => free = 4,
            }
            let mut status = Status {
                name: format!("{column:?}"),
                ..Status::default()
            };
            status.blocks[BlockState::Free as usize] = free;
            Instance {
                found: Found::from(Box::new(status)),
                rates: Some(rates),
                requests: VecDeque::new(),
            }
        };
        let mut screen = Screen::new(Duration::from_secs(1));
        for instance in Column::VARIANTS.iter().copied().map(first_by) {
            screen.instances.insert(instance.name().into(), instance);
        }
        for column in &Column::VARIANTS[1..] {
            screen.press(KeyCode::Right, KeyModifiers::NONE);
            assert_eq!(screen.sorted_by(), *column);
            assert_eq!(names(&screen)[0], format!("{column:?}"));
        }
    }

    #[test]
    fn an_instance_that_left_is_forgotten_and_one_that_restarted_has_no_rates() {
        let mut screen = Screen::new(Duration::from_secs(1));
        screen.update(vec![serving("a", 1.0, 5), serving("b", 1.0, 5)]);
        let mut again = serving("b", 0.1, 1).status.unwrap();
        again.pid = 8;
        screen.update(vec![again.into()]);
        assert_eq!(names(&screen), ["b"]);
        assert_eq!(screen.selected().unwrap().rates, None);
        screen.update(vec![silent("b")]);
        assert_eq!(screen.selected().unwrap().rates, None);
        screen.update(vec![]);
        assert!(screen.selected().is_none());
        screen.press(KeyCode::Down, KeyModifiers::NONE);
    }

    #[test]
    fn keys_quit_and_set_the_delay() {
        let mut screen = Screen::new(Duration::from_secs(1));
        let none = KeyModifiers::NONE;
        let faster = screen.press(KeyCode::Char('-'), none);
        assert_eq!(faster, Next::Delay(Duration::from_millis(500)));
        for _ in 0..20 {
            screen.press(KeyCode::Char('+'), none);
        }
        // "Slower" never asks more often, whatever --delay was.
        assert_eq!(screen.delay(), Duration::from_secs(3600));
        assert_eq!(screen.press(KeyCode::Char('c'), none), Next::Continue);
        let control = KeyModifiers::CONTROL;
        assert_eq!(screen.press(KeyCode::Char('c'), control), Next::Quit);
        assert_eq!(screen.press(KeyCode::F(10), none), Next::Quit);
    }
}
