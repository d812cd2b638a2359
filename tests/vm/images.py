"""What a machine boots: an initramfs with the programs under test, and a whole Debian as its disk."""

import os
import re
import shutil
import subprocess

from kernels import suite
from shared import CACHE, HERE, ROOT, output

# On the disk. An interpreter or tool that is missing here would be counted as lacking.
PACKAGES = """systemd-sysv dbus-user-session libpam-systemd python3 nodejs gcc libc6-dev git procps
    busybox-static""".split()


def initramfs(kernel, programs):
    """busybox, bash, the kernel's modules and the programs, all with their libraries."""
    root = CACHE / "root"
    shutil.rmtree(root, ignore_errors=True)
    for directory in "usr/bin usr/lib usr/lib64 usr/local/bin proc sys dev tmp etc".split():
        (root / directory).mkdir(parents=True)
    for name in ["bin", "lib", "lib64"]:
        (root / name).symlink_to(f"usr/{name}")
    libraries = set()
    tools = {f"usr/bin/{name}": shutil.which(name) for name in ["bash", "setpriv"]}
    for name, source in {**tools, **{f"usr/local/bin/{name}": source for name, source in programs.items()}}.items():
        libraries |= set(re.findall(r"(/\S+) \(0x", output("ldd", source)))
        subprocess.run(["strip", "-o", root / name, source], check=True)
    for library in libraries:
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    shutil.copy(shutil.which("busybox"), root / "usr/bin/busybox")
    for applet in output("busybox", "--list").split():
        if not (root / "usr/bin" / applet).exists():
            (root / "usr/bin" / applet).symlink_to("busybox")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\ntester:x:1000:1000::/tmp:/bin/sh\n")
    shutil.copy(HERE / "init", root / "init")
    shutil.copytree(HERE / "suites", root / "suites")
    shutil.copytree(ROOT / "deploy", root / "suites/deploy")
    shutil.copytree(kernel / "modules", root / "modules")
    return packed(root)


def packed(root):
    image = CACHE / "initramfs"
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    with image.open("wb") as file:
        archive = ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"]
        subprocess.run(archive, cwd=root, input=names.encode(), stdout=file, check=True)
    return image


def disk():
    """A Debian of this machine's suite with an ordinary user, made once. Machines write to copies."""
    image = CACHE / "disk.ext2"
    if not image.exists():
        print("making a Debian", flush=True)
        user = "useradd --uid 1000 --create-home --shell /bin/bash tester"
        made = image.with_name("new.ext2")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
        subprocess.run([*command, f'--customize-hook=chroot "$1" {user}', suite()[0], made], check=True)
        made.rename(image)
    return image


def built(wanted):
    """The wanted programs of this package by their names; those that the caller names are his."""
    named = {name: path for name in wanted if (path := os.environ.get(f"VM_{name.upper()}"))}
    program = os.environ.get("NIX_SANDBOX_BIN", ROOT / "target/debug/nix-sandbox-mcp")
    if missing := [name for name in wanted if name not in named]:
        subprocess.run(["cargo", "build", "--quiet", "--locked", "--bins"], cwd=ROOT, check=True)
        said = output("cargo", "test", "--quiet", "--locked", "--no-run", "--message-format=json")
        for name in missing:
            named[name] = re.search(rf'"executable":"([^"]*/deps/{name}-[^"]*)"', said)[1]
    return {**named, "nix-sandbox-mcp": program}
