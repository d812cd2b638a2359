#!/usr/bin/env python3
"""Talks with a server and prints what it meets there.

client.py SOCKET, or client.py -- COMMAND…
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

BOMB = "x=xxxxxxxx; while :; do x=$x$x; done"
FORKS = "bash -c ':(){ :|:& };:'; while :; do :; done"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Server:
    def __init__(self, words):
        if words[0] == "--":
            started = subprocess.Popen(words[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.into, self.out = started.stdin, started.stdout
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(words[0])
            self.into = self.out = self.socket.makefile("rwb")
        self.number = 0
        self.answers = {}

    def ask(self, code, **arguments):
        """Sends a call; its number."""
        self.number += 1
        params = {"name": "run", "arguments": {"code": code, "env": "shell", **arguments}, "_meta": META}
        call = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        self.into.write(json.dumps(call).encode() + b"\n")
        self.into.flush()
        return self.number

    def answer(self, number):
        """Its text and its facts."""
        while number not in self.answers:
            message = json.loads(self.out.readline())
            self.answers[message["id"]] = message["result"]
        result = self.answers[number]
        text = "".join(part.get("text", "") for part in result["content"])
        if not (facts := result["_meta"].get("nix-sandbox-mcp/outcome")):
            sys.exit(f"nothing was run: {text}")
        return text, facts

    def run(self, code, **arguments):
        return self.answer(self.ask(code, **arguments))


def places():
    """Whose the running servers are, and in which cgroups."""
    for directory in Path("/proc").glob("[0-9]*"):
        if (directory / "comm").read_text() == "nix-sandbox-mcp\n":
            yield f"{directory.stat().st_uid} {(directory / 'cgroup').read_text().strip()}"


def main():
    server = Server(sys.argv[1:])
    text, facts = server.run("echo hello from uid $(id -u); cat /proc/self/cgroup")
    print("hello:", text.strip())
    for report in facts["enforced"]:
        print(f"{report['wall']}: {report['strength']}: {report['detail']}")
    for place in places():
        print("place:", place)
    text, facts = server.run(BOMB)
    peak = facts["usage"]["peak_memory"] >> 20
    print(f"memory bomb: {facts['ending']['kind']}, peak {peak} MiB: {text.splitlines()[-1]}")
    bomb = server.ask(FORKS, timeout=20)
    text, _ = server.run("echo alive")
    print("meanwhile:", text.strip())
    text, facts = server.answer(bomb)
    refused = "Resource temporarily unavailable" in text
    peak = facts["usage"]["peak_pids"]
    print(f"fork bomb: {facts['ending']['kind']}, refused {refused}, peak {peak}: {text.splitlines()[-1]}")


main()
