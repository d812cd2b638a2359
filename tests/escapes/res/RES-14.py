# Files larger than anything: sparse, reserved, and written.
import os

from call import attempt, show

for place in "/workspace", "/tmp", "/dev/shm":
    descriptor = os.open(f"{place}/big", os.O_CREAT | os.O_RDWR)
    show(f"{place} truncate to 8 EiB - 1", attempt(os.ftruncate, descriptor, (1 << 63) - 1))
    show(f"{place} truncate to 1 GiB", attempt(os.ftruncate, descriptor, 1 << 30))
    show(f"{place} fallocate 1 GiB", attempt(os.posix_fallocate, descriptor, 0, 1 << 30))
    show(f"{place} write at 1 GiB", attempt(os.pwrite, descriptor, b"x", 1 << 30))
