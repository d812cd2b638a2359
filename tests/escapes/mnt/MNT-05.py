# Clears the read-only flag of the project's mount.
from call import *

clear_rdonly = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
call("mount_setattr", -100, b"/project", 0x8000, ctypes.byref(clear_rdonly), 32)
show("create", attempt(os.open, "/project/made", os.O_CREAT | os.O_WRONLY))
