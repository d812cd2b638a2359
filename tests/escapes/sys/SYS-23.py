# Memory that is never given back: 64 MiB of it.
import mmap
from call import *

MLOCKALL = 151
big = mmap.mmap(-1, 64 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(big))
call(MLOCKALL, 3, label="mlockall")
call("mlock2", address, 64 << 20, 0)
LOCKED = 0x2000
libc.mmap.restype = ctypes.c_void_p
where = libc.mmap(None, ctypes.c_size_t(64 << 20), 3, 0x22 | LOCKED, -1, ctypes.c_long(0))
failed = where == 2**64 - 1
show("mmap(MAP_LOCKED)", errno.errorcode[ctypes.get_errno()] if failed else "ok")
