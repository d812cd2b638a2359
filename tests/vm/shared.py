"""What the files beside this one share."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "vm"
CACHE = ROOT / "target" / "vm"


def output(*command):
    """What a command printed; it must end well."""
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
