"""Nix for the tests: offline, with this checkout's inputs, in a store that the user may write to."""

import json
import os
import subprocess
from pathlib import Path

STAGE = Path(__file__).resolve().parent.parent
FLAKE = f"path:{STAGE}/flake"
HOME = STAGE / "home"
# Root has the store of this machine; nobody else may write there.
CHROOT = None if os.geteuid() == 0 else HOME / "chroot"
CONFIG = f"""
experimental-features = nix-command flakes
substituters =
flake-registry =
build-users-group =
sandbox = true
sandbox-fallback = true
sandbox-paths = /bin /usr /lib /lib64
{f"store = {CHROOT}" if CHROOT else ""}
"""
VARIABLES = {
    "HOME": str(HOME),
    "NIX_CONFIG": CONFIG,
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    # For users whom no passwd knows.
    "USER": "tester",
}
# nixpkgs and jail.nix cannot be fetched.
INPUTS = {"nixpkgs": f"path:{STAGE}/nixpkgs", "jail-nix": f"path:{STAGE}/jail-nix"}


def said(*words, check=True, **options):
    """What a command printed, as text."""
    options = {"env": VARIABLES, "capture_output": True, "text": True, "timeout": 300} | options
    done = subprocess.run([str(word) for word in words], **options)
    if check:
        assert done.returncode == 0, f"{words}: {done.stderr[-3000:]}"
        return done.stdout
    return done


def overrides(inputs):
    words = [["--override-input", name, place] for name, place in inputs.items()]
    return sum(words, ["--no-write-lock-file"])


def nix(*words, inputs=INPUTS, command=(), **options):
    """A command of `nix` on a flake; for `nix shell`, with a command to run."""
    command = ["--command", *command] if command else []
    return said("nix", *words, *overrides(inputs), *command, **options)


def build(*references, inputs=INPUTS, **options):
    """The store path of each of these."""
    nix("build", "--impure", "--no-link", *references, inputs=inputs, **options)
    return [path_of(reference, inputs, **options) for reference in references]


def path_of(reference, inputs, **options):
    told = nix("build", "--impure", "--no-link", "--json", reference, inputs=inputs, **options)
    return Path(json.loads(told)[0]["outputs"]["out"])


def requisites(path):
    """The closure as the store knows it."""
    return set(said("nix-store", "-qR", path).split())


def on_host(path):
    """Where a file of the store lies."""
    return Path(f"{CHROOT}{path}" if CHROOT else path)


def seed():
    """Puts Debian's packages into the store, so that no build fetches."""
    packages = sorted((STAGE / "packages").iterdir())
    said("nix-store", "--add-fixed", "sha256", *packages)
