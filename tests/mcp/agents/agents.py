"""Coding agents that run one conversation with a scripted model, with our server as their only one."""

import base64
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from model import SERVER_NAME, Messages, Model, Responses

# Where the two programs are.
AGENTS = Path(os.environ.get("SANDBOX_AGENTS", "target/agents")).absolute()
SERVER = os.environ.get("NIX_SANDBOX_BIN", "")

# Seconds for a whole conversation, and for what should be gone after it.
PATIENCE = 240
GONE = 20

PR_SET_CHILD_SUBREAPER = 36


class Agent:
    """One of the programs. `server` are variables for our server, `patience` its time limit of a call."""

    program = ""
    dialect = None

    # Its own tool that reads a resource of a server.
    reader = ""

    def __init__(self, server={}, patience=None):
        self.server = server
        self.patience = patience

    @classmethod
    def installed(cls):
        return (AGENTS / "node_modules/.bin" / cls.program).exists()

    def configure(self, home, address):
        """Writes its configuration below `home`. The arguments and variables that it needs."""
        raise NotImplementedError

    def tool(self, request):
        """Our tool as a request tells it: name, description, schema, and what else there is."""
        raise NotImplementedError

    def instructions(self, request):
        """The text in which our instructions stand."""
        raise NotImplementedError

    def result(self, block):
        """What the model is given, without what the agent says itself."""
        raise NotImplementedError


class Result:
    def __init__(self, text, images, failed):
        self.text = text
        self.images = images  # kind and bytes
        self.failed = failed  # None where the agent does not tell


class Claude(Agent):
    program = "claude"
    dialect = Messages
    reader = "ReadMcpResourceTool"

    # Whether it keeps tools back until the model searches for them.
    search = "false"

    def configure(self, home, address):
        server = {"command": SERVER, "args": ["--stdio"], "env": self.server}
        servers = home / "servers.json"
        servers.write_text(json.dumps({"mcpServers": {SERVER_NAME: server}}))
        arguments = ["-p", "go", "--mcp-config", f"{servers}", "--strict-mcp-config"]
        arguments += ["--allowedTools", f"mcp__{SERVER_NAME}", "--output-format", "json"]
        variables = {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CONFIG_DIR": f"{home}/configuration",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        if self.search:
            variables["ENABLE_TOOL_SEARCH"] = self.search
        if self.patience:
            variables["MCP_TOOL_TIMEOUT"] = str(self.patience * 1000)
        return arguments, variables

    def tool(self, request):
        tools = [tool for tool in request["tools"] if tool["name"].startswith("mcp__")]
        assert len(tools) == 1, [tool["name"] for tool in request["tools"]]
        rest = dict(tools[0])
        rest.pop("cache_control", None)
        return rest.pop("name"), rest.pop("description"), rest.pop("input_schema"), rest

    def instructions(self, request):
        texts = [
            block["text"]
            for message in request["messages"]
            for block in blocks(message["content"])
            if block["type"] == "text" and "MCP Server Instructions" in block["text"]
        ]
        assert len(texts) == 1, texts
        return texts[0]

    def result(self, block):
        texts, images = [], []
        for part in blocks(block["content"]):
            if part["type"] == "text":
                text = part["text"].partition("<system-reminder>")[0].rstrip("\n")
                if text and not text.startswith("[Image: source: "):
                    texts.append(text)
            elif part["type"] == "tool_reference":
                texts.append(part["tool_name"])
            else:
                assert part["type"] == "image" and part["source"]["type"] == "base64", part
                images.append((part["source"]["media_type"], base64.b64decode(part["source"]["data"])))
        return Result("\n".join(texts), images, block.get("is_error", False))


class ClaudeThatSearches(Claude):
    search = None


class Codex(Agent):
    program = "codex"
    dialect = Responses
    reader = "read_mcp_resource"

    def configure(self, home, address):
        configuration = home / "configuration"
        configuration.mkdir()
        limit = f"tool_timeout_sec = {self.patience}" if self.patience else ""
        variables = "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.server.items())
        (configuration / "config.toml").write_text(f"""\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "scripted"
base_url = "{address}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

[mcp_servers.{SERVER_NAME}]
command = {json.dumps(SERVER)}
args = ["--stdio"]
{limit}

[mcp_servers.{SERVER_NAME}.env]
{variables}
""")
        variables = {"CODEX_HOME": f"{configuration}", "SCRIPTED_KEY": "dummy"}
        return ["exec", "--skip-git-repo-check", "go"], variables

    def space(self, request):
        spaces = [tool for tool in request["tools"] if tool.get("name", "").startswith("mcp__")]
        assert [space["type"] for space in spaces] == ["namespace"], spaces
        return spaces[0]

    def tool(self, request):
        space = self.space(request)
        assert len(space["tools"]) == 1
        rest = dict(space["tools"][0])
        name = f"{space['name']}__{rest.pop('name')}"
        return name, rest.pop("description"), rest.pop("parameters"), rest

    def instructions(self, request):
        return self.space(request)["description"]

    def result(self, block):
        if isinstance(block["output"], str):
            return Result(block["output"], [], None)
        head, *rest = block["output"]
        assert re.fullmatch(r"Wall time: [\d.]+ seconds\nOutput:", head["text"]), head
        texts, images = [], []
        for part in rest:
            if part["type"] == "input_text":
                texts.append(part["text"])
            else:
                assert part["type"] == "input_image", part
                kind, _, data = part["image_url"].removeprefix("data:").partition(";base64,")
                images.append((kind, base64.b64decode(data)))
        return Result("\n".join(texts), images, None)


def blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


class Conversation:
    """One run of an agent. `requests`: what the model was given, turn by turn; `results`, of its calls.

    With `killed_after` seconds, counted from the first turn on, all is killed that can be killed at once."""

    def __init__(self, agent, script, killed_after=None):
        # What the agent leaves behind becomes our child.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        home = tempfile.mkdtemp(prefix="agent.")
        try:
            with Model(script) as model:
                self.run(agent, Path(home), model, killed_after)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def run(self, agent, home, model, killed_after):
        arguments, variables = agent.configure(home, model.address)
        variables |= {
            "PATH": f"{AGENTS}/node_modules/.bin:{os.environ['PATH']}",
            "HOME": f"{home}",
            "TMPDIR": f"{home}",
            "LANG": "C.UTF-8",
            # Whatever wants to reach anything but the model is refused.
            "HTTPS_PROXY": model.address,
            "HTTP_PROXY": model.address,
            "NO_PROXY": "127.0.0.1",
        }
        work = home / "work"
        work.mkdir()
        with open(home / "said", "w+b") as said:
            process = subprocess.Popen(
                [AGENTS / "node_modules/.bin" / agent.program, *arguments],
                cwd=work,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                if killed_after:
                    model.asked.wait(PATIENCE)
                    time.sleep(killed_after)
                    self.before = descendants()
                    os.killpg(process.pid, signal.SIGKILL)
                self.status = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.status = "it did not end"
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait(GONE)
                self.left = end_children()
            said.seek(0)
            self.said = said.read().decode(errors="replace")
        if model.error:
            raise model.error
        assert model.requests, f"the model was not asked; {self.status}: {self.said[-3000:]}"
        self.requests = model.requests
        self.results = [agent.result(block) for block in agent.dialect.results(model.requests[-1])]


def descendants():
    """The command lines of all that came from us."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
    found = []
    for pid in parents:
        parent = pid
        while parent := parents.get(parent):
            if parent == os.getpid():
                found.append(command_line(pid))
                break
    return found


def command_line(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children():
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            pass
    return [int(pid) for pid in found]


def end_children():
    """Waits until no child is left; ends those that stay. What these were."""
    until = time.monotonic() + GONE
    left = {}
    while (pids := children()) and time.monotonic() < until + GONE:
        for pid in pids:
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0 and time.monotonic() > until:
                    left[pid] = command_line(pid)
                    os.kill(pid, signal.SIGKILL)
            except (ChildProcessError, FileNotFoundError, ProcessLookupError):
                pass
        time.sleep(0.05)
    return list(left.values())
