"""The server as a client of raw JSON-RPC sees it: what no SDK would send, and what it would not tell.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_raw.py [test…]

needs nothing but the standard library.
"""

import itertools
import json
import os
import queue
import random
import select
import signal
import subprocess
import sys
import threading
import time

import harness
from harness import SERVER

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
NEWEST = "2026-07-28"

# Seconds until an answer that should come is missed.
PATIENCE = 30


class Server:
    """A server process: lines in, lines out."""

    def __init__(self, version=None):
        self.process = subprocess.Popen(
            [SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        if version:
            self.initialize(version)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def read(self):
        with os.fdopen(os.dup(self.process.stdout.fileno()), "rb") as output:
            for line in output:
                self.lines.put(line)
        self.lines.put(None)

    def send(self, line):
        line = line if isinstance(line, bytes) else json.dumps(line).encode()
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self):
        """The next message; None at the end of the output."""
        line = self.lines.get(timeout=PATIENCE)
        return None if line is None else json.loads(line)

    def notify(self, method, **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def request(self, id, method, **params):
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    def ask(self, id, method, **params):
        """The answer to a request, which must be the next message."""
        self.request(id, method, **params)
        return self.answer(id)

    def answer(self, id):
        message = self.receive()
        assert message is not None and message["id"] == id and message["jsonrpc"] == "2.0", message
        return message

    def initialize(self, version):
        client = {"name": "raw", "version": "1"}
        answer = self.ask(0, "initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self.notify("notifications/initialized")
        return answer["result"]

    def start(self, id, code, env="shell", **arguments):
        self.request(id, "tools/call", name="run", arguments={"env": env, "code": code, **arguments})

    def run(self, id, code, **arguments):
        self.start(id, code, **arguments)
        return text_of(self.answer(id))

    def hang_up(self):
        self.process.stdin.close()

    def ended(self, within):
        """Its exit code."""
        return self.process.wait(within)


def text_of(answer):
    return answer["result"]["content"][0]["text"]


def meta(version=NEWEST):
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }


class Sleeper:
    """A program that sleeps for a time that no other process on this machine sleeps for."""

    def __init__(self):
        self.seconds = f"9{random.randrange(10**6)}.{random.randrange(10**8):08}"
        self.code = f"sleep {self.seconds}"

    def started(self):
        """A descriptor of the process, once it is there."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as file:
                        if file.read() == f"sleep\0{self.seconds}\0".encode():
                            return os.pidfd_open(int(pid))
                except OSError:
                    pass  # it has gone
        raise AssertionError("the code was not started")


def assert_dies(pidfd, within=PATIENCE):
    ready, _, _ = select.select([pidfd], [], [], within)
    os.close(pidfd)
    assert ready, "the code still runs"


def test_every_version_with_a_handshake():
    for version in VERSIONS:
        with Server() as server:
            result = server.initialize(version)
            assert result["protocolVersion"] == version, result
            assert result["serverInfo"]["name"] == "nix-sandbox-mcp", result
            assert set(result["capabilities"]) - {"resources"} == {"tools"}, result
            tools = server.ask(1, "tools/list")["result"]
            assert "resultType" not in tools and [t["name"] for t in tools["tools"]] == ["run"]
            assert server.run(2, "echo 42").startswith("42\n[exit 0 · ")
            assert server.ask(3, "ping")["result"] == {}


def test_a_version_that_is_unknown_gets_one_that_is_known():
    for version in ["1999-01-01", NEWEST, "2099-01-01"]:
        with Server() as server:
            assert server.initialize(version)["protocolVersion"] == VERSIONS[-1]
            assert server.run(2, "echo 42").startswith("42\n")


def test_server_discover_and_calls_without_a_handshake():
    with Server() as server:
        result = server.ask(1, "server/discover", _meta=meta())["result"]
        assert sorted(result["supportedVersions"]) == [*VERSIONS, NEWEST], result
        result = server.ask(2, "tools/list", _meta=meta())["result"]
        assert result["resultType"] == "complete" and "ttlMs" in result and "cacheScope" in result
        arguments = {"code": "echo 42", "env": "shell"}
        answer = server.ask(3, "tools/call", name="run", arguments=arguments, _meta=meta())
        assert answer["result"]["resultType"] == "complete"
        assert text_of(answer).startswith("42\n")
        for id, bad in enumerate([{}, {"io.modelcontextprotocol/protocolVersion": NEWEST}], 4):
            error = server.ask(id, "tools/list", _meta=bad)["error"]
            assert error["code"] == -32602 and "clientCapabilities" in error["message"], error
        error = server.ask(6, "tools/list", _meta=meta("1999-01-01"))["error"]
        assert error["code"] == -32022, error


def test_the_list_of_tools_is_the_same_at_every_start():
    seen = set()
    for _ in range(3):
        with Server(NEWEST) as server:
            server.request(1, "tools/list")
            seen.add(server.lines.get(timeout=PATIENCE))
    assert len(seen) == 1, seen


def test_malformed_lines_are_answered():
    with Server(VERSIONS[2]) as server:
        for line, code, id in [
            (b"nonsense", -32700, None),
            (b'{"jsonrpc":"2.0","id":1,"method":', -32700, None),
            (b"\xff\xfe\x00", -32700, None),
            (b"[" * 10_000_000, -32700, None),
            (b'{"a":' * 1_000_000, -32700, None),
            (b"[]", -32600, None),
            (b"7", -32600, None),
            (b'{"jsonrpc":"2.0"}', -32600, None),
            (b'{"jsonrpc":"1.0","id":5,"method":"ping"}', -32600, 5),
            (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":{"a":"\\ud800"}}', -32600, 6),
            (b'{"jsonrpc":"2.0","id":"7","method":"no/such"}', -32601, "7"),
        ]:
            server.send(line)
            answer = server.receive()
            assert (answer["error"]["code"], answer["id"]) == (code, id), (line[:60], answer)
            assert len(answer["error"]["message"]) < 300, answer
        server.send(b"")
        server.send(b"\xef\xbb\xbf" + b'{"jsonrpc":"2.0","id":8,"method":"ping"}\r')
        assert server.answer(8)["result"] == {}


def test_a_line_that_is_too_long_is_answered():
    with Server(VERSIONS[2]) as server:
        filler = "x" * (17 << 20)
        server.start(1, filler)
        answer = server.answer(1)
        assert answer["error"]["code"] == -32600 and "too long" in answer["error"]["message"]
        server.send(filler.encode())
        answer = server.receive()
        assert answer["id"] is None and answer["error"]["code"] == -32600, answer
        assert server.run(2, "echo 42").startswith("42\n")


def test_code_that_is_too_long_is_refused():
    with Server(VERSIONS[2]) as server:
        server.start(1, "#" * ((8 << 20) + 1))
        answer = server.answer(1)
        assert answer["result"]["isError"] and "8388608" in text_of(answer), answer


def test_a_cancelled_request_dies_and_gets_no_reply():
    for version in [VERSIONS[2], None]:
        with Server(version) as server:
            extra = {} if version else {"_meta": meta()}
            sleeper = Sleeper()
            arguments = {"env": "shell", "code": sleeper.code, "timeout": 60}
            server.request(1, "tools/call", name="run", arguments=arguments, **extra)
            process = sleeper.started()
            server.notify("notifications/cancelled", requestId=1, **extra)
            assert_dies(process)
            arguments = {"env": "shell", "code": "echo 42"}
            answer = server.ask(2, "tools/call", name="run", arguments=arguments, **extra)
            assert text_of(answer).startswith("42\n")
            server.hang_up()
            assert server.receive() is None
            assert server.ended(PATIENCE) == 0


def test_a_cancel_for_nothing_is_harmless():
    with Server() as server:
        server.notify("notifications/cancelled", requestId=77)
        server.notify("notifications/no/such", a=[1])
        server.initialize(VERSIONS[2])
        server.notify("notifications/cancelled", requestId="x")
        server.notify("notifications/cancelled")
        assert server.run(1, "echo 42").startswith("42\n")


def test_calls_run_at_once_and_answers_may_overtake():
    with Server(VERSIONS[2]) as server:
        sleeper = Sleeper()
        server.start(1, sleeper.code, timeout=60)
        process = sleeper.started()
        assert server.run(2, "echo 42").startswith("42\n")
        server.notify("notifications/cancelled", requestId=1)
        assert_dies(process)


def test_more_calls_than_may_run_are_all_answered():
    with Server(VERSIONS[2]) as server:
        for id in range(1, 41):
            server.start(id, f"echo {id}")
        answers = [server.receive() for _ in range(40)]
        assert sorted(answer["id"] for answer in answers) == list(range(1, 41))
        for answer in answers:
            assert text_of(answer).startswith(f"{answer['id']}\n[exit 0 · "), answer


def test_after_the_end_of_input_what_was_read_is_answered():
    with Server(VERSIONS[2]) as server:
        server.start(1, "sleep 0.5; echo 42")
        server.hang_up()
        assert text_of(server.answer(1)).startswith("42\n")
        assert server.receive() is None
        assert server.ended(PATIENCE) == 0


def test_after_the_end_of_input_long_runs_are_ended():
    with Server(VERSIONS[2]) as server:
        sleeper = Sleeper()
        server.start(1, sleeper.code, timeout=60)
        process = sleeper.started()
        since = time.monotonic()
        server.hang_up()
        assert_dies(process)
        assert server.ended(PATIENCE) == 0
        assert 1.9 < time.monotonic() - since < 5, time.monotonic() - since


def test_a_client_that_has_gone_ends_all_at_once():
    ours, theirs = os.pipe()  # nobody but the server holds the other end
    with subprocess.Popen([SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=theirs) as process:
        os.close(theirs)
        sleeper = Sleeper()
        arguments = {"env": "shell", "code": sleeper.code, "timeout": 60}
        params = {"name": "run", "arguments": arguments, "_meta": meta()}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        child = sleeper.started()
        since = time.monotonic()
        process.stdin.close()
        os.close(ours)
        assert_dies(child)
        assert process.wait(PATIENCE) == 0
        assert time.monotonic() - since < 1.5, time.monotonic() - since


def test_a_killed_server_leaves_nothing():
    with Server(VERSIONS[2]) as server:
        sleeper = Sleeper()
        server.start(1, sleeper.code, timeout=60)
        process = sleeper.started()
        server.process.kill()
        assert_dies(process)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def test_a_killed_launcher_or_pid_1_leaves_nothing_and_the_server_goes_on():
    with Server(VERSIONS[2]) as server:
        launcher = children(server.process.pid)[0]
        sleeper = Sleeper()
        server.start(1, sleeper.code, timeout=60)
        process = sleeper.started()
        # Not one that stands ready: it has no payload.
        os.kill(next(init for init in children(launcher) if children(init)), signal.SIGKILL)
        assert_dies(process)
        assert "killed by SIGKILL" in text_of(server.answer(1))
        sleeper = Sleeper()
        server.start(2, sleeper.code, timeout=60)
        process = sleeper.started()
        os.kill(launcher, signal.SIGKILL)
        assert_dies(process)
        text_of(server.answer(2))
        # Within a few seconds there is another one.
        deadline = time.monotonic() + PATIENCE
        for id in itertools.count(3):
            text = server.run(id, "echo 42")
            if text.startswith("42\n"):
                break
            assert "sandbox error (host)" in text and time.monotonic() < deadline, text
            time.sleep(0.2)


def test_a_signal_ends_all():
    for number in [signal.SIGTERM, signal.SIGINT]:
        with Server(VERSIONS[2]) as server:
            sleeper = Sleeper()
            server.start(1, sleeper.code, timeout=60)
            process = sleeper.started()
            server.process.send_signal(number)
            assert_dies(process)
            assert server.ended(5) == 0


def test_an_idle_server_ends_with_its_input():
    for version in [None, VERSIONS[2]]:
        with Server(version) as server:
            server.hang_up()
            assert server.ended(5) == 0


def test_input_and_output_may_be_files_or_sockets():
    import socket
    import tempfile

    line = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta()}}
    with tempfile.TemporaryFile() as input, tempfile.TemporaryFile() as output:
        input.write(json.dumps(line).encode())  # without an end of line
        input.seek(0)
        subprocess.run([SERVER, "--stdio"], stdin=input, stdout=output, timeout=PATIENCE, check=True)
        output.seek(0)
        assert json.loads(output.read())["id"] == 1
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen([SERVER, "--stdio"], stdin=theirs, stdout=theirs) as process:
        theirs.close()
        ours.settimeout(PATIENCE)
        ours.sendall(json.dumps(line).encode() + b"\n")
        assert json.loads(ours.makefile().readline())["id"] == 1
        ours.shutdown(socket.SHUT_RDWR)
        assert process.wait(PATIENCE) == 0


def test_nothing_but_the_protocol_is_on_the_output():
    with Server(VERSIONS[2]) as server:
        # The sandbox must not reach it either.
        server.run(1, "echo x > /proc/self/fd/3; echo y > /proc/$PPID/fd/1; exit 0")
        assert server.ask(2, "ping")["result"] == {}


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
