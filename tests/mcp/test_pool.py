"""Sandboxes that stand ready: a run out of the pool is a run like any other.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_pool.py [test…]

needs nothing but the standard library.
"""

import os
import signal
import sys
import tempfile
import time

import harness
from harness import Lacks
from test_operator import serving
from test_raw import PATIENCE

# What tells one sandbox from another: its namespaces, its keyring, where its memory is, and a secret of
# Python's that is drawn at its start.
IDENTITY = """
import os
for kind in sorted(os.listdir('/proc/self/ns')):
    if kind != 'time' and not kind.endswith('_for_children'):
        print(kind, os.readlink('/proc/self/ns/' + kind))
with open('/proc/self/maps') as maps:
    print('stack', next(line for line in maps if '[stack]' in line).split('-')[0])
print('hash', hash('x'))
"""

# Leaves what can be left, and tells what was there before.
LITTER = """
for place in /tmp /workspace /dev/shm; do ls -A $place; touch $place/litter; done
ls -A /outputs; grep -lx sleep /proc/[0-9]*/comm
(exec sleep 1000 </dev/null >/dev/null 2>&1 &)
"""


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []  # it has gone


def waits(init):
    """Whether a pid 1 has done all its steps but the last, and sleeps."""
    try:
        with open(f"/proc/{init}/status", encoding="utf-8") as file:
            status = file.read()
    except OSError:
        return False  # it has gone
    return "NoNewPrivs:\t1" in status and "State:\tS" in status


def standing(server):
    """The pid 1s of a server that wait and have no payload."""
    inits = [init for launcher in children(server.process.pid) for init in children(launcher)]
    return [init for init in inits if not children(init) and waits(init)]


def eventually(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


def needs(server, env):
    text = server.run(1000, "print(1)" if env == "python" else "echo 1", env=env)
    if not text.startswith("1\n"):
        raise Lacks(env)


def test_no_shared_namespace_address_layout_and_hash_seeds_differ():
    with serving(NIX_SANDBOX_POOL="4") as server:
        needs(server, "python")
        seen = {}
        # All at once, as sessions: the kernel gives the number of a namespace that is gone to the next.
        for id in range(1, 7):
            eventually("one stands", lambda: standing(server))
            text = server.run(id, IDENTITY, env="python", session=f"number-{id}")
            for line in text.splitlines()[:-1]:
                what, value = line.split(" ", 1)
                assert value not in seen.setdefault(what, set()), f"two runs have the same {what}: {value}"
                seen[what].add(value)
        assert {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "stack", "hash"} <= set(seen), seen


def test_a_run_leaves_nothing_but_outputs_for_the_next():
    with serving(NIX_SANDBOX_POOL="4") as server:
        for id in range(1, 9):
            text = server.run(id, LITTER)
            assert text.startswith("[exit 0"), text


def test_what_stands_is_used_once_and_made_anew():
    with serving(NIX_SANDBOX_POOL="2") as server:
        server.run(1, "true")
        eventually("one stands", lambda: standing(server))
        for id in range(2, 6):
            before = set(standing(server))
            assert server.run(id, "echo $$").startswith("2\n"), "pid 1 is ours, the code's the second"
            eventually("another stands", lambda: set(standing(server)) - before)


def test_one_that_was_killed_is_replaced_unseen():
    with serving(NIX_SANDBOX_POOL="2") as server:
        for id in range(1, 6):
            server.run(id * 10, "true")
            eventually("one stands", lambda: standing(server))
            for init in standing(server):
                handle = os.pidfd_open(init)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                harness.wait_readable(handle)
            assert server.run(id * 10 + 1, "echo fine").startswith("fine\n[exit 0")


def test_0_turns_it_off():
    with serving(NIX_SANDBOX_POOL="0") as server:
        for id in range(1, 4):
            assert server.run(id, "echo fine").startswith("fine\n")
        eventually("none is left", lambda: not standing(server))


def settled(code, expected, settings, **environment):
    """Runs `code` again and again, each time when one stands; how many stand in the end."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        with open(f"{place}/settings.toml", "w", encoding="ascii") as file:
            file.write(settings)
        os.chmod(place, 0o755)
        with serving(NIX_SANDBOX_POOL="8", NIX_SANDBOX_CONFIG=file.name, **environment) as server:
            for id in range(1, 5):
                text = server.run(id, code)
                assert text.startswith(expected), text
                eventually("one stands", lambda: standing(server))
            time.sleep(0.2)  # nothing tells that no more are made
            return len(standing(server))


def test_code_may_be_longer_than_a_file_that_the_code_may_make():
    settings = '[limits]\nworkspace = "1M"\n'
    assert settled("#" * 3_000_000 + "\necho fine", "fine\n[exit 0", settings) == 1


def test_a_command_may_be_longer_than_a_message():
    # Who finds none that serves makes more.
    settings = 'inherit_env = ["LONG"]\n'
    assert settled("echo ${#LONG}", "20000\n[exit 0", settings, LONG="x" * 20_000) == 1


def test_a_project_that_was_replaced_is_not_shown_by_what_stands():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        project = f"{place}/project"
        os.mkdir(project, 0o755)
        os.chmod(place, 0o755)
        with open(f"{project}/mark", "w", encoding="ascii") as file:
            file.write("old\n")
        with serving(NIX_SANDBOX_POOL="2", PROJECT_DIR=project) as server:
            assert server.run(1, "cat /project/mark").startswith("old\n")
            eventually("one stands", lambda: standing(server))
            os.rename(project, f"{place}/elsewhere")
            os.mkdir(project, 0o755)
            text = server.run(2, "cat /project/mark")
            assert "it was replaced after it was checked" in text, text


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
