# Supplementary groups: kept, dropped or taken on (CVE-2014-8989).
from call import *

show("/proc/self/setgroups", open("/proc/self/setgroups").read().strip())
call("setgroups", 0, 0, label="setgroups(none)")
call("setgroups", 1, (ctypes.c_uint32 * 1)(0), label="setgroups(root)")
show("groups", " ".join(str(group) for group in sorted(set(os.getgroups()))) or "none")
