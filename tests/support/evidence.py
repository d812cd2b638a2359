"""`docs/evidence/reliability.md`: one section for each program that proves something, written by that program."""

import os
import platform
import re

HEAD = """# What was tried, and how often

Each section is written by the program that it names; do not edit. `kernel` and `as` say where that was.
"""


def write(path, title, command, facts):
    """Replaces the section `title`, or adds it. `facts` are rows of a table."""
    text = HEAD
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    who = "root" if os.geteuid() == 0 else "an ordinary user"
    rows = "\n".join(f"| {name} | {value} |" for name, value in {**facts, "kernel": platform.release(), "as": who}.items())
    section = f"\n## {title}\n\n```\n{command}\n```\n\n| | |\n|---|---|\n{rows}\n"
    pattern = re.compile(rf"\n## {re.escape(title)}\n.*?(?=\n## |\Z)", re.DOTALL)
    text = pattern.sub(lambda _: section, text) if pattern.search(text) else text + section
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
