# System V shared memory lives on when its maker has ended, unless its namespace ends too.
import ctypes

from call import libc, name, show, syscall

IPC_CREAT, KEY = 0o1000, 0x5AFE
made = []
for number in range(16):
    segment = syscall("shmget", KEY + number, 16 << 20, IPC_CREAT | 0o666)
    if segment < 0:
        break
    made.append(segment)
show("segments", f"{len(made)}, {name(segment)}")
libc.shmat.restype = ctypes.c_void_p
show("written", "ok" if ctypes.memset(libc.shmat(made[0], None, 0), 1, 1 << 20) else "no")
