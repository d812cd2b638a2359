# ptrace(2) of pid 1, of a sibling, and by a parent.
import subprocess
from call import *

TRACEME, ATTACH, SEIZE = 0, 16, 0x4206
sibling = subprocess.Popen(["sleep", "5"])
call("ptrace", SEIZE, 1, 0, 0, label="SEIZE 1")
call("ptrace", ATTACH, 1, 0, 0, label="ATTACH 1")
call("ptrace", SEIZE, sibling.pid, 0, 0, label="SEIZE sibling")
in_child(lambda: call("ptrace", TRACEME, 0, 0, 0, label="TRACEME"))
sibling.kill()
