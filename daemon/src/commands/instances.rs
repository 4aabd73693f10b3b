//! Commands for running instances: list, pause, step, resume, inject, stop.

use crate::control::{self, Request};
use crate::failure::{Exit, Failure};
use crate::inject::Injection;
use crate::instance::{Dirs, Instance, check_name};
use crate::output::{Tone, counted, print, print_json, print_text, table, width, wrapped};
use crate::path_json;
use crate::pause::PauseCommand;
use crate::record::check_mark;
use crate::size::show_size;
use crate::target::Target;
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
    let heading = [
        "NAME",
        "STATE",
        "SCHEME",
        "SIZE",
        "WAF",
        "PAGE",
        "TARGET OR IMAGE",
    ];
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
        let page = page_of(instance).unwrap_or_else(|| "-".into());
        rows.push([name, state, scheme, size, ratio, page, place.to_owned()]);
    }
    let mut text = table(&rows, width(), |row, column| match (row, column) {
        (1.., STATE) => Tone::of_state(&rows[row][column]),
        _ => Tone::Plain,
    });
    let is_waiting = |instance: &&Value| {
        let state = instance["state"].as_str().unwrap_or_default();
        [CLEAN, UNCLEAN].contains(&state)
    };
    if let Some(name) = instances.iter().find(is_waiting).map(|one| &one["name"]) {
        let line = start_line(name.as_str().unwrap_or_default());
        text += &wrapped(&format!(
            "\n`{line}` starts {} again; unclean: a power cut, a kill or a crash, and the start recovers.",
            name.as_str().unwrap_or_default()
        ));
    }
    print_text(&text)
}

/// `ftld list --names`: every running or stopped instance, a line each.
///
/// # Errors
/// Standard output cannot be written.
pub fn names(dirs: &Dirs) -> Result<(), Failure> {
    let mut all = dirs.names();
    all.extend(images(dirs));
    all.sort();
    all.dedup();
    print(
        &all.iter()
            .fold(String::new(), |text, name| text + name + "\n"),
    )
}

/// Index of the state in a row of `ftld list`.
const STATE: usize = 1;

/// State of an image after a clean shutdown.
const CLEAN: &str = "stopped";
/// State of an image after a power cut, a kill or a crash.
const UNCLEAN: &str = "unclean";

/// Returns the address of an instance's live page.
pub(crate) fn page_of(status: &Value) -> Option<String> {
    let metrics = status["metrics"].as_str()?;
    Some(
        metrics
            .strip_suffix("metrics")
            .unwrap_or(metrics)
            .to_owned(),
    )
}

/// Returns the command that starts the instance of this name: a device has the name of its target.
pub(crate) fn start_line(name: &str) -> String {
    match Target::parse(&format!("/dev/{name}")) {
        Ok(target) => format!("ftld {target}"),
        Err(_) => format!("ftld --name {name} TARGET"),
    }
}

/// Adds to the failure of a command whose instance does not run how its image was left, and the
/// command that starts it.
fn with_image(dirs: &Dirs, name: &str, failure: Failure) -> Failure {
    if failure.exit != Exit::NotRunning {
        return failure;
    }
    let found = image_json(dirs, name);
    let left = match found["state"].as_str() {
        Some(CLEAN) => "after a clean shutdown",
        Some(UNCLEAN) => "after a power cut, a kill or a crash, from which the start recovers",
        _ => return failure,
    };
    let image = dirs.image(name);
    let line = start_line(name);
    Failure::new(
        Exit::NotRunning,
        format!(
            "instance {name:?} is not running; `{line}` starts it on {} {left}",
            image.display()
        ),
    )
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
        Ok(info) => {
            let state = match info.clean {
                true => CLEAN,
                false if is_in_use(&image) => "in use",
                false => UNCLEAN,
            };
            json!({
                "name": name, "state": state, "image": path_json::shown(&image),
                "scheme": info.scheme, "profile": info.profile.name, "size_bytes": info.size,
                "shards": info.shards(),
            })
        }
        Err(_) => json!({"name": name, "state": "unreadable", "image": path_json::shown(&image)}),
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
        let image = has_image.then(|| path_json::shown(&image));
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
fn is_in_use(image: &Path) -> bool {
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
            _ => with_image(dirs, name, failure),
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

/// `ftld stop --all`: stops the running instances of this user, one after the other.
///
/// # Errors
/// Some do not stop; the message names each, with the reason of the first.
pub fn stop_all(dirs: &Dirs, force: bool) -> Result<(), Failure> {
    let mut names = dirs.names();
    names.retain(|name| dirs.holder(name).is_some());
    let stopped = names
        .iter()
        .map(|name| (name, stop(dirs, Some(name), force)));
    let failed: Vec<_> = stopped
        .filter_map(|(name, done)| Some((name, done.err()?)))
        .collect();
    match &failed[..] {
        [] => Ok(()),
        [(_, only)] => Err(Failure::new(only.exit, only.message.clone())),
        [(_, first), rest @ ..] => {
            let rest: Vec<_> = rest.iter().map(|(name, _)| name.as_str()).collect();
            let message = format!("{}; not stopped either: {}", first.message, rest.join(", "));
            Err(Failure::new(first.exit, message))
        }
    }
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
