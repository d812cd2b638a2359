"""A client of the MCP server that many threads share: raw JSON lines, nothing but the standard library."""

import json
import os
import subprocess
import threading
from concurrent.futures import Future

VERSION = "2025-06-18"

# Seconds until an answer that should come is missed.
PATIENCE = 120


class Gone(Exception):
    """The server's output has ended."""


class Client:
    """A server process and whoever waits for its answers."""

    def __init__(self, program, log=subprocess.DEVNULL, wrapper=(), version=VERSION, **settings):
        # A backtrace of a server without memory would wait for itself.
        ours = ("NIX_SANDBOX_", "PROJECT_", "SESSION_", "RUST_BACKTRACE")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.process = subprocess.Popen(
            [*wrapper, program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment | settings
        )
        self.lock = threading.Lock()
        self.waiting = {}
        self.next = 0
        self.unasked = []
        self.cancelled = set()
        self.gone = False
        threading.Thread(target=self.read, daemon=True).start()
        if version:
            client = {"name": "test", "version": "1"}
            self.request("initialize", protocolVersion=version, capabilities={}, clientInfo=client)[1].result(PATIENCE)
            self.notify("notifications/initialized")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(PATIENCE)
        try:
            self.process.stdin.close()
        except OSError:
            pass  # nobody read it

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.lock:
                future = self.waiting.pop(message.get("id"), None)
                if future is None:
                    self.unasked.append(message)
            if future:
                future.set_result(message)
        with self.lock:
            self.gone = True
            left = list(self.waiting.values())
            self.waiting.clear()
        for future in left:
            future.set_exception(Gone("the server has ended"))

    def send(self, message):
        line = json.dumps(message).encode() + b"\n"
        with self.lock:
            self.process.stdin.write(line)
            self.process.stdin.flush()

    def request(self, method, **params):
        """The id of a request and its answer to come."""
        future = Future()
        with self.lock:
            if self.gone:
                raise Gone("the server has ended")
            self.next += 1
            id = self.next
            self.waiting[id] = future
        self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        return id, future

    def notify(self, method, **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self, code, env="shell", **arguments):
        return self.request("tools/call", name="run", arguments={"env": env, "code": code, **arguments})

    def run(self, code, env="shell", **arguments):
        """The text of one call's answer."""
        return text_of(self.start(code, env, **arguments)[1].result(PATIENCE))

    def cancel(self, id):
        """Cancels a call; no answer to it may come any more, unless it is on its way already."""
        with self.lock:
            self.waiting.pop(id, None)
            self.cancelled.add(id)
        self.notify("notifications/cancelled", requestId=id)

    def hang_up(self):
        self.process.stdin.close()


def text_of(answer):
    return answer["result"]["content"][0]["text"]


def split(text):
    """What was written, and the trailer."""
    body, _, trailer = text.rpartition("\n")
    return body, trailer
