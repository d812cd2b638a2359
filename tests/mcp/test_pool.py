"""Sandboxes that stand ready: a run out of the pool is a run like any other.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_pool.py [test…]

needs nothing but the standard library.
"""

import contextlib
import difflib
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
import host
from host import children
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


@contextlib.contextmanager
def few_open_files():
    """The usual limit of a login: 1,024 unless a program asks for more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def waits(pid):
    """Whether a process of a sandbox has done all its steps, or all but the last, and sleeps."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            status = file.read()
    except OSError:
        return False  # it has gone
    return "NoNewPrivs:\t1" in status and "State:\tS" in status


def inits(server):
    return [init for launcher in children(server.process.pid) for init in children(launcher)]


def standing(server):
    """The pid 1s of a server whose payload waits to be told what to run."""
    ordered = lambda init: [child for child in children(init) if host.waits_for_order(child, init) and waits(child)]
    return [init for init in inits(server) if ordered(init)]


def warm(server):
    """The interpreters of a server that wait for their code."""
    payloads = [child for init in inits(server) for child in children(init)]
    return [payload for payload in payloads if host.waits_for_code(payload) and has_opened_its_code(payload)]


def has_opened_its_code(payload):
    try:
        files = [os.readlink(f"/proc/{payload}/fd/{number}") for number in os.listdir(f"/proc/{payload}/fd")]
    except OSError:
        return False  # it has gone
    return any(file.startswith("/code/main.") for file in files) and waits(payload)


def agents(server):
    """The agents of a server that wait, for a session or for its next call."""
    begun = [child for init in inits(server) for child in children(init) if not host.waits_for_order(child, init)]
    return [payload for payload in begun if os.path.exists(f"/proc/{payload}/root/agent") and waits(payload)]


def eventually(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


def kill(pid):
    """Returns when the process has ended."""
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    harness.wait_readable(handle)


def needs(server, env):
    text = server.run(1000, {"python": "print(1)", "node": "console.log(1)"}.get(env, "echo 1"), env=env)
    if not text.startswith("1\n"):
        raise Lacks(env)


def test_no_shared_namespace_address_layout_and_hash_seeds_differ():
    with serving(NIX_SANDBOX_POOL="4") as server:
        needs(server, "python")
        seen = {}
        # All at once, as sessions: the kernel gives the number of a namespace that is gone to the next.
        for id in range(1, 7):
            if id > 1:
                eventually("one waits besides those in use", lambda: len(agents(server)) >= id)
            text = server.run(id, IDENTITY, env="python", session=f"number-{id}")
            for line in text.splitlines()[:-1]:
                what, value = line.split(" ", 1)
                assert value not in seen.setdefault(what, set()), f"two runs have the same {what}: {value}"
                seen[what].add(value)
        assert {"user", "pid", "mnt", "net", "ipc", "uts", "cgroup", "stack", "hash"} <= set(seen), seen


def test_interpreters_that_wait_share_no_namespace_no_address_and_no_secret():
    with serving(NIX_SANDBOX_POOL="4") as server:
        needs(server, "python")
        # Whoever finds none makes more of them.
        for id in range(1, 5):
            arguments = {"env": "python", "code": "import time\ntime.sleep(0.3)"}
            server.start(id, **arguments)
        assert {server.receive()["id"] for _ in range(1, 5)} == {1, 2, 3, 4}
        eventually("several are warm", lambda: len(warm(server)) >= 2)
        places = [place_of(payload) for payload in warm(server)]
        for kind in places[0]:
            values = [place[kind] for place in places]
            assert len(set(values)) == len(values), (kind, values)
        hashes = [server.run(10 + n, "print(hash('x'))", env="python").split("\n")[0] for n in range(4)]
        assert len(set(hashes)) == 4, hashes


def place_of(payload):
    """Where a process is: its namespaces, its stack."""
    place = {kind: os.readlink(f"/proc/{payload}/ns/{kind}") for kind in "user pid mnt net ipc uts cgroup".split()}
    with open(f"/proc/{payload}/maps", encoding="ascii") as maps:
        place["stack"] = next(line for line in maps if "[stack]" in line).split("-")[0]
    return place


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
                kill(init)
            assert server.run(id * 10 + 1, "echo fine").startswith("fine\n[exit 0")


def test_0_turns_it_off():
    with serving(NIX_SANDBOX_POOL="0") as server:
        for id in range(1, 4):
            assert server.run(id, "echo fine").startswith("fine\n")
        eventually("none is left", lambda: not standing(server))


# Everything that code can ask for about itself and its file, but for what is of one run only.
ITSELF = """
import inspect, os, resource, signal, stat, sys
own = os.stat(__file__)
print(__name__, __file__, sys.argv, sys.path[0], sys.flags.unbuffered)
print(stat.filemode(own.st_mode), own.st_uid, own.st_size, own.st_nlink, sorted(os.listdir('/code')))
def text(): return inspect.getsource(text)
print(text(), [line for line in open(__file__)][1])
print(sorted(os.listdir('/proc/self/fd')), repr(sys.stdin.read()), os.getpid(), os.getppid(), os.getcwd())
print(sorted(os.environ.items()), sorted(sys.modules), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([resource.getrlimit(kind) for kind in range(16)], open('/proc/self/cmdline').read())
print([line for line in open('/proc/self/mountinfo') if ' /code ' in line][0].split(' - ')[1])
"""


def run_warm(server, id, code, env):
    """What `code` does when it is given to an interpreter that waits for it."""
    for attempt in range(20):
        eventually("one is warm", lambda: warm(server))
        [before] = warm(server)
        text = server.run(id * 100 + attempt, code, env=env)
        # It may have come to wait in the very moment in which the server did not count on it.
        if before not in warm(server):
            return text
    raise AssertionError(f"never used: {code[:200]}")


def alike(env, *codes):
    """What `codes` do when each is given to an interpreter that waits for it is what they do otherwise."""
    told = lambda text: re.sub(r"( · [\d.]+ s)? · \d+ MB\]$", "]", text.strip())
    with serving(NIX_SANDBOX_POOL="0") as server:
        needs(server, env)
        cold = [told(server.run(id, code, env=env)) for id, code in enumerate(codes)]
    with serving(NIX_SANDBOX_POOL="1") as server:
        needs(server, env)
        for id, code in enumerate(codes):
            text = told(run_warm(server, id, code, env))
            assert text == cold[id], (cold[id], text)
    return cold


def test_warm_python_does_what_a_cold_one_does():
    texts = alike(
        "python",
        ITSELF,
        "",
        "print('no newline at the end')",
        "def f():\n    raise ValueError('here')\nf()",
        "print(1)\nsyntax error",
        "import sys; sys.exit(7)",
        "print('\x00')",
        "# coding: utf-8\nprint('\u00e4\u20ac')",
        "\ufeffprint('behind a byte order mark')",
        "print(1)\r\nprint(2)\r\n",
        "import os; os.kill(os.getpid(), 9)",
        "from multiprocessing import get_context\ndef f(n): return n * n\nif __name__ == '__main__':\n"
        "    with get_context('spawn').Pool(2) as pool: print(pool.map(f, [1, 2, 3]))",
        "print('x' * 10)\n" + "#" * 60_000 + "\nprint('end')",
    )
    assert "raise ValueError('here')" in texts[3] and texts[5] == "[exit 7]", texts


# What a program does at its end that is not its last line.
ITS_END = """
import atexit, logging, sys, tempfile, threading, weakref
class Loud:
    def __init__(self, name): self.name = name
    def __del__(self): print('gone:', self.name, sys.is_finalizing())
    def method(self): pass
atexit.register(print, 'at the end')
Loud.own = Loud('of its class')
by_name = Loud('a global')
cycle = Loud('of a cycle'); cycle.itself = cycle
bound = Loud('bound'); bound.method = bound.method
held = Loud('in a module'); sys.modules['json_of_mine'] = held
default = (lambda it=Loud('a default'): it)
weakref.finalize(cycle, print, 'finalized')
threading.Thread(target=lambda: (threading.Event().wait(0.05), print('a thread'))).start()
handler = logging.Handler(); handler.kept = Loud('in a handler')
unclosed = open(tempfile.gettempdir() + '/unclosed', 'w'); unclosed.write('flushed')
print('last line')
"""


# From where it goes last of all.
KEPT_ELSEWHERE = """
import logging, json, io
class Loud:
    def __init__(self, name): self.name = name
    def __del__(self, say=io.open(1, 'w', closefd=False)): say.write('gone: ' + self.name + '\\n'); say.flush()
logging.kept = Loud('in a module')
json.JSONEncoder.kept = Loud('in a class')
cycle = Loud('of a cycle'); cycle.itself = cycle; logging.Handler.kept = cycle
"""


def plain(place, code):
    """What the interpreter itself makes of `code`."""
    with tempfile.TemporaryDirectory() as own:
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": own}
        return subprocess.run([place, "-c", code], stdout=subprocess.PIPE, text=True, env=variables, timeout=60).stdout


def test_the_end_of_python_is_its_own():
    with serving(NIX_SANDBOX_POOL="1") as server:
        needs(server, "python")
        place = server.run(1, "import sys; print(sys.executable)", env="python").split("\n")[0]
        if not os.access(place, os.X_OK):
            raise Lacks("python")  # not this machine's
        for id, code in enumerate([ITS_END, KEPT_ELSEWHERE]):
            text = run_warm(server, id, code, "python")
            assert text.split("[exit 0")[0] == plain(place, code) != "", text


def test_python_imports_what_it_has_written():
    code = "open('mine.py', 'w').write('x = 42'); import mine; print(mine.x)"
    with serving(NIX_SANDBOX_POOL="0") as server:
        needs(server, "python")
        assert server.run(1, code, env="python").startswith("42\n")


def test_warm_node_does_what_a_cold_one_does():
    texts = alike(
        "node",
        "console.log(__filename, require.main === module, process.argv, require('fs').readdirSync('/code'))\n"
        "console.log(require('fs').statSync(__filename).mode, require('fs').readFileSync(__filename, 'utf8'))\n"
        "console.log(process.execArgv, require('fs').readFileSync(0, 'utf8'), Object.entries(process.env).sort())",
        "",
        "function f() { throw new Error('here') }\nf()",
        "let let = 1",
        "process.exitCode = 3",
        "import fs from 'fs'; console.log(fs)",
        "setTimeout(() => console.log('later'), 10)",
    )
    assert "function f() { throw new Error('here') }" in texts[2], texts


def test_code_that_an_interpreter_cannot_wait_for_runs():
    with serving(NIX_SANDBOX_POOL="1") as server:
        needs(server, "python")
        eventually("one is warm", lambda: warm(server))
        kept = set(warm(server))
        assert server.run(1, "# coding: latin-1\nprint('fine')", env="python").startswith("fine\n[exit 0")
        assert set(warm(server)) == kept, "it was not used"
        assert server.run(2, "#" * 3_000_000 + "\nprint('long')", env="python").startswith("long\n[exit 0")


def test_the_time_of_warm_code_runs_from_its_coming():
    with serving(NIX_SANDBOX_POOL="2") as server:
        needs(server, "python")
        eventually("one is warm", lambda: warm(server))
        # Longer than the limit, and than the time that is told.
        assert server.run(1, "sleep 3").startswith("[exit 0")
        text = server.run(2, "import time\nprint('begun')\ntime.sleep(60)", env="python", timeout=2)
        assert text.startswith("begun\n[") and "timed out after 2 s" in text, text
        eventually("one is warm", lambda: warm(server))
        assert server.run(3, "sleep 3").startswith("[exit 0")
        told = re.search(r"([\d.]+) s · \d+ MB\]$", server.run(4, "print(1)", env="python").strip())
        assert told and float(told[1]) < 3, told


def test_the_memory_of_warm_code_is_limited():
    settings = '[limits]\nmemory = "128M"\n'
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        with open(f"{place}/settings.toml", "w", encoding="ascii") as file:
            file.write(settings)
        os.chmod(place, 0o755)
        with serving(NIX_SANDBOX_POOL="2", NIX_SANDBOX_CONFIG=file.name) as server:
            needs(server, "python")
            too_much = "x = b'x' * 400_000_000\nimport time\ntime.sleep(60)"
            eventually("one is warm", lambda: warm(server))
            text = server.run(1, too_much, env="python")
            assert "out of memory" in text, text
            new_session(server, 2)
            eventually("one waits for a session", lambda: unused(server))
            text = server.run(3, too_much, env="python", session="s")
            assert "out of memory" in text, text


def test_a_warm_interpreter_that_was_killed_is_replaced_unseen():
    with serving(NIX_SANDBOX_POOL="2") as server:
        needs(server, "python")
        for id in range(1, 5):
            eventually("one is warm", lambda: warm(server))
            for interpreter in warm(server):
                kill(interpreter)
            assert server.run(id, "print('fine')", env="python").startswith("fine\n[exit 0")


def test_nothing_that_waits_for_code_outlives_its_server():
    for end in signal.SIGTERM, signal.SIGKILL:
        with serving(NIX_SANDBOX_POOL="2") as server:
            needs(server, "python")
            eventually("one is warm", lambda: warm(server))
            handles = [os.pidfd_open(pid) for pid in warm(server)]
            server.process.send_signal(end)
            for handle in handles:
                harness.wait_readable(handle)


# What a session's first call can ask for about itself: in Python, in Node, in Bash.
ITS_AGENT = {
    "python": """
import os, resource, signal, sys
print(__name__, sys.argv, sys.path, sys.flags, sorted(os.listdir('/proc/self/fd')), os.getpid(), os.getppid(), os.getcwd())
print(sorted(os.environ.items()), sorted(sys.modules), sorted(globals()), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print([resource.getrlimit(kind) for kind in range(16)], open('/proc/self/cmdline').read(), open('/proc/self/status').read().count('NoNewPrivs:\\t1'))
print(os.getsid(0), os.getpgid(0), sorted(os.listdir('/workspace')), sorted(os.listdir('/tmp')), _ if '_' in globals() else None)
""",
    "node": """
const fs = require('fs')
console.log(process.argv, process.execArgv, process.pid, process.ppid, process.cwd(), Object.entries(process.env).sort())
console.log(Object.keys(globalThis), fs.readdirSync('/workspace'), fs.readFileSync('/proc/self/limits', 'utf8'))
""",
    "shell": """
echo $- $$ $PPID $PWD "$*"; set | grep -v '^\\(EPOCH\\|RANDOM\\|SRANDOM\\|SECONDS\\|BASHPID\\|_=\\|_nsm_nonce\\)=' | sort
ulimit -a; ls -A /workspace /tmp /proc/self/fd; trap; jobs
""",
}


def test_a_session_finds_an_agent_that_was_started_ahead_as_it_finds_its_own():
    told = lambda text: re.sub(r"\[exit 0.*", "[exit 0]", text)
    for env, code in ITS_AGENT.items():
        with serving(NIX_SANDBOX_POOL="0") as server:
            needs(server, env)
            cold = told(server.run(1, code, env=env, session="cold"))
        with serving(NIX_SANDBOX_POOL="1") as server:
            server.run(1, "", env=env, session="first")
            eventually("one waits besides that in use", lambda: len(agents(server)) == 2)
            warm = told(server.run(2, code, env=env, session="cold"))
        differs = [line for line in difflib.ndiff(cold.split("\n"), warm.split("\n")) if line[0] != " "]
        assert not differs and "[exit 0" in cold, (env, differs or cold)


def new_session(server, id):
    """In which nobody's code has run, not even that of another session."""
    server.run(id, "assert 'x' not in globals()\nx = 42", env="python", session=f"number-{id}")
    text = server.run(id + 1000, "x", env="python", session=f"number-{id}")
    assert text.startswith("42\n[exit 0"), text


def unused(server):
    return [agent for agent in agents(server) if host.waits_for_session(agent)]


def test_an_agent_serves_one_session_and_another_is_started():
    with serving(NIX_SANDBOX_POOL="2") as server:
        needs(server, "python")
        new_session(server, 1)
        served = 0
        for id in range(2, 16):
            eventually("one waits", lambda: unused(server))
            stood = unused(server)
            new_session(server, id)
            # It may have come to wait in the very moment in which the server did not count on it.
            served += not set(stood) <= set(unused(server))
            if served == 3:
                return
        raise AssertionError("what waited was never used")


def test_an_agent_that_was_killed_before_its_session_is_replaced_unseen():
    with serving(NIX_SANDBOX_POOL="2") as server:
        needs(server, "python")
        new_session(server, 1)
        for id in range(2, 6):
            eventually("one waits", lambda: unused(server))
            for agent in unused(server):
                kill(agent)
            new_session(server, id)


def test_a_sandbox_that_waits_does_nothing():
    with serving(NIX_SANDBOX_POOL="2") as server:
        needs(server, "python")
        new_session(server, 1)
        eventually("one waits for code", lambda: warm(server))
        eventually("one waits for a session", lambda: unused(server))
        payloads = {*warm(server), *unused(server)}
        idle = [init for init in inits(server) if payloads & set(children(init))]
        before = [woken(init) for init in idle]
        time.sleep(0.5)
        assert idle and [woken(init) for init in idle] == before


def woken(pid):
    """How often a process has been woken up."""
    status = host.read(f"/proc/{pid}/status")
    return re.search(r"^voluntary_ctxt_switches:\t(\d+)", status, re.MULTILINE)[1]


def begun(init):
    """When a process began, in the kernel's ticks; it is the same from inside."""
    try:
        with open(f"/proc/{init}/stat", encoding="ascii") as file:
            return file.read().rsplit(") ", 1)[1].split(" ")[19]
    except OSError:
        return None  # it has gone


# When its sandbox's pid 1 began.
BEGUN = "\ncut -d ' ' -f 22 /proc/1/stat"


def what_stands_runs(code, says, settings, **environment):
    """That `code` runs in the very sandbox that stood before it came, and `says` something."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        with open(f"{place}/settings.toml", "w", encoding="ascii") as file:
            file.write(settings)
        os.chmod(place, 0o755)
        with serving(NIX_SANDBOX_POOL="1", NIX_SANDBOX_CONFIG=file.name, **environment) as server:
            server.run(1000, "true")
            for id in range(20):
                eventually("one stands", lambda: standing(server))
                stood = {begun(init) for init in standing(server)}
                said, inside, trailer = server.run(id, code + BEGUN).strip().split("\n")
                assert said == says and trailer.startswith("[exit 0"), (said, trailer)
                # It may have come to stand in the very moment in which the server did not count on it.
                if inside in stood:
                    return
            raise AssertionError("what stood was never used")


def test_code_may_be_longer_than_a_file_that_the_code_may_make():
    what_stands_runs("#" * 3_000_000 + "\necho fine", "fine", '[limits]\nworkspace = "1M"\n')


def test_a_command_may_be_longer_than_a_message():
    what_stands_runs("echo ${#LONG}", "20000", 'inherit_env = ["LONG"]\n', LONG="x" * 20_000)


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
            text = server.run(2, "true")
            assert text == f"sandbox error (host): open {project}: ENOENT (No such file or directory)", text
            os.mkdir(project, 0o755)
            with open(f"{project}/mark", "w", encoding="ascii") as file:
                file.write("new\n")
            text = server.run(3, "cat /project/mark")
            # Root can read what nobody else may see: it takes none but the one that was checked.
            replaced = f"sandbox error (host): open {project} (it was replaced after it was checked; start this program anew): ESTALE (Stale file handle)"
            assert text == replaced if os.geteuid() == 0 else text.startswith("new\n"), text
            os.rename(project, f"{place}/old")
            os.symlink(f"{place}/old", project)
            text = server.run(4, "true")
            assert text == replaced, text


def test_a_session_goes_on_while_its_project_is_away():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        project = f"{place}/project"
        os.mkdir(project, 0o755)
        os.chmod(place, 0o755)
        with serving(PROJECT_DIR=project) as server:
            server.run(1, "x=42", session="a")
            os.rename(project, f"{place}/elsewhere")
            assert server.run(2, "echo $x; cat /workspace/none", session="a").startswith("42\n")


def test_descriptors_on_their_way_within_a_run_disturb_no_other():
    """They count per user, and a message with a descriptor fails where there are more than its sender may have open."""
    hold = """
import array, os, socket
to, kept = socket.socketpair()
file = os.open("/dev/null", os.O_RDONLY)
count = 0
try:
    while True:
        to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file] * 100))])
        count += 100
except OSError as error:
    print(error.strerror)
print(count > 1100)
"""
    with few_open_files(), serving(NIX_SANDBOX_POOL="2") as server:
        server.run(1, "x = 42", env="python", session="victim")
        text = server.run(2, hold, env="python", session="holder")
        assert text.startswith("Too many references: cannot splice\nTrue\n"), text
        for id in range(3, 9):
            assert server.run(id, "echo fine").startswith("fine\n")
        assert server.run(9, "x", env="python", session="victim").startswith("42\n")


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
