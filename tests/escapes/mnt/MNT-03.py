# The new mount API, with the call of 6.15 that older lists miss (CVE-2021-41133).
from call import *

AT_FDCWD, CLONE = -100, 1
call("fsopen", b"tmpfs", 0)
call("fsconfig", -1, 6, 0, 0, 0)
call("fsmount", -1, 0, 0)
call("fspick", AT_FDCWD, b"/", 0)
call("open_tree", AT_FDCWD, b"/", 0)
call("open_tree", AT_FDCWD, b"/", CLONE, label="open_tree(CLONE)")
call("move_mount", AT_FDCWD, b"/tmp", AT_FDCWD, b"/workspace", 0)
attributes = (ctypes.c_uint64 * 4)(0, 1, 0, 0)
call("mount_setattr", AT_FDCWD, b"/", 0, ctypes.byref(attributes), 32)
call("open_tree_attr", AT_FDCWD, b"/", CLONE, ctypes.byref(attributes), 32)
