"""What the operator gets: the audit log, and logs that give no orders to a terminal.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_operator.py [test…]

needs nothing but the standard library.
"""

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

import harness
from harness import SERVER
from test_raw import PATIENCE, VERSIONS, Server

# A name that would clear the screen, forge a line and hide what follows.
EVIL = "evil\x1b[2J\n2026 ERROR forged\u009b31m\u202e"


def program(*words, input=b"", **settings):
    """Runs the program to its end."""
    return subprocess.run(
        [SERVER, *words], env={**os.environ, **settings}, input=input, capture_output=True, timeout=PATIENCE, check=False
    )


def serving(version=VERSIONS[2], **settings):
    """A server with these settings; without a version no hands are shaken."""
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        return Server(version)
    finally:
        os.environ.clear()
        os.environ.update(before)


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def sha256(code):
    return hashlib.sha256(code.encode()).hexdigest()


def test_every_run_leaves_a_line_whichever_way_it_came():
    with tempfile.TemporaryDirectory() as directory:
        audit = f"{directory}/audit.jsonl"
        with serving(NIX_SANDBOX_AUDIT=audit) as server:
            server.run(1, "echo SECRET")
            server.run(2, "exit 3", session="s")
            server.run(3, "sleep 60", session="s", timeout=0.5)
        assert program("run", "--env", "shell", input=b"echo 42", NIX_SANDBOX_AUDIT=audit).stdout == b"42\n"
        assert program("exec", "--", "sh", "-c", "exit 7", NIX_SANDBOX_AUDIT=audit).returncode == 7
        assert program("run", "--env", "cobol", input=b"1", NIX_SANDBOX_AUDIT=audit).returncode == 125
        assert os.stat(audit).st_mode & 0o777 == 0o600
        with open(audit, encoding="utf-8") as file:
            assert "SECRET" not in file.read()
        one, two, three, four, five, six = lines(audit)
        assert one["sha256"] == sha256("echo SECRET") and one["work"] == "code", one
        assert one["time"].endswith("Z") and one["environment"] == "shell" and "session" not in one
        assert one["ending"] == {"kind": "exited", "code": 0} and one["usage"]["wall_us"] > 0
        for wall in ["namespaces", "seccomp", "capabilities", "mounts"]:
            assert one["walls"][wall] == "active", one
        assert (two["session"], two["ending"]["code"]) == ("s", 3), two
        assert three["ending"] == {"kind": "timed_out", "after_ms": 500}, three
        assert four["sha256"] == sha256("echo 42"), four
        assert five["work"] == "command" and five["ending"]["code"] == 7, five
        assert five["sha256"] == sha256("sh\0-c\0exit 7\0"), five
        assert "cobol" in six["refused"] and "ending" not in six, six


def test_a_refused_call_leaves_a_line_with_what_is_known_of_it():
    with tempfile.TemporaryDirectory() as directory:
        audit = f"{directory}/audit.jsonl"
        long = "x" * 8388609
        code = {"env": "shell", "code": "SECRET"}
        code_alone = {"work": "code", "sha256": sha256("SECRET")}
        known = {"environment": "shell", **code_alone}
        calls = [
            ({**code, "env": "cobol"}, {**known, "environment": "cobol"}, 'there is no environment "cobol"'),
            ({**code, "session": "../x"}, {**known, "session": "../x"}, '"../x" is no name for a session'),
            ({**code, "code": long}, {**known, "sha256": sha256(long)}, "code is 8388609 bytes long"),
            ({**code, "SECRET": long}, known, 'unknown argument "SECRET"'),
            ({**code, "timeout": -1}, known, "timeout must be a number"),
            ({"code": "SECRET", "session": "s"}, {**code_alone, "session": "s"}, "the argument env is missing"),
            ({**code, "env": EVIL * 100}, {**known, "environment": (EVIL * 100)[:80]}, "there is no environment"),
            ({"env": "shell"}, {"environment": "shell"}, "the argument code is missing"),
            ("SECRET", {}, "the arguments must be a JSON object"),
        ]
        with serving(NIX_SANDBOX_AUDIT=audit) as server:
            for id, (arguments, _, _) in enumerate(calls, 1):
                server.ask(id, "tools/call", name="run", arguments=arguments)
            server.ask(20, "tools/call", name="bash", arguments=code)
            server.send(b'{"jsonrpc": "2.0", "id": 21, "method": "tools/call", "params": "' + b"S" * (16 << 20) + b'"}')
            server.answer(21)
            server.send(b'{"jsonrpc": "2.0", "id": 22, "method": "tools/call", "params": {"x": "\\ud800SECRET"}}')
            server.answer(22)
        with serving(version=None, NIX_SANDBOX_AUDIT=audit) as server:
            server.ask(1, "tools/call", name="run", arguments=code)
        calls += [
            (None, known, 'there is no tool "bash"'),
            (None, {}, "the message is too long"),
            (None, {}, "this is no request of the protocol"),
            (None, known, "send initialize first"),
        ]
        with open(audit, encoding="utf-8") as file:
            text = file.read()
        assert all(c == "\n" or c.isprintable() for c in text)
        assert text.count("SECRET") == 1, "the argument's name, and no code"
        for line, (_, known, reason) in zip(lines(audit), calls, strict=True):
            assert line.pop("time").endswith("Z"), line
            refused = line.pop("refused")
            assert refused.startswith(reason) and len(refused) < 1000, refused
            assert line == known, (line, reason)


def test_a_call_that_is_cancelled_before_its_turn_leaves_a_line():
    with tempfile.TemporaryDirectory() as directory:
        audit = f"{directory}/audit.jsonl"
        with serving(NIX_SANDBOX_AUDIT=audit, NIX_SANDBOX_MAX_RUNS="1") as server:
            server.start(1, "sleep 60", timeout=1)
            server.start(2, "echo 42")
            server.notify("notifications/cancelled", requestId=2)
            server.answer(1)
            assert server.run(3, "true").startswith("[exit 0")
        two, one, three = lines(audit)
        assert two["refused"] == "cancelled before it started" and two["sha256"] == sha256("echo 42"), two
        assert one["ending"]["kind"] == "timed_out" and three["ending"] == {"kind": "exited", "code": 0}


def test_a_call_that_no_thread_is_left_for_is_not_run_later_and_leaves_a_line():
    with tempfile.TemporaryDirectory() as directory:
        audit = f"{directory}/audit.jsonl"
        with serving(NIX_SANDBOX_AUDIT=audit, NIX_SANDBOX_MAX_RUNS="1") as server:
            pid = server.process.pid
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                size = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmSize"))
            # Less than a stack.
            before = resource.prlimit(pid, resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))
            refused = "no thread is left for another run: Resource temporarily unavailable (os error 11)"
            assert server.run(1, "echo 41") == f"sandbox error (host): {refused}"
            resource.prlimit(pid, resource.RLIMIT_AS, before)
            assert server.run(2, "echo 42").startswith("42\n[exit 0")
        one, two = lines(audit)
        assert (one["refused"], one["sha256"]) == (refused, sha256("echo 41")), one
        assert (two["ending"], two["sha256"]) == ({"kind": "exited", "code": 0}, sha256("echo 42")), two


def test_an_interpreter_that_is_passed_over_is_told_at_the_start_and_in_envs():
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    # A sandbox makes /tmp itself.
    for place, project, why in [
        ("/var/tmp", True, "lies in the project, which must not supply the interpreter"),
        ("/tmp", False, "lies at /tmp, which a sandbox makes itself"),
    ]:
        with tempfile.TemporaryDirectory(dir=place) as directory:
            venv = f"{directory}/.venv"
            os.makedirs(f"{venv}/bin")
            os.symlink(python, f"{venv}/bin/python3")
            with open(f"{venv}/pyvenv.cfg", "w", encoding="utf-8") as file:
                file.write("home = /usr/bin\n")
            settings = {"PATH": f"{venv}/bin:/usr/bin:/usr/local/bin:/bin", "VIRTUAL_ENV": venv}
            settings |= {"PROJECT_DIR": directory} if project else {}
            at = f"{venv}/bin/python3" if project else venv
            envs = json.loads(program("envs", "--json", **settings).stdout)
            if not any(env["name"] == "python" and env.get("origin") == {"kind": "host"} for env in envs):
                raise harness.Lacks("host-python")
            (told,) = program("--stdio", **settings).stderr.decode().splitlines()
            assert told.endswith(f'interpreter passed over environment="python" reason="{at} {why}"'), told
            notes = {env["name"]: env["passed_over"] for env in envs if env["available"]}
            assert notes.pop("python") == [f"{at} {why}"] and not any(notes.values()), notes
            rows = program("envs", **settings).stdout.decode().splitlines()
            (row,) = [row for row in rows if row.endswith(f"; not used: {at} {why}")]
            assert row.startswith("python "), rows
            ran = program("run", "--env", "python", input=b"import sys; print(sys.prefix)", **settings)
            assert ran.stdout.decode().startswith("/usr"), ran


def test_code_and_output_are_kept_only_for_those_who_ask():
    with tempfile.TemporaryDirectory() as directory:
        audit = f"{directory}/audit"
        code = "printf '\\033[2J\u009b'"
        with serving(NIX_SANDBOX_AUDIT=f"{audit},code,output") as server:
            server.run(1, code)
        with open(audit, encoding="utf-8") as file:
            assert all(c == "\n" or c.isprintable() for c in file.read())
        (line,) = lines(audit)
        assert (line["code"], line["stdout"], line["stderr"]) == (code, "\x1b[2J\u009b", ""), line


def test_an_audit_log_that_cannot_be_written_is_refused_at_the_start():
    for file, words in [("/no/such/audit", "No such file"), ("/dev/full", "not a regular file"), ("audit", "absolute")]:
        for command in [["--stdio"], ["exec", "--", "true"]]:
            ran = program(*command, NIX_SANDBOX_AUDIT=file)
            assert ran.returncode == 125 and ran.stdout == b"", ran
            said = ran.stderr.decode()
            assert "NIX_SANDBOX_AUDIT" in said and words in said and said.count("\n") == 1, said


def test_a_line_that_cannot_be_written_is_logged_and_loses_no_result():
    with tempfile.NamedTemporaryFile() as audit:
        audit.truncate(1 << 20)

        def full():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        ran = subprocess.run(
            [SERVER, "exec", "--", "echo", "42"],
            env={**os.environ, "NIX_SANDBOX_AUDIT": audit.name},
            preexec_fn=full,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (ran.returncode, ran.stdout) == (0, b"42\n"), ran
        assert b"the audit log misses a run" in ran.stderr, ran


def test_TTY_10_control_bytes_in_logged_text_are_escaped():
    with tempfile.TemporaryDirectory() as directory:
        os.makedirs(f"{directory}/{EVIL}")
        with open(f"{directory}/{EVIL}/metadata.json", "w", encoding="utf-8") as file:
            file.write("{}")
        plain = program("--stdio", NIX_SANDBOX_DIR=directory).stderr.decode()
        assert "evil" in plain and plain.count("\n") == 1, plain
        assert all(c == "\n" or c.isprintable() for c in plain), ascii(plain)
        told = program("--stdio", NIX_SANDBOX_DIR=directory, NIX_SANDBOX_LOG="warn,json").stderr.decode()
        assert all(c == "\n" or c.isprintable() for c in told), ascii(told)
        (line,) = told.splitlines()
        assert "evil" in json.loads(line)["fields"]["path"], line


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
