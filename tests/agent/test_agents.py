#!/usr/bin/env python3
"""Holds the agents to agent/README.md, over real pipes and without any sandbox.

    tests/agent/test_agents.py [WORD ...]     only tests whose name has all the words

The driver here is what the server will be: one loop that reads replies, stdout and
stderr together.  Nothing sleeps for luck: interrupts are sent when a cell has said that
it is where it should be, and every wait has an end.  NSM_MATPLOTLIB_PYTHON may name a
Python that has matplotlib.
"""

import fcntl
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds for anything that should take a moment: only what hangs waits so long
BASH = os.environ.get("NSM_BASH", shutil.which("bash"))
NODE = os.environ.get("NSM_NODE", shutil.which("node"))
PYTHON = os.environ.get("NSM_PYTHON", sys.executable)
COMMANDS = {
    "python": [PYTHON, "-I", "-u", str(ROOT / "agent/python/agent.py")],
    "node": [NODE, "--no-force-async-hooks-checks", str(ROOT / "agent/node/agent.js")],
    "bash": [BASH, "--norc", "--noprofile", str(ROOT / "agent/bash/agent.sh")],
}
AGENT_WORDS = ("agent.py", "agent.js", "agent.sh", "_nsm_", "node:internal", "nix-sandbox-mcp")


class Silence(Exception):
    """Nothing came in time."""


class Result:
    """What a server would know of one call."""

    def __init__(self, status, ended, out, err, exit_code=None):
        self.status, self.ended, self.exit_code = status, ended, exit_code
        self.raw_out, self.raw_err = out, err
        self.out, self.err = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")

    def __repr__(self):
        return "status %s ended %s exit %s\n--out--\n%s\n--err--\n%s" % (
            self.status, self.ended, self.exit_code, self.out[-1500:], self.err[-1500:])


class Session:
    def __init__(self, language, command=None, env=None, files=()):
        self.workspace = tempfile.mkdtemp(prefix="agent-test-")
        for name, text in dict(files).items():
            Path(self.workspace, name).write_text(text)
        self.before = set(os.listdir(self.workspace))
        self.language = language
        self.count = 0
        self.streams = {}
        self._start(command or COMMANDS[language], env)
        started = time.monotonic()
        ready = self._line()
        self.start_up = time.monotonic() - started
        assert ready == b"ready 1\n", (ready, self._drain())

    def _start(self, command, env):
        request_end, self.requests = os.pipe()
        self.replies, reply_end = os.pipe()
        self.pipes = [os.fstat(self.requests).st_ino, os.fstat(self.replies).st_ino]
        spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (request_end, reply_end)]

        def place():
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MPLBACKEND", "BASH_ENV")}
        clean.update(HOME=self.workspace, LANG="C.UTF-8", **(env or {}))
        self.process = subprocess.Popen(
            command, cwd=self.workspace, env=clean, preexec_fn=place, pass_fds=(3, 4), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for fd in (request_end, reply_end, *spare):
            os.close(fd)
        self.selector = selectors.DefaultSelector()
        self.names = {self.replies: "reply", self.process.stdout.fileno(): "out", self.process.stderr.fileno(): "err"}
        for fd in self.names:
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ)
        os.set_blocking(self.requests, False)
        self.got = {"reply": b"", "out": b"", "err": b""}
        self.closed = set()

    def _pump(self, timeout):
        """Takes what there is; true if anything came."""
        came = False
        for key, _ in self.selector.select(timeout):
            chunk = os.read(key.fd, 1 << 16)
            name = self.names[key.fd]
            self.got[name] += chunk
            came = True
            if not chunk:
                self.closed.add(name)
                self.selector.unregister(key.fd)
        return came

    def _until(self, done, patience=PATIENCE):
        end = time.monotonic() + patience
        while not done():
            left = end - time.monotonic()
            if left <= 0:
                raise Silence(repr(self.got)[-2000:])
            self._pump(min(left, 0.2) if self.closed else left)

    def _line(self, patience=PATIENCE):
        self._until(lambda: b"\n" in self.got["reply"] or "reply" in self.closed, patience)
        line, eol, self.got["reply"] = self.got["reply"].partition(b"\n")
        return line + eol

    def _drain(self):
        while self.selector.get_map() and self._pump(0):
            pass
        out, err = self.got["out"], self.got["err"]
        self.got["out"] = self.got["err"] = b""
        return out, err

    def send(self, source):
        source = source.encode() if isinstance(source, str) else source
        self.count += 1
        self.nonce = secrets.token_hex(16)
        frame = b"run %d %s %d\n" % (self.count, self.nonce.encode(), len(source)) + source
        end = time.monotonic() + PATIENCE
        while frame:  # a long source does not fit the pipe at once
            try:
                frame = frame[os.write(self.requests, frame):]
            except BlockingIOError:
                assert time.monotonic() < end, "the agent does not read its request"
                self._pump(0.001)

    def receive(self, patience=PATIENCE):
        line = self._line(patience)
        if not line:
            return self.ending()
        word, ident, nonce, status = line.decode("ascii").split()
        assert (ident, nonce) == (str(self.count), self.nonce), (line, self.count, self.nonce)
        if word == "end":
            result = self.ending()
            result.status = int(status)
            return result
        assert word == "done", line
        return Result(int(status), False, *self._drain())

    def ending(self):
        assert self._line() == b"", "something was said after the end"
        code = self.process.wait(PATIENCE)
        return Result(None, True, *self._drain(), exit_code=code)

    def call(self, source, patience=PATIENCE):
        self.send(source)
        return self.receive(patience)

    def interrupt(self, source, sign=b"GO", stream="out"):
        """Runs a cell and interrupts it once it has printed the sign."""
        self.send(source)
        self._until(lambda: sign in self.got[stream] or "reply" in self.closed)
        # Again and again, as a server would: bash may start a child just after it looked. Node hears
        # of the first, and of one that comes with the answer only in the next call.
        end = time.monotonic() + PATIENCE
        while True:
            self.signal()
            try:
                return self.receive(PATIENCE if self.language == "node" else 1.0)
            except Silence:
                if time.monotonic() > end:
                    raise

    def signal(self):
        os.killpg(self.process.pid, signal.SIGINT)

    def undisturbed(self, source, signals):
        """A call after so many interrupts, each of which may be heard of only now."""
        for _ in range(signals):
            result = self.call(source)
            if result.status != 130:
                return result
        return self.call(source)

    def late(self, sign):
        """Waits for output between two calls."""
        self._until(lambda: sign in self.got["out"] + self.got["err"])
        return Result(None, False, *self._drain())

    def finish(self):
        """Ends the session as the server does; returns the exit code."""
        os.close(self.requests)
        self.requests = None
        return self.ending().exit_code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(PATIENCE)
        self.selector.close()
        self.process.stdout.close()
        self.process.stderr.close()
        os.close(self.replies)
        if self.requests is not None:
            os.close(self.requests)
        shutil.rmtree(self.workspace, ignore_errors=True)


# ------------------------------------------------------------------ how tests are written

TESTS = []


class Skip(Exception):
    pass


def test(name):
    def register(function):
        TESTS.append((name, function))
        return function
    return register


def script(language, name, *steps, **options):
    """A test that is a list of (source, expectations) run in one session."""
    def run():
        with Session(language, **options) as s:
            for step in steps:
                source, expected = step if isinstance(step, tuple) else (step, {})
                check(s.call(source), source, **{"status": 0, **expected})
    TESTS.append(("%s: %s" % (language, name), run))


def check(result, source="", status=0, out=None, err=None, has=(), err_has=(), lacks=(), ended=False, exit_code=None):
    about = "%s\n%r" % (source if len(source) < 500 else "(long source)", result)
    assert result.ended == ended, about
    if ended:
        assert exit_code is None or result.exit_code == exit_code, about
    else:
        assert result.status == status, about
    assert out is None or result.out == out, about
    assert err is None or result.err == err, about
    for piece in each(has):
        assert piece in result.out, (piece, about)
    for piece in each(err_has):
        assert piece in result.err, (piece, about)
    for piece in each(lacks) + AGENT_WORDS:
        assert piece not in result.out + result.err, (piece, about)
    return result


def each(pieces):
    return (pieces,) if isinstance(pieces, str) else tuple(pieces)


def e(**expected):
    return expected


# ------------------------------------------------------------------ what holds for all

HELLO = {"python": "print('hi')", "node": "console.log('hi')", "bash": "echo hi"}
SPIN = {"python": "print('GO', flush=True)\nwhile True: pass", "node": "console.log('GO'); while (true) {}",
        "bash": "echo GO; while :; do :; done; echo not here"}
SET = {"python": "kept = 41", "node": "let kept = 41", "bash": "kept=41"}
GET = {"python": "print(kept)", "node": "console.log(kept)", "bash": "echo $kept"}


def for_all(name):
    def register(function):
        for language in COMMANDS:
            TESTS.append(("%s: %s" % (language, name), lambda language=language: function(language)))
        return function
    return register


@for_all("state lives from call to call, and output belongs to its call")
def _(language):
    with Session(language) as s:
        check(s.call(SET[language]), out="", err="")
        check(s.call(GET[language]), out="41\n", err="")
        for _ in range(20):
            check(s.call(HELLO[language]), out="hi\n", err="")


@for_all("several sessions at once keep to themselves")
def _(language):
    sessions = []
    try:
        for _ in range(4):
            sessions.append(Session(language))
        for i, s in enumerate(sessions):
            s.send(SET[language].replace("41", str(i)))
        for s in sessions:
            check(s.receive())
        for i, s in enumerate(sessions):
            check(s.call(GET[language]), out="%d\n" % i)
    finally:
        for s in sessions:
            s.__exit__()


@for_all("an empty cell, a blank one and a comment are fine")
def _(language):
    with Session(language) as s:
        for source in ("", "\n", "   \n", "// x" if language == "node" else "# x"):
            check(s.call(source), repr(source), out="", err="")


@for_all("a busy loop is interrupted and the state lives on")
def _(language):
    with Session(language) as s:
        s.call(SET[language])
        for _ in range(3):
            check(s.interrupt(SPIN[language]), status=130, lacks="not here")
            check(s.call(GET[language]), out="41\n", err="")


@for_all("interrupts between calls are ignored")
def _(language):
    with Session(language) as s:
        s.call(SET[language])
        for _ in range(10):
            s.signal()
        check(s.undisturbed(GET[language], 10 if language == "node" else 0), out="41\n")


@for_all("interrupts at any moment of short calls never give a wrong answer")
def _(language):
    with Session(language) as s:
        s.call(SET[language])
        for _ in range(60):
            s.send(HELLO[language])
            s.signal()
            result = s.receive()
            assert result.status in (0, 130), result
        result = check(s.undisturbed(GET[language], 60))
        assert result.out.endswith("41\n"), result


@for_all("a source of one megabyte arrives whole")
def _(language):
    text = "0123456789" * 100000
    source = {"python": "s = '%s'\nprint(len(s))", "node": "var s = '%s'; console.log(s.length)",
              "bash": "s='%s'; echo ${#s}"}[language] % text
    with Session(language) as s:
        check(s.call(source), out="1000000\n")


@for_all("five megabytes on stdout and on stderr do not block")
def _(language):
    source = {"python": "import sys\nfor i in range(50):\n  sys.stdout.write('o'*100000); sys.stderr.write('e'*100000)",
              "node": "for (let i = 0; i < 50; i++) { process.stdout.write('o'.repeat(100000)); process.stderr.write('e'.repeat(100000)) }; void 0",
              "bash": "printf -v x %100000s; for i in {1..50}; do printf %s \"$x\"; printf %s \"$x\" >&2; done"}[language]
    with Session(language) as s:
        result = s.call(source)
        assert (result.status, len(result.raw_out), len(result.raw_err)) == (0, 5000000, 5000000), result


@for_all("children inherit 0, 1 and 2 only, and their output is seen in order")
def _(language):
    lister = "ls -l /proc/self/fd; echo CHILD; echo CHILDERR >&2"
    source = {"python": "import subprocess\nprint('before')\nr = subprocess.run(['sh', '-c', %r], close_fds=False)\nprint('after')",
              "node": "console.log('before'); require('child_process').spawnSync('sh', ['-c', %r], {stdio: 'inherit'}); console.log('after')",
              "bash": "echo before; sh -c %r; echo after"}[language] % lister
    with Session(language) as s:
        result = check(s.call(source), has=("before\n", "CHILD\nafter\n"), err_has="CHILDERR\n")
        for pipe in s.pipes:
            assert "pipe:[%d]" % pipe not in result.out, result
        assert "0 -> /dev/null" in result.out, result


@for_all("user code has plain descriptors, and the protocol is on neither 3 nor 4")
def _(language):
    source = {"python": "import os\nfor fd in (3, 4):\n  try: print(os.fstat(fd).st_ino)\n  except OSError: print('none')",
              "bash": "for fd in 3 4; do readlink /proc/$$/fd/$fd || echo none; done"}.get(language)
    if source is None:  # node cannot move descriptors; it marks them
        source = "const {readFileSync} = require('fs'); for (const fd of [3, 4]) console.log(/flags:\\s*02/.test(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8')) ? 'none' : 'open')"
    with Session(language) as s:
        check(s.call(source), out="none\nnone\n")


@for_all("reading standard input gives the end of file at once")
def _(language):
    source = {"python": "import sys; print(repr(sys.stdin.read()))", "node": "require('fs').readFileSync(0, 'utf8')",
              "bash": "cat; read -r x; echo \"got <$x> $?\""}[language]
    with Session(language) as s:
        check(s.call(source), out={"python": "''\n", "node": "''\n", "bash": "got <> 1\n"}[language])


@for_all("output of something in the background comes when it comes, whole")
def _(language):
    source = {"python": "import threading, os\nr, w = os.pipe()\ndef f():\n  os.read(r, 1); print('LATE')\nthreading.Thread(target=f, daemon=True).start()",
              "node": "const go = () => void setTimeout(() => console.log('LATE'), 1)",
              "bash": "coproc { read -r x; echo LATE >&2; }; w=${COPROC[1]}"}[language]
    wake = {"python": "_ = os.write(w, b'x')", "node": "go()", "bash": "echo x >&$w"}[language]
    with Session(language) as s:
        check(s.call(source), out="")
        result = check(s.call(wake))
        if not result.out + result.err:
            result = s.late(b"LATE\n")
        assert result.out + result.err == "LATE\n", result


@for_all("the end of requests ends the agent with code 0")
def _(language):
    with Session(language) as s:
        s.call(HELLO[language])
        assert s.finish() == 0


@for_all("an unknown frame ends the agent, without an answer")
def _(language):
    with Session(language) as s:
        os.write(s.requests, b"walk 1 2 0\n")
        assert s.ending().ended


@for_all("kill -9 of oneself is seen as the end, with the signal")
def _(language):
    source = {"python": "import os; os.kill(os.getpid(), 9)", "node": "process.kill(process.pid, 9); while (true) {}",
              "bash": "kill -9 $$"}[language]
    with Session(language) as s:
        check(s.call(source), ended=True, exit_code=-9)


@for_all("it works from a read-only copy elsewhere, in a directory with an odd name")
def _(language):
    with tempfile.TemporaryDirectory(prefix="an 'odd' \"place\" $x ") as place:
        copy = Path(place, "agent")
        shutil.copytree(ROOT / "agent" / language, copy)
        command = COMMANDS[language][:-1] + [str(copy / Path(COMMANDS[language][-1]).name)]
        with Session(language, command=command) as s:
            check(s.call(HELLO[language]), out="hi\n", err="")


@for_all("the agent leaves no file behind")
def _(language):
    with Session(language) as s:
        s.call(HELLO[language])
        s.call("cat <<X\nheredoc\nX\n" if language == "bash" else HELLO[language])
        s.interrupt(SPIN[language])
        assert s.finish() == 0
        assert set(os.listdir(s.workspace)) == s.before


@for_all("a forged reply spoils its own call only (P4, PROTO-02)")
def _(language):
    # The forger writes to whatever descriptor leads to the reply pipe.
    source = {"python": "import os, glob\nfor l in glob.glob('/proc/self/fd/*'):\n  fd = int(l.rsplit('/', 1)[1])\n  try:\n    if os.readlink(l) == 'pipe:[%d]': os.write(fd, b'done 1 00000000000000000000000000000000 0\\n')\n  except OSError: pass",
              "node": "const fs = require('fs'); for (const fd of fs.readdirSync('/proc/self/fd')) { try { if (fs.readlinkSync('/proc/self/fd/' + fd) === 'pipe:[%d]') fs.writeSync(+fd, 'done 1 00000000000000000000000000000000 0\\n') } catch {} }",
              "bash": "for l in /proc/$$/fd/*; do if [[ $(readlink $l) == 'pipe:[%d]' ]]; then echo done 1 00000000000000000000000000000000 0 >&${l##*/}; fi; done"}[language]
    with Session(language) as s:
        s.send(source % s.pipes[1])
        line = s._line()
        assert line == b"done 1 00000000000000000000000000000000 0\n", line
        assert s.nonce.encode() not in line  # so the server ends the session


# ------------------------------------------------------------------ python

script("python", "children, os.system and os.write(1) are output like any other (P1)",
       ("import subprocess, os\n_ = subprocess.run(['echo', 'hi'])", e(out="hi\n")),
       ("_ = os.system('echo hi')", e(out="hi\n")),
       ("_ = os.write(1, b'AAAA')", e(out="AAAA")),
       ("print('next')", e(out="next\n")))


@test("python: a call that was interrupted does not answer for the next one (P2, LIFE-11)")
def _():
    with Session("python") as s:
        result = s.interrupt("import time\nimport sys\nprint('GO'); time.sleep(1000)\nprint('OLD RESULT')")
        check(result, status=130, out="GO\n", err_has=("KeyboardInterrupt", 'File "<cell 1>", line 3', "time.sleep(1000)"))
        check(s.call("print('NEW 1')"), out="NEW 1\n")
        check(s.call("print('NEW 2')"), out="NEW 2\n")


@test("python: a child that is waited for is interrupted too")
def _():
    with Session("python") as s:
        check(s.interrupt("import subprocess\nsubprocess.run(['sh', '-c', 'echo GO; exec sleep 1000'])"), status=130)
        check(s.call("1 + 1"), out="2\n")


script("python", "input and sys.stdin find the end of file (P3)",
       ("input()", e(status=1, err_has="EOFError")),
       ("input('Name? ')", e(status=1, out="Name? ")),
       ("import sys; sys.stdin.read()", e(out="''\n")))

script("python", "__main__ is the user's, the agent is not in it (P4, P8)",
       ("import sys; sys.modules['__main__'].send_message({})", e(status=1, err_has="AttributeError")),
       ("print(sorted(k for k in vars(sys.modules['__main__']) if not k.startswith('__')))", e(out="['sys']\n")),
       ("if __name__ == '__main__': print('main')", e(out="main\n")),
       ("import __main__; x = 3; print(__main__.x, sys.argv)", e(out="3 ['']\n")))

script("python", "every BaseException is reported and survived (P5, PROTO-05)",
       ("raise KeyboardInterrupt('mine')", e(status=130, err_has="KeyboardInterrupt: mine")),
       ("raise GeneratorExit", e(status=1, err_has="GeneratorExit")),
       ("class Odd(BaseException): pass\nraise Odd(5)", e(status=1, err_has="Odd: 5")),
       ("class Bad(Exception):\n  def __str__(self): raise KeyboardInterrupt\nraise Bad", e(status=1, err_has="Bad")),
       ("class Worse(Exception):\n  def __str__(self): raise ValueError\nraise Worse", e(status=1, err_has="Worse")),
       ("1 + 1", e(out="2\n")))


@test("python: os._exit gives its code, a crash its signal and its line (P5)")
def _():
    with Session("python") as s:
        check(s.call("import os; print('x', end=''); os._exit(7)"), ended=True, exit_code=7)
    with Session("python") as s:
        result = s.call("import ctypes\nctypes.string_at(0)")
        assert result.ended and result.exit_code == -signal.SIGSEGV, result
        assert 'File "<cell 1>", line 2' in result.err, result
    with Session("python") as s:
        check(s.call("import os; os.execvp('sh', ['sh', '-c', 'exit 9'])"), ended=True, exit_code=9)


script("python", "SystemExit gives its code and text, and keeps the state (P6)",
       "import sys; x = 5",
       ("sys.exit(3)", e(status=3, out="", err="")),
       ("sys.exit('fatal msg')", e(status=1, err="fatal msg\n")),
       ("sys.exit()", e(status=0, err="")),
       ("sys.exit(None)", e(status=0)),
       ("sys.exit(-1)", e(status=255)),
       ("raise SystemExit({'a': 1})", e(status=1, err="{'a': 1}\n")),
       ("quit()", e(status=0)),
       ("input()", e(status=1, err_has="EOFError")),
       ("x", e(out="5\n")))

script("python", "the last expression is echoed and kept in _ (P7)",
       ("x = 4\nx + 1", e(out="5\n")),
       ("_ * 2", e(out="10\n")),
       ("None", e(out="")),
       ("'text'", e(out="'text'\n")),
       ("x = 3;", e(out="")),
       ("def f(): return 1", e(out="")),
       ("for i in range(3): i", e(out="")),
       ("class R:\n  def __repr__(self): raise ValueError('no repr')\nR()", e(status=1, err_has="ValueError: no repr")))

script("python", "pickle and multiprocessing find functions of a cell (P8)",
       "import pickle, multiprocessing\nclass C:\n  def __init__(self): self.v = 7\ndef square(x): return x * x",
       ("pickle.loads(pickle.dumps(C())).v", e(out="7\n")),
       ("with multiprocessing.get_context('fork').Pool(2) as p: print(p.map(square, range(4)))", e(out="[0, 1, 4, 9]\n")),
       ("from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork')) as p: print(list(p.map(square, [5])))", e(out="[25]\n")))

script("python", "spawned workers run functions of a module in the workspace",
       ("import helper, multiprocessing\nfor way in ('spawn', 'forkserver'):\n  with multiprocessing.get_context(way).Pool(1) as p: print(p.map(helper.cube, [2, 3]))",
        e(out="[8, 27]\n[8, 27]\n")), files={"helper.py": "def cube(x): return x ** 3\n"})

script("python", "the default of multiprocessing finds functions of a cell",
       ("import multiprocessing\ndef square(x): return x * x\nwith multiprocessing.Pool(1) as p: print(p.map(square, [6]))", e(out="[36]\n")))

script("python", "a fork that falls out of its cell ends there, and says nothing",
       ("import os\npid = os.fork()\nif pid: _ = os.waitpid(pid, 0)\nprint('child' if pid == 0 else 'parent')", e(out="child\nparent\n")),
       ("print(pid > 0)", e(out="True\n")))

script("python", "tracebacks show the user's lines and nothing of the agent (P9)",
       "def f(n):\n    return 1 / n",
       ("x = 1\nf(0)", e(status=1, err_has=('Traceback (most recent call last):\n  File "<cell 2>", line 2, in <module>\n    f(0)\n', '  File "<cell 1>", line 2, in f\n    return 1 / n\n', "ZeroDivisionError: division by zero\n"))),
       ("try:\n    f(0)\nexcept Exception as error:\n    raise KeyError('k') from error",
        e(status=1, err_has=("    f(0)\n", "direct cause", "    raise KeyError('k') from error\n"))),
       ("try:\n    f(0)\nexcept Exception:\n    undefined", e(status=1, err_has=("During handling", "NameError"))),
       ("x = = 3", e(status=1, err_has=('File "<cell 5>", line 1', "    x = = 3\n        ^\n", "SyntaxError"))),
       ("def g():\n  x = 1\n    y = 2", e(status=1, err_has="IndentationError")),
       ("x = (1,\n", e(status=1, err_has="SyntaxError")),
       ("a\0b", e(status=1, err_has="null bytes")),
       ("import json; json.loads('{')", e(status=1, err_has=("json/decoder.py", "<cell 9>"))),
       ("def r(): r()\nr()", e(status=1, err_has=("RecursionError", "more times"))),
       ("print('fine')", e(out="fine\n")))

if sys.version_info >= (3, 11) and PYTHON == sys.executable:
    script("python", "the parts of an exception group are shown without the agent",
           ("raise ExceptionGroup('g', [ValueError('a'), KeyError('b')])", e(status=1, err_has=("ExceptionGroup: g", "ValueError: a", "KeyError: 'b'"))))

script("python", "inspect.getsource knows functions of cells",
       "def f():\n    return 'here'",
       ("import inspect; print(inspect.getsource(f), end='')", e(out="def f():\n    return 'here'\n")))

script("python", "streams are real: buffer, fileno, and stable objects (P10, P11)",
       ("import sys; print('a'); _ = sys.stdout.buffer.write(b'b\\n'); sys.stdout.flush(); print(sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout is sys.__stdout__)", e(out="a\nb\n1 2 True\n")),
       ("import logging; logging.warning('one')", e(err="WARNING:root:one\n")),
       ("logging.warning('two')", e(err="WARNING:root:two\n")),
       ("import warnings; warnings.warn('w')", e(err_has=("<cell 4>:1: UserWarning: w",))),
       ("import warnings; warnings.warn('w')", e(err_has=("<cell 5>:1: UserWarning: w",))),
       ("print('no newline', end='')", e(out="no newline")),
       ("import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as f: print('caught')\nf.getvalue()", e(out="'caught\\n'\n")),
       ("sys.stdout = io.StringIO(); print('lost')", e(out="")),
       ("sys.stdout = sys.__stdout__; print('back')", e(out="back\n")))

script("python", "what cannot be encoded is escaped, not fatal (P12)",
       ("print('\\udcff')", e(out="\\udcff\n")),
       ("'\\udcff'", e(out="'\\udcff'\n")),
       ("raise ValueError('\\ud800')", e(status=1, err_has="\\ud800")),
       ("print('h\u00e4\u65e5')", e(out="h\u00e4\u65e5\n")),
       env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})

script("python", "await works at the top level, and tasks survive (P13)",
       "import asyncio\nasync def worker():\n    for i in range(2):\n        await asyncio.sleep(0)\n        log.append(i)\nlog = []",
       "await asyncio.sleep(0)\ntask = asyncio.create_task(worker())",
       ("await task\nlog", e(out="[0, 1]\n")),
       ("await asyncio.sleep(0, 'value')", e(out="'value'\n")),
       ("async with asyncio.Lock(): print('locked')", e(out="locked\n")),
       ("async def bad(): return 1 / 0\nawait bad()", e(status=1, err_has=("<cell 6>", "ZeroDivisionError"), lacks="asyncio/")),
       ("async def leave(): raise SystemExit(4)\nawait leave()", e(status=4)),
       ("asyncio.run(asyncio.sleep(0, 8))", e(out="8\n")),
       ("await asyncio.sleep(0, 9)", e(out="9\n")))


script("python", "a cell that awaits anywhere runs on the loop from its first statement on",
       ("import asyncio\nasync def w(n):\n    await asyncio.sleep(.01)\n    return n\ntasks = [asyncio.create_task(w(i)) for i in range(3)]\nawait asyncio.gather(*tasks)", e(out="[0, 1, 2]\n", err="")),
       ("t = asyncio.create_task(w(4)); await asyncio.sleep(0)", e(out="", err="")),
       ("await t", e(out="4\n", err="")),
       ("loop = asyncio.get_running_loop()\nawait asyncio.sleep(0, loop.is_running())", e(out="True\n", err="")),
       ("await asyncio.sleep(0)\nasyncio.get_running_loop() is loop", e(out="True\n", err="")),
       ("me = asyncio.current_task()\n[(await w(5)), me is asyncio.current_task()]", e(out="[5, True]\n", err="")),
       ("x = 6\n1 / 0\nawait w(7)", e(status=1, out="", err_has=('last):\n  File "<cell 7>", line 2, in <module>\n    1 / 0\n', "ZeroDivisionError"), lacks="asyncio/")),
       ("import sys; sys.exit(x)\nawait w(8)", e(status=6, out="", err="")))

script("python", "a cell that does not await runs outside of the loop, so that it may run one",
       ("import asyncio\nasync def f(): return 1\nawait f()", e(out="1\n")),
       ("asyncio.run(f())", e(out="1\n", err="")),
       ("asyncio.create_task(f)", e(status=1, err_has="RuntimeError: no running event loop")))

script("python", "context variables that a cell with an await sets last as any others",
       ("import asyncio, contextvars, decimal\nv = contextvars.ContextVar('v')\ndecimal.setcontext(decimal.Context(prec=3))\n_ = v.set(1)\nawait asyncio.sleep(0)", e(out="")),
       ("await asyncio.sleep(0)\n_ = v.set(v.get() + 1)\n1 / 0", e(status=1)),
       ("print(v.get(), decimal.Decimal(1) / 3)", e(out="2 0.333\n")),
       ("_ = v.set(3)", {}), ("await asyncio.sleep(0, v.get())", e(out="3\n")))


@test("python: the part before an await is interrupted like any other")
def _():
    with Session("python") as s:
        source = "import asyncio\nprint('GO')\nwhile True: pass\nawait asyncio.sleep(0)"
        check(s.interrupt(source), status=130, out="GO\n", err_has=('File "<cell 1>", line ', "KeyboardInterrupt"), lacks="never retrieved")
        check(s.call("await asyncio.sleep(0.01, 5)"), out="5\n", err="")


@test("python: an await is interrupted, and its cell does not go on later")
def _():
    with Session("python") as s:
        source = "import asyncio\ntry:\n    print('GO'); await asyncio.sleep(1000)\nfinally:\n    print('cleaned')\nprint('not here')"
        check(s.interrupt(source), status=130, out="GO\ncleaned\n", err_has="KeyboardInterrupt")
        check(s.call("await asyncio.sleep(0.01, 5)"), out="5\n")


@test("python: a thread may print later, and prints once (P14)")
def _():
    with Session("python") as s:
        check(s.call("import threading\ngo = threading.Event()\nt = threading.Thread(target=lambda: (go.wait(), print('LATE')))\nt.start()"), out="")
        check(s.call("print('now')"), out="now\n")
        first = s.call("go.set()")
        assert (first.out + s.call("t.join()").out) == "LATE\n"


script("python", "sabotage of builtins, sys.modules and the library stays the session's own",
       ("import builtins, json, os, sys, ast, traceback, linecache, asyncio\nbuiltins.exec = builtins.eval = builtins.compile = None\ndel builtins.print", {}),
       ("1 + 1", e(out="2\n")),
       ("json.loads = os.write = os.read = ast.parse = os._exit = os.getpid = None\nlinecache.cache.clear()\nsys.stdout.write('alive\\n') and None", e(out="alive\n")),
       ("builtins.len = builtins.isinstance = builtins.getattr = builtins.str = None", {}),
       ("2 + 2", e(out="4\n")),
       ("1 / 0", e(status=1, err_has="ZeroDivisionError")),
       ("traceback.format_exception = None\n1 / 0", e(status=1, err_has="ZeroDivisionError")),
       ("saved = dict(sys.modules); sys.modules.clear(); x = 1", {}),
       ("sys.stdout.write('still\\n') and None", {"status": 1}),
       ("sys.modules.update(saved); sys.stdout.write('again\\n') and None", {}),
       ("3 + 3", e(out="6\n")))

script("python", "closing stdout or deleting it is the user's business, not the agent's end",
       ("import sys; sys.stderr.close(); x = 1", {}),
       ("del sys.stdout, sys.stderr", {}),
       ("sys.stdout = sys.__stdout__; print(x)", e(out="1\n")))


@test("python: os.closerange(0, 256) ends the session and never gives a wrong result")
def _():
    with Session("python") as s:
        s.call("x = 1")
        check(s.call("import os; os.closerange(0, 256)"), ended=True)


@test("python: files in the workspace do not hijack the agent, but can be imported (PTR-10)")
def _():
    bad = "raise SystemExit('HIJACKED')\n"
    names = ["sitecustomize", "usercustomize", "json", "traceback", "linecache", "asyncio", "selectors", "signal", "re"]
    files = {name + ".py": bad for name in names}
    files["helper.py"] = "value = 'mine'\n"
    with Session("python", files=files) as s:
        check(s.call("import helper; helper.value"), out="'mine'\n")
        check(s.call("1 / 0"), status=1, err_has="ZeroDivisionError", lacks="HIJACKED")
        check(s.call("async def f(): return 5\nawait f()"), out="5\n", lacks="HIJACKED")


script("python", "from __future__ lasts, and the agent's own flags do not leak in",
       "from __future__ import annotations",
       ("def f(x: undefined_name): pass\nf.__annotations__", e(out="{'x': 'undefined_name'}\n")))

script("python", "a handler for SIGINT of the user's own is kept",
       "import signal\ndef mine(*_): pass\n_ = signal.signal(signal.SIGINT, mine)",
       ("signal.getsignal(signal.SIGINT) is mine", e(out="True\n")))


@test("python: interrupts between calls are ignored even with the default handler back")
def _():
    with Session("python") as s:
        s.call("import signal\n_ = signal.signal(signal.SIGINT, signal.default_int_handler)")
        s.signal()
        check(s.interrupt(SPIN["python"]), status=130)
        check(s.call("5"), out="5\n")


script("python", "matplotlib is not imported unless asked for",
       ("import sys, os; print('matplotlib' in sys.modules, os.environ['MPLBACKEND'])", e(out="False module://figure_files\n")))
script("python", "a backend that was chosen outside stays",
       ("import os; print(os.environ['MPLBACKEND'], os.environ.get('PYTHONPATH'))", e(out="agg None\n")), env={"MPLBACKEND": "agg"})


@test("python: plt.show() saves the figures and closes them, figure.show() one (P16)")
def _():
    python = os.environ.get("NSM_MATPLOTLIB_PYTHON", PYTHON)
    if subprocess.run([python, "-c", "import matplotlib"], capture_output=True, timeout=60).returncode:
        raise Skip("no matplotlib; name a Python that has it in NSM_MATPLOTLIB_PYTHON")
    with Session("python", command=[python] + COMMANDS["python"][1:], files={"figure-2.png": "mine"}) as s:
        check(s.call("import matplotlib.pyplot as plt\n_ = plt.plot([1, 2]); _ = plt.figure(); plt.show()", 60), out="saved figure-1.png\nsaved figure-3.png\n", err="")
        check(s.call("plt.get_fignums()"), out="[]\n")
        check(s.call("figure, axes = plt.subplots(); other = plt.figure(); figure.show(); plt.get_fignums() == [other.number]", 60), out="saved figure-4.png\nTrue\n", err="")
        s.call("plt.close('all')")
        Path(s.workspace, "plot.py").write_text("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\n")
        check(s.call("import subprocess, sys\n_ = subprocess.run([sys.executable, 'plot.py'])", 60), out="saved figure-5.png\n", err="")
        assert Path(s.workspace, "figure-2.png").read_text() == "mine"
        for number in (1, 3, 4, 5):
            assert Path(s.workspace, "figure-%d.png" % number).read_bytes().startswith(b"\x89PNG"), number


# ------------------------------------------------------------------ node

script("node", "an error comes whole: message, cause, and the frames of the cell only (N1)",
       ("function f() {\n  throw new TypeError('boom')\n}", e(out="")),
       ("1;\nf()", e(status=1, err="Uncaught TypeError: boom\n    at f (cell-1:2:9)\n    at cell-2:2:1\n")),
       ("throw 5", e(status=1, err="Uncaught 5\n")),
       ("throw Object.assign(new Error('with'), {code: 'E1', cause: new Error('why')})", e(status=1, err_has=("code: 'E1'", "cause: Error: why"))),
       ("await (async () => { await 1; null.x })()", e(status=1, err_has=("TypeError", "cell-5:1:"))),
       ("undefinedName", e(status=1, err_has=("ReferenceError: undefinedName is not defined", "cell-6:1:1"))),
       ("let x = = 3", e(status=1, err_has=("cell-7:1:9\nlet x = = 3\n        ^\n", "SyntaxError: Unexpected token '='"))),
       ("JSON.parse('{')", e(status=1, err_has=("SyntaxError", "cell-8:1:6"))),
       ("function r() { r() }; r()", e(status=1, err_has="RangeError")),
       ("'alive'", e(out="'alive'\n")))

script("node", "an error that the code shows itself has the same frames as one that nobody caught",
       ("try { JSON.parse('{') } catch (e) { console.error(e) }", e(out="", err="SyntaxError: Expected property name or '}' in JSON at position 1\n    at JSON.parse (<anonymous>)\n    at cell-1:1:12\n")),
       ("function f() {\n  return new Error('x', { cause: new RangeError('y') })\n}\nf()", e(out="Error: x\n    at f (cell-2:2:10)\n    at cell-2:4:1 {\n  [cause]: RangeError: y\n      at f (cell-2:2:34)\n      at cell-2:4:1\n}\n")),
       ("f().stack", e(out="'Error: x\\n    at f (cell-2:2:10)\\n    at cell-3:1:1'\n")),
       ("try { require('fs').readFileSync('/nowhere') } catch (e) { console.log(e.stack) }", e(out="Error: ENOENT: no such file or directory, open '/nowhere'\n    at cell-4:1:21\n")),
       ("try { Buffer.from() } catch (e) { console.log(e.stack.replace(/:.*/, '')) }", e(out="TypeError [ERR_INVALID_ARG_TYPE]\n    at cell-5:1:14\n")),
       ("console.trace('t')", e(out="", err="Trace: t\n    at cell-6:1:9\n")),
       ("async function g() {\n  await 1\n  throw f()\n}\nawait g().catch(({ stack }) => console.log(stack))", e(out="Error: x\n    at f (cell-2:2:10)\n    at g (cell-7:3:9)\n    at async cell-7:5:1\n")),
       ("setTimeout(() => console.log(f().stack), 1); await new Promise((done) => setTimeout(done, 20))", e(out="Error: x\n    at f (cell-2:2:10)\n    at Timeout._onTimeout (cell-8:1:30)\n")),
       ("try { require('./thrower.js') } catch (e) { console.log(e.stack.replaceAll(process.cwd(), '')) }", e(out="Error: in a file\n    at Object.<anonymous> (/thrower.js:1:7)\n    at cell-9:1:7\n")),
       ("try { structuredClone(() => 0) } catch (e) { console.log(e.stack) }", e(out="DataCloneError: () => 0 could not be cloned.\n    at cell-10:1:7\n")),
       ("try { require('vm').runInNewContext('null.x', {}, 'other.js') } catch (e) { console.log(e.stack.slice(-39)) }", e(out="    at other.js:1:6\n    at cell-11:1:21\n")),
       ("require('fs').promises.readFile('/nowhere')", e(status=1, err_has="Uncaught Error: ENOENT: no such file or directory, open '/nowhere' {\n  errno: -2,")),
       files={"thrower.js": "throw new Error('in a file')"})

script("node", "the code may make its stacks itself",
       ("function f() { return new Error('x') }; const ours = Error.prepareStackTrace; Error.prepareStackTrace = (error, trace) => [error.message, trace[0].getFunctionName()]; f().stack", e(out="[ 'x', 'f' ]\n")),
       ("let unknown = ; f()", e(status=1, err_has="cell-2:1:15\nlet unknown = ; f()\n              ^\n")),
       ("Error.prepareStackTrace = ours; f()", e(out="Error: x\n    at f (cell-1:1:23)\n    at cell-3:1:33\n")),
       ("Error.prepareStackTrace = undefined; f()", e(out="Error: x\n    at f (cell-1:1:23)\n    at cell-4:1:38\n")),
       ("Error.stackTraceLimit = 1; f()", e(out="Error: x\n    at f (cell-1:1:23)\n")),
       ("Error.stackTraceLimit = 0; f()", e(out="[Error: x]\n")),
       ("Error.stackTraceLimit = Infinity; f()", e(out="Error: x\n    at f (cell-1:1:23)\n    at cell-7:1:35\n")),
       ("delete Error.prepareStackTrace; [f() instanceof Error, Error.prepareStackTrace]", e(out="[ true, undefined ]\n")))


@test("node: an interrupt tells where it came also where the code makes its stacks itself")
def _():
    with Session("node") as s:
        check(s.call("Error.stackTraceLimit = 0; Error.prepareStackTrace = () => 'mine'; 0"), out="0\n")
        check(s.interrupt("function spin() {\n  console.log('GO'); while (true) {}\n}\nspin()"), status=130, err_has=("Interrupted\n    at spin (cell-2:2:", "    at cell-2:4:1\n"))
        check(s.call("[Error.stackTraceLimit, new Error('x').stack, Error.prepareStackTrace()]"), out="[ 0, 'mine', 'mine' ]\n")


script("node", "names may be declared again in later calls (N1)",
       "let a = 1; const b = 1; class C {}; function f() { return 1 }; var v = 1",
       ("let a = 2; const b = 2; class C { x = 2 }; function f() { return 2 }; var v = 2", {}),
       ("[a, b, new C().x, f(), v]", e(out="[ 2, 2, 2, 2, 2 ]\n")),
       ("const a = 3", {}), ("let v = 3", {}), ("const f = () => 3", {}), ("a + v + f()", e(out="9\n")),
       ("function a() { return 4 }", {}), ("var v = 4", {}), ("class f {}", {}), ("[a(), v, typeof f]", e(out="[ 4, 4, 'function' ]\n")),
       ("const { k, l: [m] } = { k: 1, l: [2] }", {}), ("function k() { return 5 }", {}), ("k() + m", e(out="7\n")),
       ("async function m() { return 6 }", {}), ("await m()", e(out="6\n")),
       ("let z = (() => { throw new Error('init') })()", e(status=1)),
       ("let z = 7; z", e(out="7\n")),
       ("let twice = 1; let twice = 2", e(status=1, err_has="Identifier 'twice' has already been declared")),
       ("b = 9", e(status=1, err_has="Assignment to constant variable")))

script("node", "names of one cell may be declared again each in the way that it needs (N1)",
       "let a = 1; var b = 2", ("let a = 3; let b = 4", {}), ("[a, b]", e(out="[ 3, 4 ]\n")),
       "let data = 1; function f() { return 1 }", ("let data = 2; const f = () => 3; f()", e(out="3\n")),
       ("const a = 5, b = 6, c = 7; const f = () => 4", {}), ("[a, b, c, f()]", e(out="[ 5, 6, 7, 4 ]\n")),
       ("c = 8", e(status=1, err_has="Assignment to constant variable")),
       ("var a = 9; var c = 9", e(status=1, err_has=("cell-9:1:1\nvar a = 9; var c = 9\n^\n", "Identifier 'c' has already been declared"))), ("[a, c]", e(out="[ 5, 7 ]\n")),
       ("function data() { return 1 }\n(() => console.log('a statement of its own'))()", e(out="a statement of its own\n")), ("data()", e(out="1\n")),
       "let m = 1; var n = 2, o = 3; function* p() {}",
       ("let m = (x, y) => [x, y], // after a comma\n  n = { m, o: 1 }, { o: q, r: [s = n] } = { o: 4, r: [] }, o; let [p] = [m(5, 6), 7], t = `${[1, 2]}, ${n}`;\n[n, o, p, q, s === n, t]",
        e(out="[\n  { m: [Function: m], o: 1 },\n  undefined,\n  [ 5, 6 ],\n  4,\n  true,\n  '1,2, [object Object]'\n]\n")),
       ("let crypto = require('crypto'), toString = 1", {}), ("var crypto = require('crypto'); function toString() { return 2 }", {}), ("[typeof crypto.createHash, toString]", e(has="'function', [Function: toString]")),
       ("import n from 'os'; import { EOL as m } from 'os'; import * as o from 'os'; [n === require('os'), m, o.EOL]", e(out="[ true, '\\n', '\\n' ]\n")),
       ("let { m, n } = { m: 1, n: 2 }", e(status=1, err="cell-19:1:1\nlet { m, n } = { m: 1, n: 2 }\n^\nUncaught SyntaxError: Identifier 'n' has already been declared\n")))

script("node", "a cell that throws what a refused declaration would throw runs once",
       "let runs = 0, zz = 0",
       ("runs++; throw new SyntaxError(\"Identifier 'zz' has already been declared\")", e(status=1, err_has="cell-2:1:15")),
       ("runs++; await 1; eval('let zz; let zz')", e(status=1, err_has="SyntaxError: Identifier 'zz' has already been declared")),
       ("Error.stackTraceLimit = 0; runs++; eval('let zz; let zz')", e(status=1)),
       ("runs", e(out="3\n")))


@test("node: a cell that declares five hundred names anew in another way")
def _():
    with Session("node") as s:
        check(s.call("\n".join("var v%d = 0; let l%d = 0" % (i, i) for i in range(250))))
        check(s.call("\n".join("let v%d = %d; var l%d = 1" % (i, i, i) for i in range(250)) + "\nv249 + l249"), out="250\n", err="")


script("node", "the whole cell is parsed: chains, else, templates, .exit (N2, N10)",
       ("[1, 2, 3]\n  .map(x => x * 2)\n  .filter(x => x > 2)", e(out="[ 4, 6 ]\n")),
       ("if (false) { console.log('if') }\nelse { console.log('else') }", e(out="else\n")),
       ("const t = `a\n.exit\n.break ${`in ${1 + 1}`}`\nconsole.log(t)", e(out="a\n.exit\n.break in 2\n")),
       ("console.log('after')", e(out="after\n", err="")))

script("node", "unclosed input is a SyntaxError (N3)",
       ("console.log('a'", e(status=1, err_has=("cell-1:1:", "SyntaxError"))),
       ("`unclosed", e(status=1, err_has="SyntaxError")),
       ("function f() {", e(status=1, err_has="SyntaxError")),
       ("/* unclosed", e(status=1, err_has="SyntaxError")),
       ("'unclosed", e(status=1, err_has="SyntaxError")))

script("node", "a cell is awaited to its end (N4)",
       ("const v = await Promise.resolve(7);\nconsole.log(v)", e(out="7\n")),
       ("await new Promise(r => setTimeout(r, 30)); console.log('waited')", e(out="waited\n")),
       ("for await (const x of (async function* () { yield 1; yield 2 })()) console.log(x)", e(out="1\n2\n")),
       ("async function main() { await null; console.log('in main') }\nmain()", e(out="in main\n")),
       ("(async () => 42)()", e(out="42\n")),
       ("(async () => { throw new Error('late') })()", e(status=1, err_has="Error: late")),
       ("void main()", {}), ("v", e(has="7\n")))

script("node", "rejections and errors in timers are reported, counted, and kill nothing (N5)",
       ("Promise.reject(new Error('unhandled')); 1", e(status=1, out="1\n", err="Uncaught Error: unhandled\n    at cell-1:1:16\n")),
       ("setTimeout(() => { throw new Error('timer') }, 1); await new Promise(r => setTimeout(r, 40)); 'on'", e(status=1, out="'on'\n", err_has="Error: timer")),
       ("process.nextTick(() => { throw new Error('tick') }); 2", e(status=1, err_has="Error: tick")),
       ("Promise.reject(new Error('handled')).catch(() => {}); 3", e(status=0, out="3\n", err="")),
       ("'alive'", e(out="'alive'\n")))


@test("node: an error between two calls is printed late and does not fail the next call (N5)")
def _():
    with Session("node") as s:
        pipe = Path(s.workspace, "pipe")
        os.mkfifo(pipe)
        check(s.call("require('fs').readFile('pipe', () => { throw new Error('between') }); 0"), out="0\n", err="")
        pipe.write_text("go")
        check(s.late(b"between"), status=None, err_has="Uncaught Error: between")
        check(s.call("1"), out="1\n", err="")


@test("node: timers run between calls")
def _():
    with Session("node") as s:
        first = s.call("setTimeout(() => console.log('LATE'), 100); 0")
        late = "" if "LATE" in first.out else s.late(b"LATE\n").out
        assert first.out + late == "0\nLATE\n", (first, late)


@test("node: process.exit ends with its code, after everything was written (N6)")
def _():
    with Session("node") as s:
        result = s.call("process.stdout.write('x'.repeat(500000)); process.exit(4)")
        assert (result.ended, result.exit_code, result.status, len(result.out), result.err) == (True, 4, 4, 500000, ""), result
    with Session("node") as s:
        check(s.call("process.on('exit', () => console.log('bye')); await 1; process.exit()"), ended=True, exit_code=0, out="bye\n", err="")


script("node", "words on stderr are no error (N7), and no newline is needed (N8)",
       ("console.error('Uncaught is just a word')", e(status=0, err="Uncaught is just a word\n")),
       ("process.stdout.write('abc')", e(out="abctrue\n")),
       ("void process.stdout.write('abc')", e(out="abc")))

script("node", "static imports in all their forms (N9)",
       ("import fs from 'fs'\nimport { readFileSync, existsSync as exists } from \"node:fs\";\nimport * as path from 'path'; import 'os'\nimport {\n  join, // with a comment\n  default as p2,\n} from 'path'\nimport fsd, { statSync } from 'fs'; import url, * as urls from 'url'\n"
        "[fs.readFileSync === readFileSync, exists('/'), path.join('a', 'b'), join === p2.join, typeof statSync, fsd === fs, url === urls.default]",
        e(out="[ true, true, 'a/b', true, 'function', true, true ]\n")),
       ("import fs from 'fs'; typeof fs.statSync", e(out="'function'\n")),
       ("import { nope } from 'fs'", e(status=1, err_has="does not provide an export named 'nope'")),
       ("import x from './missing.mjs'", e(status=1, err_has="Cannot find module")),
       ("import { mine } from './local.mjs'; import common from './common.cjs'; [mine, common.c]", e(out="[ 'mine', 'c' ]\n")),
       ("(await import('./local.mjs')).mine + require('./common.cjs').c", e(out="'minec'\n")),
       ("import data from './data.json' with { type: 'json' }; data", e(out="{ a: 1 }\n")),
       ("const text = `import x from 'y'; ${'import z'} ${`import(1)`}`; /import (a)/.test(text); // import b from 'c'\n/* import d from 'e' */ ({ import: 1 }).import", e(out="1\n")),
       ("console.log('import a from \"b\"', \"import('x')\", 'it\\'s import'); 4 / 2 / 1", e(out="import a from \"b\" import('x') it's import\n2\n")),
       ("const later = () => import('fs'); typeof (await later()).statSync", e(out="'function'\n")),
       ("\n\nimport fs from 'fs'\nthrow new Error('line 4')", e(status=1, err_has="cell-11:4:7")),
       files={"local.mjs": "export const mine = 'mine'\n", "common.cjs": "exports.c = 'c'\n", "data.json": '{"a": 1}'})


@test("node: packages of the workspace are found by import and require")
def _():
    with Session("node") as s:
        package = Path(s.workspace, "node_modules", "pkg")
        package.mkdir(parents=True)
        package.joinpath("index.js").write_text("module.exports = 'package'\n")
        check(s.call("import pkg from 'pkg'; [pkg, require('pkg'), require.main === module]"), out="[ 'package', 'package', true ]\n")


script("node", "the last value is echoed, undefined is not (N10)",
       ("({ a: [1, { b: 2 }] })", e(out="{ a: [ 1, { b: 2 } ] }\n")),
       ("undefined", e(out="")), ("let q = 1", e(out="")), ("null", e(out="null\n")), ("-0", e(out="-0\n")), ("10n", e(out="10n\n")), ("NaN", e(out="NaN\n")),
       ("'text'", e(out="'text'\n")), ("Symbol('s')", e(out="Symbol(s)\n")), ("new Map([[1, 2]])", e(out="Map(1) { 1 => 2 }\n")),
       ("({ [require('util').inspect.custom]() { throw new Error('no') } })", e(has="cannot be shown")),
       ("console.log('x')", e(out="x\n")))


@test("node: a busy loop after an await, in a timer, and a silent wait are interrupted")
def _():
    with Session("node") as s:
        s.call("let kept = 5")
        for source in ("console.log('GO'); await 1; while (true) {}",
                       "setTimeout(() => { console.log('GO'); while (true) {} }, 1); await new Promise(() => {})",
                       "console.log('GO'); await new Promise(() => {})",
                       "console.log('GO'); try { while (true) {} } catch { } finally { console.log('not here') }",
                       "console.log('GO'); /(a+)+$/.test('a'.repeat(50) + 'b')"):
            check(s.interrupt(source), source, status=130, lacks="not here", err_has="Interrupted")
        result = s.interrupt("require('child_process').execSync('echo GO; exec sleep 1000', { stdio: 'inherit' })")
        assert result.status in (1, 130), result  # 1 if execSync reports the child's end first
        check(s.call("kept"), out="5\n", err="")
        check(s.interrupt("function spin() {\n  console.log('GO'); while (true) {}\n}\nspin()"), status=130, err_has=("at spin (cell-9:2:", "cell-9:4:1"))


@test("node: pending timers survive an interrupt, and exit is silent after one")
def _():
    with Session("node") as s:
        s.call("let ticks = 0; const timer = setInterval(() => ticks++, 1); void 0")
        check(s.interrupt(SPIN["node"]), status=130)
        check(s.call("const before = ticks; await new Promise(r => setTimeout(r, 30)); ticks > before"), out="true\n")
        check(s.call("process.exit(3)"), ended=True, exit_code=3, err="")


script("node", "sabotage of globals stays the session's own",
       ("globalThis.setImmediate = globalThis.Buffer = globalThis.String = globalThis.Number = null; JSON.stringify = null; require('util').inspect = null; 1", e(out="1\n")),
       ("delete globalThis.process; 2", e(out="2\n")),
       ("throw new Error('x')", e(status=1, err_has="Error: x")),
       ("3", e(out="3\n")))


# ------------------------------------------------------------------ bash

script("bash", "two hundred kilobytes on stderr (B1, RES-24)",
       ("for ((i = 0; i < 3000; i++)); do echo 'a warning line of about seventy bytes, which is what warnings have...' >&2; done; echo ok", e(out="ok\n")))

script("bash", "read and cat find the end of file, and nothing of the protocol (B2, B3)",
       ("read x; echo \"got <$x>\"", e(out="got <>\n")), ("cat; echo $?", e(out="0\n")), ("while read -r l; do echo $l; done; echo end", e(out="end\n")))


@test("bash: exit, exec, kill -9 and set -e end the shell visibly (B4)")
def _():
    for source, code, says in (("echo out; exit 3", 3, 3), ("set -e; echo out; false; echo not here", 1, 1),
                               ("echo out; exec true", 0, None), ("echo out; kill -9 $$", -9, None),
                               ("trap 'echo bye' EXIT; exit 5", 5, None), ("f() { exit 6; }; f", 6, 6), ("(exit 9) || exit 7", 7, 7)):
        with Session("bash") as s:
            result = check(s.call(source), source, ended=True, exit_code=code, err="", lacks="not here")
            assert result.status == says and result.out == ("bye\n" if "bye" in source else "out\n" if "out" in source else ""), result
    with Session("bash") as s:
        check(s.call("set -e; x=1"))
        check(s.call("echo $x; [[ $- == *e* ]] && echo on"), out="1\non\n")
        check(s.call("if false; then :; fi; false || echo spared"), out="spared\n")
        check(s.call("false"), ended=True, exit_code=1)


script("bash", "syntax errors are reported at once, with their line, and the shell goes on (B5)",
       "x=5",
       ("echo 'unclosed", e(status=2, err_has=("line 1", "matching `''"))),
       ("cat <<EOF\nunterminated", e(status=0, out="unterminated\n", err_has="here-document")),
       ("if true", e(status=2, err_has="syntax error")),
       ("echo one\necho two\n)", e(status=2, out="one\ntwo\n", err_has="line 3: syntax error near")),
       ("set -u", {}), ("echo $x\n)", e(status=2, out="5\n", err_has="line 2: syntax error near")), ("set +u", {}),
       ("echo \"$(", e(status=2, err_has="unexpected EOF")),
       ("echo $x", e(out="5\n", err="")))

script("bash", "output without a newline is output (B6)",
       ("printf abc", e(out="abc")), ("printf 'x\\ny'", e(out="x\ny")))

script("bash", "functions and aliases with the names of builtins (B7)",
       ("echo(){ :; }; read(){ :; }; eval(){ :; }; printf(){ :; }; trap(){ :; }; set(){ :; }; unset(){ :; }; local(){ :; }; return(){ :; }; exit(){ :; }; command(){ :; }; exec(){ :; }; builtin(){ :; }; declare(){ :; }", e(err="")),
       ("echo nothing", e(out="")),
       ("builtin unset -f echo; echo yes; builtin declare -F read >/dev/null && echo kept", e(out="yes\nkept\n")),
       ("builtin unset -f read eval printf trap set unset local return exit command declare; x=1; echo $x", e(out="1\n")),
       ("shopt -s expand_aliases; alias echo=false eval=false printf=false builtin=false read=false _nsm_next=false", {}),
       ("echo a", e(status=1, out="")),
       ("unalias -a\necho b", e(out="b\n")),
       ("alias done=fi", {}), ("unalias done\nfor i in 1; do echo $i; done", e(out="1\n")))

script("bash", "set -x and set -v show the user's lines only (B8)",
       ("set -x; echo a", e(out="a\n", err="+++ echo a\n")), ("echo b\necho c", e(out="b\nc\n", err="+++ echo b\n+++ echo c\n")),
       ("set +x", e(err="+++ set +x\n")), ("set -v", e(err="")), ("echo d", e(out="d\n", err="echo d\n")), ("set +v", e(err="set +v\n")), ("echo e", e(err="")),
       ("set -xu; echo ${undefined}", e(status=1, err_has="undefined: unbound variable")), ("set +xu; echo f", e(out="f\n")))


@test("bash: sleep and a loop of sleeps are interrupted, and no later call hears of it (B9)")
def _():
    with Session("bash") as s:
        s.call("x=5; declare -A map=([k]=v)")
        for source in ("echo GO; sleep 1000; echo not here\necho nor here", "f() { while true; do echo GO; sleep 1000; done; }; f; echo not here",
                       "echo GO; sleep 1000 | cat", "echo GO; $(sleep 1000)", "echo GO; sleep 1000 & wait", "(echo GO; while :; do :; done)", "set -x; { echo GO; sleep 1000; }"):
            check(s.interrupt(source), source, status=130, lacks="not here")
            check(s.call("{ set +x; } 2>/dev/null; echo $x ${map[k]}"), source, out="5 v\n")


script("bash", "streams that are closed or redirected stay so, and the protocol lives (B10)",
       ("exec 3>&1 >/dev/null", {}), ("echo lost", e(out="")), ("exec >&3 3>&-", {}), ("echo back", e(out="back\n")),
       ("exec 2>&-", {}), ("echo e >&2", e(status=1, err="")), ("exec 2>&1", {}), ("nosuchcommand", e(status=127, has="nosuchcommand: command not found")),
       ("exec 1>&-", {}), ("echo x", e(status=1, has="write error")), ("x=1", {}))

script("bash", "everything of a shell lasts: variables, functions, options, directory, jobs, descriptors",
       ("x=1; y=(a b c); declare -A m=([k]=v); declare -i n=3; export E=e; f() { echo \"f $1\"; }; shopt -s extglob nullglob; set -o pipefail; umask 077; mkdir d; cd d; exec 7>file; set -- p q; alias ll='echo alias'", {}),
       ("n+=4; echo $x ${y[2]} ${m[k]} $n ${PWD##*/} $(printenv E) $1 $2; f 2; shopt -q extglob && echo ext; [[ -o pipefail ]] && echo pipe; umask; ll", e(out="1 c v 7 d e p q\nf 2\next\npipe\n0077\nalias\n")),
       ("echo into >&7; cat file", e(out="into\n")),
       ("read -r line < <(sleep 0.01; echo sub); sleep 1000 & echo $line; kill %1; wait %1; echo $?", e(out="sub\n143\n")),
       ("false", e(status=1)), ("(exit 42)", e(status=42)), ("nosuchcommand", e(status=127, err="bash: nosuchcommand: command not found\n")),
       ("true | false", e(status=1)))

script("bash", "a cell is the top level: break, return and local mean what they mean there",
       ("break", e(status=0, err_has="only meaningful in")), ("return 3", e(status=2, err_has="can only")),
       ("local v=1", e(status=1, err_has="can only be used in a function")), ("declare v=2; typeset w=3", {}), ("echo $v $w", e(out="2 3\n")))

script("bash", "errors of expansion and unset variables cost the rest of the cell, not the shell",
       ("echo before\necho $((1/0))\necho not here", e(status=1, out="before\n", err_has="division by 0")),
       ("set -u", {}), ("echo $undefined\necho not here", e(status=1, out="", err_has="unbound variable")), ("set +u\necho ${x:?is needed}\necho not here", e(status=1, out="", err_has="is needed")),
       ("readonly r=1; r=2; echo $r", e(status=1)), ("echo $r", e(out="1\n")))

script("bash", "what an earlier line of a cell changes for the later ones",
       ("shopt -s extglob\ncase abc in a@(b|x)c) echo match;; esac", e(out="match\n")), ("shopt -s expand_aliases\nalias hi='echo hello'\nhi", e(out="hello\n")),
       ("x=1\n}\nx=2", e(status=2, err_has="line 2: syntax error near")), ("echo $x", e(out="1\n")), ("echo a \\", e(out="a \\\n")), ("cat <<X\n}\nX", e(out="}\n")), ("echo } # }", e(out="}\n")))

script("bash", "traps of the user's: DEBUG, ERR, RETURN, INT last and fire for their lines only",
       ("trap 'echo D' DEBUG", {}), ("echo a", e(out="D\na\n")), ("echo b", e(out="D\nb\n")), ("trap - DEBUG", e(out="D\n")), ("echo c", e(out="c\n")),
       ("trap 'echo E' ERR", {}), ("false", e(status=1, out="E\n")), ("true", e(out="")), ("false; true", e(out="E\n")), ("trap - ERR; false", e(status=1, out="")),
       ("set -T; trap 'echo D' DEBUG; f() { :; }; f", {}), ("f", e(out="D\nD\nD\n")), ("set +T; trap - DEBUG; trap -p DEBUG ERR", e(out="D\nD\n")),
       ("trap 'echo U' USR1; kill -USR1 $$", e(out="U\n")), ("kill -USR1 $$", e(out="U\n")),
       ("printf 'trap \"echo T\" ERR\\n' > t.sh; . ./t.sh", {}), ("false", e(status=1, out="T\n")))


@test("bash: a trap on INT is the user's, and lasts")
def _():
    with Session("bash") as s:
        s.call("trap 'echo CAUGHT' INT")
        check(s.interrupt("echo GO; for ((i = 0; i < 1000000; i++)); do if [[ $stop ]]; then break; fi; trap 'stop=1; echo CAUGHT' INT; done; echo went on"), has=("CAUGHT", "went on"))
        check(s.call("trap -p INT"), out="trap -- 'stop=1; echo CAUGHT' SIGINT\n")
        s.call("trap - INT")
        check(s.interrupt(SPIN["bash"]), status=130)


script("bash", "options and variables that could disturb the agent do not, and last",
       "IFS=x; LC_ALL=C; set -u; set -o posix; set -f; set -C; set -o pipefail; unset PATH; declare -r LANG=C; shopt -s nocasematch failglob",
       ("v=axb; echo $v; [[ -o posix && -o nounset && -o noglob && -o noclobber ]] && echo all", e(out="a b\nall\n")),
       ("set +o posix; set -a; exported=1", {}), ("[[ $- == *a* ]] && echo still; export -p | { while read -r l; do case $l in *' exported='*) echo exported;; *_nsm*) echo LEAK;; esac; done; }", e(out="still\nexported\n")),
       ("set -k -h -B; set +h; echo ok", e(out="ok\n")), ("echo \u00e4\u00f6", e(out="\u00e4\u00f6\n")))

script("bash", "the settings of the loop cannot be changed by mistake",
       ("PROMPT_COMMAND=date", e(status=1, err_has="readonly")), ("PS1='prompt> '; PS2='more> '; unset IGNOREEOF", {}), ("set +o ignoreeof; HISTFILE=h; set -o history", {}),
       ("echo fine", e(out="fine\n", err="")), ("set +o history", {}))

script("bash", "NUL bytes in the source are ignored with one warning",
       (b"echo a\0b\0\0c".decode(), e(out="abc\n", err="bash: warning: ignored NUL bytes in the source\n")), ("echo d\0", e(out="d\n", err_has="NUL")), ("echo e", e(out="e\n", err="")))

script("bash", "bytes that are no UTF-8, and long lines of many of them, arrive as they are",
       ("v='\u65e5\u672c'; echo ${#v} $v", e(out="2 \u65e5\u672c\n")))


@test("bash: source that is no UTF-8 is passed on byte for byte")
def _():
    with Session("bash") as s:
        assert s.call(b"echo '\xff\xfe'").raw_out == b"\xff\xfe\n"


@test("bash: background jobs outlive an interrupt, and their output comes late (B9)")
def _():
    with Session("bash") as s:
        result = s.call("mkfifo go; { echo UP; read -r x < go; echo LATE; } & job=$!")
        if "UP" not in result.out:
            s.late(b"UP\n")
        check(s.interrupt("echo GO; sleep 1000"), status=130)
        s.send("echo > go; wait $job; echo $?")
        check(s.receive(), out="LATE\n0\n")


# ------------------------------------------------------------------ running them


def main(words):
    passed, failed, skipped = 0, [], 0
    for name, function in TESTS:
        if not all(word in name for word in words):
            continue
        started = time.monotonic()
        try:
            function()
            passed += 1
            if time.monotonic() - started > 15:
                print("slow     %s" % name, flush=True)
        except Skip as reason:
            skipped += 1
            print("skipped  %s: %s" % (name, reason))
        except Exception as error:  # an assertion, a silence, a broken pipe
            failed.append(name)
            print("FAILED   %s\n%s: %s\n" % (name, type(error).__name__, error), flush=True)
    print("%d passed, %d failed" % (passed, len(failed)) + (", %d skipped" % skipped if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
