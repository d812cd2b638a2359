# Counters that a host, or one of its users, has only once: asynchronous I/O, inotify, keys.
import ctypes

from call import libc, name, show, syscall

context = ctypes.c_ulong(0)
show("io_setup", name(syscall(206, 65536, ctypes.byref(context))))
show("add_key", name(syscall("add_key", b"user", b"x", b"x", 1, -3)))
instances = 0
while instances < 1000 and libc.inotify_init1(0) >= 0:
    instances += 1
show("inotify instances", f"{instances}, then {name(-ctypes.get_errno())}")
descriptors = 0
while descriptors < 10_000 and libc.eventfd(0, 0) >= 0:
    descriptors += 1
show("eventfd", f"fewer than 4096, then {name(-ctypes.get_errno())}" if descriptors < 4096 else descriptors)
