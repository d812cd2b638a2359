# Memory that can be written and executed: compilers at run time need it.
import mmap
from call import *

show("mmap RWX", attempt(lambda: mmap.mmap(-1, 4096, prot=7)))
page = mmap.mmap(-1, 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
call(10, address, 4096, 5, label="mprotect W->X")
