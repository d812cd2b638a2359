//! The command line.
//!
//! - `run`: `exec` and `run`, one sandbox and its exit code
//! - `show`: `envs`, `plan`, `doctor`, for people or as JSON
//! - `demo`: the real server, asked over MCP
//! - `generate`: shell completions and the man page, for packagers
//! - `paint`: words on a terminal
//!
//! It knows the door and the plan, never the engine: [`House`] is what `main` gives it.
#![allow(clippy::print_stdout, reason = "here standard output belongs to people and pipes")]

mod demo;
mod generate;
mod paint;
mod run;
mod show;

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use nix::poll::{PollFd, PollFlags, poll};

use crate::environment::Environment;
use crate::environment::catalog::Absent;
use crate::plan::{LimitOverrides, parse_size};
use crate::request::{Request, Work};
use crate::runner::{Filter, Runner};

/// Our own failure, as timeout(1) and env(1) have it; also for a command line that cannot be.
const FAILED: u8 = 125;

/// What the command line needs of the rest of the program. Every error is one sentence.
pub trait House {
    /// Serves MCP on standard input and output, to the end.
    ///
    /// # Errors
    /// It could not.
    fn serve(&self) -> Result<(), String>;

    /// A runner that works in this process. `project`, absolute, replaces that of the settings.
    ///
    /// # Errors
    /// A setting that cannot be.
    fn runner(&self, project: Option<PathBuf>) -> Result<Runner, String>;

    /// All environments, in the order of the catalog.
    ///
    /// # Errors
    /// A setting that cannot be.
    fn environments(&self) -> Result<Vec<Listed>, String>;

    /// What this host can do.
    ///
    /// # Errors
    /// It could not be found out.
    fn doctor(&self) -> Result<Examination, String>;

    /// An AppArmor profile that allows this program its user namespaces.
    fn apparmor_profile(&self) -> String;

    /// The settings, as the last part of `--help`.
    fn settings(&self) -> String;
}

/// An environment, or why it cannot be used.
#[derive(Debug)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The environment.
    pub environment: Result<Arc<Environment>, Absent>,
}

/// What a host can do.
#[derive(Debug)]
pub struct Examination {
    /// 0 if all is well; see `doctor --help`.
    pub exit_code: u8,
    /// For people.
    pub text: String,
    /// For programs.
    pub json: serde_json::Value,
}

/// Runs code and commands in sandboxes: no network, nothing of the host's files but a read-only
/// project, nothing left behind.
#[derive(Debug, Parser)]
#[command(name = "nix-sandbox-mcp", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Serve MCP on standard input and output; the default
    #[arg(long)]
    stdio: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a command in a sandbox
    ///
    /// Standard input, output and error pass through, byte for byte and without a limit, and so do
    /// signals. The exit code is the command's own; 128+n if signal n ended it, 124 after a
    /// time-out, 125 if no sandbox was made, 126 if the command cannot be executed and 127 if it is
    /// not found.
    ///
    /// Where all three streams are a terminal, the command gets a terminal of its own, inside the
    /// sandbox; Ctrl-C, Ctrl-Z and the window's size work, and there is no time limit unless
    /// --timeout says so. Otherwise that of the settings holds. A background job leaves the terminal alone until it comes to the
    /// foreground. Colours, cursor movements and titles pass; orders to the terminal
    /// emulator (clipboard, links, printing, window reports) are taken out unless --raw is given.
    #[command(override_usage = "nix-sandbox-mcp exec [OPTIONS] -- COMMAND [ARGUMENT]...")]
    Exec(Exec),
    /// Run code in a sandbox, as the MCP tool does
    ///
    /// The code is read from FILE, or from standard input; the program gets an empty standard
    /// input. Its outputs pass through as they come, up to the limit of the settings; to a terminal
    /// without orders to it. The exit code is as for `exec`.
    Run(RunCode),
    /// List the environments
    Envs {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the whole sandbox as it would be, without running anything
    ///
    /// Without COMMAND, the sandbox in which code would be run.
    #[command(override_usage = "nix-sandbox-mcp plan [OPTIONS] [-- COMMAND [ARGUMENT]...]")]
    Plan(Plan),
    /// Tell whether sandboxes can run on this host, and if not what helps
    ///
    /// The exit code is 0 if every wall stands whole, 1 if sandboxes can be made but something that
    /// is preferred is missing or weaker, 2 if no sandbox can be made.
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Print an AppArmor profile that allows this program its user namespaces, and nothing else
        #[arg(long, conflicts_with = "json")]
        print_apparmor: bool,
    },
    /// See it work: ask the real server to compute something, and to do what must not be
    Demo,
    /// Print shell completions or the man page
    #[command(hide = true, subcommand)]
    Generate(generate::What),
}

/// What `exec`, `run` and `plan` have in common.
#[derive(Debug, Args)]
struct Sandbox {
    /// Directory that the sandbox sees, read-only, at /project (or PROJECT_MOUNT) [default: PROJECT_DIR]
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Seconds after which it is ended, such as 0.5 [default: the settings', 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Memory limit [default: the settings', 512M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    memory: Option<u64>,
}

#[derive(Debug, Args)]
struct Exec {
    /// Environment to run it in
    #[arg(long, value_name = "NAME", default_value = "shell")]
    env: String,
    #[command(flatten)]
    sandbox: Sandbox,
    /// Print one JSON object when it has ended, with what is kept of both outputs
    #[arg(long)]
    json: bool,
    /// Use pipes also where there is a terminal
    #[arg(long)]
    no_tty: bool,
    /// Let everything pass to a terminal, also orders to it; makes no difference to a pipe
    #[arg(long)]
    raw: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
struct RunCode {
    /// Environment to run it in
    #[arg(long, value_name = "NAME")]
    env: String,
    #[command(flatten)]
    sandbox: Sandbox,
    /// Print one JSON object when it has ended, with what is kept of both outputs
    #[arg(long)]
    json: bool,
    /// File with the code; `-` is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
}

#[derive(Debug, Args)]
struct Plan {
    /// Environment
    #[arg(long, value_name = "NAME", default_value = "shell")]
    env: String,
    #[command(flatten)]
    sandbox: Sandbox,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Sandbox {
    fn request(&self, environment: &str, work: Work) -> Request {
        let time = self.timeout.map(|time| time.as_secs_f64());
        let limits = LimitOverrides { memory: self.memory, time, ..LimitOverrides::default() };
        Request { limits, ..Request::new(environment, work) }
    }

    fn runner(&self, house: &dyn House) -> Result<Runner, String> {
        let project = self.project.as_ref().map(std::path::absolute).transpose();
        let given =
            project.map_err(|error| format!("--project: the working directory: {error}"))?;
        let named = |error: String| match &self.project {
            Some(_) => error.replacen("PROJECT_DIR=", "--project ", 1),
            None => error,
        };
        house.runner(given).map_err(named)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let no_time = || format!("{text:?} is no time limit; write seconds, such as 30 or 0.5");
    let seconds: f64 = text.parse().map_err(|_| no_time())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err(no_time()),
    }
}

/// The command that a command line gives to `exec`, if it is one that can be, for the fuzzers.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn exec_command(arguments: Vec<OsString>) -> Result<Option<Vec<OsString>>, clap::Error> {
    Ok(match Arguments::try_parse_from(arguments)?.command {
        Some(Command::Exec(exec)) => Some(exec.command),
        _ => None,
    })
}

/// Does what the command line says. `arguments` start with the program's name.
///
/// For a process with one thread: `exec` takes its signals, and a one-shot launch clones it.
pub fn main(arguments: impl IntoIterator<Item = OsString>, house: &dyn House) -> ExitCode {
    let command = Arguments::command().after_help(house.settings());
    let parsed = command
        .clone()
        .try_get_matches_from(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let done = match parsed {
        Ok(arguments) => obey(house, arguments, command),
        Err(error) => usage(&error),
    };
    done.unwrap_or_else(|message| {
        complain(&message);
        ExitCode::from(FAILED)
    })
}

fn obey(
    house: &dyn House,
    arguments: Arguments,
    command: clap::Command,
) -> Result<ExitCode, String> {
    match arguments.command {
        None => serve(house),
        Some(Command::Exec(exec)) => run::exec(house, exec),
        Some(Command::Run(code)) => run::code(house, &code),
        Some(Command::Envs { json }) => show::environments(house, json),
        Some(Command::Plan(plan)) => show::plan(house, plan),
        Some(Command::Doctor { print_apparmor: true, .. }) => show::apparmor_profile(house),
        Some(Command::Doctor { json, .. }) => show::doctor(house, json),
        Some(Command::Demo) => demo::demo(house),
        Some(Command::Generate(what)) => generate::generate(what, command),
    }
}

fn serve(house: &dyn House) -> Result<ExitCode, String> {
    use std::io::IsTerminal as _;
    if std::io::stdin().is_terminal() {
        complain("serving MCP on this terminal; --help tells what else there is");
    }
    house.serve().map(|()| ExitCode::SUCCESS)
}

/// Help goes to standard output and is no failure. Everything else is one.
fn usage(error: &clap::Error) -> Result<ExitCode, String> {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return wanted(error.print()).map(|()| ExitCode::SUCCESS);
    }
    let text = error.render().to_string();
    Err(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned())
}

/// Tells something about ourselves, on standard error. Foreign words in it are made harmless.
pub fn complain(message: &str) {
    let line = format!("nix-sandbox-mcp: {message}\n");
    let mut filter = Filter::text();
    let line = [filter.pass(line.as_bytes()), filter.finish()].concat();
    // Nobody to tell.
    let _ = std::io::stderr().write_all(&line);
}

/// As [`complain`], where somebody reads it. The run has ended, perhaps because nobody does: then
/// this program shall end too, and its exit code tells the same.
fn mention(message: &str) {
    const PATIENCE: u16 = 1000;
    let err = std::io::stderr();
    let mut fds = [PollFd::new(err.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PATIENCE) != Ok(0) {
        complain(message);
    }
}

/// Writes to standard output.
fn print(bytes: &[u8]) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    wanted(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Whoever does not want to read all of it is no failure of ours.
fn wanted(written: std::io::Result<()>) -> Result<(), String> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<(), String> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| format!("cannot write JSON: {error}"))?;
    text.push(b'\n');
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(std::iter::once("x").chain(arguments.iter().copied()))
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_is_the_command() {
        for arguments in [
            &["exec", "--env", "e", "--", "-c", "--json", "--", "a\nb"][..],
            &["exec", "--env=e", "--", "-c", "--json", "--", "a\nb"],
        ] {
            let Some(Command::Exec(exec)) = parse(arguments).expect("parsed").command else {
                panic!("exec")
            };
            assert_eq!(exec.command, ["-c", "--json", "--", "a\nb"]);
            assert!(!exec.json && exec.env == "e");
        }
        let Some(Command::Exec(exec)) =
            parse(&["exec", "ls", "-l", "--json"]).expect("parsed").command
        else {
            panic!("exec")
        };
        assert_eq!(exec.command, ["ls", "-l", "--json"]);
    }

    #[test]
    fn a_time_limit_is_a_positive_number() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "inf", "1e99", "", "5m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
