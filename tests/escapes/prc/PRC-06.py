# What else of /proc is the whole machine's: the boot parameters must not be told (they can hold
# secrets), the pressure is masked, and what programs need is told.
from call import *

show("cmdline", reading("/proc/cmdline"))
show("pressure", " ".join(os.listdir("/proc/pressure")) if os.path.isdir("/proc/pressure") else "none")
for file in "version", "cpuinfo", "stat", "uptime", "loadavg", "meminfo":
    show(file, "told" if reading(f"/proc/{file}").endswith("bytes") else "not told")
