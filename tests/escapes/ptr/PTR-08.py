# Signals to everybody, to pid 1, to groups. Pid 1 stays, and so does the run.
import subprocess
from call import *

for number in signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, 0:
    show(f"kill(1, {int(number)})", attempt(os.kill, 1, number))
call("pidfd_send_signal", syscall("pidfd_open", 1, 0), signal.SIGKILL, 0, 0)
sibling = subprocess.Popen(["sleep", "5"])
show("kill(-1, 9)", attempt(os.kill, -1, signal.SIGKILL))
show("sibling", signal.Signals(-sibling.wait()).name)


def kill_group():
    os.setpgid(0, 0)
    os.kill(0, signal.SIGKILL)


show("kill(0, 9) in a group", in_child(kill_group))
show("pid 1", "there" if os.path.exists("/proc/1") else "gone")
