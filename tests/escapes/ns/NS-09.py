# Joining the namespaces of pid 1, by their files and by a pidfd.
from call import *

for namespace in "mnt", "pid", "net", "user":
    try:
        descriptor = os.open(f"/proc/1/ns/{namespace}", os.O_RDONLY)
    except OSError as error:
        show(f"open /proc/1/ns/{namespace}", errno.errorcode[error.errno])
    else:
        call("setns", descriptor, 0, label=f"setns(/proc/1/ns/{namespace})")
own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
call("setns", own, 0, label="setns(/proc/self/ns/mnt)")
pidfd = syscall("pidfd_open", 1, 0)
call("setns", pidfd, 0x20000 | 0x20000000, label="setns(pidfd of 1, NEWNS|NEWPID)")
