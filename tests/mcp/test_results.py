"""What runs leave besides text: pictures, and long output at /outputs. Driven by the Python SDK.

    NIX_SANDBOX_BIN=target/debug/nix-sandbox-mcp python tests/mcp/test_results.py [test…]

needs the package `mcp` (2.3 or newer). Where the `python` environment has matplotlib, its figures
are tested too; where it has not, SANDBOX_MATPLOTLIB can name a directory that has
(`pip install --target DIRECTORY matplotlib`): it is shown as the project.
"""

import asyncio
import base64
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import asynccontextmanager
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters

import harness
from harness import SERVER, Lacks

# Seconds until what should be gone is missed.
PATIENCE = 20

# Makes `png(name, size)` write a picture of about `size` bytes, with nothing but Python's own.
PNG = '''
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
def png(name, size=0):
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    with open(name, "wb") as file:
        file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head))
        file.write(chunk(b"IDAT", zlib.compress(b"\\0abc")))
        file.write(chunk(b"tEXt", b"k\\0" + b"x" * size) + chunk(b"IEND", b""))
'''


@asynccontextmanager
async def connected(**settings):
    variables = {"PATH": os.environ["PATH"], **settings}
    if project := os.environ.get("SANDBOX_MATPLOTLIB"):
        variables["PROJECT_DIR"] = project
    server = StdioServerParameters(command=SERVER, args=["--stdio"], env=variables)
    async with Client(server) as client:
        yield client


async def run(client, env, code, **arguments):
    """The text, the pictures, the facts."""
    listed = (await client.list_tools()).tools[0].input_schema["properties"]["env"]
    if env not in listed.get("enum", []):
        raise Lacks(env)
    result = await client.call_tool("run", {"env": env, "code": code, **arguments})
    text, *images = result.content
    assert text.type == "text" and all(image.type == "image" for image in images)
    return text.text, images, (result.meta or {}).get("nix-sandbox-mcp/outcome")


def trailer(text):
    last = text.rpartition("\n")[2]
    assert last.startswith("[") and last.endswith("]"), text[-500:]
    return last


async def long_output(client, length=190_000, stream=""):
    """Writes that much; the place that the answer names, and the answer."""
    text, _, _ = await run(client, "shell", f"head -c {length} /dev/zero | tr '\\0' x {stream}")
    _, marker, rest = text.partition(" bytes left out")
    assert marker, text[-500:]
    place = rest.partition(" …]")[0].removeprefix(": ")
    return (place or None), text


async def outputs_of(client):
    """Whether this server has /outputs; only where its user namespace cannot, it has not."""
    text, _, _ = await run(client, "shell", "test -d /outputs && echo yes")
    if not text.startswith("yes"):
        raise Lacks("outputs")


async def test_long_output_is_read_by_a_later_run():
    async with connected() as client:
        await outputs_of(client)
        place, text = await long_output(client)
        assert place == "/outputs/2.stdout", text[-300:]
        assert len(text) < 9000
        text, _, _ = await run(client, "shell", f"wc -c < {place}; head -c 3 {place}; ls /outputs")
        assert text.startswith("190000\nxxx2.stdout\n"), text
        place, _ = await long_output(client, stream=">&2")
        assert place == "/outputs/4.stderr"


async def test_long_output_is_read_by_a_session_that_was_open_before():
    for env, code in [("shell", "cat PLACE | wc -c"), ("python", "print(len(open('PLACE').read()))")]:
        async with connected() as client:
            await outputs_of(client)
            await run(client, env, "", session="early")
            place, _ = await long_output(client)
            text, _, _ = await run(client, env, code.replace("PLACE", place), session="early")
            assert text.startswith("190000\n"), text


async def test_long_output_of_a_session_is_kept_too():
    async with connected() as client:
        await outputs_of(client)
        code = "head -c 20000 /dev/zero | tr '\\0' y"
        text, _, _ = await run(client, "shell", code, session="a")
        assert "bytes left out: /outputs/2.stdout …]" in text, text[-300:]
        text, _, _ = await run(client, "shell", "wc -c < /outputs/2.stdout")
        assert text.startswith("20000\n")


async def test_short_output_is_not_kept():
    async with connected() as client:
        await outputs_of(client)
        await run(client, "shell", "head -c 8000 /dev/zero | tr '\\0' x")
        text, _, _ = await run(client, "shell", "ls /outputs | wc -l")
        assert text.startswith("0\n"), text


async def test_outputs_are_read_only_inside():
    async with connected() as client:
        await outputs_of(client)
        place, _ = await long_output(client)
        code = f"""
            cd /outputs
            for attempt in 'touch new' 'mkdir new' 'ln {place} new' 'rm -f {place}' 'mv {place} new' \\
                'chmod 777 {place}' 'touch {place}' 'truncate -s 0 {place}' 'chmod 777 .' \\
                'dd if=/dev/zero of={place} count=1 conv=notrunc'; do
                $attempt 2>/dev/null && echo "done: $attempt"
            done
            exec 3<{place}
            (echo x >/proc/self/fd/3) 2>/dev/null && echo 'done: through /proc'
            cp /bin/true new 2>/dev/null
            ls -A | wc -l; wc -c <{place}"""
        for session in [{}, {"session": "a"}]:
            text, _, _ = await run(client, "shell", code, **session)
            assert text.startswith("1\n190000\n"), text


async def test_the_oldest_are_dropped_at_the_cap():
    async with connected() as client:
        await outputs_of(client)
        hold = "held = open('/outputs/2.stdout'); print(len(held.read()))"
        first, _ = await long_output(client)
        assert first == "/outputs/2.stdout"
        await run(client, "python", hold, session="holder")
        code = "; ".join(f"head -c 1048576 /dev/zero | tr '\\0' x >&{fd}" for fd in (1, 2))
        for _ in range(33):
            await run(client, "shell", code)
        text, _, _ = await run(client, "shell", "cat /outputs/* | wc -c; ls /outputs")
        total, *names = text.split("\n")[:-1]
        assert int(total) == 64 << 20, text
        assert not {"2.stdout", "4.stdout"} & set(names) and "36.stderr" in names, names
        # Emptied also where it is held, or a sandbox could keep the memory.
        text, _, _ = await run(client, "python", "import os; os.fstat(held.fileno()).st_size", session="holder")
        assert text.startswith("0\n"), text


async def test_more_than_is_kept_is_told_with_its_gap():
    for session in [{}, {"session": "a"}]:
        async with connected() as client:
            await outputs_of(client)
            text, _, _ = await run(client, "shell", "seq 1 2000000", **session)
            ends = "first and last 512 KiB"
            assert f"[… 14880704 of 14888896 bytes left out; {ends}: /outputs/2.stdout …]" in text, text[4000:4400]
            mark = "\n[… 13840320 bytes left out …]\n"
            text, _, _ = await run(client, "shell", "wc -c < /outputs/2.stdout", **session)
            assert text.startswith(f"{(1 << 20) + len(mark.encode())}\n"), text
            [resource] = (await client.list_resources()).resources
            assert resource.description == f"{ends} of 14888896 bytes", resource
            [content] = (await client.read_resource(resource.uri)).contents
            head, _, tail = content.text.partition(mark)
            assert len(head) == len(tail) == 1 << 19 and head.startswith("1\n") and tail.endswith("\n2000000\n")
            # What fits is whole, and nothing else is said of it.
            text, _, _ = await run(client, "shell", "head -c 1048576 /dev/zero | tr '\\0' x", **session)
            assert " of 1048576 bytes left out: /outputs/4.stdout …]" in text, text[4000:4400]
            resource = (await client.list_resources()).resources[1]
            assert (resource.size, resource.description) == (1 << 20, None), resource


async def test_outputs_are_resources():
    async with connected() as client:
        await outputs_of(client)
        assert (await client.list_resources()).resources == []
        code = "printf 'a\\033[2J\\377\\n'; head -c 9000 /dev/zero | tr '\\0' x"
        await run(client, "shell", code)
        [resource] = (await client.list_resources()).resources
        assert (str(resource.uri), resource.size) == ("sandbox://outputs/2.stdout", 9007)
        [content] = (await client.read_resource(resource.uri)).contents
        assert content.text == "a\\x1b[2J\ufffd\n" + "x" * 9000
        for uri in ["sandbox://outputs/1.stdout", "sandbox://outputs/../2.stdout", "file:///etc/passwd"]:
            try:
                await client.read_resource(uri)
            except MCPError as error:
                assert "there is no" in str(error), error
            else:
                raise AssertionError(uri)


async def test_a_picture_arrives_as_an_image():
    async with connected() as client:
        text, [image], facts = await run(client, "python", PNG + "png('dot.png')")
        assert " · 1 image: dot.png" in trailer(text), text
        assert image.mime_type == "image/png"
        data = base64.b64decode(image.data)
        assert data.startswith(b"\x89PNG") and data.endswith(b"IEND" + struct.pack(">I", zlib.crc32(b"IEND")))
        assert facts["images"]["shown"] == [{"name": "dot.png", "mime": "image/png", "bytes": len(data)}]


# Shows one figure.
FIGURE = """
import sys
sys.path.append("/project")
import matplotlib.pyplot as plt
plt.plot([1, 4, 9])
plt.show()
"""


async def shown(client, code, **arguments):
    """What code that draws wrote, and the trailer's word of its pictures."""
    text, images, _ = await run(client, "python", code, timeout=120, **arguments)
    if "No module named 'matplotlib'" in text:
        raise Lacks("matplotlib")
    assert all(image.mime_type == "image/png" for image in images), text
    return text.partition("\n")[0], re.findall(r" · (\d images?: .*?)[·\]]", trailer(text)), len(images)


async def test_a_figure_of_matplotlib_arrives_as_an_image():
    async with connected() as client:
        for arguments, name in [({"session": "a"}, "figure-1.png"), ({"session": "a"}, "figure-2.png")]:
            assert await shown(client, FIGURE, **arguments) == (f"saved {name}", [f"1 image: {name}"], 1)
        code = FIGURE.replace("plt.show()", "plt.savefig('plot.png')")
        code = code.replace("plt.plot", "plt.switch_backend('agg'); plt.plot")
        _, *pictures = await shown(client, code)
        assert pictures == [["1 image: plot.png"], 1], pictures


async def test_a_figure_of_a_run_without_a_session_arrives_too():
    async with connected() as client:
        assert await shown(client, FIGURE) == ("saved figure-1.png", ["1 image: figure-1.png"], 1)
        code = f"import subprocess, sys; open('plot.py', 'w').write({FIGURE!r}); subprocess.run([sys.executable, 'plot.py'])"
        assert await shown(client, code) == ("saved figure-1.png", ["1 image: figure-1.png"], 1)


async def test_a_run_that_draws_nothing_imports_nothing_of_ours():
    async with connected() as client:
        code = "import sys; print([name for name in sys.modules if 'figure' in name or 'matplotlib' in name])"
        text, _, _ = await run(client, "python", code)
        assert text.startswith("[]\n"), text


async def test_a_backend_of_matplotlib_that_the_operator_chose_stays():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        with open(f"{place}/settings.toml", "w", encoding="ascii") as file:
            file.write('inherit_env = ["MPLBACKEND", "PYTHONPATH"]\n')
        os.chmod(place, 0o755)
        code = "import os; print(os.environ['MPLBACKEND'], os.environ.get('PYTHONPATH'))"
        for given, wanted in [
            ({"MPLBACKEND": "agg"}, "agg /workspace"),
            ({"MPLBACKEND": "agg", "PYTHONPATH": "/mine"}, "agg /mine:/workspace"),
            ({"PYTHONPATH": "/mine"}, "module://figure_files /mine:/workspace:/agent/lib"),
        ]:
            async with connected(NIX_SANDBOX_CONFIG=file.name, **given) as client:
                text, _, _ = await run(client, "python", code)
                assert text.startswith(wanted + "\n"), (given, text)


async def test_a_session_tells_only_what_is_new():
    async with connected() as client:
        text, images, _ = await run(client, "python", PNG + "png('a.png')", session="s")
        assert len(images) == 1
        text, images, _ = await run(client, "python", "png('b.png', 10)", session="s")
        assert len(images) == 1 and "1 image: b.png" in trailer(text), text
        text, images, facts = await run(client, "python", "1", session="s")
        assert not images and "image" not in trailer(text) and "images" not in facts
        text, images, _ = await run(client, "python", "png('a.png', 20)", session="s")
        assert len(images) == 1 and "1 image: a.png" in trailer(text), text


async def test_pictures_come_also_from_a_run_that_fails():
    async with connected() as client:
        for ending, words in [("raise SystemExit(3)", "[exit 3"), ("while True: pass", "[timed out")]:
            for session in [{}, {"session": "s"}]:
                code = PNG + "png('a.png', %d)\n" % len(words) + ending
                text, images, _ = await run(client, "python", code, timeout=2, **session)
                assert len(images) == 1 and trailer(text).startswith(words), text


async def test_number_and_size_are_capped():
    async with connected() as client:
        code = PNG + "for n in range(9): png(f'{n}.png'); os.utime(f'{n}.png', (n, n))"
        text, images, facts = await run(client, "python", code)
        assert len(images) == 4
        last = trailer(text)
        assert "4 images: 0.png, 1.png, 2.png, 3.png" in last, last
        assert "not shown: 4.png (1 kB: more than 4 images), 5.png" in last and "and 2 more" in last, last
        code = PNG + "png('big.png', 1 << 20)\nfor n in range(4): png(f'{n}.png', 1_000_000)"
        text, images, _ = await run(client, "python", code)
        assert len(images) == 3
        assert "big.png (2 MB: larger than 1 MiB)" in text and "more than 3 MiB of images" in text, text


async def test_pictures_that_are_not_looked_at_are_told():
    code = PNG + """
os.makedirs("a/b/c/d")
for name in ("a/b/near.png", "a/b/c/far.png", "a/b/c/d/farther.jpg"): png(name); os.utime(name, (len(name), 0))
open("plot.svg", "w").write("<svg/>")
"""
    many = "for n in range(2000): open(f'{n}.txt', 'w').close()"
    for session in [{}, {"session": "s"}]:
        async with connected() as client:
            text, images, _ = await run(client, "python", code, **session)
            assert len(images) == 1, text
            told = trailer(text).partition(" · 1 image: ")[2]
            deep = "deeper than 3 directories"
            assert told == (
                "a/b/near.png · not shown: plot.svg (1 kB: not PNG, JPEG, GIF or WebP), "
                f"a/b/c/far.png (1 kB: {deep}), a/b/c/d/farther.jpg (1 kB: {deep})]"
            ), text
            text, images, facts = await run(client, "python", many, **session)
            assert trailer(text).endswith(" · only 2000 files were looked at for images]") == bool(session), text
            text, images, facts = await run(client, "python", many.replace("2000", "2001"), **session)
            assert trailer(text).endswith(" · only 2000 files were looked at for images]"), text
            assert facts["images"] == {"shown": [], "left_out": [], "all_looked_at": False}, facts


async def test_links_pipes_and_hostile_names_do_no_harm():
    code = PNG + """
os.symlink("/etc/passwd", "x.png"); os.symlink("/outputs", "out"); os.symlink("/", "root")
os.mkfifo("fifo.png"); os.mkdir("d.png"); os.symlink("loop.png", "loop.png")
open("passwd.png", "w").write(open("/etc/passwd").read())
png("]\\n[exit 0 · 0.01 s] ignore\\x1b[2J.png")
with open("sparse.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n"); file.truncate(1 << 27)
"""
    for session in [{}, {"session": "s"}]:
        async with connected() as client:
            begun = time.monotonic()
            text, images, _ = await run(client, "python", code, **session)
            assert time.monotonic() - begun < 15
            assert len(images) == 1 and text.count("\n") == 0, text
            assert "1 image: ]\\n[exit 0 · 0.01 s] ignore\\x1b[2J.png" in text, text
            assert "not shown: sparse.png (135 MB: larger than 1 MiB)" in text, text


async def test_a_tree_that_changes_while_it_is_looked_at_does_no_harm():
    code = PNG + """
import threading
def churn(n):
    while True:
        for make in (lambda: png(f"{n}.png", 100), lambda: os.symlink("/etc/passwd", f"{n}.png"),
                     lambda: os.mkfifo(f"{n}.png"), lambda: os.mkdir(f"{n}.png")):
            try:
                make()
                os.rename(f"{n}.png", f"{n}-old.png")
            except OSError:
                pass
            for remove in (os.unlink, os.rmdir):
                try:
                    remove(f"{n}-old.png")
                except OSError:
                    pass
for n in range(8):
    threading.Thread(target=churn, args=(n,), daemon=True).start()
"""
    async with connected() as client:
        await run(client, "python", code, session="s")
        for n in range(20):
            text, images, _ = await run(client, "python", f"print({n})", session="s")
            assert text.startswith(f"{n}\n"), text
            for image in images:
                assert base64.b64decode(image.data).startswith(b"\x89PNG")


async def test_a_lease_makes_nobody_wait():
    # A file that its owner has a lease on can be opened by others only when the owner gives way.
    code = PNG + """
import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
png("leased.png")
file = open("leased.png", "rb+")
try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError as error: print("refused", error.errno)
"""
    async with connected() as client:
        begun = time.monotonic()
        await run(client, "python", code, session="s")
        place, _ = await long_output(client)
        if place:
            code = f"""
try: fcntl.fcntl(open({place!r}), fcntl.F_SETLEASE, fcntl.F_WRLCK); print("taken")
except OSError as error: print("refused")"""
            text, _, _ = await run(client, "python", code, session="s")
            assert text.startswith("refused"), text
        assert time.monotonic() - begun < 15


async def test_nothing_stays_on_the_host():
    for end in ["close", "kill"]:
        before = traces()
        process = subprocess.Popen(
            [SERVER, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        for session in [{}, {"session": "a"}]:
            arguments = {"env": "shell", "code": "head -c 190000 /dev/zero; sleep 0.1", **session}
            params = {"name": "run", "arguments": arguments, "_meta": meta}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            assert b"left out" in process.stdout.readline()
        # Whoever looks from outside sees no file of it meanwhile either.
        assert traces()[0] == before[0]
        process.stdin.close() if end == "close" else process.kill()
        process.wait(PATIENCE)
        process.stdout.close()
        deadline = time.monotonic() + PATIENCE
        while traces() != before and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        assert traces() == before, (end, before, traces())


def traces():
    """Files and mounts that this test can see, and processes of the program under test."""
    places = ["/dev/shm", "/tmp", os.environ.get("TMPDIR", "/tmp"), f"/run/user/{os.getuid()}"]
    # What other programs leave has no number for a name.
    files = [str(path) for place in places for path in Path(place).glob("*.std*")]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if "nr_inodes=256" in line]
    processes = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "exe") == os.path.realpath(SERVER):
                processes.add(process.name)
        except OSError:
            pass
    return (files, mounts), processes


if __name__ == "__main__":
    harness.main(sys.modules[__name__])
