"""Runs the test functions of a module one after the other and counts them."""

import asyncio
import inspect
import os
import sys
import time
import traceback

# The binary under test.
SERVER = os.environ.get("NIX_SANDBOX_BIN")

# Seconds for one test. Nothing takes that long unless something hangs.
PATIENCE = 120


class Skipped(Exception):
    """The server under test cannot show this; the message says why."""


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
    passed = failed = skipped = 0
    for name, test in tests:
        start = time.monotonic()
        try:
            run(test)
        except Skipped as why:
            skipped += 1
            print(f"skip {name}: {why}")
            continue
        except BaseException as error:  # an assertion, a time-out, a group of them
            if isinstance(error, KeyboardInterrupt):
                raise
            failed += 1
            traceback.print_exc(file=sys.stdout)
            print(f"FAIL {name}")
            continue
        passed += 1
        print(f"ok   {name} ({time.monotonic() - start:.2f} s)")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(1 if failed or not passed else 0)


def run(test):
    if inspect.iscoroutinefunction(test):
        asyncio.run(asyncio.wait_for(test(), PATIENCE))
    else:
        test()
