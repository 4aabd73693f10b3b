//! `ftld top`: all instances of this user on one screen, asked again and again.
//!
//! A thread asks the instances, and the screen shows what it has heard: an instance that does not
//! answer delays no key. Nothing here changes an instance.

mod draw;
mod screen;

use crate::commands::Found;
use ftld_device::instance::Dirs;
use ftld_kit::failure::Failure;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::{Next, Screen};
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Longest time until an answer is on the screen.
const PATIENCE: Duration = Duration::from_millis(100);
/// Shortest and longest time between two rounds of questions, seconds.
const DELAYS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;

/// Runs until the user quits.
///
/// # Errors
/// Standard output is no terminal, the delay is out of range, or the terminal fails.
pub(crate) fn top(dirs: &Dirs, delay: f64) -> Result<(), Failure> {
    if !DELAYS.contains(&delay) {
        return Err(Failure::usage(format!(
            "--delay {delay}: need {} to {} seconds",
            DELAYS.start(),
            DELAYS.end()
        )));
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "standard output is no terminal; `ftld status --watch` prints a line per interval, `ftld list --json` all \
             instances",
        ));
    }
    let (answers, heard) = channel();
    let (set_delay, delays) = channel();
    let mut screen = Screen::new(Duration::from_secs_f64(delay));
    let (dirs, first) = (dirs.clone(), screen.delay());
    // Nobody waits for its end: an instance that does not answer would delay the user's quitting.
    std::thread::spawn(move || ask(&dirs, &answers, first, &delays));
    show(&mut screen, &heard, set_delay).map_err(|error| Failure::io("terminal", &error))
}

/// Asks all instances in rounds. Ends when the screen has dropped its end of a channel.
fn ask(
    dirs: &Dirs,
    answers: &Sender<Vec<Found>>,
    mut delay: Duration,
    delays: &Receiver<Duration>,
) {
    loop {
        let round = dirs
            .names()
            .iter()
            .map(|name| Found::of(dirs, name))
            .collect();
        if answers.send(round).is_err() {
            return;
        }
        match delays.recv_timeout(delay) {
            Ok(new) => delay = new,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Draws answers and handles keys until the user quits.
fn show(
    screen: &mut Screen,
    heard: &Receiver<Vec<Found>>,
    set_delay: Sender<Duration>,
) -> std::io::Result<()> {
    ratatui::run(|terminal| {
        loop {
            for round in heard.try_iter() {
                screen.update(round);
            }
            terminal.draw(|frame| draw::draw(frame, screen))?;
            if !event::poll(PATIENCE)? {
                continue;
            }
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                match screen.press(key.code, key.modifiers) {
                    Next::Quit => break Ok(()),
                    // The other thread does not end before the screen.
                    Next::Delay(delay) => drop(set_delay.send(delay)),
                    Next::Continue => {}
                }
            }
        }
    })
}
