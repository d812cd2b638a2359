# The clock of the machine. It is set to nonsense, which fails before it could succeed.
from call import *

bad_time = (ctypes.c_int64 * 2)(0, -1)
call("settimeofday", ctypes.byref(bad_time), 0)
call("clock_settime", 0, ctypes.byref(bad_time))
query = ctypes.create_string_buffer(208)
call("adjtimex", query, label="adjtimex, reading")
tick = ctypes.create_string_buffer(208)
(ctypes.c_uint32 * 52).from_buffer(tick)[0] = 0x4000  # ADJ_TICK, of 0
call("adjtimex", tick, label="adjtimex, setting")
call("clock_adjtime", 0, tick)
