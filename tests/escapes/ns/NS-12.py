# A map of more than five extents for a nested user namespace (CVE-2018-18955).
from call import *

call("unshare", 0x10000000, label="unshare(CLONE_NEWUSER)")
extents = "".join(f"{n} {n} 1\n" for n in range(6))
show("write uid_map", writing("/proc/self/uid_map", extents.encode()))
