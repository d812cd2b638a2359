"""Sessions as a client sees them: state that lasts, and the truth where it does not.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_sessions.py [test…]

needs the package `mcp` (2.3 or newer). The rows P, B, N, E and D are defects of the predecessor;
each must stay away. No server but ours, no network.
"""

import asyncio
import os
import random
import re
import select
import sys
import tempfile
import time
from contextlib import asynccontextmanager

from mcp import Client, MCPError, StdioServerParameters

import harness
from harness import SERVER, Lacks
from test_raw import VERSIONS, Server, Sleeper, assert_dies, text_of

LATE = "--- background, since the last call ---\n"
LOST = " · session ended, state lost · "
ANEW = "new session: the state of earlier calls was lost"


@asynccontextmanager
async def connected(**settings):
    """A client of a server with these settings."""
    server = StdioServerParameters(command=SERVER, args=["--stdio"], env=settings)
    async with Client(server) as client:
        yield Caller(client)


class Caller:
    """Calls the tool."""

    def __init__(self, client):
        self.client = client

    async def __call__(self, env, code, session="s", **arguments):
        """The text of the answer."""
        return (await self.result(env, code, session, **arguments)).content[0].text

    async def result(self, env, code, session="s", **arguments):
        if not hasattr(self, "environments"):
            tool = (await self.client.list_tools()).tools[0]
            self.environments = tool.input_schema["properties"]["env"].get("enum", [])
        if env not in self.environments:
            raise Lacks(env)
        arguments = {"env": env, "code": code, **arguments}
        if session:
            arguments["session"] = session
        return await self.client.call_tool("run", arguments)


def split(text):
    """What was written, and the trailer."""
    body, _, trailer = text.rpartition("\n")
    assert trailer.startswith("[") and trailer.endswith("]"), text[-500:]
    return body, trailer


def exited(text, code=0):
    """What was written, where nothing else is to be told."""
    body, trailer = split(text)
    code = r"\d+" if code is None else code
    assert re.fullmatch(rf"\[exit {code} · [\d.]+ s( · \d+ MB)?\]", trailer), text[-500:]
    return body


async def rows(env, table):
    """Row after row in one session that must live on: code → what is written and the exit code."""
    async with connected() as run:
        for row, code, wanted, status in table:
            body = exited(await run(env, code), status)
            fits = wanted(body) if callable(wanted) else body == wanted
            assert fits, f"{row}: {code!r} gave {body!r}"


async def endings(env, before, after, table):
    """Row after row: code that ends the interpreter, how that is told, and the truth afterwards."""
    async with connected() as run:
        for row, code, trailer in table:
            exited(await run(env, before))
            text = await run(env, code)
            assert split(text)[1].startswith(f"[{trailer}{LOST}"), f"{row}: {text!r}"
            text = await run(env, after)
            assert text.startswith("gone\n[exit 0 · ") and ANEW in text, f"{row}: {text!r}"
            assert exited(await run(env, after)) == "gone", row


# --- Order


def pipelined(rounds):
    """12 calls on one cold session, sent before any is answered; each sees the one before."""
    with Server(VERSIONS[2]) as server:
        for round in range(rounds):
            session = f"r{round % 8}"
            env, step = [
                ("shell", "n=$((n + 1)); echo $n"),
                ("python", "n = globals().get('n', 0) + 1; print(n)"),
            ][round % 2]
            # The first 8 rounds are cold. Later ones go on where the same name stopped.
            first = round // 8 * 12
            for id in range(12):
                server.start(round * 12 + id, step, env=env, session=session)
            for id in range(12):
                text = text_of(server.answer(round * 12 + id))
                assert text.startswith(f"{first + id + 1}\n[exit 0 · "), (round, id, text)


def test_12_pipelined_calls_on_one_session_50_rounds_come_back_in_order():
    pipelined(50)


def test_12_pipelined_calls_on_one_cold_session_come_back_in_order():
    for _ in range(3):
        with Server(VERSIONS[2]) as server:
            for id in range(12):
                server.start(id, f"echo {id}; sleep 0.0{12 - id:02}; x=$x.{id}; echo $x", session="cold")
            seen = ""
            for id in range(12):
                seen += f".{id}"
                assert text_of(server.answer(id)).startswith(f"{id}\n{seen}\n[exit 0 · ")


def test_a_stuck_session_does_not_keep_others_waiting():
    with Server(VERSIONS[2]) as server:
        server.start(1, "while :; do :; done", session="stuck", timeout=20)
        for id in range(2, 6):
            server.start(id, "echo queued", session="stuck")
        assert server.run(6, "echo 42", session="other").startswith("42\n[exit 0 · ")


# --- Time-outs and cancels


async def keeps_state(env, before, stuck, after):
    async with connected() as run:
        exited(await run(env, before))
        result = await run.result(env, stuck, timeout=1)
        _, trailer = split(result.content[0].text)
        assert re.match(r"\[timed out after 1 s · state kept · [\d.]+ s", trailer), trailer
        assert result.is_error
        facts = result.meta["nix-sandbox-mcp/outcome"]
        assert facts["session"] == {"name": "s", "kept": True, "restarted": None}
        assert facts["ending"] == {"kind": "timed_out", "after_ms": 1000}
        assert exited(await run(env, after)) == "42"


async def test_while_True_pass_in_python_times_out_then_the_next_call_sees_the_variables_set_before():
    await keeps_state("python", "x = 42", "while True: pass", "print(x)")


async def test_while_true_in_node_times_out_then_the_next_call_sees_the_variables_set_before():
    await keeps_state("node", "let x = 42", "while(true){}", "console.log(x)")


async def test_sleep_1000_in_bash_times_out_then_the_next_call_sees_the_variables_set_before():
    await keeps_state("shell", "x=42", "sleep 1000", "echo $x")


async def test_code_that_will_not_be_interrupted_ends_its_session_and_that_is_told():
    async with connected() as run:
        code = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
        exited(await run("python", "x = 42"))
        text = await run("python", code, timeout=1)
        assert text.startswith(f"[timed out after 1 s{LOST}"), text
        text = await run("python", "print('x' in globals())")
        assert text.startswith("False\n") and f"{ANEW} (timed out after 1 s)" in text, text


async def test_a_time_out_gives_what_was_written():
    async with connected() as run:
        text = await run("shell", "echo partial; sleep 60", timeout=1)
        assert text.startswith("partial\n[timed out after 1 s · state kept · "), text


async def test_cancel_kills_the_call_and_keeps_the_session():
    for env, before, after in [
        ("shell", "x=42", "echo $x"),
        ("python", "x = 42; import subprocess", "print(x)"),
    ]:
        async with connected() as run:
            sleeper = Sleeper()
            stuck = sleeper.code if env == "shell" else f"subprocess.run({sleeper.code.split()})"
            exited(await run(env, before))
            call = asyncio.create_task(run(env, stuck, timeout=60))
            process = await asyncio.to_thread(sleeper.started)
            call.cancel()
            try:
                await call
            except asyncio.CancelledError:
                pass
            assert_dies(process)
            assert exited(await run(env, after)) == "42"


# --- Code that attacks its own interpreter


ATTACKS = [
    "import os; os.closerange(0, 256)",
    "import builtins; builtins.exec = None",
    "import builtins; builtins.compile = builtins.eval = builtins.len = None",
    "import os; os._exit(7)",
    "import os\nfor fd in range(3, 256):\n  try: os.write(fd, b'done 2 00000000000000000000000000000000 0\\n')\n"
    "  except OSError: pass",
    "import os\nfor fd in range(3, 256):\n  try: os.write(fd, b'x' * 5000)\n  except OSError: pass",
    "import sys; sys.modules.clear()",
    "import sys, os; sys.stdout = sys.stderr = None; os.dup2(0, 1); os.dup2(0, 2)",
    "import sys; sys.setrecursionlimit(50)",
    "import threading, os; threading.Thread(target=lambda: os._exit(9)).start()",
    "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "import os; os.kill(1, 9); os.kill(-1, 9)",
]


async def test_closerange_no_exec_exit_7_a_forged_frame_next_call_right_or_a_clear_state_lost():
    async with connected() as run:
        for attack in ATTACKS:
            await run("python", "import sys; x = 42", session="a")
            first = await run("python", attack, session="a", timeout=2)
            # The streams may be closed for good: a file tells no less.
            code = "open('seen', 'w').write(str(globals().get('x')))"
            second = await run("python", code, session="a", timeout=2)
            third = await run("python", "print(globals().get('x'))", session="a", timeout=2)
            told = LOST in first or LOST in second or ANEW in second or ANEW in third
            body = split(third)[0]
            silent = "dup2" in attack or "closerange" in attack
            assert body == "42" or told or (silent and body in ("", "42")), (attack, first, second, third)
            if body == "42":
                assert ANEW not in third and LOST not in second, (attack, first, second, third)
            # Whatever it is now, it is not the next one's.
            await run("python", "import os; os._exit(0)", session="a")


async def test_a_forged_answer_spoils_no_other_result():
    forge = """
import gc, os, re, sys
def frames():
    frame = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back
words = {w for f in frames() for v in f.f_locals.values() for w in re.findall(r'[0-9a-f]{32}', repr(v))}
for nonce in words:
    for id in range(1, 9):
        for fd in range(3, 256):
            try: os.write(fd, f'done {id} {nonce} 0\\n'.encode())
            except OSError: pass
print('FORGED')
"""
    async with connected() as run:
        exited(await run("python", "x = 42"))
        await run("python", forge, timeout=5)
        for n in range(5):
            text = await run("python", f"print('right', {n})", timeout=5)
            assert split(text)[0] == f"right {n}", text


async def test_an_interpreter_that_dies_between_calls_is_restarted_and_that_is_told():
    async with connected() as run:
        exited(await run("shell", "x=42; (sleep 0.2; kill -9 $$) &"))
        deadline = time.monotonic() + 30
        text = ""
        while ANEW not in text:
            assert time.monotonic() < deadline, text
            await asyncio.sleep(0.2)
            text = await run("shell", "echo ${x-gone}")
        assert text.startswith("gone\n") or "gone" in text, text


# --- Names, caps, expiry


async def test_a_session_has_a_proper_name():
    async with connected() as run:
        for name in ["../../x", "a b", "x" * 65, "a\nb", "é", "/", "$(id)", "\0"]:
            result = await run.result("shell", "echo 42", session=name)
            assert result.is_error and "is no name for a session" in result.content[0].text, name
        result = await run.client.call_tool("run", {"env": "shell", "code": "", "session": ""})
        assert "is no name for a session" in result.content[0].text
        for name in ["x" * 64, "A-b_c.9", ".", ".."]:
            assert exited(await run("shell", "echo 42", session=name)) == "42"


async def test_a_session_belongs_to_its_environment():
    async with connected() as run:
        exited(await run("shell", "x=42", session="mine"))
        result = await run.result("python", "1", session="mine")
        wanted = "the session `mine` belongs to the environment `shell`; use that, or another session"
        assert result.is_error and result.content[0].text == wanted, result
        assert exited(await run("shell", "echo $x", session="mine")) == "42"


async def test_25_sessions_opened_in_a_row_meet_the_cap_and_its_message():
    async with connected() as run:
        for n in range(25):
            text = await run("shell", f"x={n}", session=f"n{n}")
            if n < 16:
                exited(text)
            else:
                assert text.startswith("there are already 16 sessions (n0, n1, "), text
                assert "leave `session` out" in text and "s ends by itself" in text, text
        for n in range(16):
            assert exited(await run("shell", "echo $x", session=f"n{n}")) == str(n)
        # One that has ended makes room.
        await run("shell", "exit", session="n3")
        assert exited(await run("shell", "echo 42", session="n20")) == "42"
        assert exited(await run("shell", "echo 42", session=None)) == "42"


async def test_the_number_of_sessions_is_a_setting():
    async with connected(NIX_SANDBOX_MAX_SESSIONS="1") as run:
        exited(await run("shell", "true", session="a"))
        assert "already 1 sessions (a)" in await run("shell", "true", session="b")


async def test_the_way_out_that_the_refusal_names_is_one():
    way = "one ends at `exit` in shell, `os._exit(0)` in Python, `process.exit()` in Node"
    for env, code in [("shell", "exit"), ("python", "import os; os._exit(0)"), ("node", "process.exit()")]:
        async with connected(NIX_SANDBOX_MAX_SESSIONS="1") as run:
            exited(await run(env, "", session="a"))
            refused = await run(env, "", session="b")
            assert refused.endswith(way), refused
            text = await run(env, code, session="a")
            assert text.startswith("[exit 0 · session ended, state lost · "), text
            exited(await run(env, "", session="b"))


async def test_a_session_that_is_not_used_ends():
    async with connected(SESSION_IDLE_TIMEOUT="1") as run:
        sleeper = Sleeper()
        exited(await run("shell", f"x=42; {sleeper.code} &"))
        process = await asyncio.to_thread(sleeper.started)
        assert_dies(process)
        text = await run("shell", "echo ${x-gone}")
        assert text.startswith("gone\n") and f"{ANEW} (it was not used for 1 s)" in text, text
        assert exited(await run("shell", "echo ${x-gone}")) == "gone"


async def test_who_could_not_begin_anew_is_told_at_the_next_call_what_was_lost():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)
        project = f"{place}/project"
        os.mkdir(project, 0o755)
        async with connected(SESSION_IDLE_TIMEOUT="1", PROJECT_DIR=project) as run:
            sleeper = Sleeper()
            exited(await run("shell", f"x=42; {sleeper.code} &"))
            process = await asyncio.to_thread(sleeper.started)
            os.rename(project, f"{place}/elsewhere")
            assert_dies(process)
            assert (await run("shell", "true")).startswith("sandbox error (host)")
            os.rename(f"{place}/elsewhere", project)
            text = await run("shell", "echo ${x-gone}")
            assert text.startswith("gone\n") and f"{ANEW} (it was not used for 1 s)" in text, text


async def test_a_session_has_a_longest_life_whether_it_is_used_or_not():
    async with connected(SESSION_MAX_LIFETIME="2") as run:
        exited(await run("shell", "x=42"))
        deadline = time.monotonic() + 30
        text = "42\n"
        while text.startswith("42\n"):
            assert time.monotonic() < deadline, "it lives"
            await asyncio.sleep(0.3)
            text = await run("shell", "echo ${x-gone}")
        assert text.startswith("gone\n") and f"{ANEW} (it had lived for 2 s)" in text, text


def test_sessions_opened_at_once_meet_the_cap_too():
    with Server(VERSIONS[2]) as server:
        for n in range(25):
            server.start(n, "echo 42; sleep 0.1", session=f"n{n}")
        texts = [text_of(server.receive()) for _ in range(25)]
        assert sum(text.startswith("42\n[exit 0") for text in texts) == 16, texts
        assert sum(text.startswith("there are already 16 sessions") for text in texts) == 9, texts


async def test_a_name_whose_session_has_ended_may_be_anothers():
    async with connected() as run:
        await run("shell", "exit 3")
        assert exited(await run("python", "print(42)")) == "42"


# --- Nothing is left


def descendants(pid):
    """Descriptors of all processes below `pid`."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it has gone
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    descriptors = []
    for child in found:
        try:
            descriptors.append(os.pidfd_open(child))
        except ProcessLookupError:
            pass
    return descriptors


STUCK = "trap '' INT TERM HUP; sleep 1000 & while :; do :; done"


def leaves_nothing(end):
    with Server(VERSIONS[2]) as server:
        for n in range(4):
            server.run(n, "sleep 1000 & disown; setsid sleep 1000 &", session=f"n{n}")
        server.start(8, STUCK, session="stuck", timeout=600)
        server.start(9, "echo queued", session="stuck")
        sleeper = Sleeper()
        server.start(10, f"{sleeper.code} & {STUCK}", session="n1", timeout=600)
        os.close(sleeper.started())
        all = descendants(server.process.pid)
        assert len(all) > 10, len(all)
        end(server)
        deadline = time.monotonic() + 10
        for process in all:
            ready, _, _ = select.select([process], [], [], max(0, deadline - time.monotonic()))
            os.close(process)
            assert ready, "a process is left"


def test_after_the_client_leaves_also_with_a_stuck_session_no_process_is_left():
    leaves_nothing(Server.hang_up)


def test_after_a_signal_no_process_is_left():
    leaves_nothing(lambda server: server.process.terminate())


def test_after_a_kill_no_process_is_left():
    leaves_nothing(lambda server: server.process.kill())


# --- Progress, structure, audit


async def test_progress_tells_the_seconds_and_the_newest_line():
    for session in ["s", None]:
        async with connected() as run:
            told = []

            async def progress(seconds, total, message):
                told.append((seconds, message))

            code = "for i in 1 2 3 4 5 6; do echo line $i; sleep 1; done; printf '\\033[2Jx'"
            arguments = {"env": "shell", "code": code}
            if session:
                arguments["session"] = session
            result = await run.client.call_tool("run", arguments, progress_callback=progress)
            assert result.content[0].text.startswith("line 1\n"), result
            assert 1 <= len(told) <= 3, told
            assert [seconds for seconds, _ in told] == sorted({seconds for seconds, _ in told}), told
            for seconds, message in told:
                assert re.fullmatch(rf"{seconds:.0f} s · line [1-6]", message), told


def test_who_gave_no_token_is_told_nothing():
    with Server(VERSIONS[2]) as server:
        assert server.run(1, "echo a; sleep 3; echo b").startswith("a\nb\n")


async def test_structured_content_is_a_superset_for_those_who_ask():
    async with connected(NIX_SANDBOX_STRUCTURED="1") as run:
        tool = (await run.client.list_tools()).tools[0]
        assert tool.output_schema["type"] == "object"
        result = await run.result("shell", "echo out; echo err >&2; (exit 3)")
        content = result.structured_content
        assert (content["stdout"], content["stderr"]) == ("out\n", "err\n"), content
        assert content["ending"] == {"kind": "exited", "code": 3}
        assert content["session"] == {"name": "s", "kept": True, "restarted": None}
        assert content["trailer"] == split(result.content[0].text)[1]
        assert content["usage"]["wall_us"] > 0
        result = await run.result("shell", "", session="a b")
        assert result.structured_content["fault"] == "caller", result


# --- The predecessor's defects: Python


async def test_P_rows_that_leave_the_session_alive():
    await rows("python", [
        ("P1", "import subprocess, os, sys", "", 0),
        ("P1", "subprocess.run(['echo', 'hi']); None", "hi", 0),
        ("P1", "os.system('echo hi'); None", "hi", 0),
        ("P1", "os.write(1, b'AAAA'); None", "AAAA", 0),
        ("P1", "print('right')", "right", 0),
        ("P3", "input()", lambda text: "EOFError" in text, 1),
        ("P3", "sys.stdin.read()", "''", 0),
        ("P5", "raise KeyboardInterrupt()", lambda text: "KeyboardInterrupt" in text, None),
        ("P5", "class Odd(BaseException): pass\nraise Odd('x')", lambda text: "Odd: x" in text, 1),
        ("P6", "sys.exit(3)", "", 3),
        ("P6", "sys.exit('fatal msg')", "--- stderr ---\nfatal msg", 1),
        ("P6", "sys.exit()", "", 0),
        ("P6", "sys.exit(None)", "", 0),
        ("P7", "x = 41\nx + 1", "42", 0),
        ("P7", "_", "42", 0),
        ("P8", "if __name__ == '__main__': print('main')", "main", 0),
        ("P8", "import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))) is C", "True", 0),
        ("P8", "def f(n): return n * n\nimport multiprocessing as m\nwith m.Pool(2) as p: print(p.map(f, [1, 2]))",
         "[1, 4]", 0),
        ("P9", "def g():\n    return 1 / 0\ng()",
         lambda text: "return 1 / 0" in text and "agent.py" not in text and "<cell" in text, 1),
        ("P10", "sys.stdout.buffer.write(b'raw\\n'); None", "raw", 0),
        ("P11", "import logging; logging.warning('one')", "--- stderr ---\nWARNING:root:one", 0),
        ("P11", "logging.warning('two')", "--- stderr ---\nWARNING:root:two", 0),
        ("P12", "print('\\udcff')", "\\udcff", 0),
        ("P13", "import asyncio\nawait asyncio.sleep(0.01)\nprint(await asyncio.sleep(0, 7))", "7", 0),
    ])


async def test_P2_after_a_time_out_results_belong_to_their_calls():
    async with connected() as run:
        text = await run("python", "import time; time.sleep(8); print('OLD')", timeout=1)
        assert text.startswith("--- stderr ---") or text.startswith("[timed out"), text
        for n in (1, 2):
            assert exited(await run("python", f"print('NEW {n}')")) == f"NEW {n}"


async def test_a_program_in_the_interpreter_s_place_takes_its_time():
    async with connected() as run:
        code = "import os, shutil; os.execv(shutil.which('sleep'), ['sleep', '2.5'])"
        text = await run("python", code, timeout=60)
        assert text.startswith("[exit 0" + LOST), text
        text = await run("shell", "exec sleep 60", timeout=0.5)
        assert text.startswith("[timed out after 0.5 s" + LOST), text


# Writes to one of its descriptors as fast as can be, from a process of its own.
SPIN = """
import ctypes, fcntl, os
def spin(to, what):
    end, pipe = os.pipe()
    for one in (pipe, to): fcntl.fcntl(one, 1031, 1 << 20)
    for _ in range(256): os.write(pipe, what)
    if os.fork() == 0:
        os.setsid()
        while True: ctypes.CDLL(None).tee(end, to, 1 << 20, 0)
"""


async def test_who_says_without_end_that_it_ends_does_not_go_on():
    flood = SPIN + """
import sys
frame = sys._getframe()
while "nonce" not in frame.f_locals: frame = frame.f_back
line = f"end {frame.f_locals['ident']} {frame.f_locals['nonce']} 0\\n".encode()
spin(os.dup(frame.f_locals["self"].wire.replies), line * (4096 // len(line)))
while True: pass
"""
    async with connected() as run:
        text = await run("python", flood, timeout=60)
        assert text.startswith("[ended: code answered in the place of its interpreter" + LOST), text
        assert (await run("python", "40 + 2")).startswith("42\n")


async def test_what_is_written_without_end_delays_no_answer():
    async with connected() as run:
        await run("python", SPIN + "spin(1, b'x' * 4096)", timeout=5)
        for _ in range(5):
            result = await run.result("python", "1", timeout=5)
            facts = result.meta["nix-sandbox-mcp/outcome"]
            kind, written = facts["ending"]["kind"], facts["bytes"]["stdout"]
            assert kind == "output_limit" or written <= 64 << 20, (kind, written)


async def test_P4_a_forged_result_is_not_taken_for_a_result():
    async with connected() as run:
        text = await run("python", "import sys; sys.modules['__main__'].send_message({'output': 'FORGED'})")
        assert "AttributeError" in text, text
        assert exited(await run("python", "print('right')")) == "right"


async def test_P5_rows_that_end_the_interpreter():
    await endings("python", "x = 42", "print('here' if 'x' in globals() else 'gone')", [
        ("P5", "import os; os._exit(7)", "exit 7"),
        ("P5", "import os; os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("P5", "import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("P5", "import ctypes; ctypes.string_at(0)", "killed by SIGSEGV"),
    ])


async def test_P15_memory_is_limited_and_its_lack_is_named():
    with tempfile.TemporaryDirectory() as directory:
        settings = f"{directory}/settings.toml"
        with open(settings, "w", encoding="utf-8") as file:
            file.write('[limits]\nmemory = "64M"\n')
        async with connected(NIX_SANDBOX_CONFIG=settings) as run:
            assert "Memory: 64 MiB" in (await run.client.list_tools()).tools[0].description
            for session in ["s", None]:
                text = await run("python", "x = bytearray(300 << 20)\nimport time; time.sleep(20)", session=session)
                assert split(text)[1].startswith("[out of memory · "), text
            text = await run("python", "print('x' in globals())")
            assert text.startswith("False\n") and f"{ANEW} (out of memory)" in text, text


async def test_P14_a_thread_that_prints_after_its_call_is_labelled():
    await late("python", "import threading; threading.Timer(0.2, lambda: print('LATE')).start()", "print('now')")


async def late(env, code, now):
    async with connected() as run:
        exited(await run(env, code))
        await asyncio.sleep(1)
        body = exited(await run(env, now))
        assert body == f"{LATE}LATE\n--- this call ---\nnow", body
        assert exited(await run(env, now)) == "now"


# --- The predecessor's defects: Bash


async def test_B_rows_that_leave_the_session_alive():
    await rows("shell", [
        ("B1", "head -c 100000 /dev/zero | tr '\\0' x >&2", lambda text: "of 100000 bytes left out" in text, 0),
        ("B1", "for i in $(seq 3000); do echo warning $i >&2; done", lambda text: text.endswith("warning 3000"), 0),
        ("B2", "read x; echo \"got $x\"", "got ", 0),
        ("B3", "cat", "", 0),
        ("B5", "echo 'unclosed", lambda text: "unexpected EOF" in text, None),
        ("B5", "cat <<X\nno end", lambda text: "no end" in text, None),
        ("B5", "if", lambda text: "syntax error" in text, None),
        ("B6", "printf abc", "abc", 0),
        ("B6", "printf 'x\\ny'", "x\ny", 0),
        ("B7", "echo(){ :; }", "", 0),
        ("B7", "echo silent; printf after", "after", 0),
        ("B7", "unset -f echo", "", 0),
        ("B7", "alias printf=false; true", "", 0),
        ("B7", "printf before", "", 1),
        ("B7", "unalias printf", "", 0),
        ("B7", "printf after", "after", 0),
        ("B8", "set -x; echo traced; set +x", lambda text: "traced" in text and not re.search("[0-9a-f]{32}", text), 0),
        ("B8", "set -v; echo seen; set +v", lambda text: "seen" in text and not re.search("[0-9a-f]{32}", text), 0),
        ("B8", "echo clean", "clean", 0),
        ("state", "x=1; f() { echo f $x; }; cd /tmp; shopt -s nullglob", "", 0),
        ("state", "f; pwd; shopt nullglob", "f 1\n/tmp\nnullglob       \ton", 0),
        ("status", "false", "", 1),
        ("status", "(exit 3)", "", 3),
    ])


async def test_B4_rows_that_end_the_shell():
    await endings("shell", "x=42", "echo ${x-gone}", [
        ("B4", "exit 3", "exit 3"),
        ("B4", "exit", "exit 0"),
        ("B4", "set -e; false", "exit 1"),
        ("B4", "exec true", "exit 0"),
        ("B4", "kill -9 $$", "killed by SIGKILL"),
    ])


async def test_B9_late_output_of_a_job_is_labelled():
    await late("shell", "(sleep 0.2; echo LATE) &", "echo now")


async def test_B9_after_a_time_out_results_belong_to_their_calls():
    async with connected() as run:
        await run("shell", "sleep 8; echo OLD", timeout=1)
        for n in (1, 2):
            assert exited(await run("shell", f"echo NEW {n}")) == f"NEW {n}"


async def test_B10_a_closed_stdout_is_not_mixed_up():
    async with connected() as run:
        await run("shell", "exec 1>&-; echo lost")
        assert exited(await run("shell", "echo seen >&2")) == "--- stderr ---\nseen"


# --- The predecessor's defects: Node


async def test_N_rows_that_leave_the_session_alive():
    await rows("node", [
        ("N1", "throw new Error('boom')", lambda text: "Error: boom" in text and "at " in text, 1),
        ("N1", "let a = ", lambda text: "SyntaxError" in text, 1),
        ("N1", "let a = 1", "", 0),
        ("N1", "let a = 2; console.log(a)", "2", 0),
        ("N2", "console.log([3, 1, 2]\n  .map(x => x * 2)\n  .sort()\n  .join())", "2,4,6", 0),
        ("N2", "if (false) {}\nelse { console.log('else') }", "else", 0),
        ("N3", "console.log('a'", lambda text: "SyntaxError" in text, 1),
        ("N4", "const v = await Promise.resolve(7);\nconsole.log(v)", "7", 0),
        ("N4", "await new Promise(r => setTimeout(r, 300)); console.log('after')", "after", 0),
        ("N7", "console.error('Uncaught is just a word')", "--- stderr ---\nUncaught is just a word", 0),
        ("N8", "process.stdout.write('abc'); undefined", "abc", 0),
        ("N9", "import fs from 'fs'\nconsole.log(typeof fs.readFileSync)", "function", 0),
        ("N10", "({a: 1})", "{ a: 1 }", 0),
        ("N10", "`\n.exit\n`", lambda text: ".exit" in text, 0),
        ("N10", "console.log('clean')", "clean", 0),
    ])


async def test_N5_late_output_is_labelled_and_no_failure_of_the_next_call():
    await late("node", "setTimeout(() => console.log('LATE'), 200); undefined", "console.log('now')")


async def test_N6_process_exit_tells_its_code():
    await endings("node", "x = 42", "console.log(typeof x === 'undefined' ? 'gone' : 'here')", [
        ("N6", "process.exit(4)", "exit 4"),
        ("N6", "process.exit()", "exit 0"),
        ("N6", "process.abort()", "killed by SIGABRT"),
    ])


# --- The predecessor's defects: without a session, and the server


async def test_E_rows():
    async with connected() as run:
        for row, env, code, wanted, trailer in [
            ("E1", "shell", "exit 3", "", "exit 3"),
            ("E1", "shell", "kill -9 $$", "", "killed by SIGKILL"),
            ("E3", "shell", "cat\necho SECOND LINE", "SECOND LINE", "exit 0"),
            ("E4", "python", f"x = '{'y' * 200_000}'\nprint(len(x))", "200000", "exit 0"),
            ("E4", "node", f"const x = '{'y' * 200_000}'\nconsole.log(x.length)", "200000", "exit 0"),
            ("E5", "python", "print(len('''a\n\n\n'''))\n\n\n", "4", "exit 0"),
            ("E8", "shell", "printf 'a\\377\\033[31m'", "a\ufffd\\x1b[31m", "exit 0"),
        ]:
            body, told = split(await run(env, code, session=None))
            assert body == wanted and told.startswith(f"[{trailer} · "), (row, body, told)


async def test_an_input_that_is_at_its_end_and_both_outputs_can_be_opened():
    codes = {
        "shell": "cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr",
        "python": "print(open('/dev/stdin').read(), end='')\nfor name in 'out', 'err':\n"
        "    with open('/dev/std' + name, 'w') as file: print(name, file=file)",
        "node": "const fs = require('fs')\nprocess.stdout.write(fs.readFileSync('/dev/stdin', 'utf8'))\n"
        "for (const name of ['out', 'err']) fs.writeFileSync('/dev/std' + name, name + '\\n')",
    }
    async with connected() as run:
        for env, code in codes.items():
            for session in None, env:
                body, trailer = split(await run(env, code, session=session))
                assert body == "out\n--- stderr ---\nerr" and trailer.startswith("[exit 0"), (env, session, body)


async def test_E2_a_time_out_gives_what_was_written_without_a_session_too():
    async with connected() as run:
        text = await run("shell", "echo partial; sleep 30", session=None, timeout=1)
        assert text.startswith("partial\n[timed out after 1 s · "), text


async def test_E6_and_E7_yes_is_stopped_and_little_of_it_reaches_the_model():
    for session in ["s", None]:
        with Server(VERSIONS[2]) as server:
            more = {"session": session} if session else {}
            text = server.run(1, "yes", timeout=25, **more)
            assert len(text) < 9000 and "[stopped: wrote more than 67108864 bytes" in text, text[-200:]
            with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
                peak = int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1])
            assert peak < 150_000, f"{peak} kB"


async def test_D6_a_misspelt_session_is_advice_and_not_lost_state():
    async with connected() as run:
        result = await run.client.call_tool("run", {"env": "shell", "code": "x=1", "sesion": "a"})
        assert result.is_error and "code, env, session and timeout" in result.content[0].text, result


async def test_D9_the_words_are_true():
    async with connected() as run:
        tool = (await run.client.list_tools()).tools[0]
        assert "/project" not in tool.description and "install" not in tool.description
        text = await run("shell", "ls -d /project 2>/dev/null; touch /workspace/a /tmp/b && echo ok", session=None)
        assert exited(text) == "ok"
        assert exited(await run("shell", "true")) == ""


async def test_D12_the_agent_leaves_nothing_in_the_workspace():
    async with connected() as run:
        for env, code in [
            ("shell", "ls -A /workspace"),
            ("python", "import os; print(*os.listdir('/workspace'), sep='')"),
            ("node", "console.log(require('fs').readdirSync('/workspace').join())"),
        ]:
            assert exited(await run(env, code, session=env)) == "", env


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
