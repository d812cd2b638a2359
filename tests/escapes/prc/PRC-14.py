# A crash, which would start the host's core-dump program as root of the host. A limit of 1 stops
# that too; 0 does not (core(5)).
import resource
from call import *

show("limit", resource.getrlimit(resource.RLIMIT_CORE))
try:
    resource.setrlimit(resource.RLIMIT_CORE, (2, 2))
    show("raised", "ok")
except ValueError:
    show("raised", "EPERM")
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
_, status = os.waitpid(pid, 0)
show("crash", signal.Signals(os.WTERMSIG(status)).name)
show("dumped", os.WCOREDUMP(status))
