//! The server as a client has it: lines over a pipe, from the request to the answer.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::contestants::{Contestant, binary, bubblewrap, contestant, spawn};
use crate::workplace::Workplace;

/// A process that is spoken to in lines.
struct Peer {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn new(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let to = process.stdin.take().expect("its input");
        let from = BufReader::new(process.stdout.take().expect("its output"));
        Self { process, to, from }
    }

    fn say(&mut self, text: &str) {
        self.to.write_all(text.as_bytes()).expect("said");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).expect("heard") > 0, "it has ended");
        line
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client with a server of its own. Build it, or name it in `NIX_SANDBOX_BIN`.
pub(crate) struct Client {
    server: Peer,
    asked: u64,
}

impl Client {
    pub(crate) fn new(workplace: &Workplace, pool: usize) -> Self {
        let mut command = Command::new(binary());
        command.arg("--stdio").env("PROJECT_DIR", workplace.bin()).env("HOME", "/nonexistent");
        command.env("NIX_SANDBOX_POOL", pool.to_string()).stderr(Stdio::null());
        let mut client = Self { server: Peer::new(&mut command), asked: 0 };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        });
        client.ask("initialize", &hello);
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn say(&mut self, message: &Value) {
        self.server.say(&format!("{message}\n"));
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let answer: Value = serde_json::from_str(&self.server.hear()).expect("JSON");
            if answer["id"] == id {
                return answer;
            }
        }
    }

    /// Runs code; its text must begin with `expected`.
    pub(crate) fn run(&mut self, arguments: &Value, expected: &str) {
        let answer = self.ask("tools/call", &json!({"name": "run", "arguments": arguments}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        assert!(text.starts_with(expected), "{answer}");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.process.id()
    }
}

pub(crate) fn contestants(workplace: &Workplace) -> Vec<Contestant<'_>> {
    let call = |pool, arguments: Value, expected: &'static str| {
        let mut client = Client::new(workplace, pool);
        move || client.run(&arguments, expected)
    };
    let python = json!({"env": "python", "code": "print(1)"});
    let at_once = "import os; print(1, flush=True); os._exit(0)";
    let at_once = json!({"env": "python", "code": at_once});
    let shell = json!({"env": "shell", "code": "true"});
    let session = json!({"env": "python", "code": "1", "session": "bench"});
    vec![
        contestant("bubblewrap + python", with_python(workplace)),
        contestant("run, python, cold", call(0, python.clone(), "1")),
        contestant("run, python, pool", call(8, python, "1")),
        contestant("the same, but os._exit(0) is Python's end", call(8, at_once, "1")),
        contestant("run, shell, cold", call(0, shell.clone(), "[exit 0")),
        contestant("run, shell, pool", call(8, shell, "[exit 0")),
        contestant("a session's first call, which ends it, cold", first_call(workplace, 0)),
        contestant("a session's first call, which ends it, pool", first_call(workplace, 8)),
        contestant("session call, python", call(8, session, "1")),
        contestant("the same in the agent alone", agent_alone()),
        contestant("bubblewrap", bubblewrap(workplace, 10)),
    ]
}

/// A session that ends with its first call: many of them at a time a server does not take.
fn first_call(workplace: &Workplace, pool: usize) -> impl FnMut() + Send + use<> {
    let mut client = Client::new(workplace, pool);
    let mut number = 0;
    move || {
        number += 1;
        let code = "import os; print(1, flush=True); os._exit(0)";
        let session = format!("number-{number}");
        client.run(&json!({"env": "python", "code": code, "session": session}), "1");
    }
}

/// The agent of a session without server and sandbox: what the interpreter itself does for a call.
fn agent_alone() -> impl FnMut() + Send + use<> {
    let agent = concat!(env!("CARGO_MANIFEST_DIR"), "/agent/python/agent.py");
    let script = "exec /usr/bin/python3 -I -u \"$0\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1";
    let mut agent = Peer::new(Command::new("sh").args(["-c", script, agent]));
    assert_eq!(agent.hear(), "ready 1\n");
    let nonce = "0".repeat(32);
    move || {
        agent.say(&format!("run 1 {nonce} 1\n1"));
        assert_eq!(agent.hear(), format!("done 1 {nonce} 0\n"));
    }
}

/// What somebody would write who has bubblewrap and Debian's Python.
fn with_python(_: &Workplace) -> impl FnMut() + Send + use<> {
    let words = "--unshare-all --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
        --symlink usr/bin /bin --proc /proc --dev /dev --tmpfs /tmp --die-with-parent --new-session \
        -- /usr/bin/python3 -c";
    let mut words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    words.push("print(1)".to_owned());
    move || spawn(Command::new("bwrap").args(&words))
}
