//! Other running instances of this user, as links in the header of the live page.
//!
//! Invariants: instances of other users are not listed; on an address beyond loopback the page
//! lists only its own. A control socket is asked only after a page has asked, at most once in
//! [`EVERY`].

use super::PageSource;
use crate::control;
use ftld_device::instance::Dirs;
use ftld_device::status::Status;
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Minimum interval between two rounds of questions.
const EVERY: Duration = Duration::from_secs(2);
/// Longest wait for the answer of one instance.
const PATIENCE: Duration = Duration::from_secs(1);

/// A running instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Neighbour {
    name: String,
    scheme: Option<String>,
    state: String,
    /// Address of its live page, `HOST:PORT`.
    address: Option<String>,
}

impl Neighbour {
    /// Returns the instance with this status.
    pub(crate) fn of(status: &Status) -> Neighbour {
        let address = |url: &str| {
            let address = url.strip_prefix("http://")?.strip_suffix("/metrics")?;
            Some(address.to_owned())
        };
        Neighbour {
            name: status.name.clone(),
            scheme: Some(status.scheme.clone()),
            state: status.state.clone(),
            address: status.metrics.as_deref().and_then(address),
        }
    }
}

/// The other instances, as last asked.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    others: Mutex<Vec<Neighbour>>,
    wanted: Notify,
}

impl Neighbours {
    /// Returns the instances with `own`, sorted by name, and requests a new round.
    pub(crate) fn with(&self, own: Neighbour) -> Vec<Neighbour> {
        self.wanted.notify_one();
        let mut all = self.others.lock().clone();
        all.push(own);
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }
}

/// Asks the other instances after each request for them, until the runtime ends.
pub(crate) async fn refresh(dirs: Dirs, observed: Arc<dyn PageSource>) {
    let own = observed.view().facts.name.clone();
    let neighbours = &observed.page().neighbours;
    loop {
        neighbours.wanted.notified().await;
        let others = find(&dirs, &own).await;
        *neighbours.others.lock() = others;
        tokio::time::sleep(EVERY).await;
    }
}

/// Returns the running instances of this user except `own`.
async fn find(dirs: &Dirs, own: &str) -> Vec<Neighbour> {
    let mut found = Vec::new();
    for name in dirs.names() {
        if name == own || !dirs.is_of_this_user(&name) || dirs.holder(&name).is_none() {
            continue;
        }
        let answer = tokio::time::timeout(PATIENCE, control::status(&dirs.control(&name))).await;
        found.push(match answer {
            Ok(Some(status)) => Neighbour::of(&status),
            _ => Neighbour {
                name,
                scheme: None,
                state: "no answer".into(),
                address: None,
            },
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::Still;
    use ftld_device::instance::Instance;
    use serde_json::Value;

    #[test]
    fn an_instance_is_named_with_the_address_of_its_page() {
        let status = Status {
            name: "b".into(),
            metrics: Some("http://127.0.0.1:9918/metrics".into()),
            ..Status::default()
        };
        let other = Neighbour::of(&status);
        assert_eq!(other.address.as_deref(), Some("127.0.0.1:9918"));
        let still = Still::default();
        still.page.neighbours.others.lock().push(other);
        let answer = crate::live_page::api::instances(&still);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let names: Vec<_> = [0, 1]
            .map(|at| answer["instances"][at]["name"].as_str())
            .into();
        assert_eq!(names, [Some("b"), Some("ublkb0")]);
        assert_eq!(
            answer["instances"][1]["address"],
            Value::Null,
            "it serves no page"
        );
    }

    #[test]
    fn one_that_holds_its_name_and_does_not_answer_is_listed_and_a_dead_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let below = |part: &str| folder.path().join(part);
        let dirs = Dirs {
            config: below("etc"),
            state: below("state"),
            runtime: below("run"),
        };
        let _held = ["a", "own"].map(|name| Instance::take(&dirs, name).unwrap());
        std::fs::create_dir(dirs.of("dead")).unwrap();
        std::fs::write(dirs.of("dead").join("pid"), "4242\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let found = runtime.block_on(find(&dirs, "own"));
        let states: Vec<_> = found.iter().map(|n| (&*n.name, &*n.state)).collect();
        assert_eq!(states, [("a", "no answer")]);
    }
}
