# Calls that libraries probe for: EPERM would make them give up where ENOSYS makes them fall back.
from call import *

for what, number in (
    ("openat2", 437), ("faccessat2", 439), ("statx", 332), ("rseq", 334), ("clone3", 435),
    ("close_range", 436), ("epoll_pwait2", 441), ("futex_waitv", 449), ("getrandom", 318),
    ("membarrier", 324), ("copy_file_range", 326), ("fchmodat2", 452), ("pidfd_open", 434),
    ("mseal", 462), ("preadv2", 327), ("io_uring_setup", 425), ("memfd_create", 319),
    ("set_mempolicy_home_node", 450), ("landlock_create_ruleset", 444),
):
    answer = name(syscall(number, -1, -1, -1, -1, -1, -1))
    show(what, answer if answer in ("EPERM", "ENOSYS") else "allowed")
