# Getting capabilities back by asking for them.
from call import *

SYS_ADMIN = 21
call("prctl", 47, 2, SYS_ADMIN, 0, 0, label="PR_CAP_AMBIENT_RAISE")
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
every = (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
call("capset", header, every, label="capset(all)")
call("prctl", 28, 0x10, 0, 0, 0, label="PR_SET_SECUREBITS")
show("PR_CAPBSET_READ", syscall("prctl", 23, SYS_ADMIN, 0, 0, 0))
