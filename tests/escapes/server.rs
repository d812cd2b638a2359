//! A server, and a client that trusts it in nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::support::{self, slower::slower};

/// Nothing takes this long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server process; lines in, lines out. Killed when dropped.
pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    log: File,
}

impl Server {
    /// A server that has shaken hands, with these variables.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let log = tempfile::tempfile().expect("log");
        let mut command = support::command();
        command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(log.try_clone().expect("log")).envs(variables.iter().copied());
        let mut child = command.spawn().expect("start");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("stdout"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut server = Self { child, input, lines, log };
        server.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "escapes", "version": "0"}}}));
        assert_eq!(server.next()["id"], 0);
        server.notify("notifications/initialized", &json!({}));
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, message: &Value) {
        writeln!(self.input.as_ref().expect("open"), "{message}").expect("the server reads");
    }

    pub(crate) fn notify(&mut self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    pub(crate) fn call(&mut self, id: u64, env: &str, code: &str, timeout: u64) {
        let arguments = json!({"env": env, "code": code, "timeout": timeout});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "run", "arguments": arguments}}));
    }

    /// A call in a session.
    pub(crate) fn say(&mut self, id: u64, env: &str, session: &str, code: &str, timeout: u64) {
        let arguments = json!({"env": env, "code": code, "timeout": timeout, "session": session});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "run", "arguments": arguments}}));
    }

    /// What code in a session came to: what it wrote, and the trailer.
    pub(crate) fn tell(&mut self, env: &str, session: &str, code: &str) -> (String, String) {
        self.tell_within(env, session, code, 30 * u64::from(slower()))
    }

    pub(crate) fn tell_within(
        &mut self,
        env: &str,
        session: &str,
        code: &str,
        timeout: u64,
    ) -> (String, String) {
        self.say(77, env, session, code, timeout);
        let text = self.text(77);
        let (said, trailer) = text.rsplit_once('\n').unwrap_or(("", &text));
        // The time is not the same each time, and a cgroup tells how much memory it was.
        let facts: Vec<&str> = trailer.trim_matches(['[', ']']).split(" · ").collect();
        let told = |fact: &&&str| {
            !fact.ends_with(" s") && !fact.ends_with(" MB") || fact.contains("after")
        };
        let facts = facts.iter().filter(told);
        (said.to_owned(), facts.copied().collect::<Vec<_>>().join(" · "))
    }

    pub(crate) fn next(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE * slower()).expect("an answer in time");
        serde_json::from_str(&line).expect("JSON")
    }

    /// The next answer's id and text.
    pub(crate) fn next_text(&self) -> (u64, String) {
        let answer = self.next();
        let text = answer["result"]["content"][0]["text"].as_str();
        (answer["id"].as_u64().expect("id"), text.unwrap_or_else(|| panic!("{answer}")).to_owned())
    }

    /// The text of the answer to `id`, which is the next.
    pub(crate) fn text(&self, id: u64) -> String {
        let (next, text) = self.next_text();
        assert_eq!(next, id);
        text
    }

    /// Hangs up, waits for the end, and gives what was logged.
    pub(crate) fn log(mut self) -> String {
        drop(self.input.take());
        self.child.wait().expect("the server ends");
        self.log.rewind().expect("rewind");
        let mut text = Vec::new();
        self.log.read_to_end(&mut text).expect("log");
        String::from_utf8(text).expect("a log is text")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
