# Writing to the host's disk until it is worn or full: nothing that can be written lies on one.
import os

from call import attempt, show

kinds = set()
with open("/proc/self/mountinfo") as table:
    for line in table:
        fields = line.split()
        place, options, kind = fields[4], fields[5].split(","), fields[fields.index("-") + 1]
        if "rw" in options and os.path.isdir(place) and os.access(place, os.W_OK):
            kinds.add(kind)
show("what can be written lies on", " ".join(sorted(kinds)))


def sync():
    descriptor = os.open("/workspace/file", os.O_CREAT | os.O_WRONLY | os.O_SYNC)
    os.write(descriptor, bytes(1 << 20))
    os.fsync(descriptor)


show("write and fsync", attempt(sync))
show("drop the page cache", attempt(os.open, "/proc/sys/vm/drop_caches", os.O_WRONLY))
