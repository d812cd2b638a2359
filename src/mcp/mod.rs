//! The MCP server: one tool, `run`, over standard input and output.
//!
//! - `door`: what the server asks of the floor below
//! - `call`: a call's arguments → a `Request`
//! - `run`: a request → an answer, in its turn
//! - `answer`, `text`: an outcome → what a model reads
//! - `tool`: what a model is told beforehand
//! - `progress`: what a client that waits is told meanwhile
//! - `wire`, `id`: lines in and out
//! - `queue`: so many runs at once
//! - `server`: the protocol itself; the only file that names `rmcp`

mod answer;
mod call;
mod door;
mod id;
mod progress;
mod queue;
mod run;
mod server;
#[cfg(test)]
mod tests;
pub mod text;
mod tool;
mod wire;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use door::{Door, Facts, Offer};

/// How it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Calls that run at once; more wait in the order in which they came.
    pub runs: usize,
    /// Whether results carry `structuredContent` too. Several clients show a model nothing else
    /// then, so it holds all that the text does.
    pub structured: bool,
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
/// While it serves, descriptor 1 is standard error and descriptor 0 is `/dev/null`, so that nothing
/// but the protocol is read or written there.
///
/// Must be called on a thread without an event loop, after the launcher was started. Threads that
/// still read or write may remain when it returns: end the process then.
///
/// # Errors
/// The standard streams, the event loop or the signal handlers could not be set up.
pub fn serve(door: Arc<dyn Door>, options: Options) -> Result<(), ServeError> {
    let wire = wire::Wire::stdio().map_err(ServeError::Stdio)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(options.runs.max(1))
        .thread_name("mcp-run")
        .build()
        .map_err(ServeError::Loop)?;
    let served = runtime.block_on(server::serve(door, options, wire)).map_err(ServeError::Loop);
    runtime.shutdown_timeout(LAST);
    served
}

/// Serves one client over two pipes, as [`serve`] does over the standard streams, for the fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn serve_over(
    door: Arc<dyn Door>,
    options: Options,
    [input, output]: [std::os::fd::OwnedFd; 2],
) -> io::Result<()> {
    let wire = wire::Wire::over(input, output)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(server::serve(door, options, wire));
    runtime.shutdown_timeout(LAST);
    served
}
