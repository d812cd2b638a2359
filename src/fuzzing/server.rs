//! Bytes into the real server loop.

use std::fs::File;
use std::io::{PipeReader, Read, Write, pipe};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::{Value, json};

use crate::mcp::{Door, Facts, Offer, Options, serve_over};
use crate::outcome::{Ending, Enforced, Files, Order, Outcome, Stream, Usage};
use crate::request::{Request, Work};
use crate::runner::{Cancel, Newest, RunError};

/// Says the code again.
struct Echo;

impl Door for Echo {
    fn run(
        &self,
        request: &Request,
        _cancel: &Cancel,
        _newest: Option<Newest>,
    ) -> Result<Outcome, RunError> {
        let Work::Code(code) = &request.work else { panic!("a model runs code only") };
        let stdout = Stream { head: code.clone(), tail: Vec::new(), bytes: code.len() as u64 };
        Ok(Outcome {
            ending: Ending::Exited { code: 0 },
            stdout,
            stderr: Stream::default(),
            order: Order::default(),
            usage: Usage { wall_us: 0, cpu_us: 0, peak_memory: 0, peak_pids: None },
            enforced: Enforced::default(),
            session: None,
            files: Files::default(),
        })
    }

    fn environments(&self) -> Vec<Offer> {
        let description = String::new();
        vec![Offer { name: "shell".to_owned(), description, available: true }]
    }

    fn facts(&self) -> Facts {
        let (timeout, max_timeout) = (Duration::from_secs(30), Duration::from_secs(600));
        Facts { project: None, timeout, max_timeout, memory: None, outputs: false }
    }

    fn tidy(&self) {}
}

/// What the kernel's pipes hold, so that nobody has to read or write meanwhile.
const ROOM: usize = 1 << 20;

/// Any lines, and then a call of ours: each line that comes out is JSON-RPC, and the call is answered,
/// once.
pub fn mcp_line(bytes: &[u8]) {
    const OWN: &str = "the last one";
    // Answers are longer than questions.
    let bytes = &bytes[..bytes.len().min(4096)];
    let call = json!({
        "jsonrpc": "2.0", "id": OWN, "method": "tools/call",
        "params": {
            "name": "run", "arguments": {"env": "shell", "code": "echo"},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let input = [bytes, b"\n", call.to_string().as_bytes(), b"\n"].concat();
    let lines = input.split(|byte| *byte == b'\n').count();
    let said = served(&input);
    let mut own = 0;
    for line in said.split_inclusive(|byte| *byte == b'\n') {
        assert_eq!(line.last(), Some(&b'\n'), "no half line");
        let message: Value = serde_json::from_slice(line).expect("JSON comes out");
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        own += usize::from(message["id"] == OWN && is_ours(&message));
    }
    let answers = said.iter().filter(|byte| **byte == b'\n').count();
    // A call with a progress token is told of more than once.
    assert!(answers <= 3 * lines, "{answers} lines for {lines}");
    // A message before it may have cancelled it or borne its id.
    let touched = String::from_utf8_lossy(bytes).contains("last");
    assert!(
        own == 1 || touched || escaped(bytes),
        "{own} answers: {}",
        String::from_utf8_lossy(&said)
    );
}

/// The code of ours, said again.
fn is_ours(message: &Value) -> bool {
    message["result"]["content"][0]["text"].as_str().is_some_and(|text| text.starts_with("echo\n["))
}

/// Whether an id could be ours in other letters.
fn escaped(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\\u")
}

fn served(input: &[u8]) -> Vec<u8> {
    let (their_input, mut ours) = pipe().expect("pipe");
    let (mut output, their_output) = pipe().expect("pipe");
    for fd in [&ours as &dyn std::os::fd::AsFd, &their_output] {
        fcntl(fd.as_fd(), FcntlArg::F_SETPIPE_SZ(i32::try_from(ROOM).expect("int"))).expect("room");
    }
    ours.write_all(input).expect("room");
    drop(ours);
    let options = Options { runs: 2, structured: false };
    serve_over(Arc::new(Echo), options, [their_input.into(), their_output.into()]).expect("served");
    all_that_is_there(&mut output)
}

fn all_that_is_there(output: &mut PipeReader) -> Vec<u8> {
    fcntl(&*output, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("O_NONBLOCK");
    let mut said = Vec::new();
    let mut file = File::from(std::os::fd::OwnedFd::from(output.try_clone().expect("dup")));
    // It ends with EAGAIN: a thread of the wire still holds the other end.
    let _ = file.read_to_end(&mut said);
    said
}
