//! A sandbox engine for language models: seven namespaces, a private read-only file tree, empty
//! capabilities, a system-call allow-list, Landlock and limits, made by this crate itself.
//!
//! The way of one request, floor by floor; imports go down only:
//!
//! | floor | |
//! |---|---|
//! | [`request`], [`plan`], [`policy`], [`outcome`] | words: what was asked, what shall hold, what may be called, how it ended |
//! | [`planner`] | request + environment + settings → plan; pure |
//! | [`kernel`] | typed system calls that no crate has |
//! | [`engine`] | enacts a plan |
//! | [`supervisor`] | watches one sandbox to its end |
//! | [`backend`] | who makes a sandbox of a plan |
//! | [`environment`], [`settings`], [`doctor`] | what there is to run with, what the operator decided, what this host can do |
//! | [`session`] | sandboxes that wait for more code |
//! | [`runner`] | the door |
//! | [`mcp`], [`cli`] | front ends |
//!
//! `docs/ARCHITECTURE.md` tells the rest. To run something from a Rust program:
//!
//! ```no_run
//! use nix_sandbox::backend::native::Native;
//! use nix_sandbox::engine::cgroup::{Cgroups, Scope};
//! use nix_sandbox::engine::{Launcher, sources::Sources};
//! use nix_sandbox::environment::catalog::Catalog;
//! use nix_sandbox::plan::Ids;
//! use nix_sandbox::request::{Request, Work};
//! use nix_sandbox::runner::{Cancel, Runner, Streams};
//! use nix_sandbox::settings::Settings;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In a program with one thread, this process clones for itself. One with threads starts
//! // `Launcher::spawn` before the first, and passes `--launcher …` on to `engine::launcher::main`.
//! let own = Ids { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
//! let settings = Settings::load(&|name| std::env::var_os(name), own.uid)?;
//! let cgroups = Cgroups::find(settings.outside(own), Scope::Never);
//! let runner = Runner::new(
//!     Catalog::load(settings.sources.clone()),
//!     settings.ground(),
//!     settings.outside(own),
//!     Box::new(Native::new(Launcher::direct()?, Sources::default(), cgroups)),
//! );
//! let request = Request::new("python", Work::Code(b"print(6 * 7)".to_vec()));
//! let outcome = runner.run(&request, Streams::Capture, &Cancel::new()?)?;
//! assert_eq!(outcome.stdout.to_bytes(), b"42\n");
//! # Ok(())
//! # }
//! ```

pub mod audit;
pub mod backend;
pub mod cli;
pub mod doctor;
pub mod engine;
pub mod environment;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod gallery;
pub mod kernel;
pub mod log;
pub mod mcp;
pub mod outcome;
pub mod outputs;
pub mod plan;
pub mod planner;
pub mod policy;
pub mod request;
pub mod runner;
pub mod session;
pub mod settings;
pub mod supervisor;
