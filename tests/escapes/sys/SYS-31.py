# A kernel address as a buffer (CVE-2017-5123), and a child that would be its grandparent's.
from call import *

pid = os.fork()
if pid == 0:
    os._exit(0)
WAITID, CLONE_PARENT, CLONE_PIDFD = 247, 0x8000, 0x1000
call(WAITID, 1, pid, -0x7F0000000000, 4, 0, label="waitid into the kernel")
end, of_child = os.pipe()
result = syscall("clone", CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
if result == 0:
    show("its parent", os.getppid())
    os._exit(0)
os.close(of_child)
os.read(end, 1)  # whose end nobody can wait for otherwise
show("clone(CLONE_PARENT)", name(result))
