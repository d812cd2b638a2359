"""Runs the test functions of a module one after the other and counts them."""

import asyncio
import inspect
import os
import select
import sys
import time
import traceback

# The binary under test.
SERVER = os.environ.get("NIX_SANDBOX_BIN")

# What must be there: a test that lacks it fails, where others are reported and counted.
MUST_WORK = os.environ.get("SANDBOX_MUST_WORK", "").split(",")

# Seconds for one test. Nothing takes that long unless something hangs.
PATIENCE = 120


class Lacks(Exception):
    """This host lacks what the test needs, such as an environment: its name."""


def main(module):
    """Runs every `test_*` of `module`, prints `N passed, N failed` and ends with 1 if any failed."""
    if not SERVER:
        sys.exit("set NIX_SANDBOX_BIN to the server's binary")
    wanted = sys.argv[1:]
    tests = [
        (name, test)
        for name, test in vars(module).items()
        if name.startswith("test_") and (not wanted or name in wanted)
    ]
    passed = failed = lacks = 0
    for name, test in tests:
        start = time.monotonic()
        try:
            run(test)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an assertion, a time-out, a group of them
            what = lacking(error)
            if what and what not in MUST_WORK:
                lacks += 1
                tell(name, what)
                continue
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"FAIL {name}")
            continue
        passed += 1
        print(f"ok   {name} ({time.monotonic() - start:.2f} s)")
    print(f"{passed} passed, {failed} failed" + (f", {lacks} lack something" if lacks else ""))
    sys.exit(1 if failed or not passed else 0)


def run(test):
    if inspect.iscoroutinefunction(test):
        asyncio.run(asyncio.wait_for(test(), PATIENCE))
    else:
        test()


def lacking(error):
    """What is lacking, if that is why a test ended; task groups wrap it."""
    if isinstance(error, Lacks):
        return str(error)
    return next(filter(None, map(lacking, getattr(error, "exceptions", []))), None)


def wait_readable(fd):
    """Waits for a descriptor, such as a pidfd's end, and closes it."""
    ready, _, _ = select.select([fd], [], [], PATIENCE)
    os.close(fd)
    assert ready, "it never came"


def tell(test, what):
    print(f"LACKS {what}: {test}")
    if path := os.environ.get("SANDBOX_LACKS"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{what} {test}\n")
