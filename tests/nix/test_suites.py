"""What is asserted of environments of a host holds of those that Nix built: the same suites once more."""

import os
import subprocess
import sys

import harness
import store
from harness import Lacks
from store import CHROOT, HOME, STAGE
from test_nix import PROGRAM, bundled

MCP = ["test_sdk", "test_raw", "test_results", "test_sessions", "test_operator"]


def server():
    """The program as Nix bakes environments into it. It must start without /nix/store being there."""
    directory = HOME / "bundled"
    directory.mkdir(exist_ok=True)
    for name, artifact in bundled().items():
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(artifact)
    script = HOME / "server"
    script.write_text(
        f"""#!/bin/sh
export NIX_SANDBOX_DIR="${{NIX_SANDBOX_DIR-{directory}}}"
{f"export NIX_SANDBOX_STORE_ROOT={CHROOT}" if CHROOT else ""}
exec {PROGRAM} "$@"
"""
    )
    script.chmod(0o755)
    return str(script)


def passes(*words, **variables):
    """A suite, with environments that Nix built."""
    env = {**os.environ, "HOME": str(HOME), "NIX_SANDBOX_BIN": server(), **variables}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_the_conformance_suite_passes():
    """It compares the engine with bubblewrap itself, where that is installed."""
    program = STAGE / "conformance"
    if not program.exists():
        raise Lacks("conformance")
    said = passes(program, "--quiet")
    print(next(line for line in said.splitlines() if line.startswith("test result")).split(" in ")[0])


def test_the_mcp_suites_pass():
    """Minutes: .ci/long asks for it."""
    for suite in MCP:
        said = passes(sys.executable, STAGE / f"tests/{suite}.py")
        print(suite, said.splitlines()[-1])


if __name__ == "__main__":
    store.seed()
    harness.main(sys.modules[__name__])
