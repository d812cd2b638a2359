# clone3(2): its flags lie behind a pointer that no filter can read (CVE-2021-41133).
from call import *

for flags in (0x10000000, 0):
    arguments = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, signal.SIGCHLD)
    result = syscall("clone3", ctypes.byref(arguments), ctypes.sizeof(arguments))
    if result == 0:
        os._exit(0)
    show(f"clone3({flags:#x})", name(result))
