# Two filters would answer with the errno of the later one; there is one, and it knows both errnos.
from call import *

for line in open("/proc/self/status"):
    if line.startswith("Seccomp_filters"):
        show("filters", line.split()[1])
call("unshare", 0x10000000)
call("clone3", 0, 0)
