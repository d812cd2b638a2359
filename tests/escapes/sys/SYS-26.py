# Which pages of a shared file are in memory: others' use of it would show.
import mmap
from call import *

MINCORE = 27
file = os.open("/project/SYS-26.py", os.O_RDONLY)
length = os.fstat(file).st_size
map = mmap.mmap(file, length, mmap.MAP_PRIVATE)
address = ctypes.addressof(ctypes.c_char.from_buffer(map))
pages = ctypes.create_string_buffer((length + 4095) // 4096)
call(MINCORE, address, length, pages, label="mincore")
window = (ctypes.c_uint64 * 2)(0, length)
counts = (ctypes.c_uint64 * 5)()
call("cachestat", file, ctypes.byref(window), ctypes.byref(counts), 0)
