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


# What is not the same with bubblewrap in the MCP suites, and why.
DIFFERENCES = {
    **dict.fromkeys(
        [
            "test_long_output_is_read_by_a_later_run",
            "test_long_output_is_read_by_a_session_that_was_open_before",
            "test_long_output_of_a_session_is_kept_too",
            "test_short_output_is_not_kept",
            "test_outputs_are_read_only_inside",
            "test_the_oldest_are_dropped_at_the_cap",
            "test_more_than_is_kept_is_told_with_its_gap",
            "test_outputs_are_resources",
        ],
        "there is no /outputs",
    ),
    "test_a_killed_launcher_or_pid_1_leaves_nothing_and_the_server_goes_on": "there is no launcher to kill",
    "test_every_run_leaves_a_line_whichever_way_it_came": "the line tells of the mounts as weaker",
}


def server(backend="engine"):
    """The program as Nix bakes environments into it. It must start without /nix/store being there."""
    directory = HOME / "bundled"
    directory.mkdir(exist_ok=True)
    for name, artifact in bundled().items():
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(artifact)
    script = HOME / f"server-{backend}"
    script.write_text(
        f"""#!/bin/sh
export NIX_SANDBOX_DIR="${{NIX_SANDBOX_DIR-{directory}}}"
export NIX_SANDBOX_BACKEND="${{NIX_SANDBOX_BACKEND-{backend}}}"
{f"export NIX_SANDBOX_STORE_ROOT={CHROOT}" if CHROOT else ""}
exec {PROGRAM} "$@"
"""
    )
    script.chmod(0o755)
    return str(script)


def asked(*words, **variables):
    """A suite, with environments that Nix built."""
    env = {**os.environ, "HOME": str(HOME), "NIX_SANDBOX_BIN": server(), **variables}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=600)


def passes(*words, **variables):
    done = asked(*words, **variables)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def conformance(*user, **variables):
    """The conformance suite, which compares the engine with bubblewrap itself, where that is installed."""
    program = STAGE / "conformance"
    if not program.exists():
        raise Lacks("conformance")
    # A chroot store's jails cannot be called.
    if not CHROOT:
        variables["SANDBOX_TEST_JAILS"] = "1"
    said = passes(*user, program, "--quiet", **variables)
    print(next(line for line in said.splitlines() if line.startswith("test result")).split(" in ")[0])


def test_the_conformance_suite_passes():
    conformance()


def test_the_conformance_suite_passes_in_the_jails_of_a_store_that_is_another_s():
    """An ordinary user with the store of this machine."""
    if os.geteuid():
        raise Lacks("root")
    home = HOME / "ordinary"
    home.mkdir(exist_ok=True)
    os.chown(home, 64010, 64010)
    user = ["setpriv", "--reuid", "64010", "--regid", "64010", "--clear-groups"]
    place = str(home)
    conformance(*user, HOME=place, TMPDIR=place, PATH=store.VARIABLES["PATH"])


def test_the_mcp_suites_pass():
    """Minutes: .ci/long asks for it."""
    for suite in MCP:
        said = passes(sys.executable, STAGE / f"tests/{suite}.py")
        print(suite, said.splitlines()[-1])


def test_the_mcp_suites_pass_with_bubblewrap_but_for_what_is_listed():
    """In the artifacts' own jails where the store is this machine's. Minutes, too."""
    differ = set()
    for suite in [*MCP, "test_jail"]:
        done = asked(sys.executable, STAGE / f"tests/{suite}.py", NIX_SANDBOX_BIN=server(backend="jail"))
        ended = [line.split() for line in done.stdout.splitlines()]
        differ |= {line[1] for line in ended if line and line[0] == "FAIL"}
        differ |= {line[2] for line in ended if line[:2] == ["LACKS", "outputs:"]}
        print(suite, done.stdout.splitlines()[-1])
    assert differ == set(DIFFERENCES), differ ^ set(DIFFERENCES)


if __name__ == "__main__":
    store.seed()
    harness.main(sys.modules[__name__])
