//! Commands for instances: rm, mark, shadow, pause, step, resume, inject, stop.

use super::list::with_image;
use crate::control::{self, Request};
use crate::live_page::kept;
use crate::start;
use ftl_core::near_miss;
use ftld_device::inject::{Injected, Injection};
use ftld_device::instance::{Dirs, Instance, check_name};
use ftld_device::pause::{PauseCommand, PauseState};
use ftld_device::record::{Marked, check_mark};
use ftld_device::shadow::ShadowCommand;
use ftld_device::transport::holders::Users;
use ftld_device::{stack, transport};
use ftld_kit::convert::to_f64;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{OfInstance, counted, print, print_json};
use ftld_kit::path_json;
use nand_model::ImageError;
use nand_model::store::peek;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait of `ftld stop` for the daemon to exit.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// `ftld rm`: removes the default image of an instance that does not run, its history, its log, the
/// options of its start, and what a dead daemon left. A damaged image is removed, too; any other
/// file stays.
///
/// # Errors
/// The instance runs or is of another user, its image is in use, serves a device that a dead daemon
/// left or is no image, or a file cannot be removed.
pub(crate) fn remove(dirs: &Dirs, name: &str, as_json: bool) -> Result<(), Failure> {
    check_name(name).map_err(|_| {
        Failure::usage(format!(
            "{name:?} is not the name of an instance; `ftld list --all` shows all"
        ))
    })?;
    if dirs.is_of_another_user(name) {
        return Err(control::not_permitted(dirs, name));
    }
    if dirs.holder(name).is_some() {
        return Err(Failure::new(
            Exit::InUse,
            format!("instance {name:?} is running; `ftld stop {name}` ends it"),
        ));
    }
    if let Some(target) = transport::orphaned_target(name) {
        return Err(transport::orphan_error(name, &target));
    }
    let image = dirs.image(name);
    let has_image = image.symlink_metadata().is_ok();
    let others = [dirs.log(name), dirs.start(name), dirs.of(name)];
    let mut left: Vec<_> = others.iter().filter(|path| path.exists()).collect();
    if has_image {
        left.insert(0, &image);
    }
    let Some(first) = left.first() else {
        let known = start::names(dirs);
        let hint = near_miss(name, known.iter().map(String::as_str));
        return Err(Failure::new(
            Exit::NotRunning,
            format!(
                "{}: no such image{hint}; `ftld list --all` shows all",
                image.display()
            ),
        ));
    };
    let elsewhere = Some(start::image(dirs, name)).filter(|path| *path != image && path.exists());
    // Nobody starts it under this name until its files are removed. What a dead daemon left there
    // goes with the name.
    let _name = Instance::take(dirs, name)?;
    if has_image {
        remove_image(&image)?;
    }
    let beside = [dirs.log(name), dirs.start(name)];
    for file in kept::files_of(&image).iter().chain(&beside) {
        match std::fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io(file.display(), &error));
            }
            _ => {}
        }
    }
    if as_json {
        let image = has_image.then(|| path_json::shown(&image));
        return print_json("rm", json!({"name": name, "image": image}));
    }
    let stays = elsewhere.map_or(String::new(), |path| {
        format!("; its image {} stays", path.display())
    });
    print(&format!("removed {}{stays}\n", first.display()))
}

/// Removes an image that nobody uses; nobody opens it meanwhile.
fn remove_image(image: &Path) -> Result<(), Failure> {
    let _image = lock_image(image)?;
    if let Some(target) = transport::device_on(image) {
        return Err(transport::orphan_error(&target.instance_name(), &target));
    }
    match peek(image) {
        Err(ImageError::NotAnImage(_)) => {
            let path = image.display();
            return Err(Failure::new(
                Exit::Damaged,
                format!("{path}: not an ftld image, so it stays"),
            ));
        }
        Err(error @ (ImageError::Io { .. } | ImageError::NotFound(_))) => {
            return Err(stack::image_failure(&error));
        }
        // Without a whole header nothing of it can be read, and it can only be removed.
        Ok(_) | Err(_) => {}
    }
    std::fs::remove_file(image).map_err(|error| Failure::io(image.display(), &error))
}

/// Returns whether another process has locked an image against readers.
pub(super) fn is_in_use(image: &Path) -> bool {
    use rustix::fs::{FlockOperation, flock};
    let locked = File::open(image).map(|file| flock(&file, FlockOperation::NonBlockingLockShared));
    matches!(locked, Ok(Err(rustix::io::Errno::WOULDBLOCK)))
}

/// Locks an image against every other user of it, readers included, as long as the file is open.
fn lock_image(image: &Path) -> Result<File, Failure> {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
    use rustix::io::Errno;
    let failed = |errno: Errno| match errno {
        Errno::WOULDBLOCK => stack::image_failure(&ImageError::InUse(image.into())),
        Errno::LOOP | Errno::ISDIR => stack::image_failure(&ImageError::NotRegular(image.into())),
        other => Failure::io(image.display(), &other.into()),
    };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(image, flags, Mode::empty()).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
    Ok(file.into())
}

/// Returns the only running instance if no name was given.
pub(super) fn pick(dirs: &Dirs, name: Option<&str>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name.to_owned());
    }
    let names = dirs.names();
    let mut running: Vec<_> = names
        .iter()
        .filter(|name| dirs.holder(name).is_some())
        .cloned()
        .collect();
    let other = names.iter().find(|name| dirs.is_of_another_user(name));
    match (running.len(), other) {
        (0, Some(other)) => Err(control::not_permitted(dirs, other)),
        (0, None) => Err(none_runs(dirs)),
        (1, _) => Ok(running.remove(0)),
        _ => Err(Failure::usage(format!(
            "several instances are running, name one: {}",
            running.join(", ")
        ))),
    }
}

/// Returns the failure of a command for the only running instance if there is none.
fn none_runs(dirs: &Dirs) -> Failure {
    let failed = |message: &str| Failure::new(Exit::NotRunning, message);
    match &start::names(dirs)[..] {
        [] => failed(
            "no instance is running; `ftld TARGET` starts one, `ftld doctor` checks prerequisites",
        ),
        [only] => with_image(dirs, only, failed("no instance is running")),
        _ => failed(
            "no instance is running; `ftld list --all` shows those that `ftld start NAME` serves again",
        ),
    }
}

/// Asks a running instance; a failure says how one that does not run ended.
fn ask<A: DeserializeOwned>(dirs: &Dirs, name: &str, request: &Request) -> Result<A, Failure> {
    control::ask(dirs, name, request).map_err(|failure| with_image(dirs, name, failure))
}

/// Returns the status of a running instance, typed, or as the daemon wrote it. Exit 4 if it left a
/// quiesced device, 3 if there is none.
pub(super) fn ask_status<A: DeserializeOwned>(dirs: &Dirs, name: &str) -> Result<A, Failure> {
    control::ask(dirs, name, &Request::Status {}).map_err(
        |failure| match transport::orphaned_target(name) {
            Some(target) if failure.exit == Exit::NotRunning => {
                transport::orphan_error(name, &target)
            }
            _ => with_image(dirs, name, failure),
        },
    )
}

/// `ftld mark`.
///
/// # Errors
/// The text is empty or too long, no such instance runs, or it records nothing.
pub(crate) fn mark(
    dirs: &Dirs,
    name: Option<&str>,
    text: String,
    as_json: bool,
) -> Result<(), Failure> {
    check_mark(&text)?;
    let name = pick(dirs, name)?;
    let answer: Marked = ask(dirs, &name, &Request::Mark { text })?;
    if as_json {
        return print_json(
            "mark",
            OfInstance {
                name: &name,
                answer,
            },
        );
    }
    let Marked { seq, file } = answer;
    print(&format!("{name}: mark at moment {seq} of {file}\n"))
}

/// `ftld shadow`.
///
/// # Errors
/// No such instance runs, or it refuses the command.
pub(crate) fn shadow(
    dirs: &Dirs,
    name: Option<&str>,
    action: ShadowCommand,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let shadows: Vec<String> = ask(dirs, &name, &Request::Shadow { action })?;
    if as_json {
        return print_json("shadow", json!({"name": name, "shadows": shadows}));
    }
    print(&match shadows.is_empty() {
        true => format!("{name}: no shadows\n"),
        false => format!("{name}: shadows {}\n", shadows.join(", ")),
    })
}

/// `ftld pause`, `step` and `resume`.
///
/// # Errors
/// No such instance runs, or it refuses: the device failed, or is not paused.
pub(crate) fn pause(
    dirs: &Dirs,
    name: Option<&str>,
    command: PauseCommand,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let answer: PauseState = ask(dirs, &name, &Request::Pause { action: command })?;
    if as_json {
        return print_json(
            "pause",
            OfInstance {
                name: &name,
                answer,
            },
        );
    }
    let mut text = format!("{name}: {}\n", answer.text);
    for event in answer.events.into_iter().flatten() {
        let kind = event.kind.replace('_', " ");
        let block = event
            .block
            .map_or(String::new(), |block| format!(", block {block}"));
        let took = to_f64(event.took_ns) / 1e6;
        text += &format!(
            "  event {}: {kind}{block}, {}, {took:.3} ms\n",
            event.number,
            counted(event.pages.into(), "page")
        );
    }
    print(&text)
}

/// `ftld inject`.
///
/// # Errors
/// No such instance runs, or the fault cannot be injected.
pub(crate) fn inject(
    dirs: &Dirs,
    name: Option<&str>,
    injection: Injection,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let answer: Injected = ask(dirs, &name, &Request::Inject { fault: injection })?;
    if as_json {
        return print_json(
            "inject",
            OfInstance {
                name: &name,
                answer,
            },
        );
    }
    print(&format!("{name}: {}\n", answer.text))
}

/// Runs a command for several instances, one after the other. What fails does not keep the others.
///
/// # Errors
/// Some fail; the message is that of the first, and names the others that were not `done`.
pub(crate) fn each(
    names: &[String],
    done: &str,
    run: impl Fn(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let ended = names.iter().map(|name| (name, run(name)));
    let failed: Vec<_> = ended
        .filter_map(|(name, done)| Some((name, done.err()?)))
        .collect();
    match &failed[..] {
        [] => Ok(()),
        [(_, only)] => Err(only.clone()),
        [(_, first), rest @ ..] => {
            let rest: Vec<_> = rest.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("{}; not {done} either: {}", first.message, rest.join(", "));
            Err(Failure::new(first.exit, message))
        }
    }
}

/// `ftld stop`: stops these instances, with `all` the running ones of this user, without a name the
/// only running one.
///
/// # Errors
/// Some do not run, do not answer or do not stop.
pub(crate) fn stop(
    dirs: &Dirs,
    mut names: Vec<String>,
    all: bool,
    force: bool,
) -> Result<(), Failure> {
    if all {
        names = dirs.names();
        names.retain(|name| dirs.holder(name).is_some());
    } else if names.is_empty() {
        names.push(pick(dirs, None)?);
    }
    each(&names, "stopped", |name| stop_one(dirs, name, force))
}

fn stop_one(dirs: &Dirs, name: &str, force: bool) -> Result<(), Failure> {
    let users: Users = match ask(dirs, name, &Request::Stop { force }) {
        Err(failure) if failure.exit == Exit::NotRunning => {
            return transport::stop_left(name, force).unwrap_or(Err(failure));
        }
        answer => answer?,
    };
    if !users.is_empty() {
        return Err(Failure::new(
            Exit::InUse,
            format!(
                "instance {name:?} is in use: {users}; it is flushed and stops after last close; \
                 `ftld stop {name} --force` removes it even if open"
            ),
        ));
    }
    let until = Instant::now() + STOP_PATIENCE;
    while dirs.holder(name).is_some() {
        if Instant::now() > until {
            return Err(Failure::failed(format!(
                "instance {name:?} is still stopping; see its log"
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
