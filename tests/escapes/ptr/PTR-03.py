# /proc/PID/mem needs no special call: of pid 1, and of a process of one's own, which is one's own affair.
import subprocess
from call import *

for file in "mem", "maps", "auxv", "stack", "syscall", "pagemap":
    show(f"1/{file}", attempt(lambda: os.read(os.open(f"/proc/1/{file}", os.O_RDONLY), 1)))
show("1/mem for writing", attempt(os.open, "/proc/1/mem", os.O_RDWR))
sibling = subprocess.Popen(["sleep", "5"])
show("sibling's mem for writing", attempt(os.open, f"/proc/{sibling.pid}/mem", os.O_RDWR))
sibling.kill()
