//! `demo`: the real server, asked over MCP to compute something and to do what must not be.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use super::paint::Paint;
use super::{House, print};
use crate::environment::Interpreter;
use crate::runner::{Filter, Signals};

/// How long the server may think about one message.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where the server shows the throw-away project.
const MOUNT: &str = "/project";
/// What is planted there, if it can be.
const PLANTED: &str = "planted";

pub(super) fn demo(house: &dyn House) -> Result<ExitCode, String> {
    let started = Instant::now();
    // Dropped last: what has arrived ends this process once the project is gone.
    let ending =
        Signals::of_ending().map_err(|errno| format!("cannot take signals: {}", errno.desc()))?;
    let usable: Vec<(String, Interpreter)> = house
        .environments()?
        .into_iter()
        .filter_map(|listed| Some((listed.name, listed.environment.ok()?.interpreter)))
        .collect();
    if usable.is_empty() {
        return Err(
            "there is no environment that can be used here; `nix-sandbox-mcp doctor` says why"
                .to_owned(),
        );
    }
    let paint = Paint::stdout();
    let project = Project::make()?;
    let mut server = Server::start(&project, &ending)?;
    let hello = server.hello()?;
    show(&format!("{}\n{hello}\n", paint.bold("nix-sandbox-mcp demo")))?;
    show(&format!(
        "project: {}, a throw-away directory, shown at {MOUNT}\n",
        project.directory.display()
    ))?;
    let (mut right, mut wrong, mut did_not_run) = (0, 0, 0);
    for (name, interpreter) in &usable {
        show(&format!("\n{}\n", paint.bold(name)))?;
        for attempt in attempts(*interpreter) {
            let answer = server.run(name, &attempt.code)?;
            let verdict = match attempt.verdict(&answer) {
                Verdict::Right if project.is_planted() => Verdict::Wrong,
                verdict => verdict,
            };
            *match verdict {
                Verdict::Right => &mut right,
                Verdict::Wrong => &mut wrong,
                Verdict::DidNotRun => &mut did_not_run,
            } += 1;
            show(&attempt.told(&answer, verdict, paint))?;
        }
    }
    server.end();
    let time = started.elapsed().as_secs_f64();
    let environments = usable.len();
    let all = right + wrong + did_not_run;
    if right == all {
        let stopped = all - environments;
        show(&format!(
            "\n{} {environments} environments computed, {stopped} attempts to get out were stopped, in {time:.1} s\n",
            paint.good("✓")
        ))?;
        Ok(ExitCode::SUCCESS)
    } else {
        let hint = if did_not_run > 0 { "; `nix-sandbox-mcp doctor` says more" } else { "" };
        show(&format!(
            "\n{} of {all}: {wrong} did not end as they should, {did_not_run} did not run{hint}\n",
            paint.bad("✗"),
        ))?;
        Ok(ExitCode::FAILURE)
    }
}

/// Answers are anybody's; the colours are ours and stand outside of them.
fn show(text: &str) -> Result<(), String> {
    print(text.as_bytes())
}

fn harmless(text: &str) -> String {
    let mut filter = Filter::text();
    String::from_utf8_lossy(&[filter.pass(text.as_bytes()), filter.finish()].concat()).into_owned()
}

/// Something the sandbox is asked to do.
struct Attempt {
    what: &'static str,
    code: String,
    expected: Expected,
}

enum Expected {
    /// This answer.
    Answer(&'static str),
    /// A refusal, by this wall.
    Refusal(&'static str),
}

/// What is to be thought of an answer.
#[derive(Clone, Copy)]
enum Verdict {
    Right,
    Wrong,
    /// It tells nothing of any wall.
    DidNotRun,
}

/// What a tool call came to.
struct Answer {
    text: String,
    is_error: bool,
}

impl Attempt {
    fn verdict(&self, answer: &Answer) -> Verdict {
        let right = match self.expected {
            _ if !answer.has_ended_by_itself() => return Verdict::DidNotRun,
            Expected::Answer(words) => {
                !answer.is_error && answer.text.lines().next() == Some(words)
            }
            // A whole line: a traceback shows the code itself.
            Expected::Refusal(_) => {
                answer.is_error && !answer.text.lines().any(|line| line == REACHED)
            }
        };
        if right { Verdict::Right } else { Verdict::Wrong }
    }

    fn told(&self, answer: &Answer, verdict: Verdict, paint: Paint) -> String {
        let mut told = String::new();
        let mut lines = self.code.lines();
        let first = lines.next().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(told, "  {:<8} {}", self.what, paint.dim(harmless(first)));
        for line in lines {
            let _ = writeln!(told, "  {:<8} {}", "", paint.dim(harmless(line)));
        }
        let words = harmless(answer.words());
        let _ = match (verdict, &self.expected) {
            (Verdict::Right, Expected::Answer(_)) => {
                writeln!(told, "  {:<8} {} {words}", "", paint.good("→"))
            }
            (Verdict::Right, Expected::Refusal(wall)) => writeln!(
                told,
                "  {:<8} {} {words}\n  {:<8}   {}",
                "",
                paint.good("✓ stopped:"),
                "",
                paint.dim(format_args!("wall: {wall}"))
            ),
            (Verdict::Wrong, Expected::Answer(_)) => {
                writeln!(told, "  {:<8} {} {words}", "", paint.bad("✗ not what it should be:"))
            }
            (Verdict::Wrong, Expected::Refusal(_)) => {
                writeln!(told, "  {:<8} {} {words}", "", paint.bad("✗ NOT stopped:"))
            }
            (Verdict::DidNotRun, _) => {
                writeln!(told, "  {:<8} {} {words}", "", paint.bad("✗ did not run:"))
            }
        };
        told
    }
}

impl Answer {
    /// Whether the code ran to an end of its own, as its last line says.
    fn has_ended_by_itself(&self) -> bool {
        self.text.trim_end().lines().next_back().is_some_and(|line| line.starts_with("[exit "))
    }

    /// The line that says it: the last one before the trailer.
    fn words(&self) -> &str {
        let mut lines = self.text.lines().rev().filter(|line| !line.trim().is_empty());
        let trailer = lines.next().unwrap_or_default();
        lines.next().unwrap_or(trailer)
    }
}

/// What code prints that got where it must not.
const REACHED: &str = "REACHED";

const NETWORK: &str = "a network namespace with nothing in it but a loopback";
const HOME: &str = "a file tree of its own: of this host only what the interpreter needs";
const PROJECT: &str = "a read-only mount, locked by the user namespace";

fn attempts(interpreter: Interpreter) -> [Attempt; 4] {
    let secret = secret();
    let literal = json!(secret.to_string_lossy()).to_string();
    let quoted = format!("'{}'", secret.to_string_lossy().replace('\'', r"'\''"));
    let file = format!("{MOUNT}/{PLANTED}");
    let [compute, network, home, project] = match interpreter {
        Interpreter::Bash => [
            "echo $((6 * 7))".to_owned(),
            format!("exec 3<>/dev/tcp/1.1.1.1/443 && echo {REACHED}"),
            format!("ls -d {quoted} && echo {REACHED}"),
            format!("echo x > {file} && echo {REACHED}"),
        ],
        Interpreter::Python => [
            "print(6 * 7)".to_owned(),
            format!(
                "import socket\nsocket.create_connection(('1.1.1.1', 443), 3); print('{REACHED}')"
            ),
            format!("open({literal}); print('{REACHED}')"),
            format!("open('{file}', 'w'); print('{REACHED}')"),
        ],
        Interpreter::Node => {
            let fail = "e => { console.error(String(e)); process.exit(1) }";
            let guarded = |call: &str| {
                format!(
                    "try {{ {call}; console.log('{REACHED}') }}\ncatch (e) {{ console.error(String(e)); process.exit(1) }}"
                )
            };
            [
                "console.log(6 * 7)".to_owned(),
                format!(
                    "require('net').connect(443, '1.1.1.1', () => console.log('{REACHED}'))\n  .on('error', {fail})"
                ),
                guarded(&format!("require('fs').openSync({literal})")),
                guarded(&format!("require('fs').writeFileSync('{file}', 'x')")),
            ]
        }
    };
    [
        Attempt { what: "compute", code: compute, expected: Expected::Answer("42") },
        Attempt { what: "network", code: network, expected: Expected::Refusal(NETWORK) },
        Attempt { what: "home", code: home, expected: Expected::Refusal(HOME) },
        Attempt { what: "project", code: project, expected: Expected::Refusal(PROJECT) },
    ]
}

/// A file in the caller's home that is really there; in an empty home, one that is nobody's
/// business either.
fn secret() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let entries =
        home.map(std::fs::read_dir).into_iter().flatten().flatten().filter_map(Result::ok);
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.map(|entry| entry.path()).min().unwrap_or_else(|| PathBuf::from("/etc/shadow"))
}

/// A throw-away project; gone when it is dropped.
struct Project {
    directory: PathBuf,
}

impl Project {
    fn make() -> Result<Self, String> {
        let failed = |why: String| format!("cannot make a throw-away project: {why}");
        let template = std::env::temp_dir().join("nix-sandbox-demo-XXXXXX");
        let directory = nix::unistd::mkdtemp(&template)
            .map_err(|errno| failed(format!("{}: {}", template.display(), errno.desc())))?;
        let project = Self { directory };
        // Whoever the sandbox is for the host, it may read this.
        std::fs::set_permissions(&project.directory, PermissionsExt::from_mode(0o755))
            .and_then(|()| std::fs::write(project.directory.join("README"), "a project\n"))
            .map_err(|error| failed(error.to_string()))?;
        Ok(project)
    }

    fn is_planted(&self) -> bool {
        self.directory.join(PLANTED).exists()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        // Litter in the directory for temporary files is no failure of the demo.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The server, the pipe to it, and what ends all that.
struct Server<'s> {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    ending: &'s Signals,
}

impl<'s> Server<'s> {
    fn start(project: &Project, ending: &'s Signals) -> Result<Self, String> {
        let mut process = Command::new("/proc/self/exe")
            .arg("--stdio")
            .env("PROJECT_DIR", &project.directory)
            .env("PROJECT_MOUNT", MOUNT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the server: {error}"))?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(to), Some(from)) => {
                Ok(Self { process, to, from: BufReader::new(from), calls: 0, ending })
            }
            _ => Err("cannot start the server: it has no pipes".to_owned()),
        }
    }

    /// The handshake. Who answered, in one line.
    fn hello(&mut self) -> Result<String, String> {
        let client = json!({"name": "demo", "version": env!("CARGO_PKG_VERSION")});
        let answer = self.call(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}),
        )?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        let tools = self.call("tools/list", &json!({}))?;
        let text = |value: &Value| harmless(value.as_str().unwrap_or("?"));
        Ok(format!(
            "server: {} {}, MCP {}, tool `{}`",
            text(&answer["serverInfo"]["name"]),
            text(&answer["serverInfo"]["version"]),
            text(&answer["protocolVersion"]),
            text(&tools["tools"][0]["name"])
        ))
    }

    fn run(&mut self, environment: &str, code: &str) -> Result<Answer, String> {
        let arguments = json!({"env": environment, "code": code});
        let answer = self.call("tools/call", &json!({"name": "run", "arguments": arguments}))?;
        let text = answer["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        Ok(Answer { text, is_error: answer["isError"].as_bool().unwrap_or(false) })
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.calls += 1;
        let id = self.calls;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut message = self.receive()?;
            if message["id"] == json!(id) {
                return match message.get("error") {
                    Some(error) => Err(format!("the server refused {method}: {error}")),
                    None => Ok(message["result"].take()),
                };
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        writeln!(self.to, "{message}").map_err(|error| format!("the server is gone: {error}"))
    }

    fn receive(&mut self) -> Result<Value, String> {
        if self.from.buffer().is_empty() {
            let waits = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut fds = [waits(self.from.get_ref().as_fd()), waits(self.ending.as_fd())];
            let patience = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
            if poll(&mut fds, patience) == Ok(0) {
                return Err(format!("the server said nothing for {} s", PATIENCE.as_secs()));
            }
            if fds[1].any().unwrap_or(false) {
                return Err("interrupted".to_owned());
            }
        }
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err("the server has ended; its last words are above".to_owned()),
            Ok(_) => serde_json::from_str(&line)
                .map_err(|error| format!("the server does not speak JSON: {error}")),
            Err(error) => Err(format!("the server cannot be heard: {error}")),
        }
    }

    /// Closes the pipe, which ends it.
    fn end(self) {
        let Self { mut process, to, from, .. } = self;
        drop((to, from));
        let _ = process.wait();
    }
}
