# The file-system context whose option parser overflowed (CVE-2022-0185), reached by a nested
# user namespace.
from call import *

call("unshare", 0x10000000 | 0x20000, label="unshare(NEWUSER|NEWNS)")
context = syscall("fsopen", b"ext4", 0)
show("fsopen(ext4)", name(context))
call("fsconfig", context, 1, b"k" * 200, b"v", 0, label="fsconfig")
