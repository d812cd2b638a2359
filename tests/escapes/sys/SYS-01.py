# io_uring, which makes calls behind the filter's back (CVE-2022-29582, CVE-2023-2598).
from call import *

parameters = ctypes.create_string_buffer(120)
ring = syscall("io_uring_setup", 4, parameters)
show("io_uring_setup", name(ring))
call("io_uring_enter", ring, 1, 0, 0, 0, 0)
call("io_uring_register", ring, 8, 0, 0)
