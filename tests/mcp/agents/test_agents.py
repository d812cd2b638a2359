"""What the models of real coding agents are told of our tool, and what they see of its results.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp tests/mcp/agents/run [DIRECTORY] [test…]

installs the agents and runs this with SANDBOX_AGENTS=DIRECTORY. The model is a script on 127.0.0.1;
the keys are dummies; the agents have a home directory of their own, which is gone afterwards. Where
the `python` environment has no matplotlib, SANDBOX_MATPLOTLIB can name a directory that has it
(`pip install --target DIRECTORY matplotlib`): it is shown as the project.
"""

import functools
import hashlib
import json
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import harness
from harness import Lacks
from test_raw import Server

from agents import Claude, ClaudeThatSearches, Codex, Conversation
from model import LAST, SERVER_NAME, Call

# What our server is given, by the agents and by us.
SETTINGS = {}
os.environ.pop("PROJECT_DIR", None)
if project := os.environ.get("SANDBOX_MATPLOTLIB"):
    os.environ["PROJECT_DIR"] = SETTINGS["PROJECT_DIR"] = project

FULL_NAME = f"mcp__{SERVER_NAME}__run"

# Seconds that a figure may take: the first one makes a cache of the fonts.
FIGURE = 100

# Writes a picture with nothing but Python's own, and prints what it is.
PICTURE = r"""
import hashlib, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
data += chunk(b"IDAT", zlib.compress(b"\0abc")) + chunk(b"IEND", b"")
open("dot.png", "wb").write(data)
print(hashlib.sha256(data).hexdigest())
"""

DRAWING = """
import sys; sys.path.append('/project')
import matplotlib.pyplot as plt
plt.plot([1, 4, 9])
plt.show()
"""


def call(env, code, **arguments):
    return Call({"env": env, "code": code, **arguments})


# Turn by turn, what the model does. One turn has two calls.
SCRIPT = {
    "failing": call("shell", "echo out; echo err >&2; exit 3"),
    "killed": call("shell", "kill -9 $$"),
    "silent": call("shell", "true"),
    "state": call("python", "x = 41", session="a"),
    "state again": call("python", "x + 1", session="a"),
    "picture": call("python", PICTURE),
    "figure": call("python", DRAWING, session="b", timeout=FIGURE),
    "outputs": call("shell", "test -d /outputs && echo yes"),
    "long": call("shell", "head -c 200000 /dev/zero | tr '\\0' x"),
    "rest": lambda agent, results: call("shell", f"wc -c < {place(agent.result(results[-1]).text)}"),
    "resource": lambda agent, results: Call(
        {"server": SERVER_NAME, "uri": f"sandbox:/{place(agent.result(results[-2]).text)}"}, agent.reader
    ),
    "stuck": call("python", "y = 7\nwhile True: pass", session="a", timeout=1),
    "after stuck": call("python", "x, y", session="a"),
    "unknown": call("ruby", "puts 1"),
    "wrong": Call({"env": "shell", "code": "true", "language": "bash"}),
    "escapes": call("shell", "printf '\\033[31mred\\033[0m \\377'"),
    ("first", "second"): [
        call("shell", "sleep 1; echo one >>/workspace/order", session="o"),
        call("shell", "echo two >>/workspace/order; cat /workspace/order", session="o"),
    ],
}
AGENTS = [Claude, Codex]

# The agents' own limit of a call in one test, in seconds.
SHORT = 3


@functools.cache
def told():
    """The tool and the instructions as our server gives them."""
    with Server() as server:
        client = {"name": "test", "version": "1"}
        answer = server.ask(
            0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client
        )
        server.notify("notifications/initialized")
        (tool,) = server.ask(1, "tools/list")["result"]["tools"]
        return tool, answer["result"]["instructions"]


def place(text):
    """Where the answer says that the rest of a long output lies."""
    found = re.search(r"bytes left out: (/outputs/\S+) …\]", text)
    return found[1] if found else "/nowhere"


def installed(agent):
    if not agent.installed():
        raise Lacks(agent.program)
    return agent


@functools.cache
def attempt(kind):
    try:
        return converse(kind)
    except Exception as error:
        return error


def conversation(kind):
    """The agent, the conversation, and its results by their names. There is one; if it failed, all fail."""
    held = attempt(kind)
    if isinstance(held, Exception):
        raise held
    return held


def converse(kind):
    agent = installed(kind)(SETTINGS, patience=FIGURE + 50)
    turns = [functools.partial(turn, agent) if callable(turn) else turn for turn in SCRIPT.values()]
    names = [name for key in SCRIPT for name in (key if isinstance(key, tuple) else (key,))]
    held = Conversation(agent, turns)
    return agent, held, dict(zip(names, held.results))


def result(kind, name):
    """One result of the one long conversation."""
    results = conversation(kind)[2]
    assert name in results, f"it ended before: {conversation(kind)[1].said[-2000:]}"
    code = SCRIPT.get(name)
    env = code.arguments["env"] if isinstance(code, Call) else "shell"
    environments = told()[0]["inputSchema"]["properties"]["env"].get("enum", [])
    if env not in environments and name != "unknown":
        raise Lacks(env)
    return results[name]


def split(text):
    """What was written, and the trailer."""
    body, _, trailer = text.rpartition("\n")
    assert trailer.startswith("[") and trailer.endswith("]"), text[-500:]
    return body, trailer


def exited(text, code=0, more=""):
    body, trailer = split(text)
    assert re.fullmatch(rf"\[exit {code} · [\d.]+ s( · \d+ MB)?{re.escape(more)}\]", trailer), text[-500:]
    return body


def of_each(*kinds):
    """The test, once for each agent."""

    def add(test):
        for kind in kinds or AGENTS:
            name = f"test_{kind.program}_{test.__name__}"
            globals()[name] = functools.partial(test, kind)
        return test

    return add


@of_each()
def ends_well_and_leaves_nothing(kind):
    _, held, results = conversation(kind)
    assert held.status == 0 and LAST in held.said, (held.status, held.said[-2000:])
    assert held.left == []
    assert len(held.results) == len(results) == len(SCRIPT) + 1
    assert len(held.requests) == len(SCRIPT) + 1


@of_each()
def is_told_the_tool_as_the_server_gives_it(kind):
    agent, held, _ = conversation(kind)
    tool, _ = told()
    name, description, schema, rest = agent.tool(held.requests[0])
    assert name == FULL_NAME
    assert description == tool["description"]
    assert schema == tool["inputSchema"]
    assert not re.search(r'"(\$schema|title|nullable|default|outputSchema|\$defs)"', json.dumps(schema))
    assert rest in ({}, {"type": "function", "strict": False}), rest
    # The same in every turn, or the prompt is paid for anew.
    assert all(agent.tool(request)[:3] == (name, description, schema) for request in held.requests)


@of_each()
def is_told_the_instructions(kind):
    agent, held, _ = conversation(kind)
    _, instructions = told()
    text = agent.instructions(held.requests[0])
    assert text == instructions if kind is Codex else f"## {SERVER_NAME}\n{instructions}\n" in text, text


@of_each()
def sees_how_a_failing_call_ended(kind):
    seen = result(kind, "failing")
    assert exited(seen.text, 3) == "out\n--- stderr ---\nerr"
    assert seen.failed in (True, None)
    seen = result(kind, "killed")
    assert re.fullmatch(r"\[(killed by SIGKILL|SIGKILL|signal 9)[^\n]*\]", split(seen.text)[1]), seen.text


@of_each()
def sees_that_a_silent_call_went_well(kind):
    seen = result(kind, "silent")
    assert exited(seen.text) == "" and not seen.failed


@of_each()
def keeps_state_across_two_calls(kind):
    assert exited(result(kind, "state").text) == ""
    assert exited(result(kind, "state again").text) == "42"


@of_each()
def sees_a_picture(kind):
    seen = result(kind, "picture")
    digest = exited(seen.text, more=" · 1 image: dot.png")
    assert [kind for kind, _ in seen.images] == ["image/png"]
    assert hashlib.sha256(seen.images[0][1]).hexdigest() == digest


@of_each()
def sees_a_figure_of_matplotlib(kind):
    seen = result(kind, "figure")
    if "No module named 'matplotlib'" in seen.text:
        raise Lacks("matplotlib")
    exited(seen.text, more=" · 1 image: figure-1.png")
    assert [kind for kind, _ in seen.images] == ["image/png"]
    assert seen.images[0][1].startswith(b"\x89PNG") and len(seen.images[0][1]) > 1000


@of_each()
def sees_long_output_short_and_where_the_rest_lies(kind):
    outputs = result(kind, "outputs").text.startswith("yes")
    text = result(kind, "long").text
    body = exited(text)
    found = re.fullmatch(r"(x+)\n\[… (\d+) of 200000 bytes left out(: /outputs/\d+\.stdout)? …\]\n(x+)", body)
    assert found, text[:200] + text[-200:]
    assert len(found[1]) + int(found[2]) + len(found[4]) == 200_000
    assert len(text) < 9000 and "persisted-output" not in text and "truncated" not in text
    if not outputs:
        raise Lacks("outputs")
    assert found[3]
    assert exited(result(kind, "rest").text) == "200000"


@of_each()
def reads_long_output_as_a_resource(kind):
    if not place(result(kind, "long").text).startswith("/outputs/"):
        raise Lacks("outputs")
    # The agent has a limit of its own, and cuts.
    text = result(kind, "resource").text
    assert re.search(r'"uri": ?"sandbox://outputs/\d+\.stdout"', text) and "x" * 1000 in text, text[:500]


@of_each()
def sees_that_a_timeout_kept_the_state(kind):
    seen = result(kind, "stuck")
    assert re.match(r"\[timed out after 1 s · state kept · [\d.]+ s", split(seen.text)[1]), seen.text
    assert seen.failed in (True, None)
    assert exited(result(kind, "after stuck").text) == "(41, 7)"


@of_each()
def sees_what_a_wrong_call_should_have_been(kind):
    tool, _ = told()
    seen = result(kind, "unknown")
    assert seen.text.startswith('there is no environment "ruby"; the environments are '), seen.text
    assert all(env in seen.text for env in tool["inputSchema"]["properties"]["env"]["enum"])
    assert seen.failed in (True, None)
    seen = result(kind, "wrong")
    assert "language" in seen.text and "session" in seen.text and "timeout" in seen.text, seen.text


@of_each()
def sees_no_terminal_escapes(kind):
    text = exited(result(kind, "escapes").text, more=" · invalid UTF-8 replaced")
    assert text == r"\x1b[31mred\x1b[0m �", text


@of_each()
def has_two_calls_of_one_session_answered_in_order(kind):
    assert exited(result(kind, "first").text) == ""
    assert exited(result(kind, "second").text) == "one\ntwo"


@of_each()
def goes_on_in_a_session_after_its_own_time_limit(kind):
    """The agent gives up and cancels: the run is interrupted, the state lives on."""
    agent = installed(kind)(SETTINGS, patience=SHORT)
    script = [
        call("shell", "x=41", session="a"),
        call("shell", "sleep 60; x=gone", session="a", timeout=90),
        call("shell", "echo $x", session="a"),
    ]
    held = Conversation(agent, script)
    first, late, last = held.results
    assert exited(first.text) == ""
    # Its own words: ours were not waited for.
    assert "timed out" in late.text and "[" not in late.text, late.text
    body, _ = split(last.text)
    assert body.endswith("41"), last.text
    assert held.status == 0 and held.left == [], (held.said, held.left)


@of_each()
def leaves_nothing_where_it_is_killed(kind):
    """Amid a call of a session that hears no signal. What no signal of ours meets has to end by itself."""
    agent = installed(kind)(SETTINGS)
    script = [call("shell", "trap '' HUP INT TERM; sleep 311; sleep 312", session="a", timeout=500)]
    held = Conversation(agent, script, killed_after=5)
    assert any("sleep 311" in line for line in held.before), held.before
    assert held.left == [], held.left


@of_each(ClaudeThatSearches)
def as_it_comes_is_told_the_name_and_finds_the_tool(kind):
    """It keeps tools back: until it searches, the model knows the name and the instructions."""
    agent = installed(kind)(SETTINGS)
    script = [Call({"query": f"select:{FULL_NAME}"}, "ToolSearch"), call("shell", "echo $((6 * 7))")]
    held = Conversation(agent, script)
    tool, instructions = told()
    first = json.dumps(held.requests[0], ensure_ascii=False)
    assert FULL_NAME in first
    assert f"## {SERVER_NAME}\n{instructions}\n" in agent.instructions(held.requests[0])
    # Unless the server asks for more.
    always = tool.get("_meta", {}).get("anthropic/alwaysLoad", False)
    assert (tool["description"] in first) == always
    second = json.dumps(held.requests[1], ensure_ascii=False)
    assert tool["description"] in second
    assert exited(held.results[1].text) == "42"


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
