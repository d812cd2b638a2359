"""Debian's kernels for clouds: fetched once, unpacked, with the modules that a disk needs."""

import lzma
import re
import shutil
import struct
import subprocess
import sys

from shared import CACHE, output

# The suite after each: what its users will have next.
NEXT = {"bullseye": "bookworm", "bookworm": "trixie", "trixie": "forky"}
# In the order in which they are loaded; what a kernel lacks here is built into it.
MODULES = "virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk".split()


def kernel(which):
    """A directory with `vmlinux` and `modules/`: of this machine's Debian (`own`) or the `next` one."""
    options = [] if which == "own" else following()
    package = re.search(
        r"Depends: (linux-image-\d\S+)", output("apt-cache", *options, "depends", "linux-image-cloud-amd64")
    )
    if not package:
        sys.exit("apt knows no kernel: `apt-get update`, or a Debian")
    place = CACHE / package[1]
    if not place.exists():
        print(f"fetching {package[1]}", flush=True)
        unpack(fetch(package[1], options), place)
    return place


def suite():
    """This machine's suite, and where its packages come from."""
    form = "$(CODENAME) $(SITE)"
    targets = output("apt-get", "indextargets", "--format", form, "Created-By: Packages", "Origin: Debian")
    found = re.search(r"^([a-z]+) (\S+)$", targets, re.M)
    if not found:
        sys.exit("apt knows no suite of Debian's here")
    return found[1], found[2]


def following():
    """Options with which apt sees the next suite only, in a place of its own."""
    name, site = suite()
    if name not in NEXT:
        sys.exit(f"which suite follows {name} is not known here: tests/vm/kernels.py")
    place = CACHE / f"apt-{NEXT[name]}"
    settings = {
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": place / "none",
        "Dir::State": place,
        "Dir::State::status": place / "status",
        "Dir::Cache": place,
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    if not place.exists():
        for directory in ["none", "lists/partial", "archives/partial"]:
            (place / directory).mkdir(parents=True)
        (place / "status").touch()
        keys = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]"
        (place / "sources.list").write_text(f"deb {keys} {site} {NEXT[name]} main\n")
        if subprocess.run(["apt-get", *options, "update", "-qq"]).returncode:
            shutil.rmtree(place)
            sys.exit(f"the packages of {NEXT[name]} cannot be listed")
    return options


def fetch(package, options):
    """The archive of a package."""
    subprocess.run(["apt-get", *options, "download", "-qq", package], cwd=CACHE, check=True)
    return next(CACHE.glob(f"{package}_*.deb"))


def unpack(archive, place):
    """Takes out of a kernel's archive what a machine needs: unpacked, that spares it the work."""
    unpacked = CACHE / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
    (unpacked / "new/modules").mkdir(parents=True)
    (unpacked / "new/vmlinux").write_bytes(decompress(next(unpacked.glob("boot/vmlinuz-*")).read_bytes()))
    for number, name in enumerate(MODULES):
        for module in unpacked.rglob(f"{name}.ko*"):
            data = module.read_bytes()
            data = lzma.decompress(data) if module.suffix == ".xz" else data
            (unpacked / f"new/modules/{number}-{name}.ko").write_bytes(data)
    (unpacked / "new").rename(place)
    shutil.rmtree(unpacked)
    archive.unlink()


def decompress(bzimage):
    """The ELF file within a bzImage (Documentation/x86/boot.rst: setup_sects, payload_offset)."""
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    start = (bzimage[0x1F1] + 1) * 512 + offset
    payload = bzimage[start : start + length - 4]
    tool = "lz4" if payload[:4] == b"\x02!L\x18" else "zstd"
    # What follows the end of the stream is not the tool's; it says so and gives what it has.
    elf = subprocess.run([tool, "-dcq"], input=payload, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    assert elf[:4] == b"\x7fELF", f"{tool} gave no kernel"
    return elf
