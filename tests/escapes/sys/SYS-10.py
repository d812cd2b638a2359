# Segments, CPUID faults and ports of the machine (CVE-2015-3290, CVE-2017-17053).
from call import *

entry = (ctypes.c_uint32 * 4)(0, 0, 0xFFFFF, 0x51)
call("modify_ldt", 1, ctypes.byref(entry), 16)
call("arch_prctl", 0x1012, 0, label="arch_prctl(ARCH_SET_CPUID)")
call("iopl", 3)
call("ioperm", 0x80, 1, 1)
