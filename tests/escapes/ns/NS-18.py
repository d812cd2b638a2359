# Capabilities, no_new_privs and the filter of every thread of every process that is here.
import glob
import subprocess
import threading
from call import *

go = threading.Event()
thread = threading.Thread(target=go.wait)
thread.start()
child = subprocess.Popen(["sleep", "5"])
fields = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"]
seen = {field: set() for field in fields}
tasks = 0
for path in glob.glob("/proc/[0-9]*/task/*/status"):
    tasks += 1
    for line in open(path):
        field, _, value = line.partition(":")
        if field in seen:
            seen[field].add(value.strip().lstrip("0") or "0")
show("tasks", tasks)
for field in fields:
    show(field, " ".join(sorted(seen[field])))
child.kill()
go.set()
