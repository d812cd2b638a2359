//! The MCP server: one tool, `run`, over standard input and output.
//!
//! - `call`: a call's arguments → a `Request`
//! - `run`: a request → an answer, in its turn
//! - `answer`, `text`: an outcome → what a model reads
//! - `tool`: what a model is told beforehand
//! - `wire`, `id`: lines in and out
//! - `queue`: so many runs at once
//! - `server`: the protocol itself; the only file that names `rmcp`

mod answer;
mod call;
mod id;
mod queue;
mod run;
mod server;
#[cfg(test)]
mod tests;
pub mod text;
mod tool;
mod wire;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::runner::{Cancel, RunError};

/// What the server needs of the floor below.
pub trait Door: Send + Sync + 'static {
    /// Runs one request to its end, its streams captured. Blocks; many threads call at once.
    ///
    /// # Errors
    /// Never for what the code does; see [`RunError`].
    fn run(&self, request: &Request, cancel: &Cancel) -> Result<Outcome, RunError>;

    /// The environments, in an order that is the same at every start. Asked once.
    fn environments(&self) -> Vec<Offer>;

    /// What the tool's description may promise. Asked once.
    fn facts(&self) -> Facts;
}

/// An environment as a model sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Its name, the value of `env`.
    pub name: String,
    /// What is in it, in a few words; may be empty. Every model pays for it on every turn.
    pub description: String,
    /// Whether it can run here. If not it is not offered; who asks for it all the same gets the
    /// runner's reason.
    pub available: bool,
}

/// What holds for every run of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Where the sandbox sees the project, read-only; `None` if it is not mounted.
    pub project: Option<PathBuf>,
    /// The wall-clock limit of a call that names none.
    pub timeout: Duration,
    /// The longest wall-clock limit that a call may name.
    pub max_timeout: Duration,
    /// The memory limit, bytes, if there is one.
    pub memory: Option<u64>,
}

/// Why the server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Standard input or output cannot be used.
    #[error("cannot take over standard input and output: {0}")]
    Stdio(#[source] io::Error),
    /// No event loop, no signal handler.
    #[error("cannot start the server's event loop: {0}")]
    Loop(#[source] io::Error),
}

/// How long the threads of runs that will not die are waited for before the process ends without
/// them.
const LAST: Duration = Duration::from_millis(500);

/// Serves MCP on standard input and output until the client closes them, or SIGTERM or SIGINT.
///
/// At most `limit` calls run at once; more wait in the order in which they came. While it serves,
/// descriptor 1 is standard error and descriptor 0 is `/dev/null`, so that nothing but the protocol
/// is read or written there.
///
/// Must be called on a thread without an event loop, after the launcher was started. Threads that
/// still read or write may remain when it returns: end the process then.
///
/// # Errors
/// The standard streams, the event loop or the signal handlers could not be set up.
pub fn serve(door: Arc<dyn Door>, limit: usize) -> Result<(), ServeError> {
    let wire = wire::Wire::stdio().map_err(ServeError::Stdio)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(limit.max(1))
        .thread_name("mcp-run")
        .build()
        .map_err(ServeError::Loop)?;
    let served = runtime.block_on(server::serve(door, limit, wire)).map_err(ServeError::Loop);
    runtime.shutdown_timeout(LAST);
    served
}
