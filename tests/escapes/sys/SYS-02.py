# Programs and maps in the kernel (CVE-2020-8835, CVE-2021-3490).
from call import *

MAP_CREATE, PROG_LOAD = 0, 5
map_attributes = (ctypes.c_uint32 * 32)(2, 4, 8, 1)
call("bpf", MAP_CREATE, ctypes.byref(map_attributes), 128, label="BPF_MAP_CREATE")
code = (ctypes.c_uint64 * 2)(0x00000000000000B7, 0x0000000000000095)
license = ctypes.create_string_buffer(b"MIT")
program = (ctypes.c_uint64 * 16)(1 | 2 << 32, ctypes.addressof(code), ctypes.addressof(license))
call("bpf", PROG_LOAD, ctypes.byref(program), 128, label="BPF_PROG_LOAD")
