# Secrets in the environments and arguments of processes and threads.
import glob
from call import *

show("1/environ", reading("/proc/1/environ"))
show("1/cmdline", open("/proc/1/cmdline").read().strip("\0") or "nothing")
found = 0
for path in glob.glob("/proc/[0-9]*/task/*/environ") + glob.glob("/proc/[0-9]*/task/*/cmdline"):
    try:
        found += b"hunter" in open(path, "rb").read()
    except OSError:
        pass
show("secrets", found)
