//! Enacts a [`Plan`](crate::plan::Plan): namespaces, mounts, limits, filters, and the payload.
//!
//! Which process runs what:
//!
//! | process | file | what it does |
//! |---|---|---|
//! | caller | [`sources`] | as root only: opens the plan's sources as detached mounts |
//! | caller | [`cgroup`] | makes the run's cgroup and removes it |
//! | launcher | `outputs` | a server's: makes the tmpfs that its sandboxes show at `/outputs` |
//! | launcher | `template` | a server's: makes file trees and networks ahead |
//! | launcher | [`launcher`] | clones pid 1 straight into its namespaces; one thread, little memory; hears the server by `wire` |
//! | pid 1 | [`steps`], [`child`], `process`, `masks` | enacts the steps in order, starts the payload |
//! | pid 1 | [`start`] | stands ready until it is told what to run, where it was made ahead |
//! | pid 1 | [`init`] | reaps, forwards signals, reports how the payload ended; watches memory where no cgroup does |
//! | payload | `payload` | its last steps, then exec |
//!
//! The one-shot command line is caller and launcher in one. A server has a launcher process: a
//! fork of a process with threads may run almost no code, copies a large address space, and dies
//! with the *thread* that forked it.

pub mod cgroup;
pub mod child;
pub mod filters;
pub mod init;
mod landlock;
pub mod launcher;
pub(crate) mod masks;
pub(crate) mod memory_watch;
pub mod mountinfo;
mod outputs;
pub(crate) mod payload;
pub mod privilege;
pub mod probe;
pub(crate) mod process;
mod removal;
pub mod report;
pub mod sources;
pub mod start;
pub mod steps;
mod template;
mod wire;

pub use launcher::{Launch, Launcher, LauncherError, Sandbox};
pub use report::{Report, StepError};
