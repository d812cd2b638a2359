# Races a mount beneath a tree that this payload may change (CVE-2021-30465). Such a mount must not
# exist, nor come while it runs.
from call import *


def mounts():
    return sorted(line.split()[4] for line in open("/proc/self/mountinfo"))


before = mounts()
writable = "/workspace/", "/tmp/", "/dev/shm/"
show("mounts beneath writable trees", sum(place.startswith(writable) for place in before))
os.mkdir("/workspace/d")
os.symlink("/", "/workspace/link")
for _ in range(2000):
    os.rename("/workspace/d", "/workspace/e")
    os.rename("/workspace/link", "/workspace/d")
    os.rename("/workspace/d", "/workspace/link")
    os.rename("/workspace/e", "/workspace/d")
show("mounts", "unchanged" if mounts() == before else "changed")
