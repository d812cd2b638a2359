//! The whole server over pipes, with a door that does what the code says.

use std::io::{self, BufRead, BufReader, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use super::wire::Wire;
use super::{Door, Facts, Offer, Options, server};
use crate::outcome::{Ending, Enforced, Files, Outcome, Stream, Usage};
use crate::request::{Request, Work};
use crate::runner::{Cancel, Fault, Newest, RunError};

/// Nothing below takes this long unless something hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// `panic`, `wait` (until cancelled), `host` (an error), or text to be echoed. Tells what starts and
/// what ends.
struct Scripted(Mutex<Sender<String>>);

impl Scripted {
    fn tell(&self, what: String) {
        // The test may be over.
        let _ = self.0.lock().unwrap().send(what);
    }
}

impl Door for Scripted {
    fn tidy(&self) {}

    fn run(
        &self,
        request: &Request,
        cancel: &Cancel,
        _newest: Option<Newest>,
    ) -> Result<Outcome, RunError> {
        let Work::Code(code) = &request.work else { panic!("code") };
        let code = String::from_utf8(code.clone()).unwrap();
        self.tell(format!("start {code}"));
        let ending = match code.split(' ').next().unwrap() {
            "panic" => panic!("as told"),
            "host" => {
                let message = "no user namespaces".to_owned();
                return Err(RunError::Other { fault: Fault::Host, message });
            }
            "wait" => {
                let mut fds = [PollFd::new(cancel.as_fd(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::NONE).unwrap();
                Ending::Cancelled
            }
            _ => Ending::Exited { code: 0 },
        };
        self.tell(format!("end {code}"));
        let stdout = Stream { bytes: code.len() as u64, head: code.into_bytes(), tail: Vec::new() };
        let usage = Usage { wall_us: 10_000, cpu_us: 0, peak_memory: 0, peak_pids: None };
        Ok(Outcome {
            order: crate::outcome::Order::default(),
            ending,
            stdout,
            stderr: Stream::default(),
            usage,
            enforced: Enforced::default(),
            session: None,
            files: Files::default(),
        })
    }

    fn environments(&self) -> Vec<Offer> {
        ["node", "python", "shell"]
            .map(|name| Offer {
                name: name.to_owned(),
                description: String::new(),
                available: true,
            })
            .to_vec()
    }

    fn facts(&self) -> Facts {
        Facts {
            project: None,
            timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(300),
            memory: None,
            outputs: false,
        }
    }
}

/// A client and its server.
struct Client {
    input: Option<io::PipeWriter>,
    output: Receiver<Value>,
    events: Receiver<String>,
    served: Receiver<()>,
}

impl Client {
    fn new(runs: usize) -> Self {
        Self::with(Options { runs, structured: false })
    }

    fn with(options: Options) -> Self {
        let (their_input, input) = io::pipe().unwrap();
        let (output, their_output) = io::pipe().unwrap();
        let wire = Wire::over(their_input.into(), their_output.into()).unwrap();
        let (tell, events) = channel();
        let door = Arc::new(Scripted(Mutex::new(tell)));
        let (over, served) = channel();
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(server::serve(door, options, wire)).unwrap();
            // The test may be over.
            let _ = over.send(());
        });
        let (lines, output_lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = lines.send(serde_json::from_str(&line).unwrap());
            }
        });
        Self { input: Some(input), output: output_lines, events, served }
    }

    /// A client that has shaken hands in the old way.
    fn ready(limit: usize) -> Self {
        let mut client = Self::new(limit);
        client.request(0, "initialize", initialize("2025-06-18"));
        client.answer(0);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        client
    }

    fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    fn request(&mut self, id: u64, method: &str, params: impl Into<Value>) {
        let params = params.into();
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message.to_string());
    }

    fn run(&mut self, id: u64, code: &str) {
        let arguments = json!({"code": code, "env": "shell"});
        self.request(id, "tools/call", json!({"name": "run", "arguments": arguments}));
    }

    fn cancel(&mut self, id: u64) {
        let params = json!({"requestId": id});
        let message =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        self.send(&message.to_string());
    }

    fn next(&self) -> Value {
        self.output.recv_timeout(PATIENCE).unwrap()
    }

    /// The next message, which must answer `id`.
    fn answer(&self, id: u64) -> Value {
        let answer = self.next();
        assert_eq!(answer["id"], json!(id), "{answer}");
        answer
    }

    /// The text of the next message, which must answer `id`.
    fn text(&self, id: u64) -> String {
        self.answer(id)["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn event(&self, what: &str) {
        assert_eq!(self.events.recv_timeout(PATIENCE).unwrap(), what);
    }

    fn hang_up(&mut self) {
        self.input = None;
    }

    fn served(&self) {
        self.served.recv_timeout(PATIENCE).unwrap();
    }
}

fn initialize(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
}

fn modern(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

#[test]
fn every_version_lists_one_tool_and_runs() {
    for version in
        ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2099-01-01"]
    {
        let mut client = Client::new(1);
        client.request(0, "initialize", initialize(version));
        let result = &client.answer(0)["result"];
        let agreed = if version < "2026" { version } else { "2025-11-25" };
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!(result["serverInfo"]["name"], "nix-sandbox-mcp");
        client.request(1, "tools/list", json!({}));
        let result = client.answer(1)["result"].take();
        assert_eq!(result["tools"].as_array().unwrap().len(), 1);
        assert!(result.get("resultType").is_none(), "{result}");
        client.run(2, "42");
        assert_eq!(client.text(2), "42\n[exit 0 · 0.01 s]");
    }
}

#[test]
fn a_client_without_a_handshake_is_served() {
    let mut client = Client::new(1);
    client.cancel(99);
    client.request(1, "server/discover", modern(json!({})));
    let versions = client.answer(1)["result"]["supportedVersions"].take();
    assert_eq!(versions.as_array().unwrap().len(), 5, "{versions}");
    let call = json!({"name": "run", "arguments": {"code": "42", "env": "node"}});
    client.request(2, "tools/call", modern(call.clone()));
    let answer = client.answer(2);
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(answer["result"]["content"][0]["text"], "42\n[exit 0 · 0.01 s]");
    client.request(3, "tools/call", call);
    let error = &client.answer(3)["error"];
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("initialize"), "{error}");
}

#[test]
fn a_wrong_call_is_advice_in_a_tool_error() {
    let mut client = Client::ready(1);
    for (arguments, words) in [
        (json!({"code": "", "env": "shell", "sesion": "x"}), "code, env, session and timeout"),
        (json!({"code": "", "env": "ruby"}), "node, python and shell"),
        (json!({"code": ""}), "node, python and shell"),
        (json!({"code": 1, "env": "shell"}), "code must be a string"),
        (json!("{\"code\": \"\"}"), "the arguments must be a JSON object"),
        (json!(null), "code is missing"),
    ] {
        client.request(1, "tools/call", json!({"name": "run", "arguments": arguments}));
        let answer = client.answer(1);
        assert_eq!(answer["result"]["isError"], json!(true), "{answer}");
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(words), "{text}");
    }
    client.request(2, "tools/call", json!({"name": "exec"}));
    assert_eq!(client.answer(2)["error"]["code"], -32602);
    client.request(3, "no/such", json!({}));
    assert_eq!(client.answer(3)["error"]["code"], -32601);
    client.request(4, "ping", json!({}));
    assert_eq!(client.answer(4)["result"], json!({}));
}

#[test]
fn a_panic_and_a_host_error_answer() {
    let mut client = Client::ready(1);
    client.run(1, "panic");
    let text = client.text(1);
    assert!(text.starts_with("sandbox error (internal): ") && text.ends_with("as told"), "{text}");
    client.run(2, "host");
    assert_eq!(client.text(2), "sandbox error (host): no user namespaces");
    client.run(3, "42");
    assert_eq!(client.text(3), "42\n[exit 0 · 0.01 s]");
}

#[test]
fn a_cancelled_request_dies_and_gets_no_reply() {
    let mut client = Client::ready(2);
    client.run(1, "wait");
    client.event("start wait");
    client.cancel(1);
    client.event("end wait");
    client.run(2, "42");
    assert!(client.text(2).starts_with("42"));
    client.hang_up();
    client.served();
    assert!(client.output.try_recv().is_err());
}

#[test]
fn calls_queue_in_the_order_in_which_they_came() {
    let mut client = Client::ready(1);
    client.run(1, "wait");
    client.event("start wait");
    for id in 2..50 {
        client.run(id, &format!("call {id}"));
    }
    client.cancel(7);
    client.cancel(1);
    client.event("end wait");
    for id in (2..50).filter(|id| *id != 7) {
        client.event(&format!("start call {id}"));
        client.event(&format!("end call {id}"));
    }
    for _ in 2..49 {
        client.next();
    }
    assert!(client.output.try_recv().is_err());
}

#[test]
fn calls_run_at_once_up_to_the_limit() {
    let mut client = Client::ready(3);
    for id in 1..=4 {
        client.run(id, &format!("wait {id}"));
    }
    let mut started: Vec<String> =
        (0..3).map(|_| client.events.recv_timeout(PATIENCE).unwrap()).collect();
    started.sort();
    assert_eq!(started, ["start wait 1", "start wait 2", "start wait 3"]);
    client.cancel(2);
    client.event("end wait 2");
    client.event("start wait 4");
}

#[test]
fn lines_that_are_no_requests_are_answered() {
    let mut client = Client::ready(1);
    let deep = "[".repeat(1_000_000);
    for (line, code, id) in [
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32700, json!(null)),
        ("nonsense", -32700, json!(null)),
        (&deep, -32700, json!(null)),
        ("[]", -32600, json!(null)),
        ("{}", -32600, json!(null)),
        ("{\"id\":5,\"method\":\"ping\"}", -32600, json!(5)),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":6,\"method\":\"tools/call\",\"params\":{\"x\":\"\\ud800\"}}",
            -32600,
            json!(6),
        ),
    ] {
        client.send(line);
        let answer = client.next();
        assert_eq!(answer["error"]["code"], json!(code), "{answer}");
        assert_eq!(answer.get("id"), Some(&id), "{answer}");
    }
    let big = "x".repeat(super::wire::MAX_LINE);
    client.send(&format!("{{\"params\":\"{big}\",\"id\":7}}"));
    assert_eq!(client.answer(7)["error"]["code"], -32600);
    client.send(&big);
    client.send("x");
    assert_eq!(client.next()["error"]["code"], -32700);
    assert_eq!(client.next()["error"]["code"], -32700);
    client.send("");
    client.run(9, "42");
    assert!(client.text(9).starts_with("42"));
}

#[test]
fn after_the_end_of_input_what_was_read_is_answered_and_the_rest_is_ended() {
    let mut client = Client::ready(2);
    client.run(1, "42");
    client.hang_up();
    assert!(client.text(1).starts_with("42"));
    client.served();

    let mut client = Client::ready(2);
    client.run(1, "wait");
    client.event("start wait");
    let before = Instant::now();
    client.hang_up();
    client.event("end wait");
    assert!(before.elapsed() >= Duration::from_secs(2));
    assert_eq!(client.text(1), "wait\n[cancelled · 0.01 s]");
    client.served();
    assert!(before.elapsed() < Duration::from_secs(4), "{:?}", before.elapsed());
}

#[test]
fn structure_is_there_only_for_those_who_asked() {
    for structured in [false, true] {
        let mut client = Client::with(Options { runs: 1, structured });
        client.request(0, "initialize", initialize("2025-06-18"));
        client.answer(0);
        client.request(1, "tools/list", json!({}));
        let tool = client.answer(1)["result"]["tools"][0].take();
        assert_eq!(tool.get("outputSchema").is_some(), structured, "{tool}");
        client.run(2, "42");
        let result = client.answer(2)["result"].take();
        assert_eq!(result["content"][0]["text"], "42\n[exit 0 · 0.01 s]");
        assert_eq!(result.get("structuredContent").is_some(), structured, "{result}");
        if structured {
            let known = &tool["outputSchema"]["properties"];
            for (name, _) in result["structuredContent"].as_object().unwrap() {
                assert!(known.get(name).is_some(), "{name}");
            }
            assert_eq!(result["structuredContent"]["stdout"], "42");
        }
    }
}
