//! The program as a user meets it: each test runs it as a process, in folders of its own.

mod aged;
mod clean_stop;
mod clone;
mod create_killed;
mod daemon;
mod demo;
mod first_contact;
mod history;
mod host;
mod http_crowd;
mod inject;
mod new_scheme;
mod places;
mod record;
mod replay;
mod service_manager;
mod shadows;
mod slow_disk;
mod unprivileged;
mod writes_fail;
