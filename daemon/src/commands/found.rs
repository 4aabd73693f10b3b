//! Status answer of an instance, or the reason why there is none.

use crate::control::{self, Request};
use ftld_device::instance::Dirs;
use ftld_device::status::Status;
use ftld_device::transport;

/// Known facts about an instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) name: String,
    /// Process that holds the name, if any.
    pub(crate) pid: Option<u32>,
    /// State as the status names it; without a status, the reason for that.
    pub(crate) state: String,
    /// Status that the instance returned.
    pub(crate) status: Option<Box<Status>>,
}

impl Found {
    /// Asks an instance.
    pub(crate) fn of(dirs: &Dirs, name: &str) -> Found {
        let answer = control::answer(dirs, name, &Request::Status {});
        let pid = dirs.holder(name);
        let state = match (answer, pid) {
            (Ok(status), _) => match serde_json::from_value::<Box<Status>>(status) {
                Ok(status) => return status.into(),
                Err(_) => "of another version",
            },
            (Err(_), Some(_)) => "starting or busy",
            _ if dirs.is_of_another_user(name) => "of another user",
            _ if transport::orphaned_target(name).is_some() => "quiesced",
            _ => "dead",
        };
        Found {
            name: name.into(),
            pid,
            state: state.into(),
            status: None,
        }
    }
}

impl From<Box<Status>> for Found {
    fn from(status: Box<Status>) -> Found {
        Found {
            name: status.name.clone(),
            pid: Some(status.pid),
            state: status.state.clone(),
            status: Some(status),
        }
    }
}
