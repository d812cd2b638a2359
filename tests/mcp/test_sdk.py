"""The server as the official Python SDK sees it.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_sdk.py [test…]

needs the package `mcp` (2.3 or newer). No server but ours, no network.
"""

import asyncio
import sys
from contextlib import asynccontextmanager

from mcp import Client, MCPError, StdioServerParameters

import harness
from harness import SERVER, Lacks

# What computes 6 × 7 and prints it.
FORTY_TWO = {
    "python": "print(6 * 7)",
    "node": "console.log(6 * 7)",
    "shell": "echo $((6 * 7))",
}


@asynccontextmanager
async def connected(mode="auto", **options):
    server = StdioServerParameters(command=SERVER, args=["--stdio"])
    async with Client(server, mode=mode, **options) as client:
        yield client


async def run(client, env, code, **arguments):
    """The result of `run`, its text, its facts."""
    listed = (await client.list_tools()).tools[0].input_schema["properties"]["env"]
    if env not in listed.get("enum", []):
        raise Lacks(env)
    result = await client.call_tool("run", {"env": env, "code": code, **arguments})
    assert result.structured_content is None
    assert [block.type for block in result.content] == ["text"]
    facts = (result.meta or {}).get("nix-sandbox-mcp/outcome")
    return result, result.content[0].text, facts


def exited(text, code=0):
    """The text without its last line, which must tell that exit code."""
    body, _, trailer = text.rpartition("\n")
    assert trailer.startswith(f"[exit {code} · ") and trailer.endswith("]"), text[-500:]
    return body


async def test_one_tool_is_listed():
    for mode in ["auto", "legacy"]:
        async with connected(mode) as client:
            assert client.server_info.name == "nix-sandbox-mcp"
            assert client.instructions
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["run"]
            schema = tools[0].input_schema
            assert schema["required"] == ["code", "env"]
            assert not {"$schema", "title", "nullable"} & set(schema)
            assert tools[0].annotations.open_world_hint is False


async def test_the_newest_protocol_is_chosen():
    async with connected() as client:
        assert client.protocol_version == "2026-07-28"


async def test_42_from_python():
    await forty_two("python")


async def test_42_from_node():
    await forty_two("node")


async def test_42_from_shell():
    await forty_two("shell")


async def forty_two(env):
    for mode in ["auto", "legacy"]:
        async with connected(mode) as client:
            result, text, facts = await run(client, env, FORTY_TWO[env])
            assert exited(text) == "42", text
            assert not result.is_error
            assert facts["ending"] == {"kind": "exited", "code": 0}
            assert facts["bytes"] == {"stdout": 3, "stderr": 0}
            assert facts["truncated"] is False
            assert facts["usage"]["wall_us"] > 0


async def test_a_1_MiB_program_in_python():
    await a_mebibyte("python", "text = 'TEXT'\nprint(len(text))")


async def test_a_1_MiB_program_in_node():
    await a_mebibyte("node", "const text = 'TEXT'\nconsole.log(text.length)")


async def test_a_1_MiB_program_in_shell():
    await a_mebibyte("shell", "text='TEXT'\necho ${#text}")


async def a_mebibyte(env, code):
    async with connected() as client:
        _, text, _ = await run(client, env, code.replace("TEXT", "x" * (1 << 20)))
        assert exited(text) == str(1 << 20), text[-500:]


async def test_code_is_byte_exact():
    # Text that a here-document, an argument vector or a terminal would change.
    odd = "zwölf € 🦀\t'\"\\n $HOME `id` %s \u2028"
    async with connected() as client:
        _, text, _ = await run(client, "python", f"print(ascii({odd!r}), end='')")
        assert exited(text) == ascii(odd), text


async def test_standard_input_is_empty():
    async with connected() as client:
        _, text, _ = await run(client, "shell", "cat; read line; echo still here")
        assert exited(text) == "still here", text


async def test_invalid_UTF_8_output():
    async with connected() as client:
        _, text, facts = await run(client, "shell", r"printf 'a\377\376b\355\240\200'")
        body, _, trailer = text.rpartition("\n")
        assert body == "a\ufffd\ufffdb\ufffd\ufffd\ufffd", ascii(body)
        assert trailer.endswith(" · invalid UTF-8 replaced]"), trailer
        assert facts["bytes"]["stdout"] == 7


async def test_NUL_bytes_in_the_output():
    async with connected() as client:
        _, text, facts = await run(client, "shell", r"printf 'a\000b\000'")
        assert exited(text) == r"a\x00b\x00", ascii(text)
        assert facts["bytes"]["stdout"] == 4


async def test_terminal_escapes_are_harmless():
    async with connected() as client:
        code = r"printf '\033]52;c;aGk=\007\033[2J\302\23331m\rx\r\n'"
        _, text, _ = await run(client, "shell", code)
        assert exited(text) == r"\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\rx", ascii(text)


async def test_200_KB_on_stderr():
    async with connected() as client:
        code = "head -c 200000 /dev/zero | tr '\\0' e >&2; echo out"
        _, text, facts = await run(client, "shell", code)
        body = exited(text)
        assert body.startswith("out\n--- stderr ---\neee"), body[:100]
        assert body.endswith("eee")
        assert "of 200000 bytes left out" in body
        assert len(text.encode()) < 9000, len(text)
        assert facts["bytes"] == {"stdout": 4, "stderr": 200_000}
        assert facts["truncated"] is True


async def test_both_streams_are_told_apart():
    async with connected() as client:
        _, text, _ = await run(client, "shell", "printf out; printf err >&2")
        assert exited(text) == "out\n--- stderr ---\nerr", text


async def test_exit_3():
    async with connected() as client:
        result, text, facts = await run(client, "shell", "echo before; exit 3")
        assert exited(text, code=3) == "before"
        assert result.is_error
        assert facts["ending"] == {"kind": "exited", "code": 3}


async def test_a_signal_is_named():
    async with connected() as client:
        result, text, _ = await run(client, "shell", "kill -SEGV $$")
        assert text.startswith("[killed by SIGSEGV · "), text
        assert result.is_error


async def test_a_time_out_gives_what_was_written():
    async with connected() as client:
        result, text, facts = await run(client, "shell", "echo partial; sleep 60", timeout=1)
        assert text.startswith("partial\n[timed out after 1 s · "), text
        assert result.is_error
        assert facts["ending"] == {"kind": "timed_out", "after_ms": 1000}


async def test_nothing_is_kept_between_calls():
    async with connected() as client:
        await run(client, "shell", "echo 1 > /tmp/left; echo 1 > /workspace/left")
        _, text, _ = await run(client, "shell", "ls /tmp/left /workspace/left 2>/dev/null || echo gone")
        assert exited(text) == "gone", text


async def test_wrong_arguments_are_advice():
    async with connected() as client:
        for arguments, words in [
            ({"code": "", "env": "shell", "sesion": "a"}, "code, env, session and timeout"),
            ({"code": "", "env": "cobol"}, "the environments are"),
            ({"code": ""}, "the environments are"),
            ({"env": "shell"}, "code is missing"),
            ({"code": 7, "env": "shell"}, "code must be a string"),
            ({"code": "", "env": "shell", "timeout": "soon"}, "timeout must be a number"),
        ]:
            result = await client.call_tool("run", arguments)
            assert result.is_error and words in result.content[0].text, result


async def test_an_unknown_tool_is_an_error_of_the_protocol():
    async with connected() as client:
        try:
            await client.call_tool("rm", {})
        except MCPError as error:
            assert "run" in str(error)
        else:
            raise AssertionError("no error")


async def test_twenty_calls_at_once():
    async with connected() as client:
        calls = [run(client, "shell", f"echo {n}") for n in range(20)]
        for n, (_, text, _) in enumerate(await asyncio.gather(*calls)):
            assert exited(text) == str(n)


async def test_a_client_that_gives_up_is_served_again():
    for mode in ["auto", "legacy"]:
        async with connected(mode) as client:
            await run(client, "shell", "true")
            try:
                arguments = {"env": "shell", "code": "sleep 60", "timeout": 60}
                await client.call_tool("run", arguments, read_timeout_seconds=0.5)
            except MCPError:
                pass
            else:
                raise AssertionError("no time-out")
            _, text, _ = await run(client, "shell", "echo back")
            assert exited(text) == "back"


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
