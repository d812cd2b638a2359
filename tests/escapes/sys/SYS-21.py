# More of the processors than others get.
from call import *

parameter = (ctypes.c_int * 1)(1)
call("sched_setscheduler", 0, 1, ctypes.byref(parameter), label="SCHED_FIFO")
call("sched_setscheduler", 0, 2, ctypes.byref(parameter), label="SCHED_RR")
deadline = (ctypes.c_uint64 * 7)(56 | 6 << 32, 0, 0, 10**6, 10**7, 10**7)
call("sched_setattr", 0, ctypes.byref(deadline), 0, label="SCHED_DEADLINE")
clamp = (ctypes.c_uint64 * 7)(56, 0x60, 0, 0, 0, 0, 1024 | 1024 << 32)
call("sched_setattr", 0, ctypes.byref(clamp), 0, label="utilisation clamp")
show("setpriority(-20)", attempt(os.setpriority, os.PRIO_PROCESS, 0, -20))
call("ioprio_set", 1, 0, 1 << 13, label="ioprio_set(realtime)")
