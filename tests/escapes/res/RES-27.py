# Children that nobody waits for: orphans belong to pid 1, which has to; the others die with their
# parent.
import os
import time

from call import attempt, show


def zombies(parent):
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                state, ppid = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        count += state == "Z" and int(ppid) == parent
    return count


def orphan():
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            os._exit(0)
        os._exit(0)
    os.waitpid(child, 0)


for _ in range(200):
    orphan()
until = time.monotonic() + 10
while zombies(1) and time.monotonic() < until:
    pass
show("orphans unburied", zombies(1))


def child():
    if os.fork() == 0:
        os._exit(0)


made = 0
while made < 200 and (answer := attempt(child)) == "ok":
    made += 1
show("own zombies", f"{made}, then {answer}")
