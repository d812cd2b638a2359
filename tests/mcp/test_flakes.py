"""Environments that Nix builds when the server starts (NIX_SANDBOX_ENVS), with a program in Nix's place.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_flakes.py [test…]

needs nothing but the standard library and a C compiler. The real Nix is in tests/nix.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
import host
from harness import SERVER
from test_operator import serving
from test_raw import PATIENCE, text_of

# An interpreter that needs nothing: prints the code that it is given.
INTERPRETER = r"""
#include <stdio.h>
int main(int argc, char **argv) {
    char text[256]; FILE *f = argc > 1 ? fopen(argv[1], "r") : 0;
    while (f && fgets(text, sizeof text, f)) fputs(text, stdout);
    return 0;
}
"""

# Builds what is called `good`, fails with `bad`, waits for a word at the gate with `slow`; `first` and
# `second` end only if they run at the same time.
NIX = """#!/bin/sh
shift 2
echo "$*" >>PLACE/calls
case "$1" in
flake) echo '{"locked": {"type": "path", "narHash": "sha256-x", "rev": "abc"}, "url": "u"}'; exit 0 ;;
esac
while [ "$1" != --out-link ]; do shift; done
case "$3" in
*'#bad') for n in 1 2 3; do echo "error: line $n" >&2; done; exit 1 ;;
*'#slow') echo 'compiling the world' >&2; read word <PLACE/gate; echo "$word" >&2 ;;
*'#first') echo >PLACE/one; read word <PLACE/two ;;
*'#second') read word <PLACE/one; echo >PLACE/two ;;
esac
ln -sfn PLACE/artifact "$2"
"""

ENV = "/nix/store/00000000000000000000000000000000-env"
DATA = "/nix/store/00000000000000000000000000000001-data"


class Place:
    def __init__(self, path):
        self.path = path
        os.chmod(path, 0o755)
        root = f"{path}/root"
        os.makedirs(f"{root}{ENV}/bin")
        os.mkdir(f"{root}{DATA}")
        with open(f"{path}/interpreter.c", "w", encoding="utf-8") as file:
            file.write(INTERPRETER)
        try:
            cc = ["cc", "-static", "-O1", "-o", f"{root}{ENV}/bin/bash", f"{path}/interpreter.c"]
            subprocess.run(cc, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            raise harness.Lacks("compiler") from None
        os.mkdir(f"{path}/artifact")
        metadata = {"name": "other", "interpreter_type": "bash", "env": ENV, "store_root": root, "closure": [ENV, DATA]}
        metadata["description"] = "as built"
        with open(f"{path}/artifact/metadata.json", "w", encoding="utf-8") as file:
            json.dump(metadata, file)
        os.mkdir(f"{path}/bin")
        with open(f"{path}/bin/nix", "w", encoding="utf-8") as file:
            file.write(NIX.replace("PLACE", path))
        os.chmod(f"{path}/bin/nix", 0o755)
        for name in ["gate", "one", "two"]:
            os.mkfifo(f"{path}/{name}")

    def settings(self, *names):
        return {
            "PATH": f"{self.path}/bin:/usr/bin:/bin",
            "XDG_STATE_HOME": f"{self.path}/state",
            "NIX_SANDBOX_ENVS": ",".join(f"path:/flake#{name}" for name in names),
        }

    def open_gate(self):
        with open(f"{self.path}/gate", "w", encoding="utf-8") as gate:
            gate.write("go on\n")

    def nobody_waits_at_the_gate(self):
        # Whoever opens a FIFO without a reader, and does not wait, is told that there is none.
        with contextlib.suppress(OSError):
            os.close(os.open(f"{self.path}/gate", os.O_WRONLY | os.O_NONBLOCK))
            raise AssertionError("somebody still waits at the gate")

    def envs(self, *names):
        """What `envs` of another process says of each."""
        env = {**os.environ, **self.settings(*names)}
        listed = subprocess.run([SERVER, "envs", "--json"], env=env, capture_output=True, check=True, timeout=PATIENCE)
        return {it["name"]: it for it in json.loads(listed.stdout)}


@contextlib.contextmanager
def place():
    with tempfile.TemporaryDirectory() as path:
        yield Place(path)


def env_of(server, id):
    """The names in the schema, and the words about them."""
    env = server.ask(id, "tools/list")["result"]["tools"][0]["inputSchema"]["properties"]["env"]
    return env["enum"], env.get("description", "")


def test_what_builds_never_blocks_initialize_and_a_call_waits_with_progress():
    with place() as it, serving(**it.settings("slow")) as server:
        names, words = env_of(server, 1)
        assert "slow" in names and "slow: building" in words, words
        assert it.envs("slow")["slow"]["state"] == "building"
        arguments = {"env": "slow", "code": "from the flake"}
        server.request(2, "tools/call", name="run", arguments=arguments, _meta={"progressToken": "t"})
        told = server.receive()
        assert told["method"] == "notifications/progress", told
        assert told["params"]["message"].endswith("s · building slow: compiling the world"), told
        it.open_gate()
        while (answer := server.receive()).get("id") != 2:
            pass
        assert text_of(answer).startswith("from the flake\n[exit 0 · "), answer
        assert "slow: as built" in env_of(server, 3)[1]
        assert it.envs("slow")["slow"]["state"] == "ready"


def test_each_result_carries_a_receipt_and_what_was_built_has_a_root():
    with place() as it, serving(**it.settings("good")) as server:
        server.start(1, "x", env="good")
        receipt = server.answer(1)["result"]["_meta"]["nix-sandbox-mcp/environment"]
        digest = hashlib.sha256(f"{ENV}\n{DATA}\n".encode()).hexdigest()
        locked = {"type": "path", "narHash": "sha256-x", "rev": "abc"}
        flake = {"ref": "path:/flake#good", "locked": locked}
        assert receipt == {"storePath": ENV, "closureSha256": digest, "closurePaths": 2, "flake": flake}, receipt
        roots = f"{it.path}/state/nix-sandbox-mcp/roots"
        links = [name for name in os.listdir(roots) if os.path.islink(f"{roots}/{name}")]
        assert len(links) == 1 and os.readlink(f"{roots}/{links[0]}") == f"{it.path}/artifact", links
        assert "_meta" not in server.ask(2, "ping")["result"]


def test_all_are_built_at_the_same_time():
    with place() as it, serving(**it.settings("first", "second")) as server:
        assert server.run(1, "1", env="first").startswith("1\n[exit 0")
        assert server.run(2, "2", env="second").startswith("2\n[exit 0")


def test_a_failed_build_s_last_lines_reach_the_caller_and_others_run():
    with place() as it, serving(**it.settings("bad", "good")) as server:
        text = server.run(1, "x", env="bad")
        assert "error: line 1\nerror: line 2\nerror: line 3" in text, text
        assert text.startswith("sandbox error (host): the environment \"bad\" cannot be used: `nix` failed"), text
        assert server.run(2, "fine", env="good").startswith("fine\n[exit 0")
        names, words = env_of(server, 3)
        assert "bad" not in names and "bad: failed: `nix` failed" in words, (names, words)
        listed = it.envs("bad", "good")
        assert listed["bad"]["state"] == "failed" and "line 3" in listed["bad"]["reason"], listed
        assert listed["good"]["state"] == "ready", listed


def test_without_nix_a_sentence_says_so():
    with place() as it:
        os.remove(f"{it.path}/bin/nix")
        if any(os.path.exists(f"{at}/nix") for at in ["/usr/local/bin", "/usr/bin", "/nix/var/nix/profiles/default/bin"]):
            raise harness.Lacks("no-nix")
        with serving(**it.settings("good")) as server:
            text = server.run(1, "x", env="good")
            assert "there is no program `nix` in PATH; install Nix" in text, text
            assert server.run(2, "echo 1").startswith("1\n[exit 0")


def test_a_call_that_waits_can_be_cancelled_and_what_builds_ends_with_the_server():
    with place() as it:
        with serving(**it.settings("slow")) as server:
            server.start(1, "x", env="slow")
            server.notify("notifications/cancelled", requestId=1)
            assert server.run(2, "echo 1").startswith("1\n[exit 0")
            server.hang_up()
            assert server.ended(10) == 0
        it.nobody_waits_at_the_gate()
        # It was stopped, and nothing is wrong with it.
        assert it.envs("slow")["slow"]["state"] == "not built"


def test_a_cancelled_call_that_waited_for_a_build_leaves_its_seat_and_its_line():
    with place() as it:
        audit = f"{it.path}/audit.jsonl"
        settings = {**it.settings("slow"), "NIX_SANDBOX_AUDIT": audit, "NIX_SANDBOX_MAX_RUNS": "1"}
        with serving(**settings) as server:
            server.start(1, "x", env="slow")
            server.notify("notifications/cancelled", requestId=1)
            assert server.run(2, "echo 1").startswith("1\n[exit 0")
        with open(audit, encoding="utf-8") as file:
            environments = [json.loads(line)["environment"] for line in file]
        assert environments == ["slow", "shell"], environments


def test_ctrl_c_ends_a_command_line_that_waits_for_a_build():
    with place() as it:
        for end in signal.SIGINT, signal.SIGTERM:
            with open(f"{it.path}/calls", "w", encoding="utf-8"):
                pass
            env = {**os.environ, **it.settings("slow")}
            process = subprocess.Popen([SERVER, "exec", "--env", "slow", "--", "x"], env=env, stdin=subprocess.DEVNULL)
            deadline = time.monotonic() + PATIENCE
            while "build " not in host.read(f"{it.path}/calls"):
                assert time.monotonic() < deadline, "it never builds"
                time.sleep(0.01)
            process.send_signal(end)
            assert process.wait(PATIENCE) == -end
            it.nobody_waits_at_the_gate()


def test_the_command_line_builds_what_it_needs():
    with place() as it:
        env = {**os.environ, **it.settings("good", "bad")}
        assert it.envs("good")["good"]["state"] == "not built"
        command = [SERVER, "run", "--env", "good", "-"]
        ran = subprocess.run(command, env=env, input=b"x", capture_output=True, timeout=PATIENCE, check=False)
        assert (ran.returncode, ran.stdout) == (0, b"x"), ran
        command[3] = "bad"
        ran = subprocess.run(command, env=env, input=b"x", capture_output=True, timeout=PATIENCE, check=False)
        assert ran.returncode == 125 and b"error: line 3" in ran.stderr, ran


def test_metadata_names_artifacts():
    with place() as it:
        metadata = {"environments": {"mine": {"artifact": f"{it.path}/artifact", "memory_mb": 64}}}
        with serving(NIX_SANDBOX_METADATA=json.dumps(metadata)) as server:
            assert server.run(1, "x", env="mine").startswith("x\n[exit 0")
        with open(f"{it.path}/metadata", "w", encoding="utf-8") as file:
            json.dump(metadata, file)
        with serving(NIX_SANDBOX_METADATA=f"@{it.path}/metadata") as server:
            assert "mine" in env_of(server, 1)[0]


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
