"""Clients that go wrong, signals to each process, hosts that lack something: each is told, and leaves nothing.

A test gets a `Place` and returns what it did, in a few words with its numbers; it raises where something is
not right.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import host
from client import PATIENCE, Client, Gone, text_of
from launch import clear

SESSION = {"session": "s"}


class Lacks(Exception):
    """This host, or whoever runs this, cannot have it."""


class Place:
    """What each test works with."""

    def __init__(self, program, project, everything):
        self.program, self.project, self.everything = program, project, everything

    def client(self, wrapper=(), **settings):
        return Client(self.program, wrapper=wrapper, **{"PROJECT_DIR": self.project, **settings})

    def exec(self, *words, wrapper=(), code=0, **environment):
        """The command line: what it wrote to both streams."""
        variables = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PROJECT_DIR": self.project, **environment}
        done = subprocess.run([*wrapper, self.program, "exec", "--", *words], env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        said = done.stdout.decode() + done.stderr.decode()
        assert code is None or done.returncode == code, f"code {done.returncode}: {said}"
        return said

    def one_line(self, line):
        """What a server says to these bytes before it ends."""
        variables = {**os.environ, "PROJECT_DIR": self.project}
        return subprocess.run([self.program, "--stdio"], input=line, env=variables, capture_output=True, timeout=PATIENCE)


def works(client):
    """The next run, within the few seconds in which a server mends what broke."""
    deadline = time.monotonic() + 30
    while True:
        text = text_of(client.start("echo 42")[1].result(PATIENCE))
        if text.startswith("42\n[exit 0 · "):
            return
        assert clear(text) and time.monotonic() < deadline, text
        time.sleep(0.1)


def rests(client):
    """Nothing is below the server but the launcher and what stands ready."""
    pid = client.process.pid
    left = host.settled(lambda: host.running(pid), [])
    assert not left, [host.read(f"/proc/{pid}/cmdline") for pid in left]


def ends(client, codes=(0,)):
    code = client.process.wait(PATIENCE)
    assert code in codes, code


def call_line(id, code):
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "run", "arguments": {"env": "shell", "code": code}, "_meta": meta}}).encode() + b"\n"


# --- Clients


def half_a_line(place):
    line = call_line(1, "echo 42")
    cuts = range(0, len(line) - 1, 1 if place.everything else 16)
    for cut in cuts:
        done = place.one_line(line[:cut])
        answers = [json.loads(answer) for answer in done.stdout.splitlines()]
        assert done.returncode == 0 and all("error" in answer for answer in answers) and len(answers) <= 1, (cut, done)
    return f"{len(cuts)} lines cut off"


def a_pipe_that_closes_in_mid_reply(place):
    for number in range(20 if place.everything else 5):
        ours, theirs = os.pipe()
        process = subprocess.Popen([place.program, "--stdio"], stdin=subprocess.PIPE, stdout=theirs, stderr=subprocess.DEVNULL, env={**os.environ, "PROJECT_DIR": place.project})
        os.close(theirs)
        # More than the pipe holds: the server is in the middle of a line when it closes.
        process.stdin.write(b"".join(call_line(id, "yes | head -c 9000") for id in range(20)))
        process.stdin.flush()
        os.read(ours, 1000 * (number + 1))
        os.close(ours)
        assert process.wait(PATIENCE) == 0, "it ends by itself"
        process.stdin.close()
    return f"{number + 1} pipes closed"


def pipelined_10000(place):
    """Ten thousand calls at once, each with its own answer; of a change's, one in twenty is run."""
    runs = 10_000 if place.everything else 500
    with place.client() as client:
        waiting = []
        for number in range(10_000):
            if number % (10_000 // runs) == 0:
                waiting.append((f"{number}\n[exit 0 · ", client.start(f"echo {number}")[1]))
            else:
                waiting.append((f"no environment is called \"e{number}\"", client.start("echo", env=f"e{number}")[1]))
        for right, future in waiting:
            text = text_of(future.result(600))
            assert right in text or "\n[exit 0" not in right and right.split('"')[1] in text, (right, text)
        works(client)
        rests(client)
    return f"10000 calls, {runs} of them run"


def cancelled_at_every_stage(place):
    with place.client() as client:
        number = 0
        for session in ({}, SESSION):
            for step in range(200 if place.everything else 40):
                id, _ = client.start("trap '' INT; sleep 60", **session)
                time.sleep(step * (0.0005 if place.everything else 0.0025))
                client.cancel(id)
                number += 1
        works(client)
        assert host.settled(lambda: len(host.running(client.process.pid)) <= 2, True), host.running(client.process.pid)
        assert all(message.get("id") in client.cancelled for message in client.unasked), client.unasked
        client.hang_up()
        ends(client)
    return f"{number} calls cancelled"


def sessions_that_end_unseen(place):
    """Interpreters that die between two calls: what the server held of them it lets go, within seconds. What stands
    ready has descriptors too, a few."""
    number = 200 if place.everything else 40
    with place.client() as client:
        works(client)
        before = host.held(client.process.pid)["descriptors"]
        for n in range(number):
            client.run("(sleep 0.01; kill -9 $$) &", session=f"u{n}")
        now = host.settled(lambda: host.held(client.process.pid)["descriptors"] <= before + 20, True, 30)
        assert now is True, f"{before} descriptors, then {host.held(client.process.pid)['descriptors']}"
        assert "new session: the state of earlier calls was lost" in client.run("true", session="u0")
        client.run("exit", session="u0")
        rests(client)
    return f"{number} sessions died unseen"


# --- Signals


def signals(place):
    """Each of four signals to each of four processes, under a run and under a call of a session."""
    kinds = [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSTOP]
    names = ["server", "launcher", "pid 1", "payload"]
    every = list(itertools.product([place], names, kinds, [{}, SESSION]))
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(hit, *each) for each in every]:
            done.result()
    return f"{len(every)} signals sent"


def hit(place, name, kind, session):
    """A process gets a signal while code runs. Whoever is stopped is let go on after the call's time is over."""
    with place.client() as client:
        server = client.process.pid
        works(client)
        client.run("true", **session)
        # A session's time is up when its code was interrupted too; one that is stopped cannot be.
        _, future = client.start("sleep 1.25", timeout=2, **session)
        sleeper = None
        while sleeper is None:
            sleeper = next((pid for pid in host.below(server) if host.read(f"/proc/{pid}/cmdline") == "sleep\x001.25\0"), None)
        launcher = host.children(server)[0]
        target = {"server": server, "launcher": launcher, "pid 1": init(sleeper, launcher), "payload": sleeper}[name]
        os.kill(target, kind)
        where = f"{kind.name} to {name}{' of a session' if session else ''}"
        if name == "server" and kind != signal.SIGSTOP:
            ends(client, (0, -kind))
            assert host.settled(lambda: alive([launcher, sleeper]), []) == [], where
            return
        if kind == signal.SIGSTOP and name in ("server", "launcher"):
            time.sleep(0.3)
            os.kill(target, signal.SIGCONT)
        text = text_of(future.result(PATIENCE))
        assert clear(text) or "[timed out after 2 s" in text, (where, text)
        works(client)
        client.run("kill -9 $$", **session)
        rests(client)
        client.hang_up()
        ends(client)


def init(pid, launcher):
    """The pid 1 of the sandbox that `pid` is in."""
    return next(one for one in host.children(launcher) if pid in host.below(one))


def alive(pids):
    """Zombies are dead: who waits for them is init's business."""
    return [pid for pid in pids if "State:" in (status := host.read(f"/proc/{pid}/status")) and "\nState:\tZ" not in status]


# --- Hosts


def no_descriptors(place):
    """Eight runs at once in a server that may have few: each is right, or told why not."""
    told = right = 0
    for most in [16, 24, 32, 48, 64]:
        few = ["prlimit", f"--nofile={most}:{most}"]
        try:
            client = place.client(wrapper=few)
        except Gone:
            told += 1
            continue
        with client:
            alone = client.run("echo 42")
            for text in [text_of(future.result(PATIENCE)) for future in [client.start(f"echo {n}", **({"session": f"s{n}"} if n % 2 else {}))[1] for n in range(24)]]:
                assert "[exit 0 · " in text or clear(text), text
                right, told = right + ("[exit 0 · " in text), told + ("sandbox error" in text)
            # Sessions keep theirs until they end.
            for n in range(1, 24, 2):
                client.run("exit", session=f"s{n}")
            assert client.run("echo 42")[:16] == alone[:16], "what works alone works afterwards"
            client.hang_up()
            ends(client)
    assert told, "few enough to be noticed"
    return f"{right} runs right, {told} told"


def no_memory_for_us(place):
    """A server that may not have more memory: it answers, or ends with a word."""
    served = ended = 0
    for megabytes in [8, 16, 24, 48, 96, 400]:
        log = tempfile.TemporaryFile("w+")
        wrapper = ["prlimit", f"--data={megabytes << 20}"]
        try:
            with Client(place.program, log=log, wrapper=wrapper, PROJECT_DIR=place.project) as client:
                for size in [10, 4_000_000]:
                    text = text_of(client.start("#" * size + "\necho 42")[1].result(PATIENCE))
                    assert text.startswith("42\n") or clear(text), text
                served += 1
        except (Gone, BrokenPipeError):
            log.seek(0)
            assert (said := log.read().strip()), f"{megabytes} MB: the server ended without a word"
            ended += 1
        log.close()
    return f"{served} servers answered, {ended} ended with a word"


def no_processes(place):
    """A user who may have no more processes. Root's are not counted."""
    if os.geteuid() == 0:
        user = ["setpriv", "--reuid", "64333", "--regid", "64333", "--clear-groups"]
        resource_of = lambda most: [*user, "prlimit", f"--nproc={most}:{most}"]
    else:
        resource_of = lambda most: ["prlimit", f"--nproc={most}:{most}"]
    said = []
    for most in [1, 2, 3]:
        said.append(place.exec("echo", "42", wrapper=resource_of(most), code=None, HOME="/", PROJECT_DIR="/usr"))
        assert said[-1] == "42\n" or "nix-sandbox-mcp: " in said[-1], said
    return f"{len(said)} limits, {sum(text != '42' + chr(10) for text in said)} told"


def a_full_disk(place):
    """Where nothing can be written, the audit log for one, runs go on."""
    if os.geteuid() == 0:
        wrapper = ["unshare", "-m", "sh", "-c", "mount -t tmpfs -o size=4k none /mnt && exec \"$@\"", "sh"]
        with place.client(wrapper=wrapper, NIX_SANDBOX_AUDIT="/mnt/audit") as client:
            for _ in range(40):
                works(client)
            client.hang_up()
            ends(client)
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(f"exec {place.program} exec -- echo 42 >/dev/full", shell=True, stderr=output, timeout=PATIENCE, env={"PATH": os.environ["PATH"]})
        output.seek(0)
        assert done.returncode != 0 and output.read(), "who writes to a full disk is told"
    return "a log and an output"


def tmp_is_read_only(place):
    private(place)
    hide = "mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /var/tmp && exec \"$@\""
    wrapper = ["unshare", "-m", "sh", "-c", hide, "sh"]
    program = f"/run/sandbox-faults-{os.getpid()}"
    shutil.copy(place.program, program)
    try:
        moved = Place(program, "/usr/share", place.everything)
        assert moved.exec("sh", "-c", "echo 42 > /tmp/x; cat /tmp/x", wrapper=wrapper) == "42\n"
        with moved.client(wrapper=wrapper) as client:
            works(client)
    finally:
        os.unlink(program)
    return "a command and a server"


def root_of_a_container(place):
    """Root who may not mount, as a container's: pid 1 opens the sources that he cannot."""
    private(place)
    wrapper = ["setpriv", "--inh-caps=-sys_admin", "--bounding-set=-sys_admin"]
    assert place.exec("echo", "42", wrapper=wrapper) == "42\n"
    with place.client(wrapper=wrapper) as client:
        works(client)
        assert client.run("n=5; echo $n", **SESSION).startswith("5\n[exit 0")
        client.run("exit", **SESSION)
        rests(client)
    return "a command, a run and a session"


def private(place):
    if os.geteuid() != 0:
        raise Lacks("root")


def clocks_jump(place):
    """The wall clock jumps by hours at each look; the monotonic one began long ago, or just now."""
    count = 0
    if shutil.which("cc"):
        with tempfile.TemporaryDirectory(prefix="sandbox-clock-") as directory:
            library = jumping(directory)
            with place.client(LD_PRELOAD=library) as client:
                for _ in range(20):
                    works(client)
                assert "[timed out after 0.3 s · " in client.run("sleep 9", timeout=0.3)
                client.hang_up()
                ends(client)
            count += 1
    if os.geteuid() == 0:
        for offset in [10**8, -int(float(host.read("/proc/uptime").split()[0]) - 5)]:
            wrapper = ["unshare", "-T", f"--monotonic={offset}", f"--boottime={offset}"]
            assert place.exec("echo", "42", wrapper=wrapper) == "42\n"
            count += 1
    if not count:
        raise Lacks("compiler")
    return f"{count} clocks"


def jumping(directory):
    source = os.path.join(directory, "clock.c")
    with open(source, "w", encoding="utf-8") as file:
        file.write(
            "#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n"
            "int clock_gettime(clockid_t clock, struct timespec *at) {\n"
            "    static int looks;\n"
            "    long result = syscall(SYS_clock_gettime, clock, at);\n"
            "    if (clock == CLOCK_REALTIME) at->tv_sec += ++looks % 2 ? 7200 * looks : -7200 * looks;\n"
            "    return result;\n}\n"
        )
    library = os.path.join(directory, "clock.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def a_path_that_vanishes(place):
    """The project, and a store path, removed and put back as another under a running server."""
    base = tempfile.mkdtemp(prefix="sandbox-vanish-")
    try:
        os.chmod(base, 0o755)
        project = os.path.join(base, "project")
        os.mkdir(project)
        with place.client(PROJECT_DIR=project) as client:
            works(client)
            os.rename(project, project + ".old")
            text = client.run("echo 42")
            assert clear(text) and project in text, text
            os.mkdir(project)
            text = client.run("echo 42")
            # Root takes none but the one that was checked.
            assert clear(text) and project in text if os.geteuid() == 0 else text.startswith("42\n"), text
            os.rmdir(project)
            os.rename(project + ".old", project)
            works(client)
        store(place, base)
    finally:
        shutil.rmtree(base)
    return "a project and a store path"


def store(place, base):
    """An artifact of a chroot store whose closure loses a path."""
    root, name = os.path.join(base, "store"), "0" * 32 + "-env"
    path = f"{root}/nix/store/{name}"
    os.makedirs(f"{path}/bin")
    shutil.copy("/bin/busybox" if os.path.exists("/bin/busybox") else "/bin/bash", f"{path}/bin/bash")
    artifact = os.path.join(base, "artifacts", "mine")
    os.makedirs(artifact)
    with open(f"{artifact}/metadata.json", "w", encoding="utf-8") as file:
        seen = f"/nix/store/{name}"
        json.dump({"name": "mine", "interpreter_type": "bash", "env": seen, "closure": [seen], "store_root": root}, file)
    with place.client(NIX_SANDBOX_DIR=os.path.dirname(artifact)) as client:
        tool = client.request("tools/list")[1].result(PATIENCE)["result"]["tools"][0]
        assert "mine" in tool["inputSchema"]["properties"]["env"]["enum"], tool
        os.rename(path, path + ".gone")
        text = client.run("echo 42", env="mine")
        assert "sandbox error (host): " in text and name in text, text
        works(client)


TESTS = [half_a_line, a_pipe_that_closes_in_mid_reply, pipelined_10000, cancelled_at_every_stage, sessions_that_end_unseen, signals, no_descriptors,
         no_memory_for_us, no_processes, a_full_disk, tmp_is_read_only, root_of_a_container, clocks_jump, a_path_that_vanishes]


def names():
    return [test.__name__ for test in TESTS]


def tests():
    return [(test.__name__, test) for test in TESTS]


def judged(name, test, program, project, owner, everything):
    """Whether it went well, and what was done; nothing may be left."""
    before, start = host.machine(owner), time.monotonic()
    try:
        what = test(Place(program, project, everything))
    except Lacks as lack:
        print(f"LACKS {lack}: {name}")
        if path := os.environ.get("SANDBOX_LACKS"):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{lack} {name}\n")
        return True, f"lacks {lack}"
    except Exception:
        traceback.print_exc()
        print(f"WRONG {name}\n    again: tests/faults/run --only {name}")
        return False, "wrong"
    left = host.changed(before, host.settled(lambda: host.machine(owner), before))
    for line in left:
        print(f"LEFT {name}: {line}")
    print(f"   {name}: {what}; leftovers = {len(left)} ({time.monotonic() - start:.1f} s)", flush=True)
    return not left, what
