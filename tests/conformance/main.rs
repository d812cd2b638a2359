//! What a sandbox is and does, asserted from inside it by the real program.
//!
//! The same compiled tests run as root and as an ordinary user.

#[path = "../support/mod.rs"]
mod support;

mod artifacts;
mod backends;
mod endings;
mod files;
mod identity;
mod limits;
mod network;
mod processes;
mod project;
mod results;
