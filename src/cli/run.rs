//! `exec` and `run`: one sandbox and its exit code.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;

use super::{Exec, House, RunCode, mention, print_json};
use crate::outcome::{Ending, Enforced, Outcome, Stream, Usage};
use crate::request::{Request, Work};
use crate::runner::{Cancel, Runner, Signals, Streams};

pub(super) fn exec(house: &dyn House, exec: Exec) -> Result<ExitCode, String> {
    let Exec { env, sandbox, json, no_tty, raw, command } = exec;
    if command.is_empty() {
        return Err("there is no command; write one, such as `nix-sandbox-mcp exec -- ls /`".into());
    }
    let mut request = sandbox.request(&env, Work::Command(command));
    let runner = sandbox.runner(house)?;
    let streams = if json {
        Streams::Feed { stdin: copy(std::io::stdin().as_fd())? }
    } else if !no_tty && on_a_terminal() {
        request.terminal = Some(std::env::var_os("TERM").unwrap_or_else(|| "dumb".into()));
        Streams::Terminal {
            input: copy(std::io::stdin().as_fd())?,
            output: copy(std::io::stdout().as_fd())?,
            filtered: !raw,
        }
    } else {
        Streams::Through {
            stdin: copy(std::io::stdin().as_fd())?,
            stdout: copy(std::io::stdout().as_fd())?,
            stderr: copy(std::io::stderr().as_fd())?,
            filtered: !raw,
        }
    };
    let outcome = attached(&runner, &request, streams)?;
    if json {
        print_json(&Told::of(&request, &outcome))?;
    } else if let Some(why) = why(&outcome.ending) {
        mention(&why);
    }
    Ok(ExitCode::from(outcome.ending.exit_code()))
}

pub(super) fn code(house: &dyn House, arguments: &RunCode) -> Result<ExitCode, String> {
    let RunCode { env, sandbox, json, file } = arguments;
    let request = sandbox.request(env, Work::Code(read_code(file)?));
    let runner = sandbox.runner(house)?;
    let streams = if *json {
        Streams::Capture
    } else {
        Streams::PassedOn {
            stdout: copy(std::io::stdout().as_fd())?,
            stderr: copy(std::io::stderr().as_fd())?,
        }
    };
    let outcome = attached(&runner, &request, streams)?;
    if *json {
        print_json(&Told::of(&request, &outcome))?;
    } else if !matches!(outcome.ending, Ending::Exited { .. }) {
        mention(&why(&outcome.ending).unwrap_or_else(|| outcome.ending.to_string()));
    }
    Ok(ExitCode::from(outcome.ending.exit_code()))
}

fn attached(runner: &Runner, request: &Request, streams: Streams) -> Result<Outcome, String> {
    let failed = |errno: nix::errno::Errno| format!("cannot take signals: {}", errno.desc());
    // What has to be built is built before there is a payload to pass signals on to.
    let ending = Signals::of_ending().map_err(failed)?;
    let ready = runner.catalog().wait(&request.environment, Some(ending.as_fd()), &|_| {});
    drop(ending);
    ready.map_err(|_cancelled| "interrupted before its environment was built".to_owned())?;
    let signals = Signals::take().map_err(failed)?;
    let cancel = Cancel::new().map_err(failed)?;
    runner.run_attached(request, streams, &cancel, &signals).map_err(|error| error.to_string())
}

/// Whether all three streams are a terminal. With one of them redirected the command gets pipes:
/// a terminal has one output, and what was redirected must not appear on it.
fn on_a_terminal() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::io::stderr().is_terminal()
}

fn copy(fd: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    fd.try_clone_to_owned().map_err(|error| format!("cannot use the standard streams: {error}"))
}

/// What a shell would not tell: that it was we who ended it, or why it did not start.
fn why(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Exited { .. } | Ending::Signaled { .. } | Ending::Cancelled => None,
        Ending::TimedOut { .. } => Some(format!("{ending}; --timeout SECONDS sets another limit")),
        Ending::OutOfMemory => Some(format!("{ending}; --memory SIZE sets another limit")),
        Ending::OutputLimit { .. } | Ending::Interfered | Ending::CouldNotStart { .. } => {
            Some(ending.to_string())
        }
    }
}

fn read_code(file: &Path) -> Result<Vec<u8>, String> {
    // One byte more than may be: then the runner says how many may be.
    let most = Request::MAX_CODE as u64 + 1;
    let mut code = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().take(most).read_to_end(&mut code)
    } else {
        File::open(file).and_then(|file| file.take(most).read_to_end(&mut code))
    };
    read.map_err(|error| format!("cannot read the code from {}: {error}", file.display()))?;
    Ok(code)
}

/// An outcome as JSON.
#[derive(Serialize)]
struct Told<'o> {
    environment: &'o str,
    ending: &'o Ending,
    exit_code: u8,
    stdout: Part,
    stderr: Part,
    usage: Usage,
    enforced: &'o Enforced,
}

#[derive(Serialize)]
struct Part {
    /// What was kept, a gap marked in words, what is no UTF-8 replaced.
    text: String,
    /// How many bytes were written in all.
    bytes: u64,
    /// How many of them were left out between head and tail.
    left_out: u64,
    /// The kept bytes themselves, if the text does not say them.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl<'o> Told<'o> {
    fn of(request: &'o Request, outcome: &'o Outcome) -> Self {
        let Outcome { ending, stdout, stderr, order: _, usage, enforced, session: _, files: _ } =
            outcome;
        Self {
            environment: &request.environment,
            ending,
            exit_code: ending.exit_code(),
            stdout: Part::of(stdout),
            stderr: Part::of(stderr),
            usage: *usage,
            enforced,
        }
    }
}

impl Part {
    fn of(stream: &Stream) -> Self {
        let (text, base64) = match String::from_utf8(stream.to_bytes()) {
            Ok(text) => (text, None),
            Err(error) => {
                let kept = [&stream.head[..], &stream.tail].concat();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                (text, Some(BASE64.encode(kept)))
            }
        };
        Self { text, bytes: stream.bytes, left_out: stream.left_out(), base64 }
    }
}
