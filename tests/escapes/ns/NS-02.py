# clone(2) with each kind of namespace.
from call import *

FLAGS = {
    "CLONE_NEWUSER": 0x10000000, "CLONE_NEWNS": 0x20000, "CLONE_NEWCGROUP": 0x2000000,
    "CLONE_NEWUTS": 0x4000000, "CLONE_NEWIPC": 0x8000000, "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
for flag, value in FLAGS.items():
    result = syscall("clone", value | signal.SIGCHLD, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    show(f"clone({flag})", name(result))
