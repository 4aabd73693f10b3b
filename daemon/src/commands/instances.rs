//! Commands for running instances: list, pause, step, resume, inject, stop.

use crate::control::{self, Request};
use crate::failure::{Exit, Failure};
use crate::inject::Injection;
use crate::instance::{Dirs, Instance, check_name};
use crate::output::{Tone, counted, print, print_json, print_text};
use crate::pause::PauseCommand;
use crate::record::check_mark;
use crate::size::show_size;
use crate::transport::holders::Users;
use crate::{stack, transport};
use ftl_core::near_miss;
use nand_model::ImageError;
use nand_model::store::peek;
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait of `ftld stop` for the daemon to exit.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// `ftld list`; with `all` also the images of instances that do not run.
///
/// # Errors
/// Standard output cannot be written.
pub fn list(dirs: &Dirs, all: bool, as_json: bool) -> Result<(), Failure> {
    let names = dirs.names();
    let mut instances: Vec<_> = names.iter().map(|name| instance_json(dirs, name)).collect();
    if all {
        let stopped = images(dirs)
            .into_iter()
            .filter(|name| !names.contains(name));
        instances.extend(stopped.map(|name| image_json(dirs, &name)));
    }
    if as_json {
        return print_json("list", json!({"instances": instances}));
    }
    if instances.is_empty() {
        let hint = match images(dirs).len() {
            0 => String::new(),
            images => format!("; `ftld list --all` shows {images} stopped"),
        };
        return print(&format!("no instance is running{hint}\n"));
    }
    let heading = ["NAME", "STATE", "SCHEME", "SIZE", "WAF", "TARGET OR IMAGE"];
    let mut rows = vec![heading.map(str::to_owned)];
    for instance in &instances {
        let field = |key: &str| instance[key].as_str().unwrap_or("-");
        let size = instance["size_bytes"]
            .as_u64()
            .map_or("-".into(), show_size);
        let ratio = instance["write_amplification"]
            .as_f64()
            .map_or("-".into(), |ratio| format!("{ratio:.2}"));
        // One that is stopped has no target; `ftld status` shows both.
        let place = instance["target"].as_str().unwrap_or(field("image"));
        let text = ["name", "state", "scheme"].map(|key| field(key).to_owned());
        let [name, state, scheme] = text;
        rows.push([name, state, scheme, size, ratio, place.to_owned()]);
    }
    print_text(&aligned(&rows))
}

/// Index of the state in a row of `ftld list`.
const STATE: usize = 1;

/// Returns the rows with their columns aligned: numbers to the right, the last one as it is. The
/// state has its colour.
fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let is_number = |column: usize| {
        let mut cells = rows.iter().skip(1).map(|row| row[column].as_str());
        cells.all(|cell| cell == "-" || cell.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let tone = match (number, column) {
                (1.., STATE) => Tone::of_state(cell),
                _ => Tone::Plain,
            };
            let space = " ".repeat(width(column) - cell.chars().count());
            let cell = tone.paint(cell);
            text += &match (column + 1 == N, is_number(column)) {
                (true, _) => format!("{cell}\n"),
                (false, true) => format!("{space}{cell}  "),
                (false, false) => format!("{cell}{space}  "),
            };
        }
    }
    text
}

/// Returns the names of the default images.
fn images(dirs: &Dirs) -> Vec<String> {
    let entries = std::fs::read_dir(&dirs.state).into_iter().flatten();
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter_map(|name| Some(name.strip_suffix(".ftld")?.to_owned()));
    let mut names: Vec<_> = names.filter(|name| check_name(name).is_ok()).collect();
    names.sort();
    names
}

/// Returns an image in the layout of an instance.
fn image_json(dirs: &Dirs, name: &str) -> Value {
    let image = dirs.image(name);
    match peek(&image) {
        Ok(info) => json!({
            "name": name, "state": "stopped", "image": image, "scheme": info.scheme,
            "profile": info.profile.name, "size_bytes": info.size, "shards": info.shards(),
        }),
        Err(_) => json!({"name": name, "state": "unreadable", "image": image}),
    }
}

/// `ftld rm`: removes the default image of an instance that does not run, and its log. A damaged
/// image and the log of an image elsewhere are removed, too; any other file stays.
///
/// # Errors
/// The instance runs, its image is in use, serves a device that a dead daemon left or is no image,
/// or a file cannot be removed.
pub fn remove(dirs: &Dirs, name: &str, as_json: bool) -> Result<(), Failure> {
    check_name(name).map_err(|_| {
        Failure::usage(format!(
            "{name:?} is not the name of an instance; `ftld list --all` shows all"
        ))
    })?;
    let (image, log) = (dirs.image(name), dirs.log(name));
    if dirs.holder(name).is_some() {
        return Err(Failure::new(
            Exit::InUse,
            format!("instance {name:?} is running; `ftld stop {name}` ends it"),
        ));
    }
    let has_image = image.symlink_metadata().is_ok();
    if !has_image && !log.exists() {
        let known = images(dirs);
        let hint = near_miss(name, known.iter().map(String::as_str));
        return Err(Failure::new(
            Exit::NotRunning,
            format!(
                "{}: no such image{hint}; `ftld list --all` shows all",
                image.display()
            ),
        ));
    }
    // Nobody starts it under this name until its files are removed.
    let _name = Instance::take(dirs, name)?;
    if has_image {
        remove_image(&image)?;
    }
    match std::fs::remove_file(&log) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::io(log.display(), &error));
        }
        _ => {}
    }
    if as_json {
        let image = has_image.then_some(image);
        return print_json("rm", json!({"name": name, "image": image}));
    }
    let removed = if has_image { image } else { log };
    print(&format!("removed {}\n", removed.display()))
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
                format!("{path}: not an ftld image, so it stays; remove it with `rm {path}`"),
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

fn instance_json(dirs: &Dirs, name: &str) -> Value {
    const KEYS: [&str; 12] = [
        "name",
        "pid",
        "state",
        "target",
        "image",
        "scheme",
        "profile",
        "size_bytes",
        "shards",
        "write_amplification",
        "uptime_seconds",
        "metrics",
    ];
    let mut instance = status_of(dirs, name);
    if let Some(fields) = instance.as_object_mut() {
        fields.retain(|key, _| KEYS.contains(&key.as_str()));
        if let Some(shards) = fields.get_mut("shards") {
            *shards = shards.as_array().map(Vec::len).into();
        }
    }
    instance
}

/// Returns the status of an instance; of one that does not answer, name and state alone.
pub(crate) fn status_of(dirs: &Dirs, name: &str) -> Value {
    match (
        control::ask(dirs, name, &Request::Status {}),
        dirs.holder(name),
    ) {
        (Ok(status), _) => status,
        (Err(_), Some(pid)) => json!({"name": name, "pid": pid, "state": "starting or busy"}),
        _ if dirs.is_of_another_user(name) => json!({"name": name, "state": "of another user"}),
        (Err(_), None) if transport::orphaned_target(name).is_some() => {
            json!({"name": name, "state": "quiesced"})
        }
        (Err(_), None) => json!({"name": name, "state": "dead"}),
    }
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
        (0, None) => Err(Failure::new(
            Exit::NotRunning,
            "no instance is running; `ftld TARGET` starts one, `ftld doctor` checks prerequisites",
        )),
        (1, _) => Ok(running.remove(0)),
        _ => Err(Failure::usage(format!(
            "several instances are running, name one: {}",
            running.join(", ")
        ))),
    }
}

/// Returns the status of a running instance. Exit 4 if it left a quiesced device, 3 if there is
/// none.
pub(super) fn ask_status(dirs: &Dirs, name: &str) -> Result<Value, Failure> {
    control::ask(dirs, name, &Request::Status {}).map_err(
        |failure| match transport::orphaned_target(name) {
            Some(target) if failure.exit == Exit::NotRunning => {
                transport::orphan_error(name, &target)
            }
            _ => failure,
        },
    )
}

/// `ftld mark`.
///
/// # Errors
/// The text is empty or too long, no such instance runs, or it records nothing.
pub fn mark(dirs: &Dirs, name: Option<&str>, text: String, as_json: bool) -> Result<(), Failure> {
    check_mark(&text)?;
    let name = pick(dirs, name)?;
    let mut answer = control::ask(dirs, &name, &Request::Mark { text })?;
    if as_json {
        answer["name"] = name.into();
        return print_json("mark", answer);
    }
    let file = answer["file"].as_str().unwrap_or("-");
    print(&format!(
        "{name}: mark at moment {} of {file}\n",
        answer["seq"]
    ))
}

/// `ftld pause`, `step` and `resume`.
///
/// # Errors
/// No such instance runs, or it refuses: the device failed, or is not paused.
pub fn pause(
    dirs: &Dirs,
    name: Option<&str>,
    command: PauseCommand,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let mut answer = control::ask(dirs, &name, &Request::Pause { action: command })?;
    if as_json {
        answer["name"] = name.into();
        return print_json("pause", answer);
    }
    let mut text = format!("{name}: {}\n", answer["text"].as_str().unwrap_or("done"));
    for event in answer["events"].as_array().into_iter().flatten() {
        let kind = event["kind"].as_str().unwrap_or_default().replace('_', " ");
        let block = event["block"]
            .as_u64()
            .map_or(String::new(), |block| format!(", block {block}"));
        let took = event["took_ns"].as_f64().unwrap_or_default() / 1e6;
        text += &format!(
            "  event {}: {kind}{block}, {}, {took:.3} ms\n",
            event["number"],
            counted(event["pages"].as_u64().unwrap_or_default(), "page")
        );
    }
    print(&text)
}

/// `ftld inject`.
///
/// # Errors
/// No such instance runs, or the fault cannot be injected.
pub fn inject(
    dirs: &Dirs,
    name: Option<&str>,
    injection: Injection,
    as_json: bool,
) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let mut answer = control::ask(dirs, &name, &Request::Inject { fault: injection })?;
    if as_json {
        answer["name"] = name.into();
        return print_json("inject", answer);
    }
    print(&format!(
        "{name}: {}\n",
        answer["text"].as_str().unwrap_or("done")
    ))
}

/// `ftld stop`.
///
/// # Errors
/// No such instance runs, or it does not answer.
pub fn stop(dirs: &Dirs, name: Option<&str>, force: bool) -> Result<(), Failure> {
    let name = pick(dirs, name)?;
    let answer = match control::ask(dirs, &name, &Request::Stop { force }) {
        Err(failure) if failure.exit == Exit::NotRunning => {
            return transport::stop_left(&name, force).unwrap_or(Err(failure));
        }
        answer => answer?,
    };
    let users: Users = serde_json::from_value(answer).unwrap_or_default();
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
    while dirs.holder(&name).is_some() {
        if Instant::now() > until {
            return Err(Failure::failed(format!(
                "instance {name:?} is still stopping; see its log"
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_the_state_has_its_colour() {
        let rows = [
            ["NAME", "STATE", "SIZE", "TARGET"],
            ["a", "serving", "8 MiB", "-"],
            ["longer", "stopped", "16 MiB", "x"],
        ];
        let text = aligned(&rows.map(|row| row.map(str::to_owned)));
        assert!(text.contains(&Tone::Good.paint("serving")), "{text:?}");
        let text = anstream::adapter::strip_str(&text).to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "NAME    STATE      SIZE  TARGET");
        assert_eq!(lines[1], "a       serving   8 MiB  -");
        assert_eq!(lines[2], "longer  stopped  16 MiB  x");
    }
}
