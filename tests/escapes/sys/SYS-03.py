# Performance counters (CVE-2013-2094, CVE-2023-5717).
from call import *

TASK_CLOCK, EXCLUDE_KERNEL = 1, 1 << 5
attributes = ctypes.create_string_buffer(128)
fields = (ctypes.c_uint32 * 32).from_buffer(attributes)
fields[0], fields[1], fields[2], fields[10] = 1, 128, TASK_CLOCK, EXCLUDE_KERNEL
call("perf_event_open", attributes, 0, -1, -1, 0)
