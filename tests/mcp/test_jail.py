"""bubblewrap in the engine's place: NIX_SANDBOX_BACKEND=jail and auto.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_jail.py [test…]

needs bubblewrap and nothing but the standard library. What sandboxes are like with it is asked in
tests/conformance/backends.rs.
"""

import ctypes
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
import host
from harness import SERVER
from test_operator import serving
from test_raw import PATIENCE

# Numbers of the mount calls that came with Linux 5.2: the same on every architecture.
OPEN_TREE, FSCONFIG = 428, 431
ENOSYS = 38


def bubblewrap():
    if not shutil.which("bwrap"):
        raise harness.Lacks("bubblewrap")


def without_new_mount_calls():
    """In the child: a host on which the engine cannot run, and bubblewrap can."""
    def instruction(code, jt, jf, k):
        return struct.pack("=HBBI", code, jt, jf, k)

    program = b"".join(
        [
            instruction(0x20, 0, 0, 0),  # the number of the call
            instruction(0x35, 0, 2, OPEN_TREE),
            instruction(0x25, 1, 0, FSCONFIG),
            instruction(0x06, 0, 0, 0x00050000 | ENOSYS),
            instruction(0x06, 0, 0, 0x7FFF0000),
        ]
    )
    buffer = ctypes.create_string_buffer(program)
    filter = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0, "no_new_privs"
    assert libc.prctl(22, 2, ctypes.create_string_buffer(filter), 0, 0) == 0, "seccomp"


def run(*command, backend, prepare=None, **settings):
    env = {**os.environ, "NIX_SANDBOX_BACKEND": backend, **settings}
    words = [SERVER, "exec", "--json", "--", *command]
    return subprocess.run(words, env=env, capture_output=True, timeout=PATIENCE, check=False, preexec_fn=prepare)


def namespaces(ran):
    walls = json.loads(ran.stdout)["enforced"]
    return next(wall for wall in walls if wall["wall"] == "namespaces")


def test_auto_falls_back_only_where_the_engine_cannot_run_and_every_result_says_so():
    bubblewrap()
    here = namespaces(run("true", backend="auto"))
    assert here["strength"] == "active" and "bubblewrap" not in here["detail"], here
    there = run("true", backend="auto", prepare=without_new_mount_calls)
    assert there.returncode == 0, there
    wall = namespaces(there)
    assert wall["strength"] == "weaker", wall
    assert "by bubblewrap " in wall["detail"], wall
    assert "in place of the engine, which cannot run here: " in wall["detail"], wall
    assert b"bubblewrap stands in for it" in there.stderr, there.stderr
    engine = run("true", backend="engine", prepare=without_new_mount_calls)
    assert engine.returncode == 125 and b"ENOSYS" in engine.stderr, engine


def test_what_a_plan_requires_and_bubblewrap_cannot_hold_is_refused():
    bubblewrap()
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/settings.toml"
        with open(path, "w", encoding="utf-8") as file:
            file.write('require = ["landlock"]\n')
        ran = run("true", backend="jail", NIX_SANDBOX_CONFIG=path)
    assert ran.returncode == 125, ran
    assert b"landlock is required and cannot be had here: bubblewrap has none; use the engine" in ran.stderr, ran


def test_a_missing_bubblewrap_is_told_by_name():
    if any(os.path.exists(f"{at}/bwrap") for at in ["/usr/local/bin", "/usr/bin", "/bin"]):
        raise harness.Lacks("no-bubblewrap")
    ran = run("true", backend="jail")
    assert ran.returncode == 125 and b"bubblewrap is not installed" in ran.stderr, ran


def test_it_starts_without_LANG_HOME_and_TERM():
    bubblewrap()
    env = {"PATH": "/usr/bin:/bin", "NIX_SANDBOX_BACKEND": "jail"}
    words = [SERVER, "exec", "--", "sh", "-c", "echo $LANG"]
    ran = subprocess.run(words, env=env, capture_output=True, timeout=PATIENCE, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"C.UTF-8\n"), ran


def status(pid, key):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(line.split()[1:] for line in file if line.startswith(f"{key}:"))


def below(pid):
    """Its children, of whichever thread, and theirs."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
            found += [int(child) for child in file.read().split()]
    return found + [deeper for child in found for deeper in below(child)]


def test_nothing_of_it_is_root_on_the_host_and_nothing_is_left_after_a_kill():
    bubblewrap()
    with serving(NIX_SANDBOX_BACKEND="jail") as server:
        server.run(1, "sleep 1000 & echo $!", session="s")
        family = below(server.process.pid)
        # The jailer, bubblewrap, its pid 1, the shell, its job.
        assert len(family) >= 5, family
        for pid in family:
            assert "0" not in status(pid, "Uid"), pid
            assert os.getuid() or status(pid, "Groups") == [], pid
        pids = [os.pidfd_open(pid) for pid in family]
        server.process.kill()
        server.process.wait()
        for pid in pids:
            wait_for(pid)


def wait_for(pidfd):
    """Until the process has ended."""
    ready, _, _ = select.select([pidfd], [], [], PATIENCE)
    os.close(pidfd)
    assert ready, "a process is left"


def test_that_bubblewrap_was_killed_is_not_told_as_a_start_that_failed():
    """As a cgroup is killed as a whole, or its memory is used up."""
    bubblewrap()
    env = {**os.environ, "NIX_SANDBOX_BACKEND": "jail"}
    words = [SERVER, "exec", "--json", "--", "sh", "-c", "echo up >&2; sleep 1000"]
    with subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        ones = lambda: [pid for pid in host.below(process.pid) if host.read(f"/proc/{pid}/comm") == "bwrap\n"]
        sleeps = lambda: [pid for pid in host.below(process.pid) if host.read(f"/proc/{pid}/comm") == "sleep\n"]
        deadline = time.monotonic() + PATIENCE
        while not sleeps():
            assert time.monotonic() < deadline, "it never runs"
            time.sleep(0.01)
        os.kill(ones()[0], signal.SIGKILL)
        told = json.loads(process.communicate(timeout=PATIENCE)[0])
    assert told["ending"] == {"kind": "signaled", "signal": signal.SIGKILL}, told


def test_exit_codes_signals_and_a_time_out_are_as_with_the_engine():
    bubblewrap()
    for script, ending in [
        ("exit 7", {"kind": "exited", "code": 7}),
        ("kill -SEGV $$", {"kind": "signaled", "signal": 11}),
    ]:
        ran = run("sh", "-c", script, backend="jail")
        assert json.loads(ran.stdout)["ending"] == ending, ran
    ran = run("no-such-program", backend="jail")
    assert (ran.returncode, json.loads(ran.stdout)["stderr"]["text"]) == (127, ""), ran
    words = [SERVER, "exec", "--timeout", "0.3", "--", "sleep", "9"]
    env = {**os.environ, "NIX_SANDBOX_BACKEND": "jail"}
    ran = subprocess.run(words, env=env, capture_output=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 124, ran


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
