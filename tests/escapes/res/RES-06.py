# A file in memory that no file system holds: RLIMIT_AS does not count it, RLIMIT_FSIZE does.
import os

from call import attempt, show

descriptor = os.memfd_create("big")
show("ftruncate to 10 GiB", attempt(os.ftruncate, descriptor, 10 << 30))
show("fallocate up to 10 GiB", attempt(os.posix_fallocate, descriptor, (10 << 30) - 4096, 4096))
show("write at 10 GiB", attempt(os.pwrite, descriptor, b"x", 10 << 30))
block, written = bytes(1 << 20), 0
try:
    while written < 64 << 20:
        written += os.write(descriptor, block)
    show("written", "no limit")
except OSError as error:
    show("written", f"{written >> 20} MiB, then {os.strerror(error.errno)}")
