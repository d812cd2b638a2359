# Threads that were there before the filter.
from call import *

for who in "1", "self":
    show(f"threads of {who}", len(os.listdir(f"/proc/{who}/task")))
    for line in open(f"/proc/{who}/status"):
        field, value = line.split(":", 1)
        if field == "Seccomp":
            show(f"{field} of {who}", value.strip())
