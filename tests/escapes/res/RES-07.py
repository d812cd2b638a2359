# Every place that can be written, filled with bytes, then with files.
import os

from call import attempt, show

BLOCK = bytes(65536)


def fill(place):
    descriptor = os.open(f"{place}/big", os.O_CREAT | os.O_WRONLY)
    for _ in range((64 << 20) // len(BLOCK)):
        os.write(descriptor, BLOCK)


def make(place):
    for number in range(100_000):
        os.close(os.open(f"{place}/{number}", os.O_CREAT | os.O_WRONLY))


for place in "/workspace", "/tmp", "/dev/shm":
    show(f"bytes in {place}", attempt(fill, place))
    show(f"size of {place}", f"{os.stat(f'{place}/big').st_size >> 10} KiB")
    os.unlink(f"{place}/big")
    show(f"files in {place}", attempt(make, place))
for place in "/", "/dev", "/dev/pts", "/proc", "/project", "/etc", "/usr":
    show(f"bytes in {place}", attempt(fill, place))
