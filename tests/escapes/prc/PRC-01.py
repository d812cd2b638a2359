# The magic system request key: reboots, crashes, kills.
from call import *

show("/proc/sysrq-trigger", attempt(os.open, "/proc/sysrq-trigger", os.O_WRONLY))
