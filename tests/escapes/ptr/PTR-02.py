# The memory of pid 1, of a sibling and of the process itself, without ptrace.
import subprocess
from call import *

sibling = subprocess.Popen(["sleep", "5"])
start = int(open(f"/proc/{sibling.pid}/maps").readline().split("-")[0], 16)
buffer = ctypes.create_string_buffer(8)
here = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 8)
there = (ctypes.c_uint64 * 2)(start, 8)
for who, pid in ("1", 1), ("sibling", sibling.pid):
    for what in "process_vm_readv", "process_vm_writev":
        call(what, pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0, label=f"{what} {who}")
sibling.kill()
